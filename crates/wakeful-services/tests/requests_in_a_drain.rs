//! All requests that come as a drain begins are answered, and then the connection closes behind an
//! answer, also if the client never pauses: `kv`, `echo` and its frontend.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::io::ioctl_fionread;
use socket2::{Domain, SockRef, Socket, Type};
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
    begin_drain_of(serving, || socket.exists())
}

fn begin_drain_of(
    serving: Serving,
    listens: impl Fn() -> bool,
) -> JoinHandle<Result<usize, ShutdownError>> {
    let handle = serving.handles()[0].clone();
    let draining = thread::spawn(move || serving.shutdown(GUARD));
    // That is the first thing it does.
    while listens() {
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

/// In a batch.
const REQUESTS: usize = 8000;

/// All requests of a long batch that has come as the drain begins are answered, each by an answer
/// of `length` bytes. They take several reads.
fn is_answered_whole(
    name: &str,
    start: impl Fn(SharedListener) -> Serving,
    ask: &[u8],
    length: usize,
) {
    let socket = socket(name);
    let serving = start(SharedListener::bind(&ListenAddr::Unix(socket.clone())).unwrap());
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.write_all(ask).unwrap();
    stream.read_exact(&mut vec![0; length]).unwrap();
    // The loop reads nothing meanwhile.
    let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
    serving.handles()[0].post(move || goes_on.recv().unwrap_or(())).unwrap();
    stream.write_all(&ask.repeat(REQUESTS)).unwrap();
    let draining = thread::spawn(move || serving.shutdown(GUARD));
    thread::sleep(IN_TIME / 4);
    drop(go_on);
    let mut answers = Vec::new();
    stream.read_to_end(&mut answers).unwrap();
    assert_eq!(answers.len(), REQUESTS * length);
    drop(stream);
    assert_eq!(draining.join().unwrap().unwrap(), 0);
}

/// The second request's size divides the buffer's, so a full read leaves no part of a request.
#[test]
fn a_batch_to_kv_that_has_come_as_the_drain_begins_is_answered_whole() {
    let start = |listener| kv::start(&options(), KvOptions::default(), vec![listener]).unwrap();
    for ask in [&b"PING\r\n"[..], b"PING a\r\n"] {
        is_answered_whole("kv-batch", start, ask, 7);
    }
}

#[test]
fn a_batch_to_echo_that_has_come_as_the_drain_begins_is_answered_whole() {
    let start = |listener| echo::start(&options(), EchoOptions::default(), vec![listener]).unwrap();
    for frame in [FRAME, b"\0\0\0\x04abcd"] {
        is_answered_whole("echo-batch", start, frame, frame.len());
    }
}

/// A request that came while the connection waited to write an earlier, long answer is answered.
/// The drain begins meanwhile.
fn is_answered_behind(
    name: &str,
    start: impl Fn(SharedListener) -> Serving,
    [first, first_answer]: [&[u8]; 2],
    [second, second_answer]: [&[u8]; 2],
) {
    let socket = socket(name);
    let serving = start(SharedListener::bind(&ListenAddr::Unix(socket.clone())).unwrap());
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.write_all(first).unwrap();
    let mut answers = vec![0];
    stream.read_exact(&mut answers).unwrap();
    stream.write_all(second).unwrap();
    let draining = begin_drain(serving, &socket);
    stream.read_to_end(&mut answers).unwrap();
    assert!(answers == [first_answer, second_answer].concat(), "{} bytes came", answers.len());
    drop(stream);
    assert_eq!(draining.join().unwrap().unwrap(), 0);
}

/// More than a socket has room for.
const LONG: usize = 4 << 20;

#[test]
fn a_command_of_kv_that_comes_behind_a_long_answer_is_answered_in_a_drain() {
    let start = |listener| kv::start(&options(), KvOptions::default(), vec![listener]).unwrap();
    let long = [format!("${LONG}\r\n").as_bytes(), &vec![b'v'; LONG], b"\r\n"].concat();
    let set = [&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n"[..], &long, b"GET k\r\n"].concat();
    let first = [&set[..], &[&b"+OK\r\n"[..], &long].concat()];
    is_answered_behind("kv-behind", start, first, [b"PING\r\n", b"+PONG\r\n"]);
}

#[test]
fn a_frame_of_echo_that_comes_behind_a_long_one_is_answered_in_a_drain() {
    let start = |listener| echo::start(&options(), EchoOptions::default(), vec![listener]).unwrap();
    let length = u32::try_from(LONG).unwrap().to_be_bytes();
    let long = [&length[..], &vec![b'v'; LONG]].concat();
    is_answered_behind("echo-behind", start, [&long, &long], [FRAME, FRAME]);
}

/// All requests of a batch that has come within the linger of a drain are answered, though the
/// client reads the answers, of 7 bytes each, only when the linger is over.
fn is_answered_late(start: impl Fn(SharedListener) -> Serving, ask: &[u8]) {
    for _ in 0..TRIES {
        if let Some(came) = answers_read_late(&start, ask) {
            assert_eq!(came, 7 * REQUESTS);
            return;
        }
    }
    panic!("this machine is too slow: nothing was tried");
}

/// `None`: the batch was written too late.
fn answers_read_late(start: impl Fn(SharedListener) -> Serving, ask: &[u8]) -> Option<usize> {
    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    // Its connections have the same sizes: room for the whole batch, and for few of the answers.
    SockRef::from(&listener).set_recv_buffer_size(4 * REQUESTS * ask.len()).unwrap();
    SockRef::from(&listener).set_send_buffer_size(4096).unwrap();
    let serving = start(listener);
    let ListenAddr::Tcp(addr) = serving.local_addrs()[0] else { unreachable!("it is TCP") };
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&addr.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.write_all(ask).unwrap();
    stream.read_exact(&mut [0; 7]).unwrap();
    let began = Instant::now();
    let draining = begin_drain_of(serving, || TcpStream::connect(addr).is_ok());
    let written = stream.write_all(&ask.repeat(REQUESTS));
    let in_time = began.elapsed() < IN_TIME;
    thread::sleep(4 * IN_TIME);
    let mut answers = Vec::new();
    let read = written.and_then(|()| stream.read_to_end(&mut answers));
    assert!(read.is_ok() || !in_time, "{read:?}");
    drop(stream);
    assert_eq!(draining.join().unwrap().unwrap(), 0);
    in_time.then_some(answers.len())
}

#[test]
fn a_batch_to_kv_is_answered_whole_in_a_drain_however_late_its_answers_are_read() {
    let start = |listener| kv::start(&options(), KvOptions::default(), vec![listener]).unwrap();
    is_answered_late(start, b"PING\r\n");
}

#[test]
fn a_batch_to_echo_is_answered_whole_in_a_drain_however_late_its_answers_are_read() {
    let start = |listener| echo::start(&options(), EchoOptions::default(), vec![listener]).unwrap();
    is_answered_late(start, FRAME);
}

/// The frontend has to wait until its backend reads.
#[test]
fn a_batch_to_a_frontend_is_forwarded_whole_in_a_drain_however_late_the_backend_reads() {
    let tried = (0..TRIES).any(|_| is_forwarded_late());
    assert!(tried, "this machine is too slow: nothing was tried");
}

/// `false`: the batch was written too late.
fn is_forwarded_late() -> bool {
    /// Twice as much is more than a socket has room for.
    const HALF: usize = 20_000;
    let (socket, backend) = (socket("frontend-late"), socket("backend-late"));
    let to = ListenAddr::Unix(backend.clone());
    let listens = UnixListener::bind(&backend).unwrap();
    let listener = SharedListener::bind(&ListenAddr::Unix(socket.clone())).unwrap();
    let echo = EchoOptions::default();
    let serving = echo::start_frontend(&options(), echo, vec![listener], &to).unwrap();
    let mut client = UnixStream::connect(&socket).unwrap();
    let (mut backend_s, _) = listens.accept().unwrap();
    std::fs::remove_file(&backend).unwrap();
    backend_s.set_read_timeout(Some(GUARD)).unwrap();
    let half = FRAME.repeat(HALF);
    client.write_all(&half).unwrap();
    let began = Instant::now();
    while ioctl_fionread(&backend_s).unwrap() < half.len() as u64 {
        assert!(began.elapsed() < GUARD, "it is not forwarded");
        thread::yield_now();
    }
    let began = Instant::now();
    let draining = begin_drain(serving, &socket);
    let written = client.write_all(&half);
    let in_time = began.elapsed() < IN_TIME;
    thread::sleep(4 * IN_TIME);
    let mut forwarded = Vec::new();
    backend_s.read_to_end(&mut forwarded).unwrap();
    drop((client, backend_s));
    assert_eq!(draining.join().unwrap().unwrap(), 0);
    assert!(!in_time || written.is_ok() && forwarded.len() == 2 * half.len(), "{written:?}");
    in_time
}

/// A client that waits for each answer sees the end of its connection behind one of them, and not
/// when its next request is on its way.
fn few_requests_are_lost(name: &str, start: impl Fn(SharedListener) -> Serving, ask: &[u8]) {
    const CLIENTS: usize = 20;
    let socket = socket(name);
    let serving = start(SharedListener::bind(&ListenAddr::Unix(socket.clone())).unwrap());
    let client = || {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let (ask, mut answer) = (ask.to_vec(), [0; 7]);
        move || loop {
            stream.set_read_timeout(Some(GUARD)).unwrap();
            if stream.write_all(&ask).is_err() || stream.read_exact(&mut answer).is_err() {
                return true;
            }
            stream.set_read_timeout(Some(IN_TIME / 10)).unwrap();
            if stream.read(&mut answer).is_ok() {
                return false;
            }
            // The next request is on its way now.
            thread::sleep(IN_TIME / 3);
        }
    };
    let clients = [(); CLIENTS].map(|()| thread::spawn(client()));
    thread::sleep(IN_TIME);
    let draining = begin_drain(serving, &socket);
    let lost = clients.map(|client| client.join().unwrap()).iter().filter(|lost| **lost).count();
    assert_eq!(draining.join().unwrap().unwrap(), 0);
    assert!(lost < CLIENTS / 2, "{lost} of {CLIENTS} have lost a request");
}

#[test]
fn a_client_of_kv_that_waits_for_its_answers_sees_the_end_behind_one() {
    let start = |listener| kv::start(&options(), KvOptions::default(), vec![listener]).unwrap();
    few_requests_are_lost("kv-waits", start, b"PING\r\n");
}

#[test]
fn a_client_of_echo_that_waits_for_its_answers_sees_the_end_behind_one() {
    let start = |listener| echo::start(&options(), EchoOptions::default(), vec![listener]).unwrap();
    few_requests_are_lost("echo-waits", start, FRAME);
}

#[test]
fn a_client_of_a_frontend_that_waits_for_its_answers_sees_the_end_behind_one() {
    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let backend = echo::start(&options(), EchoOptions::default(), vec![listener]).unwrap();
    let addr = backend.local_addrs()[0].clone();
    let start = |listener| {
        echo::start_frontend(&options(), EchoOptions::default(), vec![listener], &addr).unwrap()
    };
    few_requests_are_lost("frontend-waits", start, FRAME);
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
