//! What switches spinning on from outside: environment variables.
#![allow(unsafe_code)]

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

use wakeful_spin::counts;

/// Set in the process that has the environment.
const ROLE: &str = "WAKEFUL_SPIN_TEST_ROLE";

#[test]
fn a_program_that_links_the_crate_is_enabled_by_its_environment() {
    if std::env::var_os(ROLE).is_some() {
        let (near, _far) = UnixStream::pair().unwrap();
        let mut fds = [libc::pollfd { fd: near.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        // SAFETY: one descriptor.
        assert_eq!(unsafe { libc::poll(fds.as_mut_ptr(), 1, 1) }, 0);
        println!("spins: {}", counts().spins);
        return;
    }
    let said = |variables: &[(&str, &str)]| {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--nocapture", "--test-threads=1"]).env(ROLE, "child");
        program.env_remove("LD_PRELOAD").envs(variables.iter().copied());
        let output = program.output().unwrap();
        assert!(output.status.success());
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let on = ("WAKEFUL_SPIN", "1");
    assert!(said(&[on]).contains("spins: 1"));
    assert!(said(&[on, ("WAKEFUL_SPIN_MAX_CPU", "0.5")]).contains("spins: 1"));
    assert!(said(&[on, ("WAKEFUL_SPIN_MAX_CPU", "0")]).contains("spins: 0"));
    assert!(said(&[("WAKEFUL_SPIN", "0")]).contains("spins: 0"));
    let wrong = said(&[on, ("WAKEFUL_SPIN_MAX_CPU", "half")]);
    assert!(wrong.contains("spins: 0") && wrong.contains("from 0 to 1"), "{wrong}");
}
