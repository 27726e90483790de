//! What the access log counts, as Prometheus text: lines that are missing are an alarm, because whoever is to be billed or blocked by the log is missing too.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;
use wakeful_http::access_log::AccessLog;

#[derive(Debug)]
struct Lines(AccessLog);

impl Collector for Lines {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(log) = self;
        for (name, help, count) in [
            (
                "wakeful_access_log_written",
                "Lines of the access log that were written",
                log.written(),
            ),
            (
                "wakeful_access_log_dropped",
                "Lines of the access log that were dropped, because what it is written to is slow or fails",
                log.dropped(),
            ),
        ] {
            let encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(count).encode(encoder)?;
        }
        Ok(())
    }
}

/// Adds the counts of `log`.
pub(crate) fn register(registry: &mut Registry, log: AccessLog) {
    registry.register_collector(Box::new(Lines(log)));
}
