//! A seccomp filter that permits a program's own waits, and not what a spin asks.
#![allow(unsafe_code)]

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use libc::{c_long, epoll_event};
use wakeful_spin::counts;

const TIMEOUT: i32 = 3;
/// Set in a process of a test that is alone in it.
#[cfg(target_arch = "x86_64")]
const ALONE: &str = "WAKEFUL_SPIN_TEST_ALONE";

/// From now on the kernel refuses this thread these calls, with that error. Returns whether it
/// does.
fn refuse(calls: &[c_long], error: i32) -> bool {
    let code = |code: u32| code as u16;
    let (load, jump, end) = (
        code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS),
        code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K),
        code(libc::BPF_RET | libc::BPF_K),
    );
    let instruction = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    // The call's number is the first field.
    let mut filter = vec![instruction(load, 0, 0)];
    for (number, call) in calls.iter().enumerate() {
        // To the last instruction, which is after those of the other calls and the one that allows.
        let behind = (calls.len() - number) as u8;
        filter.push(instruction(jump, behind, *call as u32));
    }
    filter.push(instruction(end, 0, libc::SECCOMP_RET_ALLOW));
    filter.push(instruction(end, 0, libc::SECCOMP_RET_ERRNO | error as u32));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel reads the filter. It is this thread's only.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}

#[test]
fn a_program_whose_filter_refuses_a_spin_waits_as_without() {
    let (near, _far) = UnixStream::pair().unwrap();
    let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: one event, which is read.
    let epoll = unsafe {
        let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, near.as_raw_fd(), &raw mut event);
        epoll
    };
    wakeful_spin::enable().unwrap();
    if !refuse(&[libc::SYS_ppoll, libc::SYS_epoll_pwait2], libc::EACCES) {
        eprintln!("skipped: no filter can be set here");
        return;
    }
    for wait in 0..3 {
        let start = Instant::now();
        // SAFETY: room for one event.
        let waited = unsafe { libc::epoll_wait(epoll, &raw mut event, 1, TIMEOUT) };
        assert_eq!(waited, 0, "wait {wait}: {}", std::io::Error::last_os_error());
        assert!(start.elapsed() >= Duration::from_millis(TIMEOUT as u64));
        assert_eq!((counts().spins, counts().misses), (1, 0), "the first one tries");
    }
}

/// On other architectures libc has the program's own calls make the calls that a spin makes, too.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_program_whose_filter_refuses_even_the_first_question_waits_as_without() {
    const NAME: &str = "a_program_whose_filter_refuses_even_the_first_question_waits_as_without";
    if let Some(call) = std::env::var_os(ALONE) {
        return waits_whose_question_is_refused(call == "ppoll");
    }
    for call in ["ppoll", "epoll_pwait"] {
        let mut program = std::process::Command::new(std::env::current_exe().unwrap());
        let program = program.args(["--exact", NAME]).env(ALONE, call);
        let program = program.stdout(std::process::Stdio::null());
        assert!(program.status().unwrap().success(), "{call}");
    }
}

#[cfg(target_arch = "x86_64")]
fn waits_whose_question_is_refused(is_poll: bool) {
    let (near, _far) = UnixStream::pair().unwrap();
    let mut fds = libc::pollfd { fd: near.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut event = epoll_event { events: 0, u64: 0 };
    // SAFETY: it has no argument that could be wrong.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    wakeful_spin::enable().unwrap();
    let call = if is_poll { libc::SYS_ppoll } else { libc::SYS_epoll_pwait };
    if !refuse(&[call], libc::EACCES) {
        eprintln!("skipped: no filter can be set here");
        return;
    }
    for wait in 0..3 {
        // SAFETY: one descriptor, or room for one event.
        let waited = unsafe {
            if is_poll {
                libc::poll(&raw mut fds, 1, TIMEOUT)
            } else {
                libc::epoll_wait(epoll, &raw mut event, 1, TIMEOUT)
            }
        };
        assert_eq!(waited, 0, "wait {wait}: {}", std::io::Error::last_os_error());
        assert_eq!(counts().spins, 0);
    }
}
