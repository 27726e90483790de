//! `wakeful serve` with few descriptors (`ulimit -n`): connections leave some for what they ask
//! for.

#[path = "descriptors/http2.rs"]
mod http2;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_wakeful");
const GUARD: Duration = Duration::from_secs(30);
const SIZE: usize = 50_000;
const CLOSE: &str = "connection: close\r\n";
const WEBSOCKET: &str = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Killed when it is dropped.
struct Server {
    child: Child,
    addr: String,
    /// What it says.
    said: JoinHandle<Vec<String>>,
}

impl Server {
    /// `limits`: what the shell is told before it runs the program.
    fn start(limits: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{limits} exec \"$0\" serve \"$@\"")).arg(PROGRAM);
        command.args(arguments).args(["--listen", "127.0.0.1:0", "--loops", "2", "--idle", "park"]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let addr = lines.by_ref().find_map(|line| {
            said.push(line.unwrap());
            Some(said.last()?.split("listening on ").nth(1)?.split(',').next()?.to_owned())
        });
        // What it says later must find a reader.
        let said = thread::spawn(move || {
            said.extend(lines.map_while(Result::ok));
            said
        });
        Self { child, addr: addr.expect("it says where it listens"), said }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.addr).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream
    }

    /// The lowest number that none of its descriptors has.
    fn first_free_descriptor(&self) -> usize {
        let descriptors = Path::new("/proc").join(self.child.id().to_string()).join("fd");
        (0..).find(|number| !descriptors.join(number.to_string()).exists()).unwrap()
    }

    /// From now on no descriptor may have one of these numbers: the soft limit, and the hard one
    /// after a colon.
    fn limit_descriptors(&self, limit: &str) {
        let pid = self.child.id().to_string();
        let limit = format!("--nofile={limit}");
        let status = Command::new("prlimit").args([&limit, "--pid", &pid]).status();
        assert!(status.unwrap().success());
    }

    /// What it has said by its end.
    fn said(mut self) -> String {
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        let said = std::mem::replace(&mut self.said, thread::spawn(Vec::new));
        said.join().unwrap().join("\n")
    }

    fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    /// Connections that come at once, and all ask at once, for as many bytes as `path` has.
    fn serves_all(&self, connections: usize, path: &str) {
        let mut clients: Vec<_> = (0..connections).map(|_| self.connect()).collect();
        clients.iter_mut().for_each(|client| ask(client, path, CLOSE));
        for (number, client) in clients.iter_mut().enumerate() {
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            let head = String::from_utf8_lossy(&answer[..answer.len().min(200)]).into_owned();
            assert!(head.starts_with("HTTP/1.1 200 "), "connection {number}: {head}");
            assert!(answer.len() > SIZE, "connection {number} is cut off at {}", answer.len());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ask(stream: &mut TcpStream, path: &str, header: &str) {
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n{header}\r\n").unwrap();
}

#[test]
fn every_client_of_many_gets_its_file() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("file"), vec![b'x'; SIZE]).unwrap();
    let root = root.path().to_str().unwrap();
    let server = Server::start("ulimit -n 64;", &["http", "--root", root]);
    server.serves_all(300, "/file");
}

/// Files and operators take no more than a share of few descriptors.
#[test]
fn few_descriptors_are_mostly_for_clients_also_beside_files_and_operators() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("file"), vec![b'x'; SIZE]).unwrap();
    let root = root.path().to_str().unwrap();
    let options = ["http", "--root", root, "--admin", "127.0.0.1:0"];
    let server = Server::start("ulimit -n 64;", &options);
    let mut clients: Vec<_> = (0..40).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| ask(client, "/healthz", ""));
    // They stay open, so none is answered in the place of another.
    let is_answered = |client: &mut TcpStream| {
        client.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        client.read_exact(&mut [0; 12]).is_ok()
    };
    let answered = clients.iter_mut().map(is_answered).take_while(|is| *is).count();
    assert!(answered >= 12, "{answered} at a time");
    drop(clients);
    server.serves_all(300, "/file");
}

#[test]
fn every_client_of_a_proxy_gets_its_backend() {
    let backend = Server::start("", &["http"]);
    let proxy = Server::start("ulimit -n 64;", &["proxy", "--to", &backend.addr]);
    let path = format!("/bytes/{SIZE}");
    // The second time there are idle connections to the backend, on either loop.
    proxy.serves_all(300, &path);
    proxy.serves_all(300, &path);
}

