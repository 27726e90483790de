//! A log subscriber that panics costs no request. A process of its own, because there is one log.

#[path = "proxy/common.rs"]
mod common;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use common::*;

/// Panics at each line of the services.
struct Panicking;

impl Subscriber for Panicking {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("wakeful_services")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        panic!("on purpose");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_log_subscriber_that_panics_costs_no_request() {
    tracing::subscriber::set_global_default(Panicking).unwrap();
    let proxy = proxy(&[nowhere()], |settings| settings);
    for _ in 0..10 {
        // Each is a line: the backend fails.
        assert_status(&get(addr(&proxy), "/"), 502);
    }
    let refused = "GET / HTTP/1.1\r\nhost: x\r\nhost: y\r\nconnection: close\r\n\r\n";
    let mut stream = connect(addr(&proxy));
    std::io::Write::write_all(&mut stream, refused.as_bytes()).unwrap();
    assert_status(&read_all(&mut stream), 400);
}
