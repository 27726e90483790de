//! Requests that together are larger than what the kernel has room for.

use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use wakeful_load::internals::protocol::{Conversation, Http1};
use wakeful_load::{Check, Measurement, Plan, Protocol, Requests, Schedule, Template, Watch};

const REQUESTS: usize = 64;

/// A server that takes little at a time, and answers nothing before it has all requests. It is
/// served between the turns of the generator, on its thread: nothing is a race.
struct Server {
    listener: UnixListener,
    client: Option<UnixStream>,
    /// Bytes: of one request, and of all that have arrived.
    request: usize,
    arrived: usize,
    has_answered: bool,
}

impl Server {
    fn answer(&mut self) {
        if self.client.is_none() {
            self.client = self.listener.accept().ok().map(|(client, _)| client);
        }
        let Some(client) = &mut self.client else { return };
        client.set_nonblocking(true).unwrap();
        let mut buffer = vec![0; 64 << 10];
        loop {
            match client.read(&mut buffer) {
                Ok(count) => self.arrived += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        if self.arrived >= REQUESTS * self.request && !self.has_answered {
            client.write_all(&b"HTTP/1.1 204 \r\n\r\n".repeat(REQUESTS)).unwrap();
            self.has_answered = true;
        }
    }
}

impl Watch for Server {
    fn check(&mut self) -> Check {
        // The answers of the last look have been read by now.
        if self.has_answered {
            return Check::Interrupted;
        }
        self.answer();
        Check::GoOn
    }
}

/// Loads a server over one connection that may have all requests in flight. Returns whether the
/// server has answered them, too.
fn measure(name: &str, schedule: Schedule) -> (Measurement, bool) {
    let name = format!("wakeful-large-{name}-{}", std::process::id());
    let addr = SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&addr).unwrap();
    listener.set_nonblocking(true).unwrap();
    let template = Template::http("POST", "localhost", "/").body_of_size(64 << 10);
    let mut bytes = Vec::new();
    Http1::new(&template).unwrap().request(&mut bytes);
    let mut server =
        Server { listener, client: None, request: bytes.len(), arrived: 0, has_answered: false };
    let plan = Plan::new(format!("unix:@{name}").parse().unwrap())
        .requests(Requests::new(Protocol::Http1, &template).unwrap())
        .schedule(schedule)
        .connections(1)
        .in_flight(REQUESTS)
        .warm_up(Duration::ZERO)
        .duration(Duration::from_secs(30));
    (plan.run_watched(&mut server).unwrap(), server.has_answered)
}

#[test]
fn those_that_are_due_at_once_wait_for_the_connection_and_all_are_answered() {
    let (measured, has_answered) = measure("open", Schedule::Trace([0; REQUESTS].into()));
    assert!(has_answered);
    let recording = &measured.recording;
    assert_eq!((recording.answered, recording.failed), (REQUESTS as u64, 0));
    // The others fit into the kernel's buffer, and into the connection's.
    let waited = recording.waited_for_connection;
    assert!((REQUESTS as u64 / 4..REQUESTS as u64).contains(&waited), "{waited}");
}

#[test]
fn a_closed_loop_goes_on_when_the_connection_has_room_again() {
    let (measured, has_answered) = measure("closed", Schedule::Closed);
    assert!(has_answered);
    assert_eq!(measured.reconnected, 0);
}
