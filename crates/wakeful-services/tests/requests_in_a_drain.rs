//! A request that is on its way as a drain begins is answered, and the connection closes behind its
//! answer, also if the client never pauses: `kv`, `echo` and its frontend.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use wakeful::accept::{Serving, SharedListener};
use wakeful::net::ListenAddr;
use wakeful::{IdlePolicy, ShutdownError};
use wakeful_services::ServeOptions;
use wakeful_services::echo::{self, EchoOptions};
use wakeful_services::kv::{self, KvOptions};

const GUARD: Duration = Duration::from_secs(30);
/// More than the turns in which a loop tells its connections.
const TURNS: usize = 50;
/// Half of what the services wait for a request that is on its way. A test that took longer to
/// write one has tried nothing.
const IN_TIME: Duration = Duration::from_millis(100);
const TRIES: usize = 50;

fn options() -> ServeOptions {
    ServeOptions::new().loops(1).concentrate(None).moves(None).idle(IdlePolicy::Park).grace(GUARD)
}

/// Begins to drain a server that has at least one connection. Returns when its loop has told its
/// connections.
fn begin_drain(serving: Serving, socket: &Path) -> JoinHandle<Result<usize, ShutdownError>> {
    let handle = serving.handles()[0].clone();
    let draining = thread::spawn(move || serving.shutdown(GUARD));
    // That is the first thing it does.
    while socket.exists() {
        thread::yield_now();
    }
    // Refused once the loop has ended, without that connection.
    (0..TURNS).take_while(|_| handle.post_and_wait(|| ()).is_ok()).for_each(drop);
    draining
}

/// Drains a server while it has a connection, and asks on that one when it has been told. `None`:
/// too late.
fn ask_in_a_drain(serving: Serving, socket: &Path, ask: &[u8]) -> Option<Vec<u8>> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.write_all(ask).unwrap();
    let mut before = vec![0; 7];
    stream.read_exact(&mut before).unwrap();
    let began = Instant::now();
    let draining = begin_drain(serving, socket);
    let written = stream.write_all(ask);
    let in_time = began.elapsed() < IN_TIME;
    let mut answer = Vec::new();
    let read = written.and_then(|()| stream.read_to_end(&mut answer));
    assert_eq!(draining.join().unwrap().unwrap(), 0);
    match read {
        Ok(_) => in_time.then_some(answer),
        Err(error) => {
            let is_closed =
                matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
            assert!(is_closed && !in_time, "{error}");
            None
        }
    }
}

fn socket(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("wakeful-{name}-{}", std::process::id()))
}

/// A client that always has a part of its next request under way is answered for a while in a
/// drain, and then closed.
fn is_closed_before_a_part(
    name: &str,
    start: impl Fn(SharedListener) -> Serving,
    ask: &[u8],
    answer: &[u8],
) {
    let socket = socket(name);
    let serving = start(SharedListener::bind(&ListenAddr::Unix(socket.clone())).unwrap());
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    let (part, rest) = ask.split_at(1);
    stream.write_all(part).unwrap();
    let rest_and_part = [rest, part].concat();
    let mut came = [0; 7];
    for _ in 0..10 {
        stream.write_all(&rest_and_part).unwrap();
        stream.read_exact(&mut came).unwrap();
        assert_eq!(came, answer);
    }
    let draining = begin_drain(serving, &socket);
    // Until the server has closed.
    while stream.write_all(&rest_and_part).is_ok() && stream.read_exact(&mut came).is_ok() {
        assert_eq!(came, answer);
    }
    drop(stream);
    assert_eq!(draining.join().unwrap().unwrap(), 0);
}

/// Answers of `ask` have 7 bytes.
fn is_answered(name: &str, start: impl Fn(SharedListener) -> Serving, ask: &[u8], answer: &[u8]) {
    let socket = socket(name);
    for _ in 0..TRIES {
        let serving = start(SharedListener::bind(&ListenAddr::Unix(socket.clone())).unwrap());
        if let Some(came) = ask_in_a_drain(serving, &socket, ask) {
            assert_eq!(came, answer);
            return;
        }
    }
    panic!("this machine is too slow: nothing was tried");
}

