//! The counts of loops and of a server as Prometheus text. [`LoopMetrics`] says what each count
//! means, when it misleads, and what to do about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use wakeful::accept::{Counts, LoopCounts};
use wakeful::group::Loads;
use wakeful::metrics::Histogram;
use wakeful::{LoopHandle, LoopMetrics};

/// Reads the counters only when the registry is encoded.
#[derive(Debug)]
struct Loops {
    handles: Vec<LoopHandle>,
    counts: Arc<Counts>,
    loads: Loads,
}

type Field<T> = (&'static str, &'static str, fn(&LoopMetrics) -> T);

const COUNTERS: [Field<u64>; 15] = [
    ("wakeful_loop_turns", "Turns begun", |m| m.turns),
    ("wakeful_loop_waits", "Times that the kernel was asked for events", |m| m.waits),
    ("wakeful_loop_parks", "Waits that were allowed to sleep", |m| m.parks),
    ("wakeful_loop_spin_hits", "Spins that found an event", |m| m.spin_hits),
    ("wakeful_loop_spin_misses", "Spins that found no event in their window", |m| m.spin_misses),
    (
        "wakeful_loop_gave_way",
        "Spins given up because the loop had lost its CPU to another thread",
        |m| m.gave_way,
    ),
    ("wakeful_loop_events", "Events of descriptors", |m| m.events),
    ("wakeful_loop_polls", "Polls of tasks and runs of closures", |m| m.polls),
    ("wakeful_loop_remote", "Wakes and closures from other threads", |m| m.remote),
    ("wakeful_loop_timers", "Timers expired", |m| m.timers),
    ("wakeful_loop_callbacks", "Callbacks run", |m| m.callbacks),
    ("wakeful_loop_panics", "Panics contained in closures and callbacks", |m| m.panics),
    (
        "wakeful_loop_budget_exhaustions",
        "Phases of turns that left work over for the next turn",
        |m| m.budget_exhaustions,
    ),
    (
        "wakeful_loop_forced_yields",
        "Operations postponed because their task's budget was spent",
        |m| m.forced_yields,
    ),
    (
        "wakeful_loop_slow_turns",
        "Turns that took longer than 1 ms, or than what EventLoopBuilder::slow_turn sets",
        |m| m.slow_turns,
    ),
];

const TIMES: [Field<Duration>; 3] = [
    ("wakeful_loop_park", "Time in waits that were allowed to sleep", |m| m.park_time),
    ("wakeful_loop_held", "Time asleep with CPUs kept from halting", |m| m.held_time),
    ("wakeful_loop_spin", "Time spent spinning", |m| m.spin_time),
];

const DURATIONS: [Field<Histogram>; 4] = [
    ("wakeful_loop_turn_duration", "How long turns took", |m| m.turn_time),
    ("wakeful_loop_poll_duration", "How long polls of tasks and runs of closures took", |m| {
        m.poll_time
    }),
    (
        "wakeful_loop_remote_latency",
        "From a wake or a send by another thread to the run, of the oldest of each batch",
        |m| m.remote_latency,
    ),
    ("wakeful_loop_timer_lateness", "From a timer's deadline to its expiry", |m| m.timer_lateness),
];

const NUMBERS: [Field<Histogram>; 2] = [
    (
        "wakeful_loop_events_per_wait",
        "Events of descriptors that one wait returned, of waits that returned any",
        |m| m.events_per_wait,
    ),
    (
        "wakeful_loop_queue_depth",
        "Tasks and closures that waited after the first one, when a turn began to run them",
        |m| m.queue_depth,
    ),
];

const OPEN: (&str, &str) =
    ("wakeful_connections", "Connections that are open, with those on their way to the loop");

type Count = (&'static str, &'static str, fn(&LoopCounts) -> u64);

const COUNTS: [Count; 6] = [
    ("wakeful_accepts", "Connections that the loop has begun to serve", LoopCounts::accepted),
    ("wakeful_accept_failures", "Accepts that failed", LoopCounts::failed),
    (
        "wakeful_accept_wakes_in_vain",
        "Wakes for a connection that another loop had taken",
        LoopCounts::wakes_in_vain,
    ),
    (
        "wakeful_accept_passed_on",
        "Connections given to the loop that went to another one, because the loop could not take them",
        LoopCounts::passed_on,
    ),
    (
        "wakeful_accept_turned_away",
        "Connections accepted and closed without being served",
        LoopCounts::turned_away,
    ),
    (
        "wakeful_connections_moved",
        "Connections that moved from the loop to another one",
        LoopCounts::moved,
    ),
];

/// The exported buckets, by the highest bit of the values in them: 0.256 µs to 8.6 s, and 1 to
/// 131,071. Even an empty bucket is exported, because otherwise a new time series would appear once
/// it is no longer empty.
const DURATION_BITS: std::ops::RangeInclusive<u32> = 7..=32;
const NUMBER_BITS: std::ops::RangeInclusive<u32> = 0..=16;

/// A histogram whose values were counted elsewhere.
struct Kept {
    sum: f64,
    /// Upper bounds, each with the number of values between the bound before and this one. The last
    /// bound is infinite.
    buckets: Vec<(f64, u64)>,
}

impl Kept {
    fn new(
        histogram: &Histogram,
        bits: std::ops::RangeInclusive<u32>,
        bound: fn(u64) -> f64,
        sum: f64,
    ) -> Self {
        let mut values = histogram.buckets().peekable();
        let mut up_to = |highest: u64| {
            let mut count = 0;
            while let Some((_, here)) = values.next_if(|(most, _)| *most <= highest) {
                count += here;
            }
            count
        };
        let mut buckets: Vec<_> = bits
            .map(|bit| (2_u64 << bit) - 1)
            .map(|highest| (bound(highest), up_to(highest)))
            .collect();
        buckets.push((f64::INFINITY, up_to(u64::MAX)));
        Self { sum, buckets }
    }

