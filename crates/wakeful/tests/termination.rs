//! Signals to the test's own process, and servers that end by them. Each test waits for its turn.

use std::future::{Future, pending, poll_fn};
use std::io;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use wakeful::LoopHandle;
use wakeful::accept::{AcceptStrategy, ConnectionServer, Placement, SharedListener};
use wakeful::signal::{
    SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, Signals, ctrl_c, run_until_terminated,
};
use wakeful::time::timeout;

#[macro_use]
#[path = "contract/backend.rs"]
mod backend;

use backend::Backend;

on_every_backend! {
    a_signal_is_received_again_and_again,
    several_signals_and_several_receivers,
    what_cannot_be_caught_is_refused,
    without_a_loop_signals_are_a_clear_error,
    ctrl_c_is_an_interrupt,
    a_server_drains_when_it_is_told_to_end_and_a_second_signal_does_not_wait,
    a_start_that_blocks_is_no_slow_turn,
    a_start_whose_set_up_never_ends_ends_by_a_signal,
    a_start_that_waits_for_a_blocked_loop_ends_by_a_signal,
    a_start_that_ends_by_a_signal_has_accepted_nothing,
}

/// Signals reach the whole process: one test at a time.
static TURN: Mutex<()> = Mutex::new(());

fn my_turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn send(signal: Signal) {
    kill_process(getpid(), signal).unwrap();
}

async fn soon<F: Future>(future: F) -> F::Output {
    timeout(Duration::from_secs(20), future).await.expect("a signal was lost")
}

fn a_signal_is_received_again_and_again<B: Backend>() {
    let _turn = my_turn();
    B::block_on(async {
        let mut signals = Signals::new(&[SIGUSR1]).unwrap();
        for _ in 0..20 {
            send(Signal::USR1);
            assert_eq!(soon(signals.recv()).await.unwrap(), SIGUSR1);
        }
    });
}

fn several_signals_and_several_receivers<B: Backend>() {
    let _turn = my_turn();
    B::block_on(async {
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
    });
}

fn what_cannot_be_caught_is_refused<B: Backend>() {
    let _turn = my_turn();
    B::block_on(async {
        for signal in [9, 19, 11] {
            let error = Signals::new(&[signal]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(&signal.to_string()), "{error}");
        }
        assert!(Signals::new(&[1_000]).is_err());
    });
}

fn without_a_loop_signals_are_a_clear_error<B: Backend>() {
    let _turn = my_turn();
    let error = Signals::new(&[SIGUSR1]).unwrap_err();
    assert!(error.to_string().contains("no event loop"), "{error}");
}

