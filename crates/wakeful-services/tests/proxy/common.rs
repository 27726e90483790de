//! A proxy, backends that do what a test tells them to, and clients that send bytes.

#![allow(dead_code, unreachable_pub)] // Each test program uses a part.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use wakeful::IdlePolicy;
use wakeful::accept::SharedListener;
use wakeful::net::ListenAddr;
use wakeful_services::proxy::{self, ProxyOptions, RunningProxy};
use wakeful_services::{ServeOptions, http};

/// A hang is a failure, in its own time.
pub const GUARD: Duration = Duration::from_secs(20);

pub fn options(loops: usize) -> ServeOptions {
    ServeOptions::new()
        .loops(loops)
        .concentrate(None)
        .moves(None)
        .idle(IdlePolicy::Park)
        .grace(GUARD)
}

fn listener() -> SharedListener {
    SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap()
}

pub fn tcp(addr: &ListenAddr) -> SocketAddr {
    match addr {
        ListenAddr::Tcp(addr) => *addr,
        _ => unreachable!("bound to TCP"),
    }
}

/// On one loop, so that its counts are certain.
pub fn proxy(to: &[SocketAddr], set: impl FnOnce(ProxyOptions) -> ProxyOptions) -> RunningProxy {
    let to = to.iter().map(|addr| (*addr).into());
    let settings = set(ProxyOptions::new(to));
    proxy::start(&options(1), settings, vec![listener()], vec![listener()]).unwrap()
}

pub fn addr(proxy: &RunningProxy) -> SocketAddr {
    tcp(&proxy.local_addrs()[0])
}

/// `serve http` as a backend.
pub fn service() -> (wakeful_http::Running, SocketAddr) {
    let own = http::HttpOptions::default();
    let running = http::start(&options(1), own, vec![listener()], Vec::new()).unwrap();
    let running = running.into_server();
    let addr = tcp(&running.local_addrs()[0]);
    (running, addr)
}

pub fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.set_write_timeout(Some(GUARD)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Everything until the other side closes.
pub fn read_all(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    match stream.read_to_end(&mut text) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}: {:?}", String::from_utf8_lossy(&text)),
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Sends `request`, which is to say `connection: close`, and reads all that comes.
pub fn ask(addr: SocketAddr, request: &str) -> String {
    let mut stream = connect(addr);
    stream.write_all(request.as_bytes()).unwrap();
    read_all(&mut stream)
}

pub fn get(addr: SocketAddr, path: &str) -> String {
    ask(addr, &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"))
}

#[track_caller]
pub fn assert_status(answer: &str, status: u16) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "not {status}: {answer}");
}

pub fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").expect("a whole head").1
}

/// Waits for what has to come, without an idea of when.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < GUARD, "never: {what}");
        thread::yield_now();
    }
}

/// A server that does with each connection what it is told, and keeps what it was sent.
#[derive(Clone)]
pub struct Backend {
    pub addr: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    connections: usize,
    ended: usize,
    requests: Vec<String>,
}

impl Backend {
    pub fn start(script: impl Fn(&Self, &mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), script)
    }

    pub fn on(
        listener: TcpListener,
        script: impl Fn(&Self, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let backend = Self { addr: listener.local_addr().unwrap(), seen: Arc::default() };
        let (this, script) = (backend.clone(), Arc::new(script));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (this, script, mut stream) = (this.clone(), script.clone(), stream.unwrap());
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(GUARD)).unwrap();
                this.seen.lock().unwrap().connections += 1;
                thread::spawn(move || {
                    script(&this, &mut stream);
                    drop(stream);
                    this.seen.lock().unwrap().ended += 1;
                });
            }
        });
        backend
    }

    /// Answers each request with what it was sent.
    pub fn mirror() -> Self {
        Self::start(|this, stream| {
            while let Some(request) = this.read(stream) {
                answer(stream, &request);
            }
        })
    }

    /// Answers each request with `text`.
    pub fn saying(text: &'static str) -> Self {
        Self::start(move |this, stream| {
            while this.read(stream).is_some() {
                let _ = stream.write_all(text.as_bytes());
            }
        })
    }

    /// Reads a request with its body, and keeps it, also a part of one. `None`: there is no other
    /// one.
    pub fn read(&self, stream: &mut TcpStream) -> Option<String> {
        let (read, is_whole) = match read_request(stream) {
            Ok(request) => (request, true),
            Err(part) if part.is_empty() => return None,
            Err(part) => (format!("in part: {part}"), false),
        };
        self.seen.lock().unwrap().requests.push(read.clone());
        is_whole.then_some(read)
    }

    /// Keeps what a script has to say among the requests.
    pub fn note(&self, text: &str) {
        self.seen.lock().unwrap().requests.push(text.to_owned());
    }

    /// Nobody is connected to it any more.
    pub fn is_alone(&self) -> bool {
        self.open() == 0
    }

    /// How many are connected to it.
    pub fn open(&self) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.connections - seen.ended
    }

    pub fn requests(&self) -> Vec<String> {
        self.seen.lock().unwrap().requests.clone()
    }

    pub fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }
}

/// An address where nobody listens until the test itself does. A socket keeps the port, so that no
/// other test's server gets it.
pub fn nowhere() -> SocketAddr {
    let keeper = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    keeper.set_reuse_address(true).unwrap();
    keeper.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let addr = keeper.local_addr().unwrap().as_socket().unwrap();
    std::mem::forget(keeper);
    addr
}

pub fn answer(stream: &mut TcpStream, body: &str) {
    let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let _ = stream.write_all(text.as_bytes());
}

/// The head, and the body by its length or its chunks, byte by byte as it came, by a strict
/// reading. An error is what came of it before the end.
pub fn read_request(stream: &mut TcpStream) -> Result<String, String> {
    let mut text = Vec::new();
    let whole = read_parts(stream, &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    if whole.is_some() { Ok(text) } else { Err(text) }
}

fn read_parts(stream: &mut TcpStream, text: &mut Vec<u8>) -> Option<()> {
    read_until(stream, text, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(text).to_lowercase();
    if let Some(length) = head.lines().find_map(|line| line.strip_prefix("content-length: ")) {
        return read_bytes(stream, text, length.parse().unwrap());
    }
    if !head.contains("\r\ntransfer-encoding: chunked\r\n") {
        return Some(());
    }
    loop {
        let line = read_until(stream, text, b"\r\n")?;
        let size = String::from_utf8_lossy(&text[line..]).trim().to_owned();
        match usize::from_str_radix(&size, 16).expect("a chunk's size and nothing else") {
            0 => break,
            size => read_bytes(stream, text, size + 2)?,
        }
    }
    // Trailers, and the empty line after them.
    loop {
        let line = read_until(stream, text, b"\r\n")?;
        if text.len() == line + 2 {
            return Some(());
        }
    }
}

fn read_bytes(stream: &mut TcpStream, text: &mut Vec<u8>, count: usize) -> Option<()> {
    let read = stream.take(count as u64).read_to_end(text).ok()?;
    (read == count).then_some(())
}

/// Where it began.
fn read_until(stream: &mut TcpStream, text: &mut Vec<u8>, end: &[u8]) -> Option<usize> {
    let from = text.len();
    while !text[from..].ends_with(end) {
        read_bytes(stream, text, 1)?;
    }
    Some(from)
}
