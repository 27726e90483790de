//! Where SIGCHLD is ignored the kernel keeps no status of a child: an error, and no hang. In a
//! process of its own, because how a signal is handled is the process's.
#![allow(unsafe_code)] // `signal`.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use wakeful::EventLoop;
use wakeful::process::Command;
use wakeful::signal::SIGTERM;
use wakeful::time::{sleep, timeout};

#[macro_use]
#[path = "contract/backend.rs"]
mod backend;
mod refused;

use backend::Backend;
use refused::refuse;

on_every_backend! {
    a_child_s_status_that_is_lost_is_an_error,
}

fn ignore_children() {
    // SAFETY: nobody else here handles it.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

fn a_child_s_status_that_is_lost_is_an_error<B: Backend>() {
    ignore_children();
    B::block_on(async {
        let mut slow = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert_eq!(slow.try_wait().unwrap(), None);
        for _ in 0..2 {
            let wait = timeout(Duration::from_secs(30), slow.wait());
            let lost = wait.await.expect("it has ended").unwrap_err();
            assert!(lost.to_string().contains("SIGCHLD"), "{lost}");
        }
        assert!(slow.try_wait().is_err());
        assert_eq!(slow.id(), None);
        // It is nobody's number any more.
        slow.start_kill().unwrap();

        let mut quick = Command::new("true").spawn().unwrap();
        let lost = timeout(Duration::from_secs(30), quick.wait()).await.unwrap().unwrap_err();
        assert!(lost.to_string().contains("SIGCHLD"), "{lost}");
    });
}

/// By then its number may be another process's.
#[test]
fn a_child_that_has_ended_is_not_signalled_by_its_number() {
    let test = || {
        ignore_children();
        let mut event_loop = EventLoop::builder().idle(wakeful::IdlePolicy::Park).build().unwrap();
        if let Err(error) = refuse(libc::SYS_pidfd_open) {
            return eprintln!("skipped: no filter can be set: {error}");
        }
        let run = async {
            let child = Command::new("true").spawn().unwrap();
            let entry = format!("/proc/{}", child.id().unwrap());
            while Path::new(&entry).exists() {
                sleep(Duration::from_millis(1)).await;
            }
            // A signal to any number is an error from now on.
            refuse(libc::SYS_kill).unwrap();
            child.signal(SIGTERM).unwrap();
        };
        event_loop.block_on(run).unwrap();
    };
    std::thread::spawn(test).join().unwrap();
}
