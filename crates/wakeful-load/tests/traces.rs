//! Traces are replayed whole: what they say is offered, no more, and their last answers are waited
//! for.

use std::time::Duration;

use wakeful_load::generator::{self, Measurement, Plan};
use wakeful_load::null_server::{NullServerThread, Slowness};
use wakeful_load::protocol::{Protocol, Template};
use wakeful_load::schedule::{Schedule, read_trace};

fn replay(trace: &str, slow: Slowness) -> Measurement {
    let server = NullServerThread::start(None, slow).unwrap();
    let mut plan =
        Plan::new(server.target().clone(), Protocol::Frames, &Template::of_size(64)).unwrap();
    let times = read_trace(trace).unwrap();
    plan.duration = Duration::from_nanos(times.last().unwrap() + 1_000_000);
    plan.schedule = Schedule::Trace(times);
    // Nothing is sent meanwhile.
    plan.warm_up = Duration::from_millis(20);
    plan.patience = Duration::from_secs(20);
    generator::run(&plan, &mut ()).unwrap()
}

#[test]
fn times_that_are_all_the_same_are_no_closed_loop() {
    let measurement = replay("0\n0\n0\n", Slowness::default());
    assert_eq!((measurement.recording.offered, measurement.recording.answered), (3, 3));
}

#[test]
fn the_first_and_the_last_line_count() {
    let trace: String = (0..50).map(|index| format!("{}\n", f64::from(index) / 100.0)).collect();
    let slow = Slowness { delay: Duration::from_millis(100), ..Slowness::default() };
    let recording = replay(&trace, slow).recording;
    assert_eq!((recording.offered, recording.answered, recording.failed), (50, 50, 0));
}