#[test]
fn every_client_of_an_echo_frontend_gets_its_backend() {
    let backend = Server::start("", &["echo"]);
    let frontend = Server::start("ulimit -n 64;", &["echo", "--backend", &backend.addr]);
    let mut clients: Vec<_> = (0..300).map(|_| frontend.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.write_all(&frame(number)).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, frame(number), "connection {number}");
    }
}

fn frame(number: usize) -> Vec<u8> {
    let payload = number.to_be_bytes();
    [&u32::try_from(payload.len()).unwrap().to_be_bytes()[..], &payload].concat()
}

/// What is kept back for idle connections to the backend is not taken from them.
#[test]
fn every_client_that_the_user_allows_has_its_tunnel_at_the_same_time() {
    const CLIENTS: usize = 170;
    let backend = Server::start("", &["http"]);
    let connections = CLIENTS.to_string();
    let arguments = ["proxy", "--to", &backend.addr, "--max-connections", &connections];
    // Who waits is refused after this time.
    let arguments = [&arguments[..], &["--upstream-timeout", "5"]].concat();
    let proxy = Server::start("ulimit -n 400;", &arguments);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| proxy.connect()).collect();
    clients.iter_mut().for_each(|client| ask(client, "/ws", WEBSOCKET));
    for (number, client) in clients.iter_mut().enumerate() {
        let mut answer = [0; 12];
        let read = client.read_exact(&mut answer);
        assert!(read.is_ok() && &answer == b"HTTP/1.1 101", "connection {number}: {read:?}");
    }
}

/// A user has allowed more clients than there are descriptors for tunnels. Each tunnel ends, and
/// makes room for the next one.
#[test]
fn every_client_of_a_proxy_gets_its_tunnel_when_others_have_ended() {
    const CLIENTS: usize = 30;
    let backend = Server::start("", &["http"]);
    let connections = CLIENTS.to_string();
    let arguments = ["proxy", "--to", &backend.addr, "--max-connections", &connections];
    let proxy = Server::start("ulimit -n 64;", &arguments);
    let mut waiting: Vec<_> = (0..CLIENTS).map(|_| proxy.connect()).collect();
    waiting.iter_mut().for_each(|client| ask(client, "/ws", WEBSOCKET));
    let begun = Instant::now();
    while !waiting.is_empty() {
        assert!(begun.elapsed() < GUARD, "{} wait for ever", waiting.len());
        // Those that have their tunnels leave when nobody else gets one.
        let mut has_tunnel = |client: &mut TcpStream| {
            client.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            let mut answer = [0; 12];
            let Ok(read) = client.read(&mut answer) else { return false };
            assert_eq!(&answer[..read], b"HTTP/1.1 101");
            true
        };
        let tunnels: Vec<_> = waiting.extract_if(.., &mut has_tunnel).collect();
        drop(tunnels);
    }
}

#[test]
fn the_soft_limit_is_raised_to_the_hard_one_at_the_start() {
    const MANY: usize = 200;
    let server = Server::start("ulimit -Hn 1024; ulimit -Sn 64;", &["http"]);
    let mut clients: Vec<_> = (0..MANY).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| ask(client, "/healthz", ""));
    assert!(clients.iter_mut().all(|client| client.read_exact(&mut [0; 12]).is_ok()));
}

#[test]
fn a_limit_that_is_raised_lets_more_connections_in() {
    const MANY: usize = 200;
    let server = Server::start("ulimit -n 64;", &["http"]);
    let raise = ["--pid", &server.child.id().to_string(), "--nofile=1024:4096"].map(str::to_owned);
    let mut clients: Vec<_> = (0..MANY).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| ask(client, "/healthz", ""));
    let is_answered = |client: &mut TcpStream| client.read_exact(&mut [0; 12]).is_ok();
    assert!(clients.drain(..10).all(|mut client| is_answered(&mut client)));
    match Command::new("prlimit").args(&raise).status() {
        Ok(status) if status.success() => {}
        other => return eprintln!("skipped: prlimit cannot raise a hard limit: {other:?}"),
    }
    // The server looks at the limit when a connection closes, once a second at most.
    let mut last = clients.pop().unwrap();
    last.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    while !is_answered(&mut last) {
        drop(clients.remove(0));
    }
    assert!(clients.len() > 64, "one after another, as before: {} are left", clients.len());
    assert!(clients.iter_mut().all(is_answered), "all are open at once");
}