fn ctrl_c_is_an_interrupt<B: Backend>() {
    let _turn = my_turn();
    B::block_on(async {
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

fn a_server_drains_when_it_is_told_to_end_and_a_second_signal_does_not_wait<B: Backend>() {
    let _turn = my_turn();
    let start = || {
        // Sent as soon as a server could be: the signal is caught already.
        send(Signal::TERM);
        Ok(21)
    };
    assert_eq!(run_until_terminated(start, |server| server * 2).unwrap(), Some(42));

    let (release, released) = mpsc::channel::<()>();
    let drain = move |_: i32| {
        // Sooner it would count as the first one again.
        std::thread::sleep(Duration::from_millis(200));
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
    B::block_on(async {
        let nested = run_until_terminated(|| Ok(()), |()| ());
        assert!(nested.unwrap_err().to_string().contains("already running"));
    });
}

fn a_start_that_blocks_is_no_slow_turn<B: Backend>() {
    let _turn = my_turn();
    const BLOCKED: Duration = Duration::from_millis(500);
    let (ran, has_run) = mpsc::channel();
    let start = || {
        let handle = wakeful::LoopHandle::current();
        // It is code of the loop, which continues with what it spawned.
        wakeful::spawn(async move {
            ran.send(()).unwrap();
            send(Signal::TERM);
        })
        .detach();
        std::thread::sleep(BLOCKED);
        Ok(handle)
    };
    let metrics = run_until_terminated(start, |handle| handle.metrics()).unwrap().unwrap();
    has_run.recv().unwrap();
    // Whatever else this machine does meanwhile, nothing of the loop took as long as that.
    let longest = metrics.longest_poll.map_or(Duration::ZERO, |poll| poll.duration);
    assert!(longest < BLOCKED, "{longest:?} is counted as a poll");
}

/// By one that comes before the wait, or during it: whether a set-up waits or blocks its loop.
fn a_start_whose_set_up_never_ends_ends_by_a_signal<B: Backend>() {
    let _turn = my_turn();
    for (is_early, blocks) in [(true, false), (false, false), (false, true)] {
        let (release, released) = async_channel::bounded::<()>(1);
        let (ended, end) = mpsc::channel();
        let start = move || {
            let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap())?;
            if is_early {
                send(Signal::TERM);
            }
            let set_up = move || {
                let released = released.clone();
                async move {
                    if !is_early {
                        send(Signal::TERM);
                    }
                    if blocks {
                        let _ = released.recv_blocking();
                    }
                    pending::<()>().await;
                    Ok(())
                }
            };
            let group = wakeful::LoopGroup::builder().loops(1);
            let server = ConnectionServer::new(vec![listener]).group(group).on_each_loop(set_up);
            server.start(|| async |_connection| ())
        };
        thread::spawn(move || {
            let drained = run_until_terminated(start, |_serving| "drained");
            let _ = ended.send(drained.map_err(|error| error.to_string()));
        });
        let result = end.recv_timeout(Duration::from_secs(20)).expect("the signal ends it");
        assert_eq!(result, Ok(None), "{is_early} {blocks}");
        drop(release);
    }
}

/// Blocked by the function that makes the handler, or by a task that a set-up has spawned.
fn a_start_that_waits_for_a_blocked_loop_ends_by_a_signal<B: Backend>() {
    let _turn = my_turn();
    for by_make in [true, false] {
        let (release, released) = async_channel::bounded::<()>(1);
        let (ended, end) = mpsc::channel();
        let block = move || {
            send(Signal::TERM);
            let _ = released.recv_blocking();
        };
        let start = move || {
            let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap())?;
            let in_set_up = block.clone();
            let set_up = move || {
                let block = in_set_up.clone();
                async move {
                    if !by_make {
                        wakeful::spawn(async move { block() }).detach();
                    }
                    Ok(())
                }
            };
            let group = wakeful::LoopGroup::builder().loops(2);
            let server = ConnectionServer::new(vec![listener]).group(group).on_each_loop(set_up);
            server.start(move || {
                if by_make {
                    block();
                }
                async |_connection| ()
            })
        };
        thread::spawn(move || {
            let drained = run_until_terminated(start, |_serving| "drained");
            let _ = ended.send(drained.map_err(|error| error.to_string()));
        });
        let result = end.recv_timeout(Duration::from_secs(20)).expect("the signal ends it");
        assert_eq!(result, Ok(None), "by the function that makes the handler: {by_make}");
        drop(release);
    }
}

/// Another descriptor of the socket keeps the connection that came meanwhile.
fn a_start_that_ends_by_a_signal_has_accepted_nothing<B: Backend>() {
    let _turn = my_turn();
    let strategies = [
        AcceptStrategy::Exclusive,
        AcceptStrategy::ReusePort,
        AcceptStrategy::Dispatch(Placement::RoundRobin),
    ];
    for strategy in strategies {
        let kept = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = kept.local_addr().unwrap();
        let socket = kept.try_clone().unwrap();
        let (release, released) = async_channel::bounded::<()>(1);
        let (came, client) = mpsc::channel();
        let (ended, end) = mpsc::channel();
        let start = move || {
            let first = OnceLock::<LoopHandle>::new();
            let listener = SharedListener::from_socket(socket.into())?;
            let server = ConnectionServer::new(vec![listener]).group(B::group().loops(2).spread());
            server.strategy(strategy).start(move || {
                if let Err(_second) = first.set(LoopHandle::current()) {
                    let mut client = TcpStream::connect(addr).unwrap();
                    client.write_all(b"?").unwrap();
                    // The first loop has several turns, in which it would see what has come.
                    (0..5).for_each(|_| first.get().unwrap().post_and_wait(|| ()).unwrap());
                    came.send(client).unwrap();
                    send(Signal::TERM);
                    let _ = released.recv_blocking();
                }
                async |_connection| ()
            })
        };
        thread::spawn(move || {
            let drained = run_until_terminated(start, |_serving| "drained");
            let _ = ended.send(drained.map_err(|error| error.to_string()));
        });
        let result = end.recv_timeout(Duration::from_secs(20)).expect("the signal ends it");
        assert_eq!(result, Ok(None), "{strategy}");
        let _client = client.recv().unwrap();
        kept.set_nonblocking(true).unwrap();
        let (mut stream, _) = kept.accept().expect("nobody has accepted it");
        let mut asked = [0; 1];
        stream.set_nonblocking(false).unwrap();
        stream.read_exact(&mut asked).unwrap();
        drop(release);
    }
}

const IS_PROGRAM: &str = "WAKEFUL_TEST_IS_PROGRAM";

/// Runs the test of this name in a process of its own: what it printed, and the signal that ended
/// it.
fn as_program(name: &str) -> (String, Option<i32>) {
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", name, "--nocapture"]).env(IS_PROGRAM, "1");
    let output = program.output().unwrap();
    let ended_by = std::os::unix::process::ExitStatusExt::signal(&output.status);
    (String::from_utf8_lossy(&output.stdout).into_owned(), ended_by)
}

/// Other code of the program, which has installed its handler after ours.
#[test]
fn a_signal_that_other_code_catches_ends_no_program_after_its_server() {
    let _turn = my_turn();
    if std::env::var_os(IS_PROGRAM).is_some() {
        let start = || {
            send(Signal::TERM);
            Ok(())
        };
        run_until_terminated(start, |()| ()).unwrap();
        let caught = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        signal_hook::flag::register_usize(SIGTERM, caught.clone(), 1).unwrap();
        for _ in 0..15 {
            thread::sleep(Duration::from_millis(100));
            send(Signal::TERM);
        }
        println!("caught: {}", caught.load(std::sync::atomic::Ordering::SeqCst));
        return;
    }
    let name = "a_signal_that_other_code_catches_ends_no_program_after_its_server";
    let (said, ended_by) = as_program(name);
    assert_eq!(ended_by, None, "{said}");
    assert!(said.contains("caught: 1"), "{said}");
}

/// In a process of its own, which the signal ends.
#[test]
fn a_program_that_does_not_end_after_its_server_ends_by_a_signal() {
    let _turn = my_turn();
    let name = "a_program_that_does_not_end_after_its_server_ends_by_a_signal";
    if std::env::var_os(IS_PROGRAM).is_some() {
        let start = || {
            send(Signal::TERM);
            Ok(())
        };
        run_until_terminated(start, |()| ()).unwrap();
        let ended = std::time::Instant::now();
        if ended.elapsed() < Duration::from_millis(500) {
            // It is too early, so this has no effect.
            send(Signal::TERM);
        }
        println!("the server has ended");
        for _ in 0..200 {
            thread::sleep(Duration::from_millis(100));
            send(Signal::TERM);
        }
        return;
    }
    let (said, ended_by) = as_program(name);
    assert!(said.contains("the server has ended"), "{said}");
    assert_eq!(ended_by, Some(SIGTERM), "{said}");
}
