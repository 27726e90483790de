//! `--admin`: what operators see of the services that speak HTTP, and when.

mod common;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{GUARD, Service, get};

/// A backend, and each service with `--admin` and these arguments: its name, itself, and where it
/// and its admin listen.
fn each(arguments: &[&str], test: impl Fn(&str, Service, &str, &str)) {
    let mut backend = Service::start(&["http", "--listen", "127.0.0.1:0"]);
    let to = backend.behind("listening on ");
    for own in [&["http"][..], &["rpc"], &["proxy", "--to", &to]] {
        let common = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let mut service = Service::start(&[own, &common, arguments].concat());
        let admin = service.behind("admin on ");
        let addr = service.behind("listening on ");
        test(own[0], service, &addr, &admin);
    }
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < GUARD, "never: {what}");
        std::thread::yield_now();
    }
}

fn connect(addr: &str) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream
}

#[test]
fn limits_that_strike_clients_do_not_strike_operators() {
    let limits = ["--max-connections-per-peer", "1", "--peer-rate", "1", "--max-requests", "1"];
    each(&limits, |name, _service, addr, admin| {
        let _open = connect(addr);
        // One at a time, and this one has to wait for nobody: it is refused.
        until("a client is refused", || {
            let mut answer = Vec::new();
            let _ = connect(addr).read_to_end(&mut answer);
            answer.starts_with(b"HTTP/1.1 503")
        });
        let _open = [connect(admin), connect(admin)];
        for _ in 0..10 {
            assert!(get(admin, "/healthz").ends_with("ok\n"), "{name}");
            assert!(get(admin, "/readyz").ends_with("\r\n\r\nready\n"), "{name}");
        }
        let metrics = get(admin, "/metrics");
        let refused = "wakeful_http_refused_total{reason=\"peer_connections\"} ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(refused));
        assert!(line.unwrap().parse::<u64>().unwrap() >= 1, "{name}: {metrics}");
        assert!(metrics.contains("wakeful_loop_turns_total"), "{name}: {metrics}");
        assert!(get(admin, "/").starts_with("HTTP/1.1 404"), "{name}");
    });
}