#[test]
fn every_client_in_the_backlog_is_answered_when_the_server_ends() {
    let server = Server::start("ulimit -n 64;", &["http", "--grace", "60"]);
    let mut clients: Vec<_> = (0..200).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| ask(client, "/sleep/20", CLOSE));
    server.terminate();
    for (number, client) in clients.iter_mut().enumerate() {
        let mut answer = String::new();
        let read = client.read_to_string(&mut answer);
        assert!(answer.starts_with("HTTP/1.1 200 "), "connection {number}: {read:?} {answer}");
    }
}

/// Descriptors come back only when connections close, so the drain must not wait for descriptors
/// before it tells them.
#[test]
fn idle_connections_are_told_of_the_drain_although_descriptors_are_short() {
    // Longer than a client waits.
    let limits = ["--max-connections", "1000", "--grace", "120"];
    for service in ["http", "echo"] {
        let mut server = Server::start("ulimit -n 64;", &[&[service], &limits[..]].concat());
        let clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
        server.terminate();
        for (number, mut client) in clients.into_iter().enumerate() {
            let read = client.read(&mut [0; 12]);
            assert!(matches!(read, Ok(0)), "{service}, connection {number}: {read:?}");
        }
        assert_eq!(server.child.wait().unwrap().code(), Some(0), "{service}");
    }
}

/// Clients of the backlog, which the server could not accept when they came, ask it.
fn waiting_clients(server: &Server) -> Vec<TcpStream> {
    let mut clients: Vec<_> = (0..20).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| ask(client, "/healthz", ""));
    clients
}

/// An administrator lowers the limit below what is open.
#[test]
fn a_limit_that_was_lowered_loses_no_connection_of_the_backlog() {
    for is_hard in [false, true] {
        let server = Server::start("", &["http", "--grace", "60"]);
        // The hard one leaves the loops' reserves.
        let free = server.first_free_descriptor();
        server.limit_descriptors(&if is_hard { format!("{free}:{free}") } else { "1:".into() });
        let clients = waiting_clients(&server);
        server.terminate();
        for (number, mut client) in clients.into_iter().enumerate() {
            let mut answer = [0; 12];
            let read = client.read_exact(&mut answer);
            assert!(read.is_ok() && &answer == b"HTTP/1.1 200", "{is_hard}, {number}: {read:?}");
        }
        let said = server.said();
        assert!(said.contains(" drained"), "{said}");
    }
}

#[test]
fn connections_that_no_descriptor_was_left_for_are_counted_at_the_end() {
    for accept in [&[][..], &["--accept", "reuse-port"]] {
        let server = Server::start("", &[&["http", "--grace", "1"], accept].concat());
        server.limit_descriptors("1:1");
        let clients = waiting_clients(&server);
        server.terminate();
        for mut client in clients {
            assert!(client.read_exact(&mut [0; 12]).is_err());
        }
        let said = server.said();
        assert!(said.contains("connections still open aborted=20"), "{said}");
        assert!(said.contains("all connections of the backlog"), "{said}");
    }
}

/// Redis clients expect an error, and do not wait.
#[test]
fn clients_of_kv_for_which_there_is_no_descriptor_are_told() {
    const REFUSED: &str = "-ERR max number of clients reached\r\n";
    let server = Server::start("ulimit -n 128;", &["kv"]);
    let mut first = server.connect();
    let mut info = |name: &str| {
        first.write_all(b"INFO\r\n").unwrap();
        let mut lines = BufReader::new(first.try_clone().unwrap()).lines().map(Result::unwrap);
        let text: Vec<_> = lines.by_ref().take_while(|line| line != "# Keyspace").collect();
        assert_eq!(lines.next().as_deref(), Some(""));
        let number = text.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        number.unwrap_or_else(|| panic!("{name}: {text:?}")).parse::<usize>().unwrap()
    };
    let most = info("maxclients");
    assert!((64..128).contains(&most), "{most}");
    let mut served: Vec<_> = (1..most).map(|_| server.connect()).collect();
    for client in &mut served {
        client.write_all(b"PING\r\n").unwrap();
        let mut answer = [0; 7];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"+PONG\r\n");
    }
    for number in 1..=20 {
        let mut answer = String::new();
        server.connect().read_to_string(&mut answer).unwrap();
        assert_eq!(answer, REFUSED);
        assert_eq!(info("rejected_connections"), number);
    }
    drop((first, served));
    server.terminate();
    let said = server.said();
    assert!(said.contains("fewer connections than wanted"), "{said}");
}
