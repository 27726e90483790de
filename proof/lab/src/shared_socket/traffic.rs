//! Clients that close their connections while their requests are being answered, so that reads and
//! writes race with the end of the connection.
//!
//! Each client has its own keys and knows their values. So every byte of every answer is known
//! before it comes. A connection ends in order, or is abandoned while answers are on their way.
//! Keys that were written by requests without a seen answer are not used again.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// An answer that takes longer counts as missing. A server that is about to die may stand still.
const PATIENCE: Duration = Duration::from_secs(5);

/// After this many refused connections in a row, the server counts as dead.
const REFUSALS: u32 = 50;

const KEYS: usize = 16;
const BYTES: usize = 1000;

/// This many of 10 exchanges are abandoned.
const ABANDONED_OF_10: u32 = 3;

/// What one or more clients did and saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    pub(super) connections: u64,
    /// The connections that were closed while answers were on their way.
    pub(super) abandoned: u64,
    /// The answers that were read to the end, with each byte as expected.
    pub(super) answers: u64,
    /// The bytes of answers, including answers that were not read to the end.
    pub(super) bytes: u64,
    /// The exchanges in which a byte was wrong.
    pub(super) wrong: u64,
    /// The connections that the server refused or ended, and the answers that did not come.
    pub(super) broken: u64,
}

impl Traffic {
    pub(super) fn add(&mut self, other: Self) {
        self.connections += other.connections;
        self.abandoned += other.abandoned;
        self.answers += other.answers;
        self.bytes += other.bytes;
        self.wrong += other.wrong;
        self.broken += other.broken;
    }
}

/// One client, which runs until `stop`.
pub(super) struct Client {
    name: String,
    random: fastrand::Rng,
    /// The number of each key and the version of its value, which is `None` until the key is set.
    keys: Vec<(u64, Option<u64>)>,
    next_key: u64,
    version: u64,
    traffic: Traffic,
}

/// Requests that are sent at once, and the expected answers.
struct Exchange {
    requests: Vec<u8>,
    answers: Vec<u8>,
    count: u64,
    /// The places of the keys that the exchange sets.
    set: Vec<usize>,
}

impl Client {
    pub(super) fn new(name: &str, seed: u64) -> Self {
        let keys = (0..KEYS as u64).map(|number| (number, None)).collect();
        let random = fastrand::Rng::with_seed(seed);
        let traffic = Traffic::default();
        Self { name: name.to_owned(), random, keys, next_key: KEYS as u64, version: 0, traffic }
    }

    pub(super) fn run(mut self, addr: SocketAddr, stop: &AtomicBool) -> Traffic {
        let mut refused = 0;
        while !stop.load(Ordering::Relaxed) && refused < REFUSALS {
            let Ok(stream) = TcpStream::connect_timeout(&addr, PATIENCE) else {
                refused += 1;
                self.traffic.broken += u64::from(!stop.load(Ordering::Relaxed));
                thread::sleep(Duration::from_millis(1));
                continue;
            };
            refused = 0;
            self.traffic.connections += 1;
            if self.use_it(stream).is_err() && !stop.load(Ordering::Relaxed) {
                self.traffic.broken += 1;
            }
        }
        self.traffic
    }

    /// Makes a few exchanges, of which the last may be abandoned.
    fn use_it(&mut self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        for _ in 0..self.random.u32(1..=4) {
            let exchange = self.exchange();
            let is_abandoned = self.random.u32(0..10) < ABANDONED_OF_10;
            let read = match (is_abandoned, self.random.bool()) {
                (false, _) => exchange.answers.len(),
                (true, true) => self.random.usize(0..exchange.answers.len()),
                (true, false) => 0,
            };
            let mut came = vec![0; read];
            let outcome = stream.write_all(&exchange.requests);
            let outcome = outcome.and_then(|()| stream.read_exact(&mut came));
            if outcome.is_err() || is_abandoned {
                // It is not known whether these keys were set, or will be.
                exchange.set.iter().for_each(|place| self.retire(*place));
            }
            outcome?;
            self.traffic.bytes += read as u64;
            if came[..] != exchange.answers[..read] {
                self.traffic.wrong += 1;
                exchange.set.iter().for_each(|place| self.retire(*place));
                return Ok(());
            }
            if is_abandoned {
                self.traffic.abandoned += 1;
                return Ok(());
            }
            self.traffic.answers += exchange.count;
        }
        Ok(())
    }