#[test]
fn clients_do_not_see_the_metrics_of_a_service_whose_operators_have_an_address() {
    let mut service =
        Service::start(&["http", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let admin = service.behind("admin on ");
    let addr = service.behind("listening on ");
    assert!(get(&addr, "/metrics").starts_with("HTTP/1.1 404"));
    assert!(get(&addr, "/healthz").ends_with("ok\n"));
    assert!(get(&admin, "/metrics").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_connection_that_nobody_takes_for_the_limit_holds_no_operator_up() {
    each(&["--max-connections", "1"], |name, _service, addr, admin| {
        let open = connect(addr);
        let accepted = |metrics: &str| metrics.contains("wakeful_connections{loop=\"0\"} 1\n");
        until("it is open", || accepted(&get(admin, "/metrics")));
        let mut waits = connect(addr);
        waits.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        assert!(accepted(&get(admin, "/metrics")), "{name}");
        drop(open);
        let mut answer = Vec::new();
        waits.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 "), "{name}");
    });
}

/// Asks on a connection that is kept for as long as the server keeps it.
fn ask_again(kept: &mut Option<TcpStream>, admin: &str) {
    let mut stream = kept.take().unwrap_or_else(|| connect(admin));
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nok\n") {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "closed before its answer");
        answer.extend_from_slice(&piece[..count]);
    }
    let ends = answer.windows(17).any(|is| is == b"connection: close");
    *kept = (!ends).then_some(stream);
}

#[test]
fn operators_that_keep_asking_shut_no_other_out() {
    each(&[], |name, _service, _addr, admin| {
        let mut asking = [const { None }; 16];
        asking.iter_mut().for_each(|kept| ask_again(kept, admin));
        let mut other = connect(admin);
        other.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        other.set_nonblocking(true).unwrap();
        until("another one is answered", || {
            asking.iter_mut().for_each(|kept| ask_again(kept, admin));
            other.peek(&mut [0]).is_ok_and(|count| count > 0)
        });
        let mut answer = [0; 15];
        other.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK", "{name}");
    });
}

/// Has the server closed it? What it has said is read.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    loop {
        match stream.read(&mut [0; 1024]) {
            Ok(1..) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Ok(0) | Err(_) => return true,
        }
    }
}

#[test]
fn connections_that_say_nothing_shut_no_operator_out() {
    /// More in the same second than there are places, many times over.
    const A_SECOND: u32 = 200;
    /// Open at a time: if only silence ended them, it would take minutes.
    const MOST: usize = 800;
    let pieces: [&[u8]; 4] = [
        b"",
        b"GET /healthz HTTP/1.1\r\nho",
        // Answered, and more comes than is read.
        b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\nGET /",
        b"POST /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n",
    ];
    each(&[], |name, _service, _addr, admin| {
        for piece in pieces {
            let (over, addr) = (Arc::new(AtomicBool::new(false)), admin.to_owned());
            let came = Arc::new(AtomicUsize::new(0));
            let (is_over, count) = (over.clone(), came.clone());
            let attack = thread::spawn(move || {
                let mut open = VecDeque::new();
                while !is_over.load(Ordering::Relaxed) {
                    while open.front_mut().is_some_and(is_closed) {
                        open.pop_front();
                    }
                    // The kernel may refuse one more that waits.
                    if open.len() < MOST
                        && let Ok(mut stream) = TcpStream::connect(&addr)
                    {
                        let _ = stream.write_all(piece);
                        open.push_back(stream);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    thread::sleep(Duration::from_secs(1) / A_SECOND);
                }
            });
            for number in 1..=20 {
                // All places are taken, and others wait.
                until("more come", || came.load(Ordering::Relaxed) > 30 + 5 * number);
                assert!(get(admin, "/healthz").ends_with("\r\n\r\nok\n"), "{name}");
            }
            over.store(true, Ordering::Relaxed);
            attack.join().unwrap();
        }
    });
}

#[test]
fn before_the_drain_operators_are_told_that_it_is_not_ready_while_clients_are_served() {
    each(&["--pre-drain", "1000"], |name, mut service, addr, admin| {
        assert!(get(admin, "/readyz").starts_with("HTTP/1.1 200"), "{name}");
        service.signal("-TERM");
        until("it is not ready", || get(admin, "/readyz").starts_with("HTTP/1.1 503"));
        assert!(get(admin, "/readyz").ends_with("draining\n"), "{name}");
        assert!(get(admin, "/healthz").ends_with("ok\n"), "{name}");
        // rpc answers so to what is no call of gRPC.
        let answer = get(addr, "/");
        let served = ["HTTP/1.1 200", "HTTP/1.1 415"].iter().any(|is| answer.starts_with(is));
        assert!(served, "{name}: {answer}");
        // At once it would be the same one again.
        std::thread::sleep(Duration::from_millis(200));
        service.signal("-TERM");
        service.behind("stopped at once by a second signal");
    });
}

#[test]
fn operators_are_answered_until_the_drain_is_over() {
    each(&["--grace", "1000"], |name, mut service, addr, admin| {
        let path = if name == "rpc" { "/wakeful.echo.v1.Echo/Unary" } else { "/echo" };
        let mut busy = connect(addr);
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/grpc\r\ncontent-length: 5\r\n\r\n"
        );
        busy.write_all(head.as_bytes()).unwrap();
        busy.write_all(&[0; 4]).unwrap();
        let in_flight = "wakeful_http_requests_in_flight{loop=\"0\"} 1\n";
        until("it is in flight", || get(admin, "/metrics").contains(in_flight));
        service.signal("-TERM");
        until("it takes no clients", || TcpStream::connect(addr).is_err());
        assert!(get(admin, "/readyz").starts_with("HTTP/1.1 503"), "{name}");
        assert!(get(admin, "/metrics").contains(in_flight), "{name}");
        // The last one that it waits for ends, and with it the admin.
        busy.write_all(&[0]).unwrap();
        let mut answer = Vec::new();
        busy.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{name}");
        service.behind("drained");
        assert!(service.child.wait().unwrap().success(), "{name}");
        assert!(TcpStream::connect(admin).is_err(), "{name}");
    });
}
