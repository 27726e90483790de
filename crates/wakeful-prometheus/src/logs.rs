//! The counts of the logs as Prometheus text. Dropped lines are worth an alarm, because operators,
//! bills and block lists then lack what the log should have told them.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;
use wakeful::log::LossyWriter;
#[cfg(feature = "http")]
use wakeful_http::access_log::AccessLog;

/// A name, a help text, and how to read the count.
type Count<L> = (&'static str, &'static str, fn(&L) -> u64);

const LOG: [Count<LossyWriter>; 2] = [
    ("wakeful_log_written", "Lines of the log that were written", LossyWriter::written),
    (
        "wakeful_log_dropped",
        "Lines of the log that were dropped, because standard error is slow or fails",
        LossyWriter::dropped,
    ),
];

#[cfg(feature = "http")]
const ACCESS_LOG: [Count<AccessLog>; 2] = [
    ("wakeful_access_log_written", "Lines of the access log that were written", AccessLog::written),
    (
        "wakeful_access_log_dropped",
        "Lines of the access log that were dropped, because what it is written to is slow or fails",
        AccessLog::dropped,
    ),
];

#[derive(Debug)]
struct Lines<L: 'static> {
    log: L,
    counts: &'static [Count<L>],
}

impl<L: fmt::Debug + Send + Sync + 'static> Collector for Lines<L> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, read) in self.counts {
            let encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(read(&self.log)).encode(encoder)?;
        }
        Ok(())
    }
}

/// Registers the counters of the process's log: the lines that were written and dropped.
pub fn register_log(registry: &mut Registry, log: LossyWriter) {
    registry.register_collector(Box::new(Lines { log, counts: &LOG }));
}

/// Registers the counters of an access log: the lines that were written and dropped.
#[cfg(feature = "http")]
pub fn register_access_log(registry: &mut Registry, log: AccessLog) {
    registry.register_collector(Box::new(Lines { log, counts: &ACCESS_LOG }));
}
