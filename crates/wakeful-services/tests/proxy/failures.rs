//! Backends that die, stall, close half, send garbage, answer early, and reset.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use socket2::SockRef;
use wakeful_http::DrainPlan;
use wakeful_http::client::HttpVersion;

use crate::common::*;

const SHORT: Duration = Duration::from_millis(50);
/// How long a backend waits for a body. The proxy takes no less than a second for such a wait.
const PATIENCE: Duration = Duration::from_secs(3);

#[test]
fn a_backend_that_is_not_there_costs_no_request_while_another_one_is() {
    let backend = Backend::mirror();
    let proxy = proxy(&[nowhere(), backend.addr, nowhere()], |settings| settings);
    for _ in 0..40 {
        assert_status(&get(addr(&proxy), "/"), 200);
    }
    let counts = proxy.counts();
    assert_eq!(counts.backends()[1].requests(), 40);
    assert_eq!(
        [
            counts.backends()[0].ejections(),
            counts.backends()[1].ejections(),
            counts.backends()[2].ejections()
        ],
        [1, 0, 1]
    );
    // Three failures each, and then they are left out.
    assert_eq!(
        (counts.backends()[0].failures(), counts.backends()[2].failures(), counts.retried()),
        (3, 3, 6)
    );
}

#[test]
fn many_backends_that_are_not_there_cost_no_request_while_another_one_is() {
    let backend = Backend::mirror();
    let mut to: Vec<_> = (1..=20).map(|host| SocketAddr::from(([127, 0, 9, host], 9))).collect();
    to.push(backend.addr);
    let proxy = proxy(&to, |settings| settings);
    for _ in 0..40 {
        assert_status(&get(addr(&proxy), "/"), 200);
    }
    assert_eq!(proxy.counts().backends()[20].requests(), 40);
}

#[test]
fn the_last_backend_is_asked_whatever_happened() {
    let proxy = proxy(&[nowhere(), nowhere()], |settings| settings);
    for _ in 0..10 {
        assert_status(&get(addr(&proxy), "/"), 502);
    }
    let counts = proxy.counts();
    assert_eq!(counts.backends()[0].ejections() + counts.backends()[1].ejections(), 1);
    assert!(counts.backends()[0].failures() + counts.backends()[1].failures() >= 10);
}

/// As in a deployment that restarts one backend after the other.
#[test]
fn a_backend_that_is_left_out_is_asked_when_the_others_are_gone() {
    let away = nowhere();
    let (other, other_addr) = service();
    let proxy = proxy(&[away, other_addr], |settings| {
        settings.ejection(wakeful_services::proxy::Ejection::new().shortest(GUARD))
    });
    until("it is left out", || {
        assert_status(&get(addr(&proxy), "/healthz"), 200);
        proxy.counts().backends()[0].ejections() == 1
    });
    let back = Backend::on(TcpListener::bind(away).unwrap(), |this, stream| {
        while let Some(request) = this.read(stream) {
            answer(stream, &request);
        }
    });
    assert_eq!(other.drain(DrainPlan::default()).unwrap(), 0);
    let mut asked = 0;
    // It is in again since its first answer, so the other one can be left out.
    until("the other one is left out", || {
        assert_status(&get(addr(&proxy), "/healthz"), 200);
        asked += 1;
        proxy.counts().backends()[1].ejections() == 1
    });
    assert_eq!(back.requests().len(), asked);
    assert_eq!(proxy.counts().backends()[0].ejections(), 1);
    assert_eq!(proxy.counts().backends()[1].failures(), 3);
}

/// Nothing of it has gone to the client.
#[test]
fn a_response_that_is_broken_from_the_start_is_502() {
    let broken =
        Backend::saying("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nno chunk\r\n");
    let proxy = proxy(&[broken.addr], |settings| settings);
    for _ in 0..10 {
        assert_status(&get(addr(&proxy), "/"), 502);
    }
}

