//! A mix of commands: what the server gets is what was asked for, and each kind of request is
//! counted by itself.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use wakeful_load::internals::summary;
use wakeful_load::{Plan, Requests, Schedule, Template};

#[derive(Default)]
struct Asked {
    reads: AtomicU64,
    writes: AtomicU64,
}

/// Answers GET and SET on a thread for each connection, and counts them.
fn serve(listener: &TcpListener, asked: &Arc<Asked>) {
    while let Ok((stream, _)) = listener.accept() {
        let asked = Arc::clone(asked);
        thread::spawn(move || answer(stream, &asked));
    }
}

fn answer(stream: TcpStream, asked: &Asked) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut out = stream.try_clone().ok()?;
    let mut input = BufReader::new(stream);
    loop {
        let count = number(&mut input)?;
        let words: Vec<Vec<u8>> = (0..count).map(|_| word(&mut input)).collect::<Option<_>>()?;
        // Of 100 keys.
        assert!(words[1].starts_with(b"k0000000000"), "{words:?}");
        let answer: &[u8] = match words[0].as_slice() {
            b"GET" => {
                asked.reads.fetch_add(1, Ordering::Relaxed);
                b"$2\r\nab\r\n"
            }
            _ => {
                assert_eq!(words[2].len(), 1000);
                asked.writes.fetch_add(1, Ordering::Relaxed);
                b"+OK\r\n"
            }
        };
        out.write_all(answer).ok()?;
    }
}

fn number(input: &mut impl BufRead) -> Option<usize> {
    let mut line = String::new();
    input.read_line(&mut line).ok()?;
    line.trim_end().get(1..)?.parse().ok()
}

fn word(input: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut word = vec![0; number(input)? + 2];
    input.read_exact(&mut word).ok()?;
    word.truncate(word.len() - 2);
    Some(word)
}

#[test]
fn reads_and_writes_are_as_frequent_as_asked_for_and_reported_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string().parse().unwrap();
    let asked = Arc::new(Asked::default());
    let counts = Arc::clone(&asked);
    thread::spawn(move || serve(&listener, &counts));
    let requests = Requests::mix([
        ("reads", 3, Template::command("GET k{key}")),
        ("writes", 1, Template::command("SET k{key}").body_of_size(1000)),
    ]);
    let plan = Plan::new(target)
        .requests(requests.unwrap())
        .keys(100)
        .schedule(Schedule::Closed)
        .connections(4)
        .in_flight(1)
        .warm_up(Duration::from_millis(20))
        .duration(Duration::from_millis(500));
    let measurement = plan.run().unwrap();
    let recording = &measurement.recording;
    assert_eq!(recording.failed, 0, "{:?}", measurement.first_failure);
    let [reads, writes] = [0, 1].map(|kind| recording.by_kind[kind].len());
    assert_eq!(reads + writes, recording.answered);
    let reads_asked = asked.reads.load(Ordering::Relaxed) as f64;
    let share = reads_asked / (reads_asked + asked.writes.load(Ordering::Relaxed) as f64);
    // Few as they may be on a busy machine, five standard deviations.
    let allowed = 5.0 * (0.75 * 0.25 / (reads + writes) as f64).sqrt();
    assert!((share - 0.75).abs() < allowed, "{share} of {}", reads + writes);
    assert!((reads as f64 / (reads + writes) as f64 - 0.75).abs() < allowed, "{reads} {writes}");
    let kinds = summary::kinds(&measurement);
    assert_eq!(kinds[1].name, "writes");
    assert_eq!((kinds[0].response.count, kinds[1].response.count), (reads, writes));
}
