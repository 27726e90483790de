//! What the proxy forwards, and how it changes it.

use std::io::{Read, Write};

use wakeful_services::DrainPlan;
use wakeful_services::proxy;
use wakeful_services::proxy::headers::ForwardedHeaders;

use crate::common::*;

#[test]
fn requests_and_answers_go_through() {
    let (_service, to) = service();
    let proxy = proxy(&[to], |settings| settings);
    let addr = addr(&proxy);
    assert!(get(addr, "/").contains("wakeful serve http"));
    assert_status(&get(addr, "/nothing/here"), 404);
    let large = "x".repeat(1 << 20);
    let post = format!(
        "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{large}",
        large.len()
    );
    assert!(body(&ask(addr, &post)) == large);
    assert_eq!(body(&get(addr, "/bytes/5000000")).len(), 5_000_000);
    assert_eq!(proxy.counts().backends()[0].requests(), 4);
    assert_eq!(proxy.counts().backends()[0].failures(), 0);
    until("nothing is under way", || proxy.counts().backends()[0].in_flight() == 0);
    assert_eq!(proxy.counts().buffered(), 0);
}

#[test]
fn requests_of_many_clients_share_connections_to_a_backend() {
    let backend = Backend::mirror();
    let proxy = proxy(&[backend.addr], |settings| settings);
    for number in 0..20 {
        assert!(get(addr(&proxy), &format!("/{number}")).contains(&format!("GET /{number} ")));
    }
    assert_eq!(backend.connections(), 1);
    assert_eq!(proxy.counts().connections_reused(), 19);
}

