//! In a drain the last answers of `kv` and `echo` come whole to a client that reads them slowly,
//! and still asks meanwhile.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use wakeful::IdlePolicy;
use wakeful::accept::{Serving, SharedListener};
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

/// Sends `ask`, has the server drain, and reads the answer of `length` bytes in pieces, with a
/// `more` after each.
fn read_slowly(serving: Serving, ask: &[u8], more: &[u8], length: usize) -> Vec<u8> {
    let ListenAddr::Tcp(addr) = serving.local_addrs()[0] else { unreachable!("it is TCP") };
    let mut stream = connect(addr);
    stream.write_all(ask).unwrap();
    let mut answer = vec![0; 4];
    stream.read_exact(&mut answer).unwrap();
    let (counts, began) = (serving.counts(), Instant::now());
    let draining = thread::spawn(move || serving.shutdown(GUARD));
    // The server would close within this time. It must not, so the wait only gives a wrong server
    // time to do so.
    while counts.open() > 0 && began.elapsed() < Duration::from_millis(300) {
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
    drop(stream);
    assert_eq!(draining.join().unwrap().unwrap(), 0);
    answer.truncate(length);
    answer
}

#[test]
fn the_last_answer_of_kv_comes_whole_in_a_drain() {
    let serving = kv::start(&options(), KvOptions::default(), vec![listener()]).unwrap();
    let value = vec![b'v'; LENGTH];
    let head = format!("${LENGTH}\r\n");
    let set =
        [format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n{head}").as_bytes(), &value, b"\r\n"].concat();
    let ask = [&set[..], b"GET k\r\n"].concat();
    let whole = [b"+OK\r\n", head.as_bytes(), &value, b"\r\n"].concat();
    let answer = read_slowly(serving, &ask, b"PING\r\n", whole.len());
    assert!(answer == whole);
}

#[test]
fn the_last_answer_of_echo_comes_whole_in_a_drain() {
    let serving = echo::start(&options(), EchoOptions::default(), vec![listener()]).unwrap();
    let length = u32::try_from(LENGTH).unwrap().to_be_bytes();
    let frame = [&length[..], &vec![b'v'; LENGTH]].concat();
    let answer = read_slowly(serving, &frame, &[0, 0, 0, 1, b'x'], frame.len());
    assert!(answer == frame);
}
