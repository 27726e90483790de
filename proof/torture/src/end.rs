//! One end of a connection. It sends its stream and reads the peer's in random pieces. In the
//! meantime it does to its socket everything that may be done to one.

use std::convert::Infallible;
use std::future::pending;
use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use fastrand::Rng;
use futures_lite::future::{or, poll_once};
use wakeful::accept::is_shortage;
use wakeful::net::{Attached, DetachedStream, OwnedReadHalf, OwnedWriteHalf, Stream};
use wakeful::readiness::Interest;
use wakeful::{JoinHandle, Priority};

use crate::bytes::{self, HEADER};
use crate::hostile::limits::were_ever_short;
use crate::ledger::{Account, EndAccount, Outcome, Side};
use crate::world::{World, was_reset};

/// The longest read or write.
const LONGEST: usize = 16 * 1024;

/// An end, wherever its stream is. It reports how it ended when it is dropped.
#[derive(Debug)]
pub(crate) struct End {
    account: Arc<Account>,
    side: Side,
    world: Arc<World>,
    random: Rng,
    /// How many bytes there are to send.
    length: u64,
    /// The position in its own stream at which it gives up, if it is to end early.
    dies_at: Option<u64>,
    outcome: Outcome,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

/// The result of a transfer.
enum Moved {
    Read(io::Result<usize>),
    Wrote(io::Result<usize>),
}

impl End {
    pub(crate) fn new(account: Arc<Account>, side: Side, world: Arc<World>, seed: u64) -> Self {
        world.ledger.begin();
        let mut random = Rng::with_seed(seed);
        let length = length(&mut random).max(if side == Side::Client { HEADER as u64 } else { 0 });
        let dies_at = (random.u8(..) < world.share_of_early_deaths).then(|| random.u64(0..=length));
        let outgoing = vec![0; LONGEST];
        let (incoming, outcome) = (outgoing.clone(), Outcome::Dropped);
        Self { account, side, world, random, length, dies_at, outcome, incoming, outgoing }
    }

    fn mine(&self) -> &EndAccount {
        self.account.end(self.side)
    }

    /// Reports that its connection cannot be made.
    pub(crate) fn failed(mut self, what: &str, error: &io::Error) {
        if is_shortage(error) && were_ever_short() {
            self.account.is_broken_on_purpose();
        }
        self.outcome = Outcome::Broken(format!("{what}: {error}"));
    }

    /// Runs to the end, or until it moves to another loop.
    pub(crate) async fn run(mut self, mut stream: Stream) {
        let result = loop {
            if let Err(error) = self.shut_if_all_is_sent(&stream) {
                break Err(error);
            }
            let mine = self.mine();
            if mine.shut.load(Relaxed) && mine.ended.load(Relaxed) {
                self.note_reset(&stream);
                break Ok(Outcome::Finished);
            }
            if self.dies_at.is_some_and(|position| mine.sent.load(Relaxed) >= position) {
                break self.die(&stream);
            }
            let result = match self.random.u8(..) {
                0..8 => return self.move_on(stream).await,
                8..12 => {
                    let (whole, result) = self.in_halves(stream).await;
                    stream = whole;
                    result
                }
                12..16 => self.peek(&mut stream).await,
                16..18 => self.change_priority(&stream),
                18..24 => {
                    wakeful::task::yield_now().await;
                    Ok(())
                }
                24..40 => self.attempt(&stream).await,
                40..44 => {
                    let pause = Duration::from_micros(self.random.u64(..300));
                    wakeful::time::sleep(pause).await;
                    Ok(())
                }
                _ => self.transfer(&mut stream).await,
            };
            if let Err(error) = result {
                self.note_reset(&stream);
                break Err(error);
            }
        };
        self.outcome = result.unwrap_or_else(|error| Outcome::Broken(error.to_string()));
    }

    /// Runs on a thread, which it blocks: sends everything and then reads everything.
    pub(crate) fn run_blocking(mut self, stream: &std::net::TcpStream, random: &mut Rng) {
        self.outcome = match self.talk_blocking(stream, random) {
            Ok(outcome) => outcome,
            Err(error) => {
                // This includes a connection that is broken on purpose: its other end lives until
                // this thread is done.
                if error.kind() == io::ErrorKind::WouldBlock {
                    let fault = format!("a thread waited in vain: {}", self.account);
                    self.world.ledger.fault(fault);
                }
                Outcome::Broken(error.to_string())
            }
        };
    }