#[test]
fn several_requests_on_one_connection_are_answered_in_order() {
    let backends = [Backend::mirror(), Backend::mirror()];
    let proxy = proxy(&[backends[0].addr, backends[1].addr], |settings| settings);
    let mut stream = connect(addr(&proxy));
    // The proxy chooses a backend at random. Of 64 requests, each backend almost certainly gets
    // one.
    let mut expected: Vec<_> = (0..64).map(|number| number.to_string()).collect();
    let mut requests: String = expected
        .iter()
        .map(|number| format!("GET /{number} HTTP/1.1\r\nhost: x\r\n\r\n"))
        .collect();
    expected.push("last".to_owned());
    requests.push_str("GET /last HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(requests.as_bytes()).unwrap();
    let answers = read_all(&mut stream);
    let paths = answers.lines().filter_map(|line| line.strip_prefix("GET /"));
    let paths: Vec<_> = paths.map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(paths, expected);
    assert!(backends.iter().all(|backend| !backend.requests().is_empty()));
}

#[test]
fn what_is_for_this_hop_goes_and_what_the_proxy_has_to_say_comes() {
    let backend = Backend::mirror();
    let proxy = proxy(&[backend.addr], |settings| settings);
    let answer = ask(
        addr(&proxy),
        "GET /a?b=c HTTP/1.1\r\nHost: example.org:81\r\nConnection: close, X-Private, x-forwarded-for\r\n\
         X-Private: 1\r\nX-Kept: 2\r\nKeep-Alive: 5\r\nTE: gzip\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\
         Proxy-Authorization: Basic eA==\r\nProxy: http://evil/\r\nX-Forwarded-For: 1.2.3.4\r\n\
         X_Forwarded_For: 5.6.7.8\r\nForwarded: for=1.2.3.4\r\nVia: 1.0 before\r\n\r\n",
    );
    assert_status(&answer, 200);
    let seen = backend.requests()[0].to_lowercase();
    let mut lines: Vec<_> = seen.trim_end().lines().collect();
    assert_eq!(lines.remove(0), "get /a?b=c http/1.1");
    lines.sort_unstable();
    let own = lines.iter().position(|line| line.starts_with("via: 1.1 wakeful-")).unwrap();
    lines.remove(own);
    assert_eq!(
        lines,
        [
            "forwarded: for=127.0.0.1;host=\"example.org:81\";proto=http",
            "host: example.org:81",
            "via: 1.0 before",
            "x-forwarded-for: 127.0.0.1",
            "x-forwarded-host: example.org:81",
            "x-forwarded-proto: http",
            "x-kept: 2",
        ]
    );
    assert!(answer.to_lowercase().contains("\r\nvia: 1.1 wakeful\r\n"), "{answer}");
}

#[test]
fn what_is_said_about_the_client_can_be_added_or_left_alone() {
    for (how, expected) in [
        (
            ForwardedHeaders::Append,
            ["1.2.3.4, 127.0.0.1", "https", "for=1.2.3.4, for=127.0.0.1;host=x;proto=http"],
        ),
        (ForwardedHeaders::Keep, ["1.2.3.4", "https", "for=1.2.3.4"]),
    ] {
        let backend = Backend::mirror();
        let proxy = proxy(&[backend.addr], |settings| settings.forwarded(how));
        ask(
            addr(&proxy),
            "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-forwarded-for: 1.2.3.4\r\n\
             x-forwarded-proto: https\r\nforwarded: for=1.2.3.4\r\n\r\n",
        );
        let seen = backend.requests()[0].to_lowercase();
        let names = ["x-forwarded-for", "x-forwarded-proto", "forwarded"];
        for (name, value) in names.iter().zip(expected) {
            assert!(seen.contains(&format!("\r\n{name}: {value}\r\n")), "{name}: {seen}");
        }
    }
}

#[test]
fn max_forwards_is_counted_down_and_ends_here() {
    let backend = Backend::mirror();
    let proxy = proxy(&[backend.addr], |settings| settings);
    let ask = |method: &str, left: &str| {
        let head = format!(
            "{method} / HTTP/1.1\r\nhost: x\r\nmax-forwards: {left}\r\nconnection: close\r\n\r\n"
        );
        ask(addr(&proxy), &head)
    };
    assert_status(&ask("OPTIONS", "0"), 204);
    assert_status(&ask("TRACE", "0"), 405);
    assert!(backend.requests().is_empty());
    assert!(ask("OPTIONS", "2").contains("\r\nmax-forwards: 1\r\n"));
    assert!(ask("TRACE", "1").contains("\r\nmax-forwards: 0\r\n"));
    assert!(ask("GET", "0").contains("\r\nmax-forwards: 0\r\n"));
    assert!(ask("OPTIONS", "many").contains("\r\nmax-forwards: many\r\n"));
}

#[test]
fn heads_without_bodies_keep_their_lengths() {
    for (method, answer, kept) in [
        ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n", "\r\ncontent-length: 1234\r\n"),
        (
            "GET",
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 99\r\netag: \"a\"\r\n\r\n",
            "\r\netag: \"a\"\r\n",
        ),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n", "\r\nvia: 1.1 wakeful\r\n"),
    ] {
        let backend = Backend::saying(answer);
        let proxy = proxy(&[backend.addr], |settings| settings);
        for _ in 0..2 {
            let request = format!("{method} / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            let got = ask(addr(&proxy), &request);
            assert!(got.contains(kept) && got.ends_with("\r\n\r\n"), "{got}");
        }
        assert_eq!(backend.connections(), 1);
    }
}

#[test]
fn bodies_keep_their_framing_or_get_a_safe_one() {
    let backend = Backend::mirror();
    let proxy = proxy(&[backend.addr], |settings| settings.request_buffer(1000));
    let ask = |head: &str, body: &str| {
        let seen = backend.requests().len();
        let request = format!("{head}host: x\r\nconnection: close\r\n\r\n{body}");
        assert_status(&ask(addr(&proxy), &request), 200);
        backend.requests()[seen].clone()
    };
    let seen = ask("POST / HTTP/1.1\r\ncontent-length: 0\r\n", "");
    assert!(seen.contains("\r\ncontent-length: 0\r\n"), "{seen}");
    let seen = ask("GET / HTTP/1.1\r\n", "");
    assert!(!seen.contains("content-length") && !seen.contains("transfer-encoding"), "{seen}");
    // In chunks, and short: its length is known before it is forwarded.
    let seen = ask("GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n");
    assert!(
        seen.contains("\r\ncontent-length: 5\r\n") && seen.ends_with("\r\n\r\nhello"),
        "{seen}"
    );
    let seen = ask("POST / HTTP/1.1\r\ntransfer-encoding: Chunked\r\n", "0\r\n\r\n");
    assert!(!seen.contains("transfer-encoding"), "{seen}");
    // Long, also of a GET.
    let chunk = format!("5dc\r\n{}\r\n", "y".repeat(1500));
    let seen = ask(
        "GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\n",
        &format!("{chunk}{chunk}0\r\n\r\n"),
    );
    assert!(seen.contains("\r\ntransfer-encoding: chunked\r\n"), "{seen}");
    assert_eq!(seen.matches('y').count(), 3000);
    // With trailers, of which the dangerous ones are removed.
    let seen = ask(
        "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ntrailer: x-sum, content-length\r\n",
        "5\r\nhello\r\n0\r\nx-sum: 7\r\ncontent-length: 9\r\n\r\n",
    );
    assert!(seen.contains("\r\ntransfer-encoding: chunked\r\n"), "{seen}");
    assert!(seen.ends_with("\r\n0\r\nx-sum: 7\r\n\r\n"), "{seen}");
}

#[test]
fn trailers_of_a_response_reach_a_client_that_wants_them() {
    let backend = Backend::saying(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n",
    );
    let proxy = proxy(&[backend.addr], |settings| settings);
    let answer = ask(
        addr(&proxy),
        "GET / HTTP/1.1\r\nhost: x\r\nte: trailers\r\nconnection: te, close\r\n\r\n",
    );
    assert!(answer.ends_with("\r\n0\r\nx-sum: 7\r\n\r\n"), "{answer}");
    let seen = &backend.requests()[0];
    assert!(
        seen.contains("\r\nte: trailers\r\n") && seen.contains("\r\nconnection: te\r\n"),
        "{seen}"
    );
}

#[test]
fn an_http_1_0_client_is_answered_as_it_can_read() {
    let backend = Backend::saying(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    );
    let proxy = proxy(&[backend.addr], |settings| settings);
    let answer = ask(addr(&proxy), "GET / HTTP/1.0\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.0 200 OK\r\n") && answer.ends_with("\r\n\r\nok"),
        "{answer}"
    );
    assert!(backend.requests()[0].starts_with("GET / HTTP/1.1\r\n"));
    assert!(backend.requests()[0].contains(&format!("\r\nhost: {}\r\n", backend.addr)));
}

#[test]
fn operators_see_what_it_counts() {
    let (_service, to) = service();
    let proxy = proxy(&[to, nowhere()], |settings| settings);
    for _ in 0..20 {
        assert_status(&get(addr(&proxy), "/"), 200);
    }
    // The server refuses it, and then the proxy.
    assert_status(&ask(addr(&proxy), "GET / HTTP/1.1\r\n\r\n"), 400);
    assert_status(&ask(addr(&proxy), "GET / HTTP/1.1\r\nhost: a@b\r\n\r\n"), 400);
    let both =
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n";
    assert_status(&ask(addr(&proxy), both), 400);
    let admin = tcp(&proxy.admin_addrs()[0]);
    assert!(get(admin, "/readyz").ends_with("ready\n"));
    let metrics = get(admin, "/metrics");
    let requests = format!("wakeful_proxy_requests_total{{backend=\"{to}\"}} 20");
    for line in [
        requests.as_str(),
        &format!("wakeful_proxy_in_flight{{backend=\"{to}\"}} 0"),
        "wakeful_proxy_refused_total 1",
        "wakeful_proxy_buffered_bytes 0",
        "wakeful_proxy_tunnels 0",
        "wakeful_proxy_overloads_total 0",
        "wakeful_http_refused_total{reason=\"host\"} 1",
        "wakeful_http_refused_total{reason=\"ambiguous_length\"} 1",
        "wakeful_accepts_total",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[test]
fn what_is_in_flight_finishes_when_the_proxy_ends() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let backend = Backend::start(move |this, stream| {
        this.read(stream);
        let _ = released.lock().unwrap().recv();
        answer(stream, "in time");
    });
    let proxy = proxy(&[backend.addr], |settings| settings);
    let mut stream = connect(addr(&proxy));
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    until("the backend has it", || !backend.requests().is_empty());
    let (counts, admin) = (proxy.server().counts(), tcp(&proxy.admin_addrs()[0]));
    let idle = connect(addr(&proxy));
    until("both are open", || counts.open() == 2);
    let shutdown = std::thread::spawn(move || proxy.drain(DrainPlan::new().grace(GUARD)).unwrap());
    until("the idle one is closed", || counts.open() == 1);
    let readiness = get(admin, "/readyz");
    assert_status(&readiness, 503);
    drop((idle, release));
    assert!(read_all(&mut stream).ends_with("in time"));
    assert_eq!(shutdown.join().unwrap(), 0);
}

#[test]
fn a_request_that_comes_back_is_508_and_a_chain_of_proxies_is_none() {
    let (_service, to) = service();
    let last = proxy(&[to], |settings| settings);
    let first = proxy(&[addr(&last)], |settings| settings);
    assert!(get(addr(&first), "/").contains("wakeful serve http"));
    // Two proxies, each of which has the other one for a backend.
    let free = nowhere();
    let one = proxy(&[free], |settings| settings);
    let to = vec![addr(&one).into()];
    let listener = wakeful::accept::SharedListener::bind(&free.into()).unwrap();
    let settings = proxy::ProxyOptions::new(to);
    let other = proxy::start(&options(1), settings, vec![listener], Vec::new()).unwrap();
    for headers in ["", "connection: via\r\n", "connection: upgrade\r\nupgrade: websocket\r\n"] {
        let mut stream = connect(addr(&one));
        write!(stream, "GET / HTTP/1.1\r\nhost: x\r\n{headers}\r\n").unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 508", "{headers}");
    }
    assert_eq!((one.counts().refused(), other.counts().refused()), (3, 0));
}
