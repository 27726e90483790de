//! How tunnels end that nobody ends: by silence, by a reset, and when the proxy drains.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};
use wakeful_services::DrainPlan;

use crate::common::*;
use crate::upgrades::{ASK, SWITCH, echo, exactly, head};

#[test]
fn a_tunnel_on_which_nothing_moves_is_closed_and_one_in_use_is_not() {
    let backend = echo();
    let proxy =
        proxy(&[backend.addr], |settings| settings.tunnel_timeout(Duration::from_millis(400)));
    let mut busy = connect(addr(&proxy));
    busy.write_all(ASK.as_bytes()).unwrap();
    head(&mut busy);
    let mut idle = connect(addr(&proxy));
    idle.write_all(ASK.as_bytes()).unwrap();
    head(&mut idle);
    let waiting = std::thread::spawn(move || read_all(&mut idle));
    while !waiting.is_finished() {
        busy.write_all(b"x").unwrap();
        exactly(&mut busy, "x");
    }
    assert_eq!(waiting.join().unwrap(), "");
    busy.write_all(b"still here").unwrap();
    exactly(&mut busy, "still here");
}

#[test]
fn a_tunnel_with_the_shortest_limits_is_closed() {
    let backend = echo();
    for limit in [Duration::ZERO, Duration::from_nanos(1)] {
        let proxy = proxy(&[backend.addr], |settings| settings.tunnel_timeout(limit));
        let mut idle = connect(addr(&proxy));
        idle.write_all(ASK.as_bytes()).unwrap();
        head(&mut idle);
        assert_eq!(read_all(&mut idle), "");
        until("it is over", || proxy.counts().tunnels() == 0);
    }
}

#[test]
fn a_tunnel_of_which_one_side_has_ended_waits_no_longer_than_for_a_response() {
    let backend = echo();
    let proxy =
        proxy(&[backend.addr], |settings| settings.upstream_timeout(Duration::from_millis(200)));
    let mut quiet = connect(addr(&proxy));
    quiet.write_all(ASK.as_bytes()).unwrap();
    head(&mut quiet);
    let silent = Backend::start(|this, stream| {
        this.read(stream);
        stream.write_all(SWITCH.as_bytes()).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        this.note("the client has ended");
        until("for ever", || this.requests().len() > 2);
    });
    let other = self::proxy(&[silent.addr], |settings| {
        settings.upstream_timeout(Duration::from_millis(200))
    });
    let mut ended = connect(addr(&other));
    ended.write_all(ASK.as_bytes()).unwrap();
    head(&mut ended);
    ended.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut ended), "");
    assert_eq!(silent.requests()[1], "the client has ended");
    silent.note("enough");
    // Where none has ended, that is no limit.
    assert_eq!(proxy.counts().tunnels(), 1);
    until("the other one is over", || other.counts().tunnels() == 0);
}

/// A WebSocket is closed by a frame of its protocol, and the backend hears the client's answer.
#[test]
fn a_websocket_is_told_when_the_proxy_drains() {
    let backend = Backend::start(|this, stream| {
        this.read(stream);
        stream.write_all(SWITCH.as_bytes()).unwrap();
        // A frame that has begun; its rest comes after the beginning of the drain.
        stream.write_all(b"\x81\x06abc").unwrap();
        this.note("begun");
        stream.read_exact(&mut [0]).unwrap();
        stream.write_all(b"def").unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        this.note(&format!("{rest:x?}"));
    });
    let proxy = proxy(&[backend.addr], |settings| settings);
    let mut stream = connect(addr(&proxy));
    stream.write_all(ASK.as_bytes()).unwrap();
    head(&mut stream);
    let mut got = [0; 5];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"\x81\x06abc");
    let readiness = proxy.server().readiness();
    let draining = std::thread::spawn(move || proxy.drain(DrainPlan::new().grace(GUARD)).unwrap());
    until("it drains", || !readiness.is_ready());
    stream.write_all(b"!").unwrap();
    let mut got = [0; 7];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"def\x88\x02\x03\xe9");
    // The client agrees, and leaves.
    stream.write_all(b"\x88\x82\0\0\0\0\x03\xe9").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut stream), "");
    assert_eq!(draining.join().unwrap(), 0, "nothing had to be aborted");
    until("the backend is alone", || backend.is_alone());
    assert_eq!(backend.requests()[2], "[88, 82, 0, 0, 0, 0, 3, e9]");
}

#[test]
fn a_tunnel_does_not_hold_the_drain_up() {
    let backend = echo();
    let proxy = proxy(&[backend.addr], |settings| settings);
    let mut stream = connect(addr(&proxy));
    stream.write_all(ASK.as_bytes()).unwrap();
    head(&mut stream);
    let plan = DrainPlan::new().grace(Duration::from_millis(100));
    assert_eq!(proxy.drain(plan).unwrap(), 1, "the connection was aborted, and counted");
    let mut told = Vec::new();
    let _ = stream.read_to_end(&mut told);
    assert_eq!(told, b"\x88\x02\x03\xe9", "it was told, and did not listen");
}

