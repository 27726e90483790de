//! Echo's connections go on to another loop while frames go on.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use wakeful::IdlePolicy;
use wakeful::accept::{Moves, SharedListener};
use wakeful::group::Targets;
use wakeful::net::ListenAddr;
use wakeful_services::ServeOptions;
use wakeful_services::echo::{self, EchoOptions};

const GUARD: Duration = Duration::from_secs(30);

/// Longer than what the service reads at once.
const PAYLOAD: usize = 40_000;

fn options() -> ServeOptions {
    ServeOptions::new()
        .loops(2)
        .concentrate(Targets::new().utilisation(0.05).least(1))
        .moves(Moves::new().interval(Duration::from_millis(10)))
        .idle(IdlePolicy::Park)
        .grace(GUARD)
}

fn frame(number: u32) -> Vec<u8> {
    let payload = number.to_be_bytes().repeat(PAYLOAD / 4);
    [&u32::try_from(payload.len()).unwrap().to_be_bytes()[..], &payload].concat()
}

/// Two frames at a time, of which the second one comes in parts, until it is told to stop, and then
/// a few more.
fn ask_until(addr: SocketAddr, stop: &AtomicBool) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut number, mut rest) = (0, 20);
    while rest > 0 {
        rest -= u32::from(stop.load(Ordering::Relaxed));
        let (one, two) = (frame(number), frame(number + 1));
        let (now, later) = two.split_at(1 + number as usize % (PAYLOAD / 2));
        stream.write_all(&[&one, now].concat()).unwrap();
        let mut answer = vec![0; one.len()];
        stream.read_exact(&mut answer).unwrap();
        assert!(answer == one);
        stream.write_all(later).unwrap();
        stream.read_exact(&mut answer).unwrap();
        assert!(answer == two);
        number += 2;
    }
}

#[test]
fn connections_move_between_frames_with_what_has_come_of_the_next_one() {
    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let serving = echo::start(&options(), EchoOptions::default(), vec![listener]).unwrap();
    let ListenAddr::Tcp(addr) = serving.local_addrs()[0] else { unreachable!("it is TCP") };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| ask_until(addr, &stop));
        }
        let start = Instant::now();
        while serving.counts().moved() == 0 && start.elapsed() < GUARD {
            thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(serving.counts().moved() > 0);
    assert_eq!(serving.counts().accepted(), 3);
    assert_eq!(serving.shutdown(GUARD).unwrap(), 0);
}
