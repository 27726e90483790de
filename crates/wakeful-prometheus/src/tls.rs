//! The TLS counts of a server as Prometheus text. [`TlsCounts`] says what each count means.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;
use wakeful_http::tls::TlsCounts;

type Count = (&'static str, &'static str, fn(&TlsCounts) -> u64);

const COUNTS: [Count; 7] = [
    ("wakeful_tls_handshakes", "Handshakes that succeeded", TlsCounts::handshakes),
    ("wakeful_tls_resumed", "Handshakes that resumed an earlier session", TlsCounts::resumed),
    ("wakeful_tls_failures", "Handshakes that failed, for whatever reason", TlsCounts::failed),
    ("wakeful_tls_timeouts", "Handshakes that failed by their deadline", TlsCounts::timed_out),
    ("wakeful_tls_not_tls", "Connections that spoke something else than TLS", TlsCounts::not_tls),
    ("wakeful_tls_reloads", "Reloads of the certificates", TlsCounts::reloads),
    (
        "wakeful_tls_reload_failures",
        "Reloads that failed and left the certificates as they were",
        TlsCounts::failed_reloads,
    ),
];

#[derive(Debug)]
struct Tls(Arc<TlsCounts>);

impl Collector for Tls {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, read) in COUNTS {
            let count = ConstCounter::new(read(&self.0));
            count.encode(encoder.encode_descriptor(name, help, None, count.metric_type())?)?;
        }
        Ok(())
    }
}

/// Registers the TLS counters of a server, which
/// [`ServerTls::counts`](wakeful_http::tls::ServerTls::counts) returns.
pub fn register_tls(registry: &mut Registry, counts: Arc<TlsCounts>) {
    registry.register_collector(Box::new(Tls(counts)));
}
