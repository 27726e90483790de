//! The HTTP counts of a server as Prometheus text. Each `reason` is present from the start, so that
//! an attack makes a line rise, and not a new line appear.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use wakeful_http::{HttpCounts, LoopHttpCounts, Refusal, Running};

use crate::loops::register_loops;

/// Reads the counts of a server when the registry is encoded. Requests are counted for each loop,
/// refusals for all loops together.
#[derive(Debug)]
struct HttpMetrics(Arc<HttpCounts>);

impl HttpMetrics {
    fn of_loops<M: EncodeMetric>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help, kind): (&str, &str, MetricType),
        metric: impl Fn(&LoopHttpCounts) -> M,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for (number, counts) in self.0.loops().enumerate() {
            let label = [("loop", number.to_string())];
            metric(counts).encode(family.encode_family(&label)?)?;
        }
        Ok(())
    }
}

impl Collector for HttpMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Requests whose header has arrived, including those that were then refused";
        let requests = ("wakeful_http_requests", help, MetricType::Counter);
        self.of_loops(&mut encoder, requests, |counts| ConstCounter::new(counts.requests()))?;
        let help = "Requests whose response has not ended";
        let in_flight = ("wakeful_http_requests_in_flight", help, MetricType::Gauge);
        self.of_loops(&mut encoder, in_flight, |counts| {
            ConstGauge::new(i64::try_from(counts.in_flight()).unwrap_or(i64::MAX))
        })?;
        let help = "Responses begun, by the class of their status";
        let mut family =
            encoder.encode_descriptor("wakeful_http_responses", help, None, MetricType::Counter)?;
        for class in 1..=5 {
            let label = [("class", format!("{class}xx"))];
            ConstCounter::new(self.0.responses(class)).encode(family.encode_family(&label)?)?;
        }
        let help =
            "What was refused, or ended, because a limit was reached or the protocol was broken";
        let mut family =
            encoder.encode_descriptor("wakeful_http_refused", help, None, MetricType::Counter)?;
        for refusal in Refusal::ALL {
            let label = [("reason", refusal.reason())];
            ConstCounter::new(self.0.refused(*refusal)).encode(family.encode_family(&label)?)?;
        }
        Ok(())
    }
}

/// Registers the HTTP counters of a server, which [`Running::http_counts`] returns.
pub fn register_http(registry: &mut Registry, counts: Arc<HttpCounts>) {
    registry.register_collector(Box::new(HttpMetrics(counts)));
}

/// Registers the counters of a server and of its loops, except those of TLS and of the access log:
/// see [`register_tls`](crate::register_tls) and
/// [`register_access_log`](crate::register_access_log).
pub fn register_server(registry: &mut Registry, server: &Running) {
    register_loops(registry, server.handles(), server.counts(), server.loads());
    register_http(registry, server.http_counts());
}
