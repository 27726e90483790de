//! What a proxy counts, as Prometheus text.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::counts::Counts;

/// Reads the counters when it is asked, and never otherwise.
#[derive(Debug)]
pub(super) struct OfBackends(pub(super) Arc<Counts>);

type OfEach = (&'static str, &'static str, fn(&Counts, usize) -> u64);
type OfAll = (&'static str, &'static str, fn(&Counts) -> u64);

const OF_EACH: [OfEach; 3] = [
    ("wakeful_proxy_requests", "Requests that the backend was given", Counts::requests),
    ("wakeful_proxy_failures", "Requests that the backend failed", Counts::failures),
    ("wakeful_proxy_ejections", "Times that the backend was left out", Counts::ejections),
];

const OF_ALL: [OfAll; 5] = [
    ("wakeful_proxy_retried", "Requests that were sent once more", Counts::retried),
    ("wakeful_proxy_refused", "Requests that were not in order", Counts::refused),
    (
        "wakeful_proxy_overloads",
        "Times that a request found all connections to a backend in use",
        Counts::overloads,
    ),
    (
        "wakeful_proxy_connections_opened",
        "Connections made to backends",
        Counts::connections_opened,
    ),
    (
        "wakeful_proxy_connections_reused",
        "Requests that got a connection that had been used before",
        Counts::connections_reused,
    ),
];

impl Collector for OfBackends {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, read) in OF_EACH {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (number, backend) in self.0.backends().enumerate() {
                let labels = [("backend", backend)];
                let value = ConstCounter::new(read(&self.0, number));
                value.encode(family.encode_family(&labels)?)?;
            }
        }
        let (name, help) = ("wakeful_proxy_in_flight", "Requests that the backend works on");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (number, backend) in self.0.backends().enumerate() {
            let labels = [("backend", backend)];
            gauge(self.0.in_flight(number)).encode(family.encode_family(&labels)?)?;
        }
        for (name, help, read) in OF_ALL {
            let value = ConstCounter::new(read(&self.0));
            value.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        let (name, help) = ("wakeful_proxy_tunnels", "Upgraded connections that are open");
        let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        gauge(self.0.tunnels()).encode(family)?;
        let (name, help) = ("wakeful_proxy_buffered_bytes", "Bytes of bodies that wait");
        let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        gauge(self.0.buffered()).encode(family)
    }
}

fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}
