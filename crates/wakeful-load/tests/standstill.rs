//! A generator that stands still: others have its CPU, or its machine is paused. It must not take
//! its own pause for the server's, neither in the measured time nor while it waits for the last
//! answers.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use wakeful_load::internals::null_server::{NullServerThread, Slowness};
use wakeful_load::{
    Check, Measurement, Plan, Protocol, Requests, Schedule, Template, Validity, Watch,
};

/// The generator's patience.
const PATIENCE: Duration = Duration::from_millis(400);
/// A pause that is longer, and one that is longer than what a pause may add to the patience.
const PAUSE: Duration = Duration::from_millis(450);
const LONG_PAUSE: Duration = Duration::from_millis(1000);

/// When the server answers, with regard to the pause.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answers {
    /// The server is another machine's: its answers arrive during the pause.
    During,
    /// The server stands still as well, on the same machine.
    Behind,
    /// One connection's, during the pause.
    OfOne,
    Never,
}

/// A server that answers nothing before the measured time is over. It is served between the turns
/// of the generator, on its thread, and so is the pause: nothing here is a race.
struct Paused {
    listener: TcpListener,
    answers: Answers,
    clients: Vec<TcpStream>,
    is_over: bool,
    has_paused: bool,
}

impl Paused {
    fn new(answers: Answers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener, answers, clients: Vec::new(), is_over: false, has_paused: false }
    }

    fn pause(&self) -> Duration {
        if self.answers == Answers::Behind { PAUSE } else { LONG_PAUSE }
    }

    /// Answers what has come, as an echo.
    fn answer(&mut self) {
        while let Ok((client, _)) = self.listener.accept() {
            client.set_nonblocking(true).unwrap();
            self.clients.push(client);
        }
        let mut buffer = [0; 4096];
        let most = if self.answers == Answers::OfOne { 1 } else { usize::MAX };
        for client in self.clients.iter_mut().take(most) {
            loop {
                match client.read(&mut buffer) {
                    Ok(count) if count > 0 => client.write_all(&buffer[..count]).unwrap(),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

impl Watch for Paused {
    fn window_ended(&mut self) {
        self.is_over = true;
    }

    fn check(&mut self) -> Check {
        if !self.is_over {
            return Check::GoOn;
        }
        match self.answers {
            Answers::During | Answers::OfOne => self.answer(),
            Answers::Behind if self.has_paused => self.answer(),
            Answers::Behind | Answers::Never => {}
        }
        if !self.has_paused {
            self.has_paused = true;
            thread::sleep(self.pause());
        }
        Check::GoOn
    }
}

fn run(server: &mut Paused) -> Result<Measurement, String> {
    // More connections than the generator takes events of at once.
    let plan = Plan::new(server.listener.local_addr().unwrap().to_string().parse().unwrap())
        .requests(Requests::new(Protocol::Frames, &Template::of_size(16)).unwrap())
        .rate(5000.0)
        .connections(100)
        .warm_up(Duration::ZERO)
        .duration(Duration::from_millis(100))
        .patience(PATIENCE);
    plan.run_watched(server).map_err(|error| error.to_string())
}

#[test]
fn what_has_arrived_during_a_pause_is_answered() {
    let measurement = run(&mut Paused::new(Answers::During)).unwrap();
    let recording = &measurement.recording;
    assert_eq!(recording.failed, 0, "{:?}", measurement.first_failure);
    assert_eq!(recording.answered, recording.offered);
    // Late is late: the pause is in the response times.
    assert!(recording.response.min() >= LONG_PAUSE.as_nanos() as u64);
}

#[test]
fn a_server_that_stood_still_too_has_its_time_to_answer() {
    let measurement = run(&mut Paused::new(Answers::Behind)).unwrap();
    assert_eq!(measurement.recording.failed, 0, "{:?}", measurement.first_failure);
    assert_eq!(measurement.recording.answered, measurement.recording.offered);
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let error = run(&mut Paused::new(Answers::Never)).unwrap_err();
    assert!(error.contains("answered none of"), "{error}");
}

/// Of HTTP/2, whose connections wait for the server's settings before they ask.
#[test]
fn a_server_that_lets_nobody_ask_is_given_up_in_a_closed_loop() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let plan = Plan::new(silent.local_addr().unwrap().to_string().parse().unwrap())
        .requests(Requests::new(Protocol::Http2, &Template::http("GET", "x", "/")).unwrap())
        .schedule(Schedule::Closed)
        .warm_up(Duration::ZERO)
        .duration(Duration::from_millis(100));
    let error = plan.run().map(drop).unwrap_err().to_string();
    assert!(error.contains("no connection could send a request"), "{error}");
}

#[test]
fn a_failure_says_where_the_requests_are() {
    let measurement = run(&mut Paused::new(Answers::OfOne)).unwrap();
    let failed = measurement.recording.failed;
    assert!(failed > 0 && measurement.recording.answered > 0);
    assert_eq!(measurement.failures["no answer in time"], failed);
    let why = measurement.first_failure.unwrap();
    let told = format!(
        "no answer in time: {failed} requests were sent, on 99 of 100 connections (there, 0"
    );
    assert!(why.starts_with(&told), "{why}");
}

/// A pause for more than half of the measured time.
struct PausedOnce {
    is_measured: bool,
}

const MEASURED: Duration = Duration::from_millis(300);
const MOST_OF_IT: Duration = Duration::from_millis(200);

impl Watch for PausedOnce {
    fn window_begins(&mut self) {
        self.is_measured = true;
    }

    fn check(&mut self) -> Check {
        if std::mem::take(&mut self.is_measured) {
            thread::sleep(MOST_OF_IT);
        }
        Check::GoOn
    }
}

/// Few of the requests that were due in the pause find a free connection after it.
#[test]
fn a_pause_is_the_generator_s_also_where_requests_then_wait_for_a_connection() {
    const CONNECTIONS: usize = 4;
    let server = NullServerThread::start(None, Slowness::default()).unwrap();
    let plan = Plan::new(server.target().clone())
        .requests(Requests::new(Protocol::Frames, &Template::of_size(16)).unwrap())
        .schedule(Schedule::Constant(20_000.0))
        .connections(CONNECTIONS)
        .in_flight(1)
        .warm_up(Duration::ZERO)
        .duration(MEASURED)
        .patience(Duration::from_secs(20));
    let measurement = plan.run_watched(&mut PausedOnce { is_measured: false }).unwrap();
    let recording = &measurement.recording;
    assert_eq!(recording.send_lag.len(), recording.offered);
    // This many were due at least 5 ms before the end of the pause, which begins up to a
    // millisecond before the measured time.
    const DUE_IN_IT: u64 = 20 * (200 - 1 - 5);
    let late = recording.send_lag.count_between(5_000_000, u64::MAX);
    assert!(late >= DUE_IN_IT, "{late}");
    assert!(recording.waited_for_connection >= DUE_IN_IT - CONNECTIONS as u64, "{recording:?}");
    // If the machine keeps the server from its CPU for seconds, the pause matters little.
    let response = Duration::from_nanos(recording.response.value_at_quantile(0.99));
    let validity = measurement.validity();
    let Validity::Invalid { reasons, up_to: None } = &validity else {
        assert!(response > MOST_OF_IT * 8, "{validity:?}, {response:?}");
        return;
    };
    let says_late = reasons.iter().any(|reason| reason.contains("late"));
    assert!(says_late || response > MOST_OF_IT * 8, "{reasons:?}, {response:?}");
}
