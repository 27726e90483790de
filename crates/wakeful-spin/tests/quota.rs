//! A CPU quota while no descriptor is free. In a process of its own, because the limit is the
//! process's.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use wakeful::idle::Quota;

#[test]
fn without_descriptors_a_quota_stays_what_it_was() {
    let directory = std::env::temp_dir().join(format!("wakeful-limit-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("cpu.max"), "50000 100000\n").unwrap();
    fs::write(directory.join("cpu.stat"), "usage_usec 1\nnr_throttled 0\n").unwrap();
    let quota = Quota::of_directory(directory.clone());
    let before = quota.look(0);
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
    // A quota is read once a second.
    sleep(Duration::from_secs(1));
    let without = quota.look(0);
    // Nor is it said that there is none, which would stay so.
    assert!(Quota::find().is_err());
    setrlimit(Resource::Nofile, limit).unwrap();
    assert!(before < 0.5 && without <= before, "{before} and then {without}");
    Quota::find().unwrap();
    fs::remove_dir_all(directory).unwrap();
}