    fn talk_blocking(
        &mut self,
        mut stream: &std::net::TcpStream,
        random: &mut Rng,
    ) -> io::Result<Outcome> {
        loop {
            let sent = self.mine().sent.load(Relaxed);
            if self.dies_at.is_some_and(|position| sent >= position) {
                self.account.is_broken_on_purpose();
                if random.bool() {
                    self.world.ledger.totals.resets.fetch_add(1, Relaxed);
                    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
                }
                return Ok(Outcome::GaveUp);
            }
            let piece = self.next_piece();
            if piece == 0 {
                break;
            }
            let count = unless_continued(|| stream.write(&self.outgoing[..piece]))?;
            self.mine().sent.fetch_add(count as u64, SeqCst);
        }
        self.mine().shut.store(true, Relaxed);
        self.world.ledger.totals.half_closes.fetch_add(1, Relaxed);
        stream.shutdown(Shutdown::Write)?;
        while !self.mine().ended.load(Relaxed) {
            let room = 1 + random.usize(..LONGEST);
            let count = unless_continued(|| stream.read(&mut self.incoming[..room]))?;
            self.received(count)?;
        }
        Ok(Outcome::Finished)
    }

    /// Notes that a reset that was injected is on purpose. A Unix socket may have seen it as the
    /// end of the peer's stream.
    fn note_reset(&self, stream: &Stream) {
        if was_reset(stream) {
            self.account.is_broken_on_purpose();
        }
    }

    fn shut_if_all_is_sent(&self, stream: &Stream) -> io::Result<()> {
        let mine = self.mine();
        if mine.sent.load(Relaxed) < self.length || mine.shut.swap(true, Relaxed) {
            return Ok(());
        }
        self.world.ledger.totals.half_closes.fetch_add(1, Relaxed);
        stream.shutdown_side(Shutdown::Write)
    }

    /// Changes the priority. The first high socket of a loop needs a descriptor. If there is none
    /// to be had, the stream stays as it was.
    fn change_priority(&mut self, stream: &Stream) -> io::Result<()> {
        self.world.ledger.totals.priorities.fetch_add(1, Relaxed);
        let high = self.random.bool();
        match stream.set_priority(if high { Priority::High } else { Priority::Normal }) {
            Err(error) if is_shortage(&error) && were_ever_short() => Ok(()),
            result => result,
        }
    }

    /// Reads or writes once, whichever is possible first. The other operation is dropped, and must
    /// not have moved any bytes.
    async fn transfer(&mut self, stream: &mut Stream) -> io::Result<()> {
        let room = 1 + self.random.usize(..LONGEST);
        let piece = self.next_piece();
        let reads = !self.mine().ended.load(Relaxed);
        let (reads_first, slices) = (self.random.bool(), self.random.u8(..) < 32);
        let moved = {
            let (mut reader, mut writer) = stream.split();
            let incoming = &mut self.incoming[..room];
            let outgoing = &self.outgoing[..piece];
            let reading = async {
                if !reads {
                    pending::<()>().await;
                }
                Moved::Read(reader.read(incoming).await)
            };
            let writing = async {
                if outgoing.is_empty() {
                    pending::<()>().await;
                }
                if slices {
                    let (one, other) = outgoing.split_at(outgoing.len() / 3);
                    let slices = [IoSlice::new(one), IoSlice::new(other)];
                    return Moved::Wrote(writer.write_vectored(&slices).await);
                }
                Moved::Wrote(writer.write(outgoing).await)
            };
            if reads_first { or(reading, writing).await } else { or(writing, reading).await }
        };
        match moved {
            Moved::Read(count) => self.received(count?),
            Moved::Wrote(count) => {
                self.mine().sent.fetch_add(count? as u64, SeqCst);
                Ok(())
            }
        }
    }

    /// Like [`transfer`](Self::transfer), but by a single attempt at what is ready. The readiness
    /// may be over by then.
    async fn attempt(&mut self, stream: &Stream) -> io::Result<()> {
        self.world.ledger.totals.attempts.fetch_add(1, Relaxed);
        let room = 1 + self.random.usize(..LONGEST);
        let piece = self.next_piece();
        let interest = match (self.mine().ended.load(Relaxed), piece) {
            (true, _) => Interest::WRITABLE,
            (false, 0) => Interest::READABLE,
            (false, _) => Interest::READABLE | Interest::WRITABLE,
        };
        let ready = match self.random.u8(..) {
            0..64 if interest == Interest::READABLE => {
                stream.readable().await?;
                Interest::READABLE
            }
            0..64 if interest == Interest::WRITABLE => {
                stream.writable().await?;
                Interest::WRITABLE
            }
            _ => {
                let ready = stream.ready(interest).await?;
                let reads_first = self.random.bool() || !ready.is_writable();
                let reads = ready.is_readable() && reads_first;
                if reads { Interest::READABLE } else { Interest::WRITABLE }
            }
        };
        let moved = if ready.is_readable() {
            let count = stream.try_read(&mut self.incoming[..room]);
            count.and_then(|count| self.received(count))
        } else {
            let count = stream.try_write(&self.outgoing[..piece]);
            count.map(|count| _ = self.mine().sent.fetch_add(count as u64, SeqCst))
        };
        match moved {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            result => result,
        }
    }

