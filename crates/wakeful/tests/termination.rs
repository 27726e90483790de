//! Signals to the test's own process, and servers that end by them. Each test has a signal of its own, or waits
//! for its turn.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::{Mutex, PoisonError, mpsc};
use std::task::Poll;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use wakeful::signal::{
    SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, Signals, ctrl_c, run_until_terminated,
};
use wakeful::time::timeout;

/// SIGINT and SIGTERM end a server: who sends one must not meet another test's server.
static TERMINATION: Mutex<()> = Mutex::new(());

fn send(signal: Signal) {
    kill_process(getpid(), signal).unwrap();
}

async fn soon<F: Future>(future: F) -> F::Output {
    timeout(Duration::from_secs(20), future).await.expect("a signal was lost")
}

#[wakeful::test]
async fn a_signal_is_received_again_and_again() {
    let mut signals = Signals::new(&[SIGUSR1]).unwrap();
    for _ in 0..20 {
        send(Signal::USR1);
        assert_eq!(soon(signals.recv()).await.unwrap(), SIGUSR1);
    }
}

#[wakeful::test]
async fn several_signals_and_several_receivers() {
    let mut both = Signals::new(&[SIGUSR2, SIGHUP]).unwrap();
    let mut one = Signals::new(&[SIGUSR2]).unwrap();
    let waiting = wakeful::spawn(async move { one.recv().await.unwrap() });
    wakeful::task::yield_now().await;
    send(Signal::HUP);
    assert_eq!(soon(both.recv()).await.unwrap(), SIGHUP);
    assert!(!waiting.is_finished());
    send(Signal::USR2);
    assert_eq!(soon(both.recv()).await.unwrap(), SIGUSR2);
    assert_eq!(soon(waiting).await.unwrap(), SIGUSR2);
    drop(both);
    // Nobody receives it, and it does not do what it did by default: end the process.
    send(Signal::USR2);
}

#[wakeful::test]
async fn what_cannot_be_caught_is_refused() {
    for signal in [9, 19, 11] {
        let error = Signals::new(&[signal]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&signal.to_string()), "{error}");
    }
    assert!(Signals::new(&[1_000]).is_err());
}

#[test]
fn without_a_loop_signals_are_a_clear_error() {
    let error = Signals::new(&[SIGUSR1]).unwrap_err();
    assert!(error.to_string().contains("no event loop"), "{error}");
}

#[test]
fn ctrl_c_is_an_interrupt() {
    let _turn = TERMINATION.lock().unwrap_or_else(PoisonError::into_inner);
    wakeful::block_on(async {
        let mut interrupted = pin!(ctrl_c());
        poll_fn(|cx| {
            assert!(interrupted.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        send(Signal::INT);
        soon(interrupted).await.unwrap();
    });
    assert_eq!((SIGINT, SIGTERM), (2, 15));
}

#[test]
fn a_server_drains_when_it_is_told_to_end_and_a_second_signal_does_not_wait() {
    let _turn = TERMINATION.lock().unwrap_or_else(PoisonError::into_inner);
    let start = || {
        // Sent as soon as a server could be: the signal is caught already.
        send(Signal::TERM);
        Ok(21)
    };
    assert_eq!(run_until_terminated(start, |server| server * 2).unwrap(), Some(42));

    let (release, released) = mpsc::channel::<()>();
    let drain = move |_: i32| {
        send(Signal::INT);
        let _ = released.recv();
    };
    assert_eq!(run_until_terminated(start, drain).unwrap(), None);
    drop(release);

    let failed = run_until_terminated(|| Err::<(), _>(io::Error::other("no server")), |()| ());
    assert_eq!(failed.unwrap_err().to_string(), "no server");
    let panicked = std::panic::catch_unwind(|| {
        run_until_terminated(start, |_| -> () { panic!("while draining") })
    });
    assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"while draining"));
    wakeful::block_on(async {
        let nested = run_until_terminated(|| Ok(()), |()| ());
        assert!(nested.unwrap_err().to_string().contains("already running"));
    });
}
