//! A Unix socket whose backlog is full. Its server is busy, and not gone. connect(2) would wait for
//! it without a limit, or refuse with EAGAIN if it may not block.

use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use wakeful_load::{Check, ConnectionUse, LoadError, Plan, Protocol, Requests, Template, Watch};

/// More than the refused connections after which a server counts as gone.
const CONNECTIONS: usize = 40;

/// A server that is served between the turns of the generator, on its thread: nothing is a race.
struct Server {
    listener: UnixListener,
    addr: String,
    clients: Vec<UnixStream>,
}

impl Server {
    fn new(name: &str, backlog: i32) -> Self {
        let name = format!("wakeful-backlog-{name}-{}", std::process::id());
        let addr = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&addr).unwrap();
        listener.set_nonblocking(true).unwrap();
        let server = Self { listener, addr: format!("unix:@{name}"), clients: Vec::new() };
        server.has_room_for(backlog);
        server
    }

    fn has_room_for(&self, backlog: i32) {
        rustix::net::listen(&self.listener, backlog).unwrap();
    }

    fn accept(&mut self) {
        while let Ok((client, _)) = self.listener.accept() {
            client.set_nonblocking(true).unwrap();
            self.clients.push(client);
        }
    }

    /// Sends back what has come.
    fn answer(&mut self) {
        let mut buffer = [0; 4096];
        self.clients.retain_mut(|client| {
            loop {
                match client.read(&mut buffer) {
                    Ok(0) => return false,
                    Ok(count) => client.write_all(&buffer[..count]).unwrap(),
                    Err(error) => return error.kind() == ErrorKind::WouldBlock,
                }
            }
        });
    }

    fn plan(&self) -> Plan {
        Plan::new(self.addr.parse().unwrap())
            .requests(Requests::new(Protocol::Frames, &Template::of_size(16)).unwrap())
            .rate(1000.0)
            .connections(CONNECTIONS)
            .warm_up(Duration::from_millis(400))
            .duration(Duration::from_millis(200))
    }
}

/// Closes all connections at once, and lets only a few in for some time.
struct Closes {
    server: Server,
    /// How many looks ago it has closed them; none if not yet.
    closed: Option<usize>,
}

impl Watch for Closes {
    fn check(&mut self) -> Check {
        let server = &mut self.server;
        server.accept();
        self.closed = match self.closed {
            // The first looks may come while connections are opened.
            None if server.clients.len() < CONNECTIONS => None,
            None => {
                server.has_room_for(1);
                server.clients.clear();
                Some(0)
            }
            Some(looks) => {
                if looks == 2 {
                    server.has_room_for(128);
                }
                server.answer();
                Some(looks + 1)
            }
        };
        Check::GoOn
    }
}

#[test]
fn a_server_that_closes_more_connections_than_its_backlog_has_room_for_is_not_gone() {
    let server = Server::new("closes", 128);
    let plan = server.plan();
    let measurement = plan.run_watched(&mut Closes { server, closed: None }).unwrap();
    assert_eq!(measurement.refused, 0);
    assert!(measurement.reconnected >= CONNECTIONS as u64, "{}", measurement.reconnected);
    assert_eq!(measurement.recording.failed, 0, "{:?}", measurement.failures);
}

/// The user's Ctrl-C, at the first look.
struct Interrupts;

impl Watch for Interrupts {
    fn check(&mut self) -> Check {
        Check::Interrupted
    }
}

#[test]
fn the_wait_for_a_full_backlog_ends_with_the_run() {
    let server = Server::new("interrupted", 10);
    let error = server.plan().run_watched(&mut Interrupts).map(drop).unwrap_err();
    assert!(matches!(error, LoadError::Interrupted), "{error}");
}

/// A server that dies while connections wait for it.
struct Dies;

impl Watch for Dies {
    fn check(&mut self) -> Check {
        Check::ServerDied("of that".to_owned())
    }
}

#[test]
fn a_server_that_dies_meanwhile_is_told() {
    let server = Server::new("dies", 10);
    let error = server.plan().run_watched(&mut Dies).map(drop).unwrap_err().to_string();
    assert!(error.ends_with("into the opening of the connections, after 0 answers: of that"));
}

/// Accepts at each look, and answers.
struct Serves(Server);

impl Watch for Serves {
    fn check(&mut self) -> Check {
        self.0.accept();
        self.0.answer();
        Check::GoOn
    }
}

#[test]
fn a_request_for_whose_connection_there_is_no_room_fails_and_says_so() {
    let server = Server::new("per-request", 1);
    let plan = server.plan().use_of_connections(ConnectionUse::PerRequest);
    let measurement = plan.run_watched(&mut Serves(server)).unwrap();
    assert_eq!(measurement.refused, 0);
    let why = "cannot connect: Resource temporarily unavailable (os error 11); the server's \
               backlog is full";
    assert!(measurement.failures[why] > 0, "{:?}", measurement.failures);
}