    /// Puts the next bytes to send at the front of their buffer. Returns `None` if everything is
    /// sent.
    fn next_piece(&mut self) -> usize {
        let sent = self.mine().sent.load(Relaxed);
        let most = 1 + self.random.u64(..LONGEST as u64);
        let piece = usize::try_from(most.min(self.length - sent)).unwrap_or(LONGEST);
        bytes::fill(self.account.id, self.side, sent, &mut self.outgoing[..piece]);
        piece
    }

    fn received(&self, count: usize) -> io::Result<()> {
        take(&self.account, self.side, &self.world, &self.incoming[..count])
    }

    /// Peeks. The next read brings the same bytes, so they are not counted.
    async fn peek(&mut self, stream: &mut Stream) -> io::Result<()> {
        // This does not wait: the other end may be waiting to hear from this one.
        let peeked = poll_once(stream.peek(&mut self.incoming[..64])).await;
        let Some(count) = peeked else { return Ok(()) };
        self.world.ledger.totals.peeks.fetch_add(1, Relaxed);
        let (sender, position) = (self.side.other(), self.mine().received.load(Relaxed));
        let seen = &self.incoming[..count?];
        check(&self.account, sender, position, seen, &self.world)
    }

    /// Reads and writes for a while in two tasks, and puts the stream together again.
    async fn in_halves(&mut self, stream: Stream) -> (Stream, io::Result<()>) {
        self.world.ledger.totals.halves.fetch_add(1, Relaxed);
        let (reader, writer) = stream.into_split();
        // Otherwise two ends whose writers are both gone would wait for ever, each for its own
        // reader.
        let (over, is_over) = async_channel::bounded(1);
        let (steps, most) = (1 + self.random.usize(..20), 1 + self.random.usize(..LONGEST));
        let reading = Aborting(wakeful::spawn(read_half(
            self.account.clone(),
            self.side,
            self.world.clone(),
            reader,
            (steps, most),
            (over.clone(), is_over.clone()),
        )));
        let (steps, most) = (1 + self.random.usize(..20), 1 + self.random.usize(..LONGEST));
        let until = self.dies_at.unwrap_or(self.length).min(self.length);
        let writing = Aborting(wakeful::spawn(write_half(
            self.account.clone(),
            self.side,
            until,
            writer,
            (steps, most),
            (over, is_over),
        )));
        let (reader, read) = reading.output().await;
        let (writer, written) = writing.output().await;
        let stream = reader.reunite(writer).expect("halves of one stream");
        (stream, read.and(written))
    }

    /// Goes to another loop, sometimes through a thread that has none.
    async fn move_on(mut self, mut stream: Stream) {
        let world = self.world.clone();
        world.ledger.totals.moves.fetch_add(1, Relaxed);
        let mut unread = 0;
        if self.random.bool() {
            match poll_once(stream.read(&mut self.incoming)).await {
                // What is read is taken where it arrives. The end of the stream is not, as it
                // cannot travel.
                Some(Ok(count @ 1..)) => unread = count,
                Some(Ok(_)) => self.mine().ended.store(true, SeqCst),
                Some(Err(error)) => {
                    self.note_reset(&stream);
                    return self.failed("read", &error);
                }
                None => {}
            }
        }
        let detached = stream.detach().with_unread(&self.incoming[..unread]);
        if self.random.u8(..) < 64 {
            // This is refused when the round is over. Then the end stops here.
            let _ = world.couriers.send(Box::new(|target| self.arrive(detached, target)));
            return;
        }
        let target = self.random.usize(..world.loops.len());
        self.arrive(detached, target);
    }

    /// Goes on with its stream on that loop.
    pub(crate) fn arrive(self, detached: DetachedStream, target: usize) {
        let world = self.world.clone();
        let arriving = world.loops[target].spawn(move || async move {
            match detached.attach() {
                Ok(attached) => self.go_on(attached).await,
                Err(refused) => self.failed("attach", refused.error()),
            }
        });
        match arriving {
            Ok(task) => task.detach(),
            // The loop has ended, and so has the end that comes back.
            Err(refused) => drop(refused),
        }
    }

    async fn go_on(self, attached: Attached) {
        let unread = &attached.unread;
        if !unread.is_empty()
            && let Err(error) = take(&self.account, self.side, &self.world, unread)
        {
            return self.failed("what travelled along", &error);
        }
        self.run(attached.stream).await;
    }

