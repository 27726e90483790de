//! Where SIGCHLD is ignored the kernel keeps no status of a child: an error, and no hang. In a
//! process of its own, because how a signal is handled is the process's.
#![allow(unsafe_code)] // `signal`.

use std::process::Stdio;
use std::time::Duration;

use wakeful::process::Command;
use wakeful::time::timeout;

#[macro_use]
#[path = "contract/backend.rs"]
mod backend;

use backend::Backend;

on_every_backend! {
    a_child_s_status_that_is_lost_is_an_error,
}

fn a_child_s_status_that_is_lost_is_an_error<B: Backend>() {
    // SAFETY: nobody else here handles it.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
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
