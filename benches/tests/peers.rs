//! Both peers speak the protocol, at its edges too: a comparison with a server
//! that gets by with less would be none.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use wakeful_benches::frame::MAX_PAYLOAD;

/// The peers, by the path of their binary.
const PEERS: [&str; 2] = [env!("CARGO_BIN_EXE_echo-tokio"), env!("CARGO_BIN_EXE_echo-epoll")];

/// A running peer, killed at the end of its test.
struct Peer {
    child: Child,
    addr: SocketAddr,
    /// Kept open, so that the peer can still write to it.
    _stderr: BufReader<ChildStderr>,
}

impl Peer {
    fn start(path: &str) -> Self {
        let mut child = Command::new(path)
            .args(["--listen", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let addr = line.trim_end().strip_prefix("listening on ").unwrap().parse().unwrap();
        Self { child, addr, _stderr: stderr }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    [&length.to_be_bytes(), payload].concat()
}

/// Bytes in which a lost or repeated part shows.
fn pattern(length: usize) -> Vec<u8> {
    (0..=250).cycle().take(length).collect()
}

fn read_exactly(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

fn assert_closed(stream: &mut TcpStream) {
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn pipelined_frames_are_all_answered_in_order() {
    for peer in PEERS.map(Peer::start) {
        let frames: Vec<u8> =
            [0, 1, 5000, 0, 1024, 40_000, 3].map(|length| frame(&pattern(length))).concat();
        let mut stream = peer.connect();
        stream.write_all(&frames).unwrap();
        assert_eq!(read_exactly(&mut stream, frames.len()), frames);
    }
}

#[test]
fn frames_may_arrive_byte_by_byte() {
    for peer in PEERS.map(Peer::start) {
        let frames = [frame(b"hello"), frame(b""), frame(b"world")].concat();
        let mut stream = peer.connect();
        for byte in &frames {
            stream.write_all(&[*byte]).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(read_exactly(&mut stream, frames.len()), frames);
    }
}

#[test]
fn the_largest_frame_is_answered_and_the_connection_goes_on() {
    for peer in PEERS.map(Peer::start) {
        let large = frame(&pattern(MAX_PAYLOAD));
        let mut stream = peer.connect();
        for _ in 0..2 {
            stream.write_all(&large).unwrap();
            assert!(read_exactly(&mut stream, large.len()) == large);
        }
        stream.write_all(&frame(b"small")).unwrap();
        assert_eq!(read_exactly(&mut stream, 9), frame(b"small"));
    }
}

#[test]
fn an_oversized_frame_closes_only_its_connection_and_after_the_answers_before_it() {
    for peer in PEERS.map(Peer::start) {
        let mut other = peer.connect();
        let mut stream = peer.connect();
        let oversized = u32::try_from(MAX_PAYLOAD + 1).unwrap().to_be_bytes();
        stream.write_all(&[&frame(b"before")[..], &oversized].concat()).unwrap();
        assert_eq!(read_exactly(&mut stream, 10), frame(b"before"));
        assert_closed(&mut stream);

        other.write_all(&frame(b"other")).unwrap();
        assert_eq!(read_exactly(&mut other, 9), frame(b"other"));
    }
}

#[test]
fn frames_before_a_half_close_are_answered_and_a_partial_one_is_dropped() {
    for peer in PEERS.map(Peer::start) {
        let answered = frame(&pattern(100_000));
        let mut stream = peer.connect();
        stream.write_all(&[&answered[..], b"\0\0\0\x09part"].concat()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_exactly(&mut stream, answered.len()), answered);
        assert_closed(&mut stream);
    }
}

#[test]
fn a_client_that_reads_late_gets_every_answer() {
    for peer in PEERS.map(Peer::start) {
        // More than the sockets' buffers hold, so that both sides must wait.
        let frames = frame(&pattern(1000)).repeat(40_000);
        let mut stream = peer.connect();
        let mut writer = stream.try_clone().unwrap();
        let received = thread::scope(|scope| {
            scope.spawn(|| {
                writer.write_all(&frames).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
            thread::sleep(Duration::from_millis(300));
            let received = read_exactly(&mut stream, frames.len());
            assert_closed(&mut stream);
            received
        });
        assert!(received == frames);
    }
}

fn echo_load(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_echo-load")).args(args).output().unwrap()
}

#[test]
fn the_load_counts_exactly_the_requests_asked_for() {
    for peer in PEERS.map(Peer::start) {
        let addr = peer.addr.to_string();
        for size in ["0", "1", "1024", "300000"] {
            let load = echo_load(&["--addr", &addr, "--requests", "100", "--size", size]);
            let line = String::from_utf8(load.stdout).unwrap();
            assert!(line.starts_with("100 requests in "), "{line}");
        }
    }
}

#[test]
fn the_load_reports_a_missing_server_in_one_line() {
    // A port that was just free; nobody listens there.
    let addr = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let load = echo_load(&["--addr", &addr]);
    assert_eq!(load.status.code(), Some(1));
    let line = String::from_utf8(load.stderr).unwrap();
    assert!(line.starts_with("echo-load: cannot connect to 127.0.0.1:"), "{line}");
    assert_eq!(line.lines().count(), 1);
}

#[test]
fn the_load_notices_a_wrong_answer() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut answer = read_exactly(&mut stream, 1028);
        answer[500] ^= 1;
        stream.write_all(&answer).unwrap();
    });
    let load = echo_load(&["--addr", &addr, "--requests", "1", "--connections", "1"]);
    server.join().unwrap();
    assert_eq!(load.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(load.stderr).unwrap(),
        "echo-load: an answer differs from its request\n"
    );
}
