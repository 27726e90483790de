//! Traces are replayed whole: what they say is offered, no more, and their last answers are waited
//! for.

use std::time::Duration;

use wakeful_load::internals::null_server::{NullServerThread, Slowness};
use wakeful_load::{
    Check, Measurement, Plan, Protocol, Requests, Schedule, Template, Watch, read_trace,
};

fn replay(trace: &str, slow: Slowness) -> Measurement {
    let server = NullServerThread::start(None, slow).unwrap();
    let times = read_trace(trace).unwrap();
    Plan::new(server.target().clone())
        .requests(Requests::new(Protocol::Frames, &Template::of_size(64)).unwrap())
        .duration(Duration::from_nanos(times.last().unwrap() + 1_000_000))
        .schedule(Schedule::Trace(times))
        // Nothing is sent meanwhile.
        .warm_up(Duration::from_millis(20))
        .patience(Duration::from_secs(20))
        .run()
        .unwrap()
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

/// Ends the run at the third look within the measured time.
#[derive(Default)]
struct EndsIt {
    looks: Option<u32>,
}

impl Watch for EndsIt {
    fn window_begins(&mut self) {
        self.looks = Some(0);
    }

    fn check(&mut self) -> Check {
        let Some(looks) = &mut self.looks else { return Check::GoOn };
        *looks += 1;
        if *looks < 3 { Check::GoOn } else { Check::Interrupted }
    }
}

#[test]
fn a_run_and_a_trace_of_any_length_begin() {
    let server = NullServerThread::start(None, Slowness::default()).unwrap();
    let measurement = Plan::new(server.target().clone())
        .requests(Requests::new(Protocol::Frames, &Template::of_size(64)).unwrap())
        .duration(Duration::MAX)
        .schedule(Schedule::Trace([0, u64::MAX].into()))
        .warm_up(Duration::from_millis(20))
        .run_watched(&mut EndsIt::default())
        .unwrap();
    assert!(measurement.interrupted);
    assert_eq!((measurement.recording.offered, measurement.recording.answered), (1, 1));
}