#[test]
fn there_are_no_more_tunnels_than_may_be_and_one_that_ends_makes_room() {
    let backend = echo();
    let proxy = proxy(&[backend.addr], |settings| settings.max_tunnels(1));
    let mut first = connect(addr(&proxy));
    first.write_all(ASK.as_bytes()).unwrap();
    assert!(head(&mut first).starts_with("HTTP/1.1 101 "));
    let mut second = connect(addr(&proxy));
    second.write_all(ASK.as_bytes()).unwrap();
    assert!(read_all(&mut second).starts_with("HTTP/1.1 503 "));
    assert_eq!(backend.connections(), 1);
    drop(first);
    until("the place is free", || {
        let mut third = connect(addr(&proxy));
        third.write_all(ASK.as_bytes()).unwrap();
        head(&mut third).starts_with("HTTP/1.1 101 ")
    });
}

/// Its client may have gone: who has something to write does not read.
#[test]
fn a_tunnel_whose_backend_takes_nothing_waits_no_longer_than_for_a_response() {
    let stuck = Backend::start(|this, stream| {
        this.read(stream);
        stream.write_all(SWITCH.as_bytes()).unwrap();
        until("for ever", || this.requests().len() > 1);
    });
    let proxy =
        proxy(&[stuck.addr], |settings| settings.upstream_timeout(Duration::from_millis(200)));
    let mut client = connect(addr(&proxy));
    client.write_all(ASK.as_bytes()).unwrap();
    head(&mut client);
    // Well before the backend gives up: the last write may take a part, and the next one waits
    // again.
    client.set_write_timeout(Some(GUARD / 5)).unwrap();
    let piece = [b'x'; 64 * 1024];
    let error = loop {
        if let Err(error) = client.write(&piece) {
            break error;
        }
    };
    assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "it stays open");
    stuck.note("enough");
}

/// More than the kernel takes for a connection.
const MUCH: usize = 6 << 20;

/// A socket whose kernel takes, and makes room for, a few bytes at a time. Over a real link it does
/// the latter with larger buffers, too.
fn small_buffer() -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    socket
}

/// Reads everything, first far more slowly than the other side sends.
fn read_slowly(stream: &mut TcpStream, limit: Duration) -> (usize, Result<(), ErrorKind>) {
    let mut piece = [0; 4 << 10];
    let slowly = 60;
    for _ in 0..slowly {
        stream.read_exact(&mut piece).unwrap();
        std::thread::sleep(limit / 40);
    }
    SockRef::from(&*stream).set_recv_buffer_size(1 << 20).unwrap();
    let (all, end) = rest(stream);
    (slowly * piece.len() + all.len(), end)
}

/// The kernel takes more bytes for a side only when a third of its buffer, or more, is free. That
/// takes these longer than the limit.
#[test]
fn a_tunnel_of_which_one_side_reads_steadily_goes_on_though_its_socket_takes_nothing_for_long() {
    const LIMIT: Duration = Duration::from_secs(2);
    let listener = small_buffer();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(8).unwrap();
    let backend = Backend::on(listener.into(), |this, stream| {
        let asked = this.read(stream).unwrap();
        stream.write_all(SWITCH.as_bytes()).unwrap();
        if asked.contains("room=1") {
            stream.write_all(&vec![b'x'; MUCH]).unwrap();
        } else {
            let got = read_slowly(stream, LIMIT);
            this.note(&format!("{got:?}"));
        }
    });
    let proxy = proxy(&[backend.addr], |settings| settings.upstream_timeout(LIMIT));
    let open = |room| {
        let client = small_buffer();
        client.connect(&addr(&proxy).into()).unwrap();
        let mut client = TcpStream::from(client);
        client.set_read_timeout(Some(GUARD)).unwrap();
        client.write_all(ASK.replace("room=1", room).as_bytes()).unwrap();
        head(&mut client);
        client
    };
    let (mut reader, mut writer) = (open("room=1"), open("room=2"));
    let writing = std::thread::spawn(move || {
        writer.write_all(&vec![b'x'; MUCH]).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
        rest(&mut writer)
    });
    assert_eq!(read_slowly(&mut reader, LIMIT), (MUCH, Ok(())));
    assert_eq!(writing.join().unwrap(), (Vec::new(), Ok(())));
    assert_eq!(backend.requests().last().unwrap(), &format!("{:?}", (MUCH, Ok::<_, ()>(()))));
}