    fn exchange(&mut self) -> Exchange {
        let count = self.random.u64(1..=16);
        let (mut requests, mut answers, mut set) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let place = self.random.usize(0..KEYS);
            let (number, version) = self.keys[place];
            let key = format!("{}:{number}", self.name);
            if self.random.u32(0..10) < 3 {
                self.version += 1;
                self.keys[place].1 = Some(self.version);
                set.push(place);
                write_command(&mut requests, &[b"SET", key.as_bytes(), &value(&key, self.version)]);
                answers.extend_from_slice(b"+OK\r\n");
            } else {
                write_command(&mut requests, &[b"GET", key.as_bytes()]);
                match version {
                    Some(version) => write_bulk(&mut answers, &value(&key, version)),
                    None => answers.extend_from_slice(b"$-1\r\n"),
                }
            }
        }
        Exchange { requests, answers, count, set }
    }

    /// Puts another key into that place.
    fn retire(&mut self, place: usize) {
        self.keys[place] = (self.next_key, None);
        self.next_key += 1;
    }
}

/// Returns a value that no other key has: the key and the version, again and again.
fn value(key: &str, version: u64) -> Vec<u8> {
    format!("{key}/{version};").into_bytes().into_iter().cycle().take(BYTES).collect()
}

fn write_command(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    words.iter().for_each(|word| write_bulk(out, word));
}

fn write_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    use super::*;

    type Values = Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>;

    fn word(input: &mut impl BufRead) -> Option<Vec<u8>> {
        let mut word = vec![0; number(input)? + 2];
        input.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        Some(word)
    }

    fn number(input: &mut impl BufRead) -> Option<usize> {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        line.trim_end().get(1..)?.parse().ok()
    }

    /// Serves one connection. `change` may falsify an answer.
    fn serve(stream: TcpStream, values: &Values, change: fn(&mut Vec<u8>)) -> Option<()> {
        let mut out = stream.try_clone().ok()?;
        let mut input = BufReader::new(stream);
        loop {
            let count = number(&mut input)?;
            let words: Vec<_> = (0..count).map(|_| word(&mut input)).collect::<Option<_>>()?;
            let mut answer = Vec::new();
            let mut values = values.lock().unwrap();
            match (&words[..], values.get(&words[1])) {
                ([_, key, value], _) => {
                    values.insert(key.clone(), value.clone());
                    answer.extend_from_slice(b"+OK\r\n");
                }
                (_, Some(value)) => write_bulk(&mut answer, value),
                (_, None) => answer.extend_from_slice(b"$-1\r\n"),
            }
            drop(values);
            change(&mut answer);
            out.write_all(&answer).ok()?;
        }
    }

    /// Returns what a client sees of a server of threads.
    fn seen(change: fn(&mut Vec<u8>), until: impl Fn() -> bool) -> Traffic {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let values = Values::default();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let values = Arc::clone(&values);
                thread::spawn(move || serve(stream, &values, change));
            }
        });
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let client = scope.spawn(|| Client::new("a", 1).run(addr, &stop));
            while !until() {
                thread::sleep(Duration::from_millis(10));
            }
            stop.store(true, Ordering::Relaxed);
            client.join().unwrap()
        })
    }

    fn after(time: Duration) -> impl Fn() -> bool {
        let begun = std::time::Instant::now();
        move || begun.elapsed() >= time
    }

    #[test]
    fn a_server_that_answers_as_it_should_is_found_without_fault() {
        let traffic = seen(|_| {}, after(Duration::from_secs(1)));
        assert!(traffic.answers > 0 && traffic.abandoned > 0, "{traffic:?}");
        assert_eq!((traffic.wrong, traffic.broken), (0, 0), "{traffic:?}");
    }

    #[test]
    fn an_answer_with_another_byte_is_wrong() {
        let spoil = |answer: &mut Vec<u8>| {
            if let Some(byte) = answer.get_mut(500) {
                *byte ^= 1;
            }
        };
        let traffic = seen(spoil, after(Duration::from_secs(1)));
        assert!(traffic.wrong > 0, "{traffic:?}");
    }

    #[test]
    fn nobody_there_is_broken_and_comes_to_an_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        drop(listener);
        let traffic = Client::new("a", 1).run(addr, &AtomicBool::new(false));
        assert_eq!((traffic.connections, traffic.broken), (0, u64::from(REFUSALS)));
    }
}