#[test]
fn a_command_of_kv_on_its_way_as_the_drain_begins_is_answered() {
    let start = |listener| kv::start(&options(), KvOptions::default(), vec![listener]).unwrap();
    is_answered("kv", start, b"PING\r\n", b"+PONG\r\n");
}

const FRAME: &[u8] = b"\0\0\0\x03abc";

#[test]
fn a_frame_of_echo_on_its_way_as_the_drain_begins_is_answered() {
    let start = |listener| echo::start(&options(), EchoOptions::default(), vec![listener]).unwrap();
    is_answered("echo", start, FRAME, FRAME);
}

#[test]
fn a_frame_to_a_backend_on_its_way_as_the_frontend_s_drain_begins_is_answered() {
    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let backend = echo::start(&options(), EchoOptions::default(), vec![listener]).unwrap();
    let addr = backend.local_addrs()[0].clone();
    let start = |listener| {
        echo::start_frontend(&options(), EchoOptions::default(), vec![listener], &addr).unwrap()
    };
    is_answered("echo-frontend", start, FRAME, FRAME);
}

/// All requests of a long batch that has come as the drain begins are answered. They take several
/// reads.
fn is_answered_whole(name: &str, start: impl Fn(SharedListener) -> Serving, ask: &[u8]) {
    const REQUESTS: usize = 8000;
    let socket = socket(name);
    let serving = start(SharedListener::bind(&ListenAddr::Unix(socket.clone())).unwrap());
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    let mut came = [0; 7];
    stream.write_all(ask).unwrap();
    stream.read_exact(&mut came).unwrap();
    // The loop reads nothing meanwhile.
    let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
    serving.handles()[0].post(move || goes_on.recv().unwrap_or(())).unwrap();
    stream.write_all(&ask.repeat(REQUESTS)).unwrap();
    let draining = thread::spawn(move || serving.shutdown(GUARD));
    thread::sleep(IN_TIME / 4);
    drop(go_on);
    let mut answers = Vec::new();
    stream.read_to_end(&mut answers).unwrap();
    assert_eq!(answers.len(), REQUESTS * came.len());
    drop(stream);
    assert_eq!(draining.join().unwrap().unwrap(), 0);
}

#[test]
fn a_batch_to_kv_that_has_come_as_the_drain_begins_is_answered_whole() {
    let start = |listener| kv::start(&options(), KvOptions::default(), vec![listener]).unwrap();
    is_answered_whole("kv-batch", start, b"PING\r\n");
}

#[test]
fn a_batch_to_echo_that_has_come_as_the_drain_begins_is_answered_whole() {
    let start = |listener| echo::start(&options(), EchoOptions::default(), vec![listener]).unwrap();
    is_answered_whole("echo-batch", start, FRAME);
}

#[test]
fn a_client_of_kv_that_never_pauses_is_closed_in_a_drain() {
    let start = |listener| kv::start(&options(), KvOptions::default(), vec![listener]).unwrap();
    is_closed_before_a_part("kv-part", start, b"PING\r\n", b"+PONG\r\n");
}

#[test]
fn a_client_of_echo_that_never_pauses_is_closed_in_a_drain() {
    let start = |listener| echo::start(&options(), EchoOptions::default(), vec![listener]).unwrap();
    is_closed_before_a_part("echo-part", start, FRAME, FRAME);
}

#[test]
fn a_client_of_a_frontend_that_never_pauses_is_closed_in_a_drain() {
    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let backend = echo::start(&options(), EchoOptions::default(), vec![listener]).unwrap();
    let addr = backend.local_addrs()[0].clone();
    let start = |listener| {
        echo::start_frontend(&options(), EchoOptions::default(), vec![listener], &addr).unwrap()
    };
    is_closed_before_a_part("frontend-part", start, FRAME, FRAME);
}