/// The close of `stream` is a reset.
fn resets(stream: &TcpStream) {
    SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Everything until the other side closes, and how it does that.
fn rest(stream: &mut TcpStream) -> (Vec<u8>, Result<(), ErrorKind>) {
    let mut all = Vec::new();
    let end = stream.read_to_end(&mut all).map(drop).map_err(|error| error.kind());
    (all, end)
}

/// In a protocol that ends with its connection, a clean end would say that all has come.
#[test]
fn a_tunnel_that_one_side_resets_does_not_end_cleanly_for_the_other() {
    let backend = Backend::start(|this, stream| {
        let asked = this.read(stream).unwrap();
        stream.write_all(SWITCH.as_bytes()).unwrap();
        if asked.contains("room=1") {
            stream.write_all(b"the first half").unwrap();
            stream.read_exact(&mut [0]).unwrap();
            resets(stream);
            return;
        }
        stream.write_all(b"ready").unwrap();
        let (heard, end) = rest(stream);
        this.note(&format!("{} {end:?}", String::from_utf8_lossy(&heard)));
    });
    let proxy = proxy(&[backend.addr], |settings| settings);
    let mut client = connect(addr(&proxy));
    client.write_all(ASK.as_bytes()).unwrap();
    head(&mut client);
    exactly(&mut client, "the first half");
    client.write_all(b"!").unwrap();
    assert_eq!(rest(&mut client), (Vec::new(), Err(ErrorKind::ConnectionReset)));
    let mut client = connect(addr(&proxy));
    client.write_all(ASK.replace("room=1", "room=2").as_bytes()).unwrap();
    head(&mut client);
    exactly(&mut client, "ready");
    client.write_all(b"the first half").unwrap();
    resets(&client);
    drop(client);
    until("the backend is alone", || backend.is_alone());
    let told = backend.requests().pop().unwrap();
    assert!(told.ends_with(" Err(ConnectionReset)"), "{told}");
}

/// The kernel reports the reset only once, perhaps to the direction that writes to the backend.
#[test]
fn a_tunnel_whose_backend_dies_while_bytes_wait_for_it_does_not_end_cleanly_for_its_client() {
    let backend = Backend::start(|this, stream| {
        this.read(stream);
        stream.write_all(SWITCH.as_bytes()).unwrap();
        let known = this.requests().len();
        until("bytes wait for it", || this.requests().len() > known);
        // It closes with unread bytes.
    });
    let proxy = proxy(&[backend.addr], |settings| settings);
    // The directions take turns to be polled first.
    for _ in 0..8 {
        let mut client = connect(addr(&proxy));
        client.write_all(ASK.as_bytes()).unwrap();
        head(&mut client);
        client.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        while client.write(&[b'x'; 1 << 20]).is_ok() {}
        backend.note("enough");
        assert_eq!(rest(&mut client), (Vec::new(), Err(ErrorKind::ConnectionReset)));
        until("the backend is alone", || backend.is_alone());
    }
}

#[test]
fn a_tunnel_that_is_given_up_ends_cleanly_only_for_a_side_that_was_told_its_end() {
    let backend = Backend::start(|this, stream| {
        let asked = this.read(stream).unwrap();
        stream.write_all(SWITCH.as_bytes()).unwrap();
        if asked.contains("room=1") {
            stream.write_all(b"all of it").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        }
        this.note(&format!("{:?}", rest(stream).1));
    });
    let limit = Duration::from_millis(200);
    let proxy = proxy(&[backend.addr], |settings| settings.tunnel_timeout(limit));
    for (room, end) in [("room=1", Ok(())), ("room=2", Err(ErrorKind::ConnectionReset))] {
        let mut client = connect(addr(&proxy));
        client.write_all(ASK.replace("room=1", room).as_bytes()).unwrap();
        head(&mut client);
        assert_eq!(rest(&mut client).1, end);
        until("the backend is alone", || backend.is_alone());
        // No end has come from the client.
        assert_eq!(backend.requests().last().unwrap(), "Err(ConnectionReset)");
    }
}

#[test]
fn a_tunnel_that_a_drain_aborts_does_not_end_cleanly_for_its_backend() {
    let backend = Backend::start(|this, stream| {
        this.read(stream);
        stream.write_all(SWITCH.as_bytes()).unwrap();
        this.note(&format!("{:?}", rest(stream).1));
    });
    let proxy = proxy(&[backend.addr], |settings| settings);
    let mut client = connect(addr(&proxy));
    client.write_all(ASK.as_bytes()).unwrap();
    head(&mut client);
    until("it is open", || proxy.counts().tunnels() == 1);
    assert_eq!(proxy.drain(DrainPlan::new().grace(Duration::from_millis(100))).unwrap(), 1);
    until("the backend is alone", || backend.is_alone());
    assert_eq!(backend.requests()[1], "Err(ConnectionReset)");
}
