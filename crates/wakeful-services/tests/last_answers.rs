//! The last answers of `kv` and `echo` come whole to a client that reads them slowly, and still
//! asks meanwhile: in a drain, and before a frame that is refused.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use wakeful::IdlePolicy;
use wakeful::accept::{Counts, Serving, SharedListener};
use wakeful::net::ListenAddr;
use wakeful_services::ServeOptions;
use wakeful_services::echo::{self, EchoOptions};
use wakeful_services::kv::{self, KvOptions};

const GUARD: Duration = Duration::from_secs(30);
/// The kernel takes all of it at once, and a client with a small buffer a little of it.
const LENGTH: usize = 1 << 20;

fn options() -> ServeOptions {
    ServeOptions::new().loops(1).concentrate(None).moves(None).idle(IdlePolicy::Park).grace(GUARD)
}

fn listener() -> SharedListener {
    SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap()
}

fn connect(addr: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    socket.connect(&addr.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn addr(serving: &Serving) -> SocketAddr {
    let ListenAddr::Tcp(addr) = serving.local_addrs()[0] else { unreachable!("it is TCP") };
    addr
}

/// Sends `ask` to `addr`, and reads the first bytes of the answer.
fn ask(addr: SocketAddr, ask: &[u8]) -> (TcpStream, Vec<u8>) {
    let (mut stream, mut answer) = (connect(addr), vec![0; 4]);
    stream.write_all(ask).unwrap();
    stream.read_exact(&mut answer).unwrap();
    (stream, answer)
}

/// Reads the rest of the answer of `length` bytes in pieces, and sends `more` before each.
fn read_slowly(
    (mut stream, mut answer): (TcpStream, Vec<u8>),
    counts: &Counts,
    more: &[u8],
    length: usize,
) -> Vec<u8> {
    let began = Instant::now();
    // The server would close within this time. It must not, so the wait only gives a wrong server
    // time to do so.
    while counts.open() > 0 && began.elapsed() < Duration::from_millis(1200) {
        thread::sleep(Duration::from_millis(10));
    }
    let mut piece = [0; 32 << 10];
    while answer.len() < length {
        // Refused once the server has closed.
        let _ = stream.write_all(more);
        match stream.read(&mut piece) {
            Ok(read @ 1..) => answer.extend_from_slice(&piece[..read]),
            ended => panic!("{} of {length} bytes came: {ended:?}", answer.len()),
        }
    }
    answer.truncate(length);
    answer
}

/// Asks at `addr`, has `serving` drain, and reads slowly.
fn read_in_a_drain(
    addr: SocketAddr,
    serving: Serving,
    question: &[u8],
    more: &[u8],
    length: usize,
) -> Vec<u8> {
    let (begun, counts) = (ask(addr, question), serving.counts());
    let draining = thread::spawn(move || serving.shutdown(GUARD));
    let answer = read_slowly(begun, &counts, more, length);
    assert_eq!(draining.join().unwrap().unwrap(), 0);
    answer
}

/// A SET of a long value and a GET of it, and their answers.
fn set_and_get() -> (Vec<u8>, Vec<u8>) {
    let value = vec![b'v'; LENGTH];
    let head = format!("${LENGTH}\r\n");
    let set =
        [format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n{head}").as_bytes(), &value, b"\r\n"].concat();
    let both = [&set[..], b"GET k\r\n"].concat();
    (both, [b"+OK\r\n", head.as_bytes(), &value, b"\r\n"].concat())
}

#[test]
fn the_last_answer_of_kv_comes_whole_in_a_drain() {
    let serving = kv::start(&options(), KvOptions::default(), vec![listener()]).unwrap();
    let (ask, whole) = set_and_get();
    let answer = read_in_a_drain(addr(&serving), serving, &ask, b"PING\r\n", whole.len());
    assert!(answer == whole);
}

#[test]
fn the_answers_before_a_quit_or_a_refusal_come_whole() {
    let serving = kv::start(&options(), KvOptions::default(), vec![listener()]).unwrap();
    let (both, answers) = set_and_get();
    let refusal = b"-ERR Protocol error: expected '$', got ':'\r\n";
    for (last, said) in [(&b"QUIT\r\n"[..], &b"+OK\r\n"[..]), (b"*1\r\n:1\r\n", refusal)] {
        let whole = [&answers, said].concat();
        let begun = ask(addr(&serving), &[&both, last].concat());
        let answer = read_slowly(begun, &serving.counts(), b"PING\r\n", whole.len());
        assert!(answer == whole);
    }
    assert_eq!(serving.shutdown(GUARD).unwrap(), 0);
}

fn start_echo() -> Serving {
    echo::start(&options(), EchoOptions::default(), vec![listener()]).unwrap()
}

/// A frontend, and its backend.
fn start_both() -> (Serving, Serving) {
    let backend = start_echo();
    let (echo, to) = (EchoOptions::default(), &backend.local_addrs()[0]);
    let frontend = echo::start_frontend(&options(), echo, vec![listener()], to).unwrap();
    (frontend, backend)
}

fn frame() -> Vec<u8> {
    let length = u32::try_from(LENGTH).unwrap().to_be_bytes();
    [&length[..], &vec![b'v'; LENGTH]].concat()
}

const SHORT_FRAME: &[u8] = &[0, 0, 0, 1, b'x'];

#[test]
fn the_last_answer_of_echo_comes_whole_in_a_drain() {
    let (serving, frame) = (start_echo(), frame());
    let answer = read_in_a_drain(addr(&serving), serving, &frame, SHORT_FRAME, frame.len());
    assert!(answer == frame);
}

#[test]
fn the_last_answer_of_a_frontend_comes_whole_when_it_drains_or_its_backend_does() {
    let frame = frame();
    for the_backend_drains in [false, true] {
        let (frontend, backend) = start_both();
        let addr = addr(&frontend);
        let (drains, stays) =
            if the_backend_drains { (backend, frontend) } else { (frontend, backend) };
        let answer = read_in_a_drain(addr, drains, &frame, SHORT_FRAME, frame.len());
        assert!(answer == frame);
        assert_eq!(stays.shutdown(GUARD).unwrap(), 0);
    }
}

#[test]
fn the_answers_before_a_frame_that_is_too_long_come_whole() {
    let frame = frame();
    let question = [&frame[..], b"\xff\xff\xff\xff"].concat();
    let (frontend, backend) = start_both();
    for serving in [&backend, &frontend] {
        let begun = ask(addr(serving), &question);
        let answer = read_slowly(begun, &serving.counts(), b"more", frame.len());
        assert!(answer == frame);
    }
    assert_eq!(frontend.shutdown(GUARD).unwrap(), 0);
    assert_eq!(backend.shutdown(GUARD).unwrap(), 0);
}

/// Asks for a long answer that is the last one, and waits until the server has closed. `reads` is
/// called meanwhile. Then reads to the end.
fn read_when_closed(
    serving: &Serving,
    question: &[u8],
    mut reads: impl FnMut(&mut TcpStream) -> usize,
) -> io::Result<usize> {
    let (mut stream, begin) = ask(addr(serving), question);
    let (counts, began) = (serving.counts(), Instant::now());
    let mut read = begin.len();
    while counts.open() > 0 {
        assert!(began.elapsed() < GUARD, "it does not close");
        read += reads(&mut stream);
        thread::sleep(Duration::from_millis(10));
    }
    Ok(read + stream.read_to_end(&mut Vec::new())?)
}

/// `kv` and `echo` with `stall_timeout`, and for each a question whose answer is the last one, of
/// that length.
fn with_last_answers(stall_timeout: Duration) -> [(Serving, Vec<u8>, usize); 2] {
    let kv = KvOptions::default().stall_timeout(stall_timeout);
    let echo = EchoOptions::default().stall_timeout(stall_timeout);
    let (both, answers) = set_and_get();
    let frame = frame();
    [
        (
            kv::start(&options(), kv, vec![listener()]).unwrap(),
            [&both[..], b"QUIT\r\n"].concat(),
            answers.len() + "+OK\r\n".len(),
        ),
        (
            echo::start(&options(), echo, vec![listener()]).unwrap(),
            [&frame[..], b"\xff\xff\xff\xff"].concat(),
            frame.len(),
        ),
    ]
}

/// Otherwise the kernel would keep the answers for minutes, outside of all limits.
#[test]
fn a_client_that_does_not_read_its_last_answers_is_reset() {
    for (serving, question, _) in with_last_answers(Duration::from_millis(300)) {
        let ended = read_when_closed(&serving, &question, |_| 0);
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(serving.shutdown(GUARD).unwrap(), 0);
    }
}

/// The kernel delivers the rest.
#[test]
fn a_client_that_reads_for_longer_than_the_server_waits_gets_its_last_answers() {
    for (serving, question, length) in with_last_answers(Duration::from_secs(2)) {
        let reads = |stream: &mut TcpStream| stream.read(&mut [0; 3 << 10]).unwrap();
        assert_eq!(read_when_closed(&serving, &question, reads).unwrap(), length);
        assert_eq!(serving.shutdown(GUARD).unwrap(), 0);
    }
}

/// It has ended its side, so that nothing more is read from it.
#[test]
fn a_client_that_is_gone_holds_up_no_drain() {
    let (serving, frame) = (start_echo(), frame());
    let addr = addr(&serving);
    let (stream, _) = ask(addr, &frame);
    // For less than it waits for a client that is there.
    let draining = thread::spawn(move || serving.shutdown(GUARD / 2));
    let began = Instant::now();
    while TcpStream::connect(addr).is_ok() {
        assert!(began.elapsed() < GUARD, "it does not drain");
        thread::sleep(Duration::from_millis(1));
    }
    stream.shutdown(Shutdown::Write).unwrap();
    // With unread bytes, so it is a reset.
    drop(stream);
    assert_eq!(draining.join().unwrap().unwrap(), 0);
}
