//! Headers of many fields, both ways.

use http::Response;
use wakeful_http::Server;
use wakeful_http::client::HttpVersion;

use crate::common::*;

/// A response with `count` fields.
fn fields(count: usize) -> String {
    let more: String = (2..count).map(|number| format!("x-{number}: {number}\r\n")).collect();
    format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-first: 1\r\n{more}\r\n")
}

/// A backend that answers with as many fields as the path says.
fn backend() -> Backend {
    Backend::start(|this, stream| {
        use std::io::Write;
        while let Some(request) = this.read(stream) {
            let path = request.split(' ').nth(1).expect("a path");
            let count = path.trim_start_matches('/').parse().expect("a number");
            // The proxy may be gone.
            let _ = stream.write_all(fields(count).as_bytes());
        }
    })
}

fn field_count(answer: &str) -> usize {
    answer.lines().filter(|line| line.starts_with("x-")).count()
}

#[test]
fn a_response_of_many_fields_goes_on() {
    let backend = backend();
    let proxy = proxy(&[backend.addr], |settings| settings);
    for count in [2, 100, 101, 1000] {
        let answer = get(addr(&proxy), &format!("/{count}"));
        assert_status(&answer, 200);
        assert_eq!(field_count(&answer), count - 1);
    }
    assert_eq!(proxy.counts().backends()[0].failures(), 0);
}

#[test]
fn a_response_of_too_many_fields_is_502_and_its_backend_stays() {
    let (many, other) = (backend(), Backend::mirror());
    let proxy = proxy(&[many.addr, other.addr], |settings| settings.max_response_headers(150));
    let mut refused = 0;
    until("it was asked often", || {
        let answer = get(addr(&proxy), "/151");
        if answer.starts_with("HTTP/1.1 502 ") {
            assert_eq!(body(&answer), "the header of the backend's response is too large\n");
            refused += 1;
        } else {
            assert_status(&answer, 200);
        }
        refused == 10
    });
    let counts = proxy.counts();
    assert_eq!(
        (counts.backends()[0].failures(), counts.backends()[0].ejections(), counts.retried()),
        (0, 0, 0)
    );
    assert_status(&get(addr(&proxy), "/150"), 200);
}

#[test]
fn one_of_too_many_bytes_is_502_and_its_backend_stays() {
    let backend = Backend::start(|this, stream| {
        use std::io::Write;
        while this.read(stream).is_some() {
            let large = "x".repeat(65 * 1024);
            let answer =
                format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-large: {large}\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let proxy = proxy(&[backend.addr], |settings| settings);
    for _ in 0..5 {
        let answer = get(addr(&proxy), "/");
        assert_status(&answer, 502);
        assert_eq!(body(&answer), "the header of the backend's response is too large\n");
    }
    assert_eq!(proxy.counts().backends()[0].failures(), 0);
}

#[test]
fn a_response_of_many_fields_goes_on_from_http2() {
    let many = |_| async {
        let mut response = Response::new(String::new());
        for number in 0..1000 {
            let name = http::HeaderName::try_from(format!("x-{number}")).unwrap();
            response.headers_mut().insert(name, http::HeaderValue::from(number));
        }
        Ok::<_, std::convert::Infallible>(response)
    };
    let service = move || wakeful_http::service_fn(many);
    let running = Server::bind("127.0.0.1:0").unwrap().start_with(service).unwrap();
    let to = tcp(&running.local_addrs()[0]);
    let proxy = proxy(&[to], |settings| settings.version(HttpVersion::Http2));
    let answer = get(addr(&proxy), "/");
    assert_status(&answer, 200);
    assert_eq!(field_count(&answer), 1000);
    assert_eq!(proxy.counts().backends()[0].failures(), 0);
}

#[test]
fn a_request_of_too_many_fields_is_431_and_no_backend_is_asked() {
    let backend = Backend::mirror();
    let proxy = proxy(&[backend.addr], |settings| settings);
    for (count, status) in [(100, 200), (101, 431), (5000, 431)] {
        // With `host` and `connection`.
        let more: String = (2..count).map(|number| format!("x-{number}: 1\r\n")).collect();
        let head = format!("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{more}\r\n");
        assert_status(&ask(addr(&proxy), &head), status);
    }
    assert_eq!(backend.requests().len(), 1);
}
