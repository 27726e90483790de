//! Requests that wait for a connection to a backend: a backend is not silent before it has them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use wakeful_services::proxy::{Ejection, ProxyOptions};

use crate::common::*;
use crate::upgrades::{ASK, echo, head};

/// How long a backend may be silent. A backend that answers needs less.
const SILENCE: Duration = Duration::from_secs(1);
const LONGER: Duration = Duration::from_millis(1500);

/// A listener whose queue is full: the kernel drops what would connect to it.
struct Unreachable {
    addr: SocketAddr,
    _listener: Socket,
    _held: Vec<TcpStream>,
}

impl Unreachable {
    fn new() -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        listener.listen(0).unwrap();
        let addr = listener.local_addr().unwrap().as_socket().unwrap();
        let mut held = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&addr, Duration::from_millis(500)) {
            held.push(stream);
        }
        Self { addr, _listener: listener, _held: held }
    }
}

/// A connection takes longer than a backend may be silent.
fn slow_to_connect(settings: ProxyOptions) -> ProxyOptions {
    let settings = settings.upstream_timeout(SILENCE).connect_timeout(LONGER);
    settings.ejection(Ejection::new().failures(1).shortest(GUARD).longest(GUARD))
}

#[test]
fn a_backend_that_cannot_be_reached_costs_no_request_however_short_its_silence_may_be() {
    let (away, backend) = (Unreachable::new(), Backend::mirror());
    let proxy = proxy(&[away.addr, backend.addr], slow_to_connect);
    until("it is left out", || {
        assert_status(&get(addr(&proxy), "/"), 200);
        proxy.counts().backends()[0].ejections() == 1
    });
    assert_eq!((proxy.counts().retried(), proxy.counts().backends()[1].failures()), (1, 0));
}

#[test]
fn a_backend_that_cannot_be_reached_costs_no_upgrade_however_short_its_silence_may_be() {
    let (away, backend) = (Unreachable::new(), echo());
    let proxy = proxy(&[away.addr, backend.addr], slow_to_connect);
    until("it is left out", || {
        let mut stream = connect(addr(&proxy));
        stream.write_all(ASK.as_bytes()).unwrap();
        assert_status(&head(&mut stream), 101);
        proxy.counts().backends()[0].ejections() == 1
    });
    assert_eq!((proxy.counts().retried(), proxy.counts().backends()[1].failures()), (1, 0));
}

/// It is this proxy whose connections are all in use, and the backend is fine.
#[test]
fn a_wait_for_a_free_connection_is_a_503_and_no_failure_of_the_backend() {
    let (_service, to) = service();
    let proxy = proxy(&[to], |settings| {
        let settings = settings.connections(1).response_buffer(1);
        settings.upstream_timeout(SILENCE).queue_timeout(LONGER)
    });
    // Its client reads nothing, so it keeps the connection.
    let mut held = connect(addr(&proxy));
    held.write_all(b"GET /bytes/1000000000 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    assert_status(&head(&mut held), 200);
    assert_status(&get(addr(&proxy), "/healthz"), 503);
    assert_eq!(proxy.counts().backends()[0].failures(), 0);
    assert_eq!(held.read(&mut [0]).unwrap(), 1, "it is still served");
}

/// The silence counts from the connection on.
#[test]
fn a_backend_that_is_silent_once_it_is_connected_is_a_504() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let proxy = proxy(&[to], |settings| {
        settings.upstream_timeout(Duration::from_millis(50)).connect_timeout(GUARD)
    });
    // The kernel accepts.
    assert_status(&get(addr(&proxy), "/"), 504);
    assert_eq!(proxy.counts().backends()[0].failures(), 1);
}
