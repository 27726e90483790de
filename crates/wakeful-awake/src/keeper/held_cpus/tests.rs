use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// Four CPUs and a state file, removed with the value.
struct Tree(PathBuf);

impl Tree {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = format!("wakeful-held-{}-{number}", std::process::id());
        let tree = Self(std::env::temp_dir().join(root));
        for cpu in 0..4 {
            fs::create_dir_all(tree.0.join(format!("cpu{cpu}/power"))).unwrap();
            tree.put(cpu, "0");
        }
        tree
    }

    fn file(&self, cpu: usize) -> PathBuf {
        CpuFiles::new(&self.0).path(cpu)
    }

    fn put(&self, cpu: usize, text: &str) {
        fs::write(self.file(cpu), format!("{text}\n")).unwrap();
    }

    fn says(&self) -> Vec<String> {
        let says = |cpu| CpuFiles::new(&self.0).read(cpu).unwrap().to_string();
        (0..4).map(says).collect()
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    fn held(&self) -> HeldCpus {
        HeldCpus::recover(CpuFiles::new(&self.0), &self.state(), &mut Lines::default())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// As if a second had passed.
fn later(held: &mut HeldCpus) {
    held.forget_released(Instant::now() + LINGER, &mut Lines::default());
    assert_eq!(held.next_to_forget(), None);
}

fn bring(held: &mut HeldCpus, cpus: &[usize], wanted: Option<u32>) -> Result<(), HoldFailed> {
    held.bring(cpus, cpus, |_| wanted, &mut Lines::default())
}

#[test]
fn what_stood_there_before_is_restored() {
    let tree = Tree::new();
    tree.put(1, "100");
    tree.put(2, "n/a");
    let mut held = tree.held();
    bring(&mut held, &[0, 1, 2], Some(5)).unwrap();
    // The value is never less strict than another program's.
    assert_eq!(tree.says(), ["5", "5", "n/a", "0"]);
    bring(&mut held, &[0, 1], Some(0)).unwrap();
    assert_eq!(tree.says(), ["n/a", "n/a", "n/a", "0"]);
    assert!(tree.state().exists());
    bring(&mut held, &[0, 1, 2], None).unwrap();
    assert_eq!(tree.says(), ["0", "100", "n/a", "0"]);
    assert!(tree.state().exists());
    later(&mut held);
    assert!(!tree.state().exists());
}

#[test]
fn a_successor_restores_whatever_of_ours_stands_there() {
    for stands in ["n/a", "5", "0"] {
        let tree = Tree::new();
        let mut held = tree.held();
        bring(&mut held, &[0], Some(0)).unwrap();
        bring(&mut held, &[0], Some(5)).unwrap();
        // As if it had been killed between the state file and the CPU.
        held.changes.get_mut(&0).unwrap().wrote =
            vec![Limit::Microseconds(0), Limit::Microseconds(5)];
        held.store().unwrap();
        tree.put(0, stands);
        drop(held);
        tree.held();
        assert_eq!(tree.says(), ["0"; 4], "{stands}");
        assert!(!tree.state().exists());
    }
}

#[test]
fn a_value_of_somebody_else_is_left_alone() {
    let tree = Tree::new();
    let mut held = tree.held();
    bring(&mut held, &[0, 1], Some(0)).unwrap();
    tree.put(0, "77");
    bring(&mut held, &[0, 1], None).unwrap();
    assert_eq!(tree.says(), ["77", "0", "0", "0"]);

    bring(&mut held, &[0], Some(0)).unwrap();
    tree.put(0, "88");
    bring(&mut held, &[0], Some(0)).unwrap();
    assert_eq!(tree.says(), ["n/a", "0", "0", "0"]);
    bring(&mut held, &[0], None).unwrap();
    assert_eq!(tree.says(), ["88", "0", "0", "0"]);

    bring(&mut held, &[0], Some(0)).unwrap();
    tree.put(0, "99");
    drop(held);
    tree.held();
    assert_eq!(tree.says(), ["99", "0", "0", "0"]);
}

#[test]
fn a_cpu_that_cannot_be_held_leaves_the_others_to_be_brought_back() {
    let tree = Tree::new();
    let mut held = tree.held();
    assert!(matches!(bring(&mut held, &[0, 9], Some(0)), Err(HoldFailed::Cpu(9, _))));
    bring(&mut held, &[0, 9], None).unwrap();
    fs::write(tree.0.join("cpu3/online"), "0\n").unwrap();
    assert!(matches!(bring(&mut held, &[2, 3], Some(0)), Err(HoldFailed::Offline(3))));
    bring(&mut held, &[2, 3], None).unwrap();
    assert_eq!(tree.says(), ["0"; 4]);
    later(&mut held);
    assert!(!tree.state().exists());
    // One that is taken out while it is held.
    bring(&mut held, &[0, 1], Some(0)).unwrap();
    fs::remove_dir_all(tree.0.join("cpu1")).unwrap();
    bring(&mut held, &[0, 1], None).unwrap();
    later(&mut held);
    assert!(!tree.state().exists());
}

#[test]
fn a_value_that_cannot_be_restored_is_remembered_and_tried_again() {
    let tree = Tree::new();
    let mut held = tree.held();
    bring(&mut held, &[0, 1], Some(0)).unwrap();
    fs::remove_file(tree.file(0)).unwrap();
    fs::create_dir(tree.file(0)).unwrap();
    bring(&mut held, &[0, 1], None).unwrap();
    assert_eq!(held.unrestored(), [0]);
    assert!(tree.state().exists());
    fs::remove_dir(tree.file(0)).unwrap();
    tree.put(0, "n/a");
    bring(&mut held, &[0], None).unwrap();
    assert_eq!((held.unrestored(), tree.says()), (vec![], vec!["0".to_owned(); 4]));
    later(&mut held);
    assert!(!tree.state().exists());
}

#[test]
fn without_a_state_file_nothing_is_written() {
    let tree = Tree::new();
    let files = CpuFiles::new(&tree.0);
    let state = tree.0.join("missing/state");
    let mut held = HeldCpus::recover(files, &state, &mut Lines::default());
    assert!(matches!(bring(&mut held, &[0], Some(0)), Err(HoldFailed::State(..))));
    assert_eq!(tree.says(), ["0"; 4]);
    fs::create_dir(tree.0.join("missing")).unwrap();
    bring(&mut held, &[0], Some(0)).unwrap();
    // What is held can be released all the same.
    fs::remove_dir_all(tree.0.join("missing")).unwrap();
    bring(&mut held, &[0], None).unwrap();
    assert_eq!(tree.says(), ["0"; 4]);
}

#[test]
fn a_cpu_that_is_held_again_soon_has_its_line_already() {
    let tree = Tree::new();
    let mut held = tree.held();
    bring(&mut held, &[0], Some(0)).unwrap();
    let number = || fs::metadata(tree.state()).unwrap().ino();
    let first = number();
    for _ in 0..3 {
        bring(&mut held, &[0], None).unwrap();
        assert_eq!(tree.says(), ["0"; 4]);
        bring(&mut held, &[0], Some(0)).unwrap();
        assert_eq!(tree.says(), ["n/a", "0", "0", "0"]);
        later(&mut held);
        assert_eq!(number(), first, "it was not written anew");
    }
    // Killed.
    drop(held);
    tree.held();
    assert_eq!(tree.says(), ["0"; 4]);
}

#[test]
fn our_own_value_is_somebody_else_s_once_the_cpu_was_released() {
    let tree = Tree::new();
    let others = || tree.put(0, "n/a");
    let released = || {
        tree.put(0, "0");
        let mut held = tree.held();
        bring(&mut held, &[0], Some(0)).unwrap();
        bring(&mut held, &[0], None).unwrap();
        assert_eq!(tree.says(), ["0"; 4]);
        assert!(tree.state().exists());
        others();
        held
    };
    let is_left = || assert_eq!(tree.says(), ["n/a", "0", "0", "0"]);
    // Killed.
    drop(released());
    tree.held();
    is_left();
    let mut held = released();
    later(&mut held);
    is_left();
    let mut held = released();
    held.restore_all(&mut Lines::default());
    is_left();
    let mut held = released();
    for microseconds in [5, 0] {
        bring(&mut held, &[0], Some(microseconds)).unwrap();
        bring(&mut held, &[0], None).unwrap();
        is_left();
    }
    bring(&mut held, &[0], Some(0)).unwrap();
    drop(held);
    tree.held();
    is_left();
}

/// Whatever clients and other programs do, and whenever the keeper is killed, the last value of
/// other programs stands there in the end. (While a CPU is held, other programs do not write one of
/// our values.)
#[test]
fn what_others_wrote_last_stands_there_after_each_kill() {
    const VALUES: [&str; 4] = ["0", "n/a", "5", "77"];
    let seed = std::process::id();
    eprintln!("seed {seed}");
    let mut random = u64::from(seed);
    let mut below = |limit: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from((random >> 33) % limit).unwrap()
    };
    let tree = Tree::new();
    let mut others = ["0"; 4];
    let mut is_held = [false; 4];
    let mut held = tree.held();
    for step in 0..4000 {
        let cpu = below(4);
        match below(16) {
            0 => {
                drop(held);
                held = tree.held();
                is_held = [false; 4];
            }
            1 => later(&mut held),
            2 if !is_held[cpu] => {
                others[cpu] = VALUES[below(4)];
                tree.put(cpu, others[cpu]);
            }
            3..=8 => {
                let microseconds = [0, 5][below(2)];
                bring(&mut held, &[cpu], Some(microseconds)).unwrap();
                is_held[cpu] = true;
            }
            _ => {
                bring(&mut held, &[cpu], None).unwrap();
                is_held[cpu] = false;
            }
        }
        let says = tree.says();
        for cpu in (0..4).filter(|cpu| !is_held[*cpu]) {
            assert_eq!(says[cpu], others[cpu], "CPU {cpu} after step {step}");
        }
    }
}