    /// Of whole nanoseconds: less than n + 1 of them is at most n.
    fn seconds(histogram: &Histogram) -> Self {
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        Self::new(
            histogram,
            DURATION_BITS,
            |highest| (highest + 1) as f64 / 1e9,
            seconds(histogram.sum()),
        )
    }

    fn numbers(histogram: &Histogram) -> Self {
        Self::new(histogram, NUMBER_BITS, |highest| highest as f64, histogram.sum() as f64)
    }
}

impl EncodeMetric for Kept {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let count = self.buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(self.sum, count, &self.buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl Collector for Loops {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics: Vec<_> = self.handles.iter().map(LoopHandle::metrics).collect();
        let mut encoder = Families { encoder: &mut encoder, metrics: &metrics };
        for (name, help, read) in COUNTERS {
            encoder.family(name, help, None, |m| ConstCounter::new(read(m)))?;
        }
        for (name, help, read) in TIMES {
            encoder.family(name, help, Some(&Unit::Seconds), |m| {
                ConstCounter::new(read(m).as_secs_f64())
            })?;
        }
        for (name, help, read) in DURATIONS {
            encoder.family(name, help, Some(&Unit::Seconds), |m| Kept::seconds(&read(m)))?;
        }
        for (name, help, read) in NUMBERS {
            encoder.family(name, help, None, |m| Kept::numbers(&read(m)))?;
        }
        encoder.longest_polls()?;
        encoder.hold_states()?;
        self.encode_counts(encoder.encoder)?;
        self.encode_load(encoder.encoder)
    }
}

/// Metric families with one metric for each loop.
struct Families<'a, 'b> {
    encoder: &'a mut DescriptorEncoder<'b>,
    metrics: &'a [LoopMetrics],
}

impl Families<'_, '_> {
    fn family<M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        metric: impl Fn(&LoopMetrics) -> M,
    ) -> fmt::Result {
        let Some(kind) = self.metrics.first().map(|first| metric(first).metric_type()) else {
            return Ok(());
        };
        let mut family = self.encoder.encode_descriptor(name, help, unit, kind)?;
        for (number, metrics) in self.metrics.iter().enumerate() {
            let label = [("loop", number.to_string())];
            metric(metrics).encode(family.encode_family(&label)?)?;
        }
        Ok(())
    }

    fn hold_states(&mut self) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(
            "wakeful_loop_hold",
            "1 for the state that the loop is in: whether it keeps CPUs from halting now, and if not, why",
            None,
            MetricType::Gauge,
        )?;
        for (number, metrics) in self.metrics.iter().enumerate() {
            let label = [("loop", number.to_string()), ("state", metrics.hold.as_str().to_owned())];
            ConstGauge::new(1.0).encode(family.encode_family(&label)?)?;
        }
        Ok(())
    }

    fn longest_polls(&mut self) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(
            "wakeful_loop_longest_poll",
            "The longest poll so far, and where its task was spawned",
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?;
        for (number, metrics) in self.metrics.iter().enumerate() {
            let Some(longest) = metrics.longest_poll else { continue };
            let label =
                [("loop", number.to_string()), ("spawned_at", longest.spawned_at.to_string())];
            let seconds = ConstGauge::new(longest.duration.as_secs_f64());
            seconds.encode(family.encode_family(&label)?)?;
        }
        Ok(())
    }
}

impl Loops {
    fn encode_counts(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let open =
            |counts: &LoopCounts| ConstGauge::new(i64::try_from(counts.open()).unwrap_or(i64::MAX));
        self.encode_count(encoder, OPEN, open)?;
        for (name, help, read) in COUNTS {
            self.encode_count(encoder, (name, help), |counts| ConstCounter::new(read(counts)))?;
        }
        Ok(())
    }

    fn encode_load(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (active, utilisation): (_, Vec<_>) =
            (self.loads.active(), self.loads.utilisation().collect());
        let help = "1 if the loop is active, 0 if fewer loops suffice for the load: such a loop gets no new connections (except with reuse-port) and hands its own to active loops";
        let is_active = |number| f64::from(u8::from(number < active));
        self.encode_gauge(encoder, ("wakeful_loop_active", help), is_active)?;
        let help = "The share of recent time that the loop spent on work";
        let busy = |number| utilisation[number];
        self.encode_gauge(encoder, ("wakeful_loop_utilisation", help), busy)
    }

    fn encode_gauge(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        value: impl Fn(usize) -> f64,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for number in 0..self.handles.len() {
            let label = [("loop", number.to_string())];
            ConstGauge::new(value(number)).encode(family.encode_family(&label)?)?;
        }
        Ok(())
    }

    fn encode_count<M: EncodeMetric>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        metric: impl Fn(&LoopCounts) -> M,
    ) -> fmt::Result {
        let Some(kind) = self.counts.loops().next().map(|first| metric(first).metric_type()) else {
            return Ok(());
        };
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for (number, counts) in self.counts.loops().enumerate() {
            let label = [("loop", number.to_string())];
            metric(counts).encode(family.encode_family(&label)?)?;
        }
        Ok(())
    }
}

/// Registers the counters of a group's loops, and a server's counters for each of these loops.
///
/// Take `handles` and `loads` from the group (a [`LoopGroup`](wakeful::LoopGroup)) or from a server
/// that runs one, and `counts` from the server. `counts` must have as many loops as there are
/// `handles`.
pub fn register_loops(
    registry: &mut Registry,
    handles: &[LoopHandle],
    counts: Arc<Counts>,
    loads: Loads,
) {
    registry.register_collector(Box::new(Loops { handles: handles.to_vec(), counts, loads }));
}