#[test]
fn a_502_for_an_upload_beyond_the_buffer_says_that_the_connection_ends() {
    let proxy = proxy(&[nowhere()], |settings| settings.request_buffer(1024));
    let head = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 300000\r\n\r\n";
    let mut client = connect(addr(&proxy));
    client.write_all((head.to_owned() + &"u".repeat(2048)).as_bytes()).unwrap();
    let answer = read_all(&mut client);
    assert_status(&answer, 502);
    assert!(answer.contains("connection: close\r\n"), "{answer}");
}

#[test]
fn a_backend_that_comes_back_is_found_by_one_request() {
    let away = nowhere();
    let backend = Backend::mirror();
    let proxy = proxy(&[away, backend.addr], |settings| {
        settings.ejection(wakeful_services::proxy::Ejection::new().shortest(SHORT))
    });
    until("it is left out", || {
        assert_status(&get(addr(&proxy), "/"), 200);
        proxy.counts().backends()[0].ejections() == 1
    });
    let back = Backend::on(TcpListener::bind(away).unwrap(), |this, stream| {
        while let Some(request) = this.read(stream) {
            answer(stream, &request);
        }
    });
    until("it is back", || {
        assert_status(&get(addr(&proxy), "/"), 200);
        back.requests().len() > 3
    });
}

#[test]
fn a_backend_that_stalls_is_a_504() {
    let backend = Backend::start(|this, stream| {
        this.read(stream);
        let _ = stream.read(&mut [0; 1]);
    });
    let proxy = proxy(&[backend.addr], |settings| settings.upstream_timeout(SHORT));
    assert_status(&get(addr(&proxy), "/"), 504);
    assert_eq!((proxy.counts().backends()[0].failures(), backend.requests().len()), (1, 1));
}

