//! Where nothing happens, nothing is asked.

use std::thread;

use wakeful::accept::{AcceptStrategy, ConnectionServer, Placement, SharedListener};
use wakeful::{EventLoop, IdlePolicy, LoopGroup, LoopHandle};

use crate::background::{Background, until_asleep, wait_until};

/// The loop goes to sleep, and from then on neither takes a turn nor asks the kernel.
fn asks_nothing(handle: &LoopHandle) {
    let quiet = |_: &usize| {
        until_asleep(handle);
        let before = handle.metrics();
        (0..1_000).all(|_| {
            thread::yield_now();
            let now = handle.metrics();
            (now.turns, now.waits) == (before.turns, before.waits)
        })
    };
    // What is on its way comes to its end in a few turns.
    assert!((0..100).any(|round| quiet(&round)), "{:?}", handle.metrics());
}

#[test]
fn a_loop_whose_guest_sleeps_asks_the_kernel_nothing_until_something_happens() {
    let background = Background::start(EventLoop::builder().idle(IdlePolicy::Park).tokio(), |_| ());
    let handle = background.handle();
    for _ in 0..10 {
        handle.post_and_wait(|| ()).unwrap();
        asks_nothing(handle);
    }
    let before = handle.metrics();
    handle.post_and_wait(|| ()).unwrap();
    until_asleep(handle);
    let after = handle.metrics();
    assert!((1..=3).contains(&(after.turns - before.turns)), "{before:?} {after:?}");
    // The queue says asleep before Tokio's hook counts the sleep.
    wait_until("the sleep is counted", || {
        let now = handle.metrics();
        now.parks > before.parks && now.park_time > before.park_time
    });
    background.end();
}

#[test]
fn tasks_of_both_that_wait_cost_no_turn_and_no_question() {
    let background = Background::start(EventLoop::builder().tokio(), |_| ());
    let handle = background.handle();
    let prepared = handle.post_and_wait(|| {
        let hour = std::time::Duration::from_secs(3600);
        wakeful::spawn(wakeful::time::sleep(hour)).detach();
        wakeful::spawn(tokio::time::sleep(hour)).detach();
        tokio::spawn(tokio::time::sleep(hour));
        let listener = tokio::spawn(tokio::net::TcpListener::bind("127.0.0.1:0"));
        wakeful::spawn(async move {
            let listener = listener.await.unwrap().unwrap();
            let _ = listener.accept().await;
        })
        .detach();
    });
    prepared.unwrap();
    asks_nothing(handle);
    background.end();
}

#[test]
fn a_turn_that_tokio_causes_asks_the_kernel_nothing_of_the_loop() {
    // The root future is woken by what is Tokio's, and there is nothing in the loop's epoll.
    crate::on_a_guest(async {
        let handle = LoopHandle::current();
        wakeful::task::yield_now().await;
        let (before, start) = (handle.metrics(), std::time::Instant::now());
        for _ in 0..20 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let after = handle.metrics();
        assert!(after.turns >= before.turns + 20);
        // A far timer of the loop's is what the test ends by.
        assert!(start.elapsed() < crate::background::LONG);
        assert_eq!(after.waits, before.waits);
    });
}

#[test]
fn listeners_of_all_strategies_are_silent_without_connections() {
    for strategy in [
        AcceptStrategy::Exclusive,
        AcceptStrategy::ReusePort,
        AcceptStrategy::Dispatch(Placement::default()),
    ] {
        let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listener.socket_addr().unwrap();
        let serving = ConnectionServer::new(vec![listener])
            .group(LoopGroup::builder().loops(2).tokio())
            .strategy(strategy)
            .start(|| {
                async |mut connection: wakeful::accept::Connection| {
                    let _ = connection.stream.write_all(b"x").await;
                }
            })
            .unwrap();
        for _ in 0..20 {
            let mut stream = std::net::TcpStream::connect(addr).unwrap();
            stream.set_read_timeout(Some(crate::background::LONG)).unwrap();
            let mut answer = Vec::new();
            std::io::Read::read_to_end(&mut stream, &mut answer).unwrap();
            assert_eq!(answer, b"x");
        }
        serving.handles().iter().for_each(asks_nothing);
        serving.shutdown(crate::background::LONG).unwrap();
    }
}