    /// Gives up the connection on purpose, in one of the possible ways.
    fn die(&mut self, stream: &Stream) -> io::Result<Outcome> {
        let totals = &self.world.ledger.totals;
        self.account.is_broken_on_purpose();
        match (self.random.u8(..3), stream) {
            (0, Stream::Tcp(stream)) => {
                totals.resets.fetch_add(1, Relaxed);
                stream.set_linger(Some(Duration::ZERO))?;
            }
            (1, stream) => {
                totals.shutdowns.fetch_add(1, Relaxed);
                let how = if self.random.bool() { Shutdown::Both } else { Shutdown::Read };
                stream.shutdown_side(how)?;
            }
            _ => {}
        }
        Ok(Outcome::GaveUp)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Outcome::Dropped);
        self.world.ledger.end(&self.account, self.side, outcome);
    }
}

/// Repeats a call that SIGCONT interrupts. It interrupts a call on a socket with a time limit even
/// if nobody handles the signal (signal(7)).
fn unless_continued<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// How many bytes an end has to send: often none or a few, sometimes many.
fn length(random: &mut Rng) -> u64 {
    match random.u8(..) {
        0..32 => random.u64(..10),
        32..96 => random.u64(..2_000),
        96..240 => random.u64(..60_000),
        _ => random.u64(..600_000),
    }
}

/// Checks that the peer's bytes at this position are those that it sent.
fn check(
    account: &Account,
    sender: Side,
    position: u64,
    received: &[u8],
    world: &World,
) -> io::Result<()> {
    let Some(at) = bytes::first_difference(account.id, sender, position, received) else {
        return Ok(());
    };
    let text = format!("byte {at} from {sender:?} is not the one that was sent there");
    world.ledger.fault(format!("{text}: {account}"));
    Err(io::Error::other(text))
}

/// Counts and checks what a read brought.
pub(crate) fn take(
    account: &Account,
    side: Side,
    world: &World,
    received: &[u8],
) -> io::Result<()> {
    let mine = account.end(side);
    if received.is_empty() {
        mine.ended.store(true, SeqCst);
        return Ok(());
    }
    let position = mine.received.fetch_add(received.len() as u64, SeqCst);
    check(account, side.other(), position, received, world)
}

/// Closed by the half that is over first. Then the other half is over too.
type Over = (Sender<Infallible>, Receiver<Infallible>);

async fn read_half(
    account: Arc<Account>,
    side: Side,
    world: Arc<World>,
    mut half: OwnedReadHalf,
    (steps, most): (usize, usize),
    (over, is_over): Over,
) -> (OwnedReadHalf, io::Result<()>) {
    let mut buf = vec![0; most];
    let mut result = Ok(());
    for _ in 0..steps {
        if account.end(side).ended.load(Relaxed) {
            break;
        }
        let Some(read) = unless(&is_over, half.read(&mut buf)).await else { break };
        result = read.and_then(|count| take(&account, side, &world, &buf[..count]));
        if result.is_err() {
            break;
        }
    }
    over.close();
    (half, result)
}

async fn write_half(
    account: Arc<Account>,
    side: Side,
    until: u64,
    mut half: OwnedWriteHalf,
    (steps, most): (usize, usize),
    (over, is_over): Over,
) -> (OwnedWriteHalf, io::Result<()>) {
    let mut buf = vec![0; most];
    let sent = &account.end(side).sent;
    let mut result = Ok(());
    for _ in 0..steps {
        let left = until.saturating_sub(sent.load(Relaxed));
        let piece = usize::try_from(left).unwrap_or(most).min(most);
        if piece == 0 {
            break;
        }
        bytes::fill(account.id, side, sent.load(Relaxed), &mut buf[..piece]);
        let Some(written) = unless(&is_over, half.write(&buf[..piece])).await else { break };
        match written {
            Ok(count) => _ = sent.fetch_add(count as u64, SeqCst),
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    over.close();
    (half, result)
}

/// Returns the output of `future`, unless the other half is over before that.
async fn unless<T>(is_over: &Receiver<Infallible>, future: impl Future<Output = T>) -> Option<T> {
    let other = async {
        let _ = is_over.recv().await;
        None
    };
    or(async { Some(future.await) }, other).await
}

/// A task that is aborted when its waiter is dropped.
struct Aborting<T>(JoinHandle<T>);

impl<T> Aborting<T> {
    async fn output(mut self) -> T {
        (&mut self.0).await.expect("neither panics nor is aborted")
    }
}

impl<T> Drop for Aborting<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
