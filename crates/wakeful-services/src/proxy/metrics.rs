//! The counters of a proxy as Prometheus text.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::counts::{BackendCounts, Counts, NameCounts};

/// Reads the counters only when Prometheus asks.
#[derive(Debug)]
pub(super) struct OfBackends(pub(super) Arc<Counts>);

type OfEach<T> = (&'static str, &'static str, fn(&T) -> u64);
type OfAll = (&'static str, &'static str, fn(&Counts) -> u64);

const OF_EACH: [OfEach<BackendCounts>; 3] = [
    ("wakeful_proxy_requests", "Requests that the backend was given", BackendCounts::requests),
    ("wakeful_proxy_failures", "Requests that the backend failed", BackendCounts::failures),
    ("wakeful_proxy_ejections", "Times that the backend was excluded", BackendCounts::ejections),
];

const NOW_OF_EACH: [OfEach<BackendCounts>; 1] = [(
    "wakeful_proxy_in_flight",
    "Requests and tunnels at the backend now",
    BackendCounts::in_flight,
)];

const OF_NAMES: [OfEach<NameCounts>; 2] = [
    ("wakeful_proxy_lookups", "Times that the name was looked up", NameCounts::lookups),
    (
        "wakeful_proxy_lookup_failures",
        "Times that the look-up of the name failed or found no address",
        NameCounts::failures,
    ),
];

const NOW_OF_NAMES: [OfEach<NameCounts>; 2] = [
    ("wakeful_proxy_addresses", "Addresses of the name", NameCounts::addresses),
    ("wakeful_proxy_lookups_running", "Look-ups of the name under way", NameCounts::running),
];

const OF_ALL: [OfAll; 5] = [
    (
        "wakeful_proxy_retried",
        "Requests that were sent again, to the same backend or another one",
        Counts::retried,
    ),
    (
        "wakeful_proxy_refused",
        "Requests that the proxy refused because they were not valid",
        Counts::refused,
    ),
    (
        "wakeful_proxy_overloads",
        "Times that a request got no connection to a backend, because all were in use",
        Counts::overloads,
    ),
    (
        "wakeful_proxy_connections_opened",
        "Connections made to backends",
        Counts::connections_opened,
    ),
    (
        "wakeful_proxy_connections_reused",
        "Requests that reused a connection to a backend",
        Counts::connections_reused,
    ),
];

impl Collector for OfBackends {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let backends = self.0.backends();
        let backends = backends.iter().map(|one| (one.name(), &**one)).collect::<Vec<_>>();
        encode(&mut encoder, MetricType::Counter, &OF_EACH, "backend", &backends)?;
        encode(&mut encoder, MetricType::Gauge, &NOW_OF_EACH, "backend", &backends)?;
        let names = self.0.names();
        let names = names.iter().map(|one| (one.name(), &**one)).collect::<Vec<_>>();
        encode(&mut encoder, MetricType::Counter, &OF_NAMES, "name", &names)?;
        encode(&mut encoder, MetricType::Gauge, &NOW_OF_NAMES, "name", &names)?;
        for (name, help, read) in OF_ALL {
            let value = ConstCounter::new(read(&self.0));
            value.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        let (name, help) = ("wakeful_proxy_tunnels", "Upgraded connections that are open");
        let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        gauge(self.0.tunnels()).encode(family)?;
        let (name, help) = ("wakeful_proxy_buffered", "Bytes of bodies that wait in the proxy");
        let family =
            encoder.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Gauge)?;
        gauge(self.0.buffered()).encode(family)
    }
}

/// Writes each of these families, with a sample for each of `all`. If `all` is empty, nothing is
/// written.
fn encode<T>(
    encoder: &mut DescriptorEncoder<'_>,
    kind: MetricType,
    families: &[OfEach<T>],
    label: &'static str,
    all: &[(&str, &T)],
) -> Result<(), fmt::Error> {
    if all.is_empty() {
        return Ok(());
    }
    for (name, help, read) in families {
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for (of, counts) in all {
            let labels = [(label, *of)];
            let sample = family.encode_family(&labels)?;
            match kind {
                MetricType::Counter => ConstCounter::new(read(counts)).encode(sample)?,
                _ => gauge(read(counts)).encode(sample)?,
            }
        }
    }
    Ok(())
}

fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}
