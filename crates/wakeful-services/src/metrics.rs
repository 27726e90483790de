//! The loops' counters as Prometheus text.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use wakeful::accept::Counts;
use wakeful::{LoopHandle, LoopMetrics};

/// Reads the counters when it is asked, and never otherwise.
#[derive(Debug)]
struct Loops {
    handles: Vec<LoopHandle>,
    counts: Arc<Counts>,
}

type Field = (&'static str, &'static str, fn(&LoopMetrics) -> u64);

const FIELDS: [Field; 9] = [
    ("wakeful_loop_turns", "Turns taken", |m| m.turns),
    ("wakeful_loop_waits", "Times that the kernel was asked for events", |m| m.waits),
    ("wakeful_loop_parks", "Waits that were allowed to sleep", |m| m.parks),
    ("wakeful_loop_events", "Events of descriptors", |m| m.events),
    ("wakeful_loop_polls", "Polls of tasks and runs of closures", |m| m.polls),
    ("wakeful_loop_remote", "Wakes and closures from other threads", |m| m.remote),
    ("wakeful_loop_timers", "Timers expired", |m| m.timers),
    ("wakeful_loop_callbacks", "Callbacks run", |m| m.callbacks),
    ("wakeful_loop_panics", "Panics contained in closures and callbacks", |m| m.panics),
];

impl Collector for Loops {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let metrics: Vec<_> = self.handles.iter().map(LoopHandle::metrics).collect();
        for (name, help, read) in FIELDS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (number, metrics) in metrics.iter().enumerate() {
                let label = [("loop", number.to_string())];
                ConstCounter::new(read(metrics)).encode(family.encode_family(&label)?)?;
            }
        }
        let open = ConstGauge::new(i64::try_from(self.counts.open()).unwrap_or(i64::MAX));
        let text = "Connections that are open";
        open.encode(encoder.encode_descriptor(
            "wakeful_connections",
            text,
            None,
            open.metric_type(),
        )?)?;
        for (name, help, count) in [
            ("wakeful_accepts", "Connections accepted", self.counts.accepted()),
            ("wakeful_accept_failures", "Accepts that failed", self.counts.failed()),
        ] {
            let count = ConstCounter::new(count);
            count.encode(encoder.encode_descriptor(name, help, None, count.metric_type())?)?;
        }
        Ok(())
    }
}

/// A registry of the counters of these loops and this server.
#[must_use]
pub fn registry(handles: &[LoopHandle], counts: Arc<Counts>) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Loops { handles: handles.to_vec(), counts }));
    registry
}
