//! The client: an open loop with random arrivals. One thread sends the requests, and one thread for
//! each connection takes the answers.
//!
//! Unlike `wakeful load`, the client sleeps between requests: two loops need both CPUs of a small
//! machine, and a spinning client would take one of them away. Its sleeps add some tens of
//! microseconds to every contender's figures, because times count from when a request was due. With
//! a real-time priority (`load-skew.sh`) they add hardly more than that.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::work::{self, FRAME};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connections of one kind.
pub struct Kind {
    pub connections: Vec<usize>,
    /// Requests per second, on all of them together.
    pub rate: f64,
    /// The steps that each request asks for.
    pub steps: u64,
}

/// An answer. Times are in nanoseconds since the load began.
pub struct Answer {
    pub connection: usize,
    pub due: u64,
    pub at: u64,
}

pub struct Load {
    addr: SocketAddr,
    epoch: Instant,
    random: fastrand::Rng,
    streams: Vec<TcpStream>,
    answers: (Sender<Answer>, Receiver<Answer>),
    asked: usize,
    /// How late the requests were sent, in nanoseconds.
    pub late: Vec<u64>,
}

impl Load {
    pub fn new(addr: SocketAddr, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        let (epoch, answers) = (Instant::now(), mpsc::channel());
        Self { addr, epoch, random, streams: Vec::new(), answers, asked: 0, late: Vec::new() }
    }

    pub fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Opens a connection, and returns its number.
    pub fn connect(&mut self) -> io::Result<usize> {
        let stream = TcpStream::connect(self.addr)?;
        stream.set_nodelay(true)?;
        let (connection, epoch) = (self.streams.len(), self.epoch);
        let (mut answering, answers) = (stream.try_clone()?, self.answers.0.clone());
        self.streams.push(stream);
        thread::spawn(move || {
            let mut frame = [0; FRAME];
            while answering.read_exact(&mut frame).is_ok() {
                let at = u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
                if answers.send(Answer { connection, due: work::due(&frame), at }).is_err() {
                    return;
                }
            }
        });
        Ok(connection)
    }

    /// Closes a connection that is not needed.
    pub fn close(&self, connection: usize) -> io::Result<()> {
        self.streams[connection].shutdown(std::net::Shutdown::Both)
    }

    fn ask(&mut self, connection: usize, steps: u64, due: u64) -> io::Result<()> {
        self.asked += 1;
        self.streams[connection].write_all(&work::frame(steps, due))
    }

    /// Sends one request while there is no other, and waits for its answer.
    pub fn ask_alone(&mut self, connection: usize, steps: u64) -> io::Result<()> {
        self.ask(connection, steps, self.now())?;
        self.answers().map(drop)
    }

    /// Sends requests for `time`.
    pub fn go_on(&mut self, kinds: &[&Kind], time: Duration) -> io::Result<()> {
        let begin = self.now();
        let end = begin + u64::try_from(time.as_nanos()).map_err(io::Error::other)?;
        let mut due: Vec<u64> = kinds.iter().map(|kind| begin + self.gap(kind)).collect();
        while let Some((next, at)) = due.iter().copied().enumerate().min_by_key(|(_, due)| *due)
            && at < end
        {
            let kind = kinds[next];
            due[next] = at + self.gap(kind);
            self.sleep_until(at);
            let connection = kind.connections[self.random.usize(..kind.connections.len())];
            self.ask(connection, kind.steps, at)?;
            self.late.push(self.now().saturating_sub(at));
        }
        self.sleep_until(end);
        Ok(())
    }

    /// Returns the time until the next of the random arrivals.
    fn gap(&mut self, kind: &Kind) -> u64 {
        let gap = Duration::from_secs_f64(-(1.0 - self.random.f64()).ln() / kind.rate);
        u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX)
    }

    fn sleep_until(&self, at: u64) {
        thread::sleep(Duration::from_nanos(at.saturating_sub(self.now())));
    }

    /// Returns all answers that were not taken yet, when all requests are answered.
    pub fn answers(&mut self) -> io::Result<Vec<Answer>> {
        let late = |_| io::Error::other("an answer does not come");
        let answers: io::Result<Vec<_>> =
            (0..self.asked).map(|_| self.answers.1.recv_timeout(PATIENCE).map_err(late)).collect();
        self.asked = 0;
        answers
    }
}

impl Drop for Load {
    /// Closes the connections, so that the threads that wait for answers end.
    fn drop(&mut self) {
        for connection in 0..self.streams.len() {
            // It may be closed already.
            let _ = self.close(connection);
        }
    }
}
