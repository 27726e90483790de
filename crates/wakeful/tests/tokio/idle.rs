//! What a loop with a guest does with its idle time: what its policy says, as without one.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wakeful::idle::{Adaptive, Hold};
use wakeful::{IdlePolicy, LoopHandle};

use crate::background::{Background, LONG, wait_until};

fn start(policy: IdlePolicy) -> Background {
    Background::start(wakeful::EventLoop::builder().idle(policy).tokio(), |_| ())
}

/// Long, so that an event on a busy machine comes within it.
fn adaptive() -> IdlePolicy {
    IdlePolicy::Adaptive(Adaptive::new().max_window(Duration::from_millis(16)))
}

/// Echoes one connection byte by byte, through a socket of Tokio's.
fn echo_by_tokio(handle: &LoopHandle) -> TcpStream {
    let address = handle.spawn(|| async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut byte = [0];
            while stream.read_exact(&mut byte).await.is_ok() {
                stream.write_all(&byte).await.unwrap();
            }
        });
        address
    });
    connect(futures_lite::future::block_on(address.unwrap()).unwrap())
}

/// The same, through a socket of the loop's.
fn echo_by_the_loop(handle: &LoopHandle) -> TcpStream {
    let address = handle.spawn(|| async {
        let listener = wakeful::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        wakeful::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut byte = [0];
            while let Ok(1) = stream.read(&mut byte).await {
                stream.write_all(&byte).await.unwrap();
            }
        })
        .detach();
        address
    });
    connect(futures_lite::future::block_on(address.unwrap()).unwrap())
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

fn echo(stream: &mut TcpStream) {
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
}

/// Nothing is asked, no turn taken, and no spin begun, for a while.
fn falls_silent(handle: &LoopHandle) {
    let counts = || {
        let now = handle.metrics();
        (now.turns, now.waits, now.parks, now.spin_time)
    };
    wait_until("the loop is silent", || {
        let before = counts();
        (0..1_000).all(|_| {
            thread::yield_now();
            counts() == before
        })
    });
}

#[test]
fn a_loop_that_adapts_meets_events_of_both_and_of_other_threads_in_its_spins() {
    let background = start(adaptive());
    let handle = background.handle();
    let meets = |what: &str, event: &mut dyn FnMut()| {
        let before = handle.metrics().spin_hits;
        wait_until(what, || {
            event();
            handle.metrics().spin_hits > before + 10
        });
    };
    let mut stream = echo_by_tokio(handle);
    meets("a hit by a socket of Tokio's", &mut || echo(&mut stream));
    let mut stream = echo_by_the_loop(handle);
    meets("a hit by a socket of the loop's", &mut || echo(&mut stream));
    meets("a hit by a post", &mut || handle.post_and_wait(|| ()).unwrap());
    falls_silent(handle);
    background.end();
}

#[test]
fn a_spin_does_not_hold_up_the_timers_of_either() {
    // A spin of 16 ms, within which both are due. On a busy machine both may be due when it is
    // looked: so once is enough.
    let background = start(adaptive());
    let handle = background.handle();
    let in_order = || {
        let order = handle.spawn(|| async {
            let tokio = tokio::time::sleep(Duration::from_millis(1));
            let own = wakeful::time::sleep(Duration::from_millis(8));
            tokio::select! {
                biased;
                () = own => false,
                () = tokio => true,
            }
        });
        futures_lite::future::block_on(order.unwrap()).unwrap()
    };
    wait_until("Tokio's timer within a spin", || {
        let spun = handle.metrics().spin_time;
        in_order() && handle.metrics().spin_time > spun
    });
    let own = handle.spawn(|| wakeful::time::sleep(Duration::from_micros(100)));
    futures_lite::future::block_on(own.unwrap()).unwrap();
    background.end();
}

#[test]
fn a_loop_that_spins_never_parks_and_serves_both() {
    let background = start(IdlePolicy::Spin);
    let handle = background.handle();
    let mut streams = [echo_by_tokio(handle), echo_by_the_loop(handle)];
    for _ in 0..100 {
        streams.iter_mut().for_each(echo);
        handle.post_and_wait(|| ()).unwrap();
    }
    for sleep in [true, false] {
        let timer = handle.spawn(move || async move {
            let time = Duration::from_millis(1);
            if sleep { tokio::time::sleep(time).await } else { wakeful::time::sleep(time).await }
        });
        futures_lite::future::block_on(timer.unwrap()).unwrap();
    }
    // Nothing happens any more: what is counted now are its looks.
    let before = handle.metrics().waits;
    wait_until("its looks are counted", || handle.metrics().waits > before + 1_000);
    let metrics = handle.metrics();
    assert!(metrics.parks == 0 && metrics.spin_time > Duration::ZERO, "{metrics:?}");
    background.end();
}

#[test]
fn a_loop_that_holds_does_so_in_traffic_only() {
    for hold_cost in [0.0, 1.0] {
        holds_in_traffic_only(hold_cost);
    }
}

fn holds_in_traffic_only(hold_cost: f64) {
    let silence = Duration::from_millis(1);
    let hold = Hold::new().silence(silence).hold_cost(hold_cost);
    let background = start(IdlePolicy::Hold(hold));
    let handle = background.handle();
    let timer = handle.spawn(move || wakeful::time::sleep(100 * silence)).unwrap();
    let mut streams = [echo_by_tokio(handle), echo_by_the_loop(handle)];
    for _ in 0..100 {
        streams.iter_mut().for_each(echo);
        handle.post_and_wait(|| ()).unwrap();
    }
    futures_lite::future::block_on(timer).unwrap();
    falls_silent(handle);
    background.end();
}
