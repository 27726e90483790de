//! A destructor or a log's destination forks, where our code calls it. In the child, our code goes
//! on as well.

use std::io::{PipeWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use wakeful::log::{Destination, LossyWriter, Queue};

use super::backend::Backend;
use super::background::LONG;
use super::child::{fork, one_at_a_time};
use super::while_it_is_locked;

/// Forks in its drop, and tells the parent the child's number.
struct Forks {
    child: mpsc::Sender<libc::pid_t>,
    uses_a_pool: bool,
}

impl Drop for Forks {
    fn drop(&mut self) {
        let child = fork();
        if child > 0 {
            self.child.send(child).unwrap();
            return;
        }
        if self.uses_a_pool {
            wakeful::block_on(async { wakeful::task::spawn_blocking(|| ()).await.unwrap() });
        }
    }
}

/// Takes a lock if it is dropped in a child.
struct Locks {
    lock: Arc<Mutex<()>>,
    parent: u32,
}

impl Drop for Locks {
    fn drop(&mut self) {
        if std::process::id() != self.parent {
            drop(self.lock.lock().unwrap());
        }
    }
}

fn has_ended_by_itself(children: &mpsc::Receiver<libc::pid_t>) {
    let child = children.recv_timeout(LONG).unwrap();
    let (start, mut status) = (Instant::now(), 0);
    // Threads of a pool would keep a signal of its own from it.
    // SAFETY: our own child, and a place for its status.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if start.elapsed() >= LONG {
            // SAFETY: our own child, which has not been waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(status, 0, "it ended by itself");
}

pub(super) fn a_fork_in_a_destructor_at_a_loop_s_end_leaves_the_rest_to_the_parent<B: Backend>() {
    let _one = one_at_a_time();
    let parent = std::process::id();
    let mut event_loop = B::event_loop();
    let lock = Arc::new(Mutex::new(()));
    let locks = || Locks { lock: lock.clone(), parent };
    let (child, children) = mpsc::channel();
    let forks = Forks { child, uses_a_pool: false };
    let of_another = locks();
    event_loop
        .spawn(async move {
            let _forks = forks;
            std::future::pending::<()>().await;
        })
        .detach();
    event_loop
        .spawn(async move {
            let _locks = of_another;
            std::future::pending::<()>().await;
        })
        .detach();
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    let (of_callback, of_hook) = (locks(), locks());
    event_loop.run_next_turn(move || drop(of_callback));
    let hook = event_loop.after_turn(move || _ = &of_hook);
    while_it_is_locked(&lock, || {
        drop(event_loop);
        if std::process::id() != parent {
            // SAFETY: the child ends here, without running what its parent has registered.
            unsafe { libc::_exit(0) };
        }
    });
    drop(hook);
    has_ended_by_itself(&children);
}

pub(super) fn a_child_of_a_destructor_on_a_thread_of_ours_ends<B: Backend>() {
    let _one = one_at_a_time();
    let (child, children) = mpsc::channel();
    let forks = |uses_a_pool| Forks { child: child.clone(), uses_a_pool };
    for uses_a_pool in [false, true] {
        let group = B::group().loops(1).build().unwrap();
        let forks = forks(uses_a_pool);
        let pending = move || async move {
            let _forks = forks;
            std::future::pending::<()>().await;
        };
        group.handles()[0].spawn(pending).unwrap().detach();
        group.handles()[0].post_and_wait(|| ()).unwrap();
        drop(group);
        has_ended_by_itself(&children);
    }
    // The outcome of work that nobody awaits. Work that is over before that drops it here.
    let outcome = forks(false);
    let (detached, is_detached) = mpsc::channel();
    let work = move || {
        is_detached.recv().unwrap();
        outcome
    };
    B::block_on(async { wakeful::task::spawn_blocking(work).detach() });
    detached.send(()).unwrap();
    has_ended_by_itself(&children);
    // The parent's pool continues.
    assert_eq!(B::block_on(async { wakeful::task::spawn_blocking(|| 42).await }).unwrap(), 42);
}

pub(super) fn a_child_of_a_log_s_destination_ends<B: Backend>() {
    struct ForksOnce {
        pipe: PipeWriter,
        forks: Option<Forks>,
    }
    impl Destination for ForksOnce {
        fn fd(&self) -> BorrowedFd<'_> {
            self.pipe.as_fd()
        }
        fn reopen(&mut self) -> bool {
            self.forks.take();
            false
        }
    }
    let _one = one_at_a_time();
    let (_reader, pipe) = std::io::pipe().unwrap();
    let (child, children) = mpsc::channel();
    let destination = ForksOnce { pipe, forks: Some(Forks { child, uses_a_pool: false }) };
    let mut log = LossyWriter::on_thread("log", destination, Queue::default()).unwrap();
    log.write_all(b"a line\n").unwrap();
    assert!(log.flush_within(LONG));
    has_ended_by_itself(&children);
}
