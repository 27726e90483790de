//! Echo's connections go on to another loop while frames go on.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;
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

/// Two frames at a time, of which the second one comes in parts of any size, until it is told to
/// stop, and then a few more.
fn ask_until(addr: SocketAddr, stop: &AtomicBool) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut number, mut rest) = (0, 20);
    while rest > 0 {
        rest -= u32::from(stop.load(Ordering::Relaxed));
        let (one, two) = (frame(number), frame(number + 1));
        let (now, later) = two.split_at(1 + number as usize * 3_331 % PAYLOAD);
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
    // Each connection takes at most 256 KiB.
    let settings = EchoOptions::new().max_memory(3 << 18);
    let serving = echo::start(&options(), settings, vec![listener]).unwrap();
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

/// Its end was the end of its questions only, until it is gone.
#[test]
fn a_client_of_a_frontend_that_is_gone_is_let_go_although_the_backend_is_silent() {
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = ListenAddr::Tcp(backend.local_addr().unwrap());
    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let echo = EchoOptions::default().max_connections(1);
    let serving = echo::start_frontend(&options(), echo, vec![listener], &to).unwrap();
    let ListenAddr::Tcp(addr) = serving.local_addrs()[0] else { unreachable!("it is TCP") };
    let ask = || {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream.write_all(&frame(1)).unwrap();
        stream
    };
    let first = ask();
    let (mut silent, _) = backend.accept().unwrap();
    first.shutdown(Shutdown::Write).unwrap();
    silent.read_to_end(&mut Vec::new()).unwrap();
    SockRef::from(&first).set_linger(Some(Duration::ZERO)).unwrap();
    drop(first);
    thread::spawn(move || {
        let (mut stream, _) = backend.accept().unwrap();
        std::io::copy(&mut stream.try_clone().unwrap(), &mut stream)
    });
    // There is no room for it before.
    let (mut second, mut answer) = (ask(), vec![0; frame(1).len()]);
    second.read_exact(&mut answer).unwrap();
    assert!(answer == frame(1));
    drop(second);
    assert_eq!(serving.shutdown(GUARD).unwrap(), 0);
}

/// The backend answers only when it is told that no more frames follow.
#[test]
fn the_frames_before_one_that_is_refused_or_torn_are_answered_through_a_frontend() {
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = ListenAddr::Tcp(backend.local_addr().unwrap());
    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let echo = EchoOptions::default();
    let serving = echo::start_frontend(&options(), echo, vec![listener], &to).unwrap();
    let ListenAddr::Tcp(addr) = serving.local_addrs()[0] else { unreachable!("it is TCP") };
    for (last, ends) in [(&b"\xff\xff\xff\xff"[..], false), (b"\0\0\0\x02x", true)] {
        let mut client = TcpStream::connect(addr).unwrap();
        client.set_read_timeout(Some(GUARD)).unwrap();
        client.write_all(&[&frame(1), last].concat()).unwrap();
        if ends {
            client.shutdown(Shutdown::Write).unwrap();
        }
        let (mut stream, mut asked) = (backend.accept().unwrap().0, Vec::new());
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream.read_to_end(&mut asked).unwrap();
        assert!(asked == frame(1));
        // Refused by a frontend that has closed.
        let _ = stream.write_all(&asked);
        drop(stream);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert!(answer == frame(1), "{last:?}: {} bytes came", answer.len());
    }
    assert_eq!(serving.shutdown(GUARD).unwrap(), 0);
}