#[test]
fn a_backend_that_stalls_in_a_body_ends_the_response() {
    let backend = Backend::start(|this, stream| {
        this.read(stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").unwrap();
        let _ = stream.read(&mut [0; 1]);
    });
    let proxy = proxy(&[backend.addr], |settings| settings.upstream_timeout(SHORT));
    let answer = get(addr(&proxy), "/");
    assert!(answer.ends_with("\r\n\r\nhalf"), "{answer}");
    assert_eq!(proxy.counts().backends()[0].failures(), 1);
}

/// Events, or a watch: the backend says nothing as long as nothing happens.
#[test]
fn a_stream_that_is_quiet_ends_and_is_no_failure_of_its_backend() {
    let backend = Backend::start(|this, stream| {
        this.read(stream);
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(format!("{head}4\r\nnews\r\n").as_bytes()).unwrap();
        let _ = stream.read(&mut [0; 1]);
    });
    let proxy = proxy(&[backend.addr], |settings| settings.upstream_timeout(SHORT));
    let mut streams = [(); 3].map(|()| {
        let mut stream = connect(addr(&proxy));
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        stream
    });
    for answer in streams.each_mut().map(read_all) {
        assert!(answer.ends_with("4\r\nnews\r\n"), "{answer}");
    }
    until("nothing is under way", || proxy.counts().backends()[0].in_flight() == 0);
    assert_eq!(proxy.counts().backends()[0].failures(), 0);
}

#[test]
fn a_backend_that_dies_in_a_body_ends_the_response() {
    for body in
        ["content-length: 10\r\n\r\nhalf", "transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"]
    {
        let backend = Backend::start(move |this, stream| {
            this.read(stream);
            stream.write_all(format!("HTTP/1.1 200 OK\r\n{body}").as_bytes()).unwrap();
        });
        let proxy = proxy(&[backend.addr], |settings| settings);
        let answer = get(addr(&proxy), "/");
        assert!(answer.contains("half") && !answer.ends_with("0\r\n\r\n"), "{answer}");
        until("it is noticed", || proxy.counts().backends()[0].failures() == 1);
    }
}

#[test]
fn what_is_no_response_is_a_502() {
    for garbage in [
        "",
        "SSH-2.0-OpenSSH_9.2\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\na: b\r\n c\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        "HTTP/1.1 999999 ?\r\n\r\n",
    ] {
        let backend = Backend::start(move |this, stream| {
            this.read(stream);
            stream.write_all(garbage.as_bytes()).unwrap();
        });
        let proxy = proxy(&[backend.addr], |settings| settings);
        let answer = get(addr(&proxy), "/");
        assert!(answer.starts_with("HTTP/1.1 502 "), "{garbage:?}: {answer}");
        // If nothing came, the request is sent once more.
        let failures = if garbage.is_empty() { 2 } else { 1 };
        assert_eq!(proxy.counts().backends()[0].failures(), failures, "{garbage:?}");
    }
}

/// What comes after it may be a part of it.
#[test]
fn a_backend_s_connection_with_a_response_that_can_be_read_in_two_ways_is_closed() {
    for ambiguous in [
        "content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "content-length: 5, 5\r\n\r\nhello",
        "transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ] {
        let backend = Backend::start(move |this, stream| {
            while let Some(request) = this.read(stream) {
                if request.starts_with("GET /ambiguous ") {
                    let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n{ambiguous}").as_bytes());
                } else {
                    answer(stream, "fine");
                }
            }
        });
        let proxy = proxy(&[backend.addr], |settings| settings);
        for round in 1..=3 {
            assert_status(&get(addr(&proxy), "/ambiguous"), 502);
            until("its connection is closed", || backend.is_alone());
            assert_eq!(backend.connections(), round, "{ambiguous}");
        }
        assert!(get(addr(&proxy), "/").ends_with("fine"));
        assert!(get(addr(&proxy), "/").ends_with("fine"));
        assert_eq!(backend.connections(), 4);
    }
}

#[test]
fn a_backend_that_closes_half_may_still_answer_or_not() {
    let answering = Backend::start(|this, stream| {
        this.read(stream);
        answer(stream, "last words");
        stream.shutdown(Shutdown::Write).unwrap();
        let _ = stream.read(&mut [0; 1]);
    });
    let proxy1 = proxy(&[answering.addr], |settings| settings);
    for _ in 0..3 {
        assert!(get(addr(&proxy1), "/").ends_with("last words"));
    }
    let silent = Backend::start(|this, stream| {
        this.read(stream);
        stream.shutdown(Shutdown::Write).unwrap();
        let _ = stream.read(&mut [0; 1]);
    });
    let proxy2 = proxy(&[silent.addr], |settings| settings);
    assert_status(&get(addr(&proxy2), "/"), 502);
}

fn reset(stream: &TcpStream) {
    SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Answers one request on each connection, and resets at the next.
fn resetting() -> Backend {
    Backend::start(|this, stream| {
        this.read(stream);
        answer(stream, "once");
        this.read(stream);
        reset(stream);
    })
}

#[test]
fn a_kept_connection_that_is_reset_costs_a_get_nothing_and_is_a_502_for_a_post() {
    let backend = resetting();
    let proxy1 = proxy(&[backend.addr], |settings| settings);
    for _ in 0..6 {
        assert!(get(addr(&proxy1), "/").ends_with("once"));
    }
    assert_eq!(proxy1.counts().backends()[0].failures(), 0);
    let backend = resetting();
    let proxy2 = proxy(&[backend.addr], |settings| settings);
    assert!(get(addr(&proxy2), "/").ends_with("once"));
    assert_status(&ask(addr(&proxy2), POST), 502);
    assert_eq!((backend.requests().len(), proxy2.counts().retried()), (2, 0));
}

/// Resets its first connections when they have a request.
fn resets_first(connections: usize) -> Backend {
    Backend::start(move |this, stream| {
        if let Some(request) = this.read(stream) {
            match this.connections() > connections {
                true => answer(stream, &request),
                false => reset(stream),
            }
        }
    })
}

const POST: &str = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\nconnection: close\r\n\r\n1";

#[test]
fn a_backend_that_resets_at_once_is_a_502() {
    for (resets, got, status) in [(usize::MAX, 2, 502), (1, 2, 200)] {
        let backend = resets_first(resets);
        let proxy1 = proxy(&[backend.addr], |settings| settings);
        assert_status(&get(addr(&proxy1), "/"), status);
        assert_eq!(backend.requests().len(), got, "a GET is sent once more");
        let backend = resets_first(resets);
        let proxy2 = proxy(&[backend.addr], |settings| settings);
        assert_status(&ask(addr(&proxy2), POST), 502);
        assert_eq!(backend.requests().len(), 1, "a POST is not");
    }
}

/// As where something else accepts for a backend that is gone.
#[test]
fn a_backend_that_resets_at_once_costs_no_get_while_another_one_serves() {
    let (broken, backend) = (resets_first(usize::MAX), Backend::mirror());
    let proxy = proxy(&[broken.addr, backend.addr], |settings| settings);
    until("it is left out", || {
        assert_status(&get(addr(&proxy), "/"), 200);
        proxy.counts().backends()[0].ejections() == 1
    });
    assert_eq!((broken.requests().len(), proxy.counts().retried()), (3, 3));
    assert_eq!(proxy.counts().backends()[1].failures(), 0);
}

/// The request may be the reason.
#[test]
fn a_request_whose_new_connections_are_reset_meets_two_backends_only() {
    let backends = [(); 4].map(|()| resets_first(usize::MAX));
    let proxy = proxy(&backends.each_ref().map(|backend| backend.addr), |settings| settings);
    assert_status(&get(addr(&proxy), "/"), 502);
    let got: Vec<_> = backends.iter().map(|backend| backend.requests().len()).collect();
    assert_eq!(got.iter().sum::<usize>(), 2, "{got:?}");
    assert!(got.iter().all(|got| *got < 2), "{got:?}");
}

#[test]
fn an_answer_that_comes_before_the_request_is_read_is_passed_on_at_once() {
    let backend = Backend::start(|_, stream| {
        let mut buf = [0; 1000];
        let _ = stream.read(&mut buf);
        stream
            .write_all(
                b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nno!",
            )
            .unwrap();
        // It reads on, so that its answer is not lost to a reset.
        while stream.read(&mut buf).is_ok_and(|read| read > 0) {}
    });
    let proxy = proxy(&[backend.addr], |settings| settings.request_buffer(1000));
    let mut stream = connect(addr(&proxy));
    stream
        .write_all(
            b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\nconnection: close\r\n\r\n",
        )
        .unwrap();
    stream.write_all(&[b'x'; 2000]).unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 413");
}

#[test]
fn a_backend_without_a_free_connection_is_a_503() {
    let backend = Backend::start(|this, stream| {
        this.read(stream);
        let _ = stream.read(&mut [0; 1]);
    });
    let proxy = proxy(&[backend.addr], |settings| settings.connections(1).queue_timeout(SHORT));
    let mut held = connect(addr(&proxy));
    held.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    until("the backend has it", || !backend.requests().is_empty());
    let answer = get(addr(&proxy), "/");
    assert_status(&answer, 503);
    assert!(answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
    assert_eq!((backend.connections(), proxy.counts().backends()[0].failures()), (1, 0));
}

#[test]
fn a_client_whose_body_breaks_off_leaves_no_request_behind() {
    let backend = Backend::mirror();
    let proxy = proxy(&[backend.addr], |settings| settings.request_buffer(100));
    let counts = proxy.server().counts();
    for sent in [10, 1000] {
        let mut stream = connect(addr(&proxy));
        let head = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n";
        stream.write_all(format!("{head}{}", "x".repeat(sent)).as_bytes()).unwrap();
        drop(stream);
    }
    until("both are gone", || counts.accepted() == 2 && counts.open() == 0);
    until("nothing is under way", || proxy.counts().backends()[0].in_flight() == 0);
    until("the backend is alone", || backend.is_alone());
    // The backend may have a part of the streamed request, and has nothing of the other one.
    let came = backend.requests();
    assert!(
        came.len() <= 1 && came.iter().all(|came| came.starts_with("in part: POST / ")),
        "{came:?}"
    );
    assert_eq!(proxy.counts().backends()[0].failures(), 0);
    assert_status(&get(addr(&proxy), "/"), 200);
}

/// A client could have all backends but one left out, if they answered for what it does.
#[test]
fn a_body_that_stops_or_breaks_off_is_no_failure_of_the_backend() {
    let (_service, to) = service();
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let proxy = proxy(&[to], |settings| settings.request_buffer(100).version(version));
        // The one answers when it has the body, the other one before that.
        for (target, status) in [("GET /sleep/60000", 400), ("POST /echo", 200)] {
            let mut stream = connect(addr(&proxy));
            let head =
                format!("{target} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
            let chunk = format!("3e8\r\n{}\r\n", "x".repeat(1000));
            stream.write_all(format!("{head}{chunk}").as_bytes()).unwrap();
            let mut answer = [0; 12];
            if status == 200 {
                stream.read_exact(&mut answer).unwrap();
            } else {
                until("the backend has it", || proxy.counts().backends()[0].in_flight() == 1);
            }
            stream.write_all(b"no chunk\r\n").unwrap();
            let answer = String::from_utf8_lossy(&answer).into_owned() + &read_all(&mut stream);
            let answer = answer.trim_start_matches('\0');
            assert_status(answer, status);
            assert!(!answer.ends_with("0\r\n\r\n"), "{answer}");
            until("nothing is under way", || proxy.counts().backends()[0].in_flight() == 0);
            assert_eq!(proxy.counts().backends()[0].failures(), 0, "{target} by {version:?}");
        }
    }
    let backend = Backend::mirror();
    let proxy =
        proxy(&[backend.addr], |settings| settings.request_buffer(100).upstream_timeout(SHORT));
    let mut stream = connect(addr(&proxy));
    let head = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n";
    stream.write_all(format!("{head}{}", "x".repeat(1000)).as_bytes()).unwrap();
    let answer = read_all(&mut stream);
    assert_status(&answer, 408);
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert_eq!(proxy.counts().backends()[0].failures(), 0);
}

/// A backend may have a limit for the time of a request, and a client can use it up at will.
#[test]
fn a_backend_that_closes_because_the_body_does_not_come_has_not_failed() {
    let backend = Backend::start(|this, stream| {
        let mut came = Vec::new();
        while !came.ends_with(b"no more") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            came.push(byte[0]);
        }
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(stream.read(&mut [0]).is_err());
        this.note("it closes");
    });
    let proxy = proxy(&[backend.addr], |settings| settings.request_buffer(100));
    let clients = [(); 4].map(|()| {
        let mut client = connect(addr(&proxy));
        let head = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n";
        let part = "x".repeat(1000) + "no more";
        client.write_all((head.to_owned() + &part).as_bytes()).unwrap();
        client
    });
    for mut client in clients {
        let answer = read_all(&mut client);
        assert!(answer.ends_with("the backend did not answer\n"), "{answer}");
    }
    until("nothing is under way", || proxy.counts().backends()[0].in_flight() == 0);
    assert_eq!((backend.requests().len(), backend.connections()), (4, 4));
    assert_eq!(proxy.counts().backends()[0].failures(), 0);
}

/// Such a call waits for its client most of the time, whatever the backend does.
#[test]
fn a_backend_that_resets_calls_whose_clients_stream_is_left_out() {
    let broken = Backend::start(|_, stream| {
        let mut came = Vec::new();
        while !came.ends_with(b"\r\n\r\n1\r\nx\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            came.push(byte[0]);
        }
        reset(stream);
    });
    let (_service, good) = service();
    let proxy = proxy(&[broken.addr, good], |settings| settings.request_buffer(0));
    let call = "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n";
    until("it is left out", || {
        let mut client = connect(addr(&proxy));
        client.write_all(call.as_bytes()).unwrap();
        client.read_exact(&mut [0; 12]).unwrap();
        proxy.counts().backends()[0].ejections() == 1
    });
    assert_eq!(proxy.counts().backends()[0].failures(), 3);
}
