//! One connection: reads, executes all complete commands in order, and writes their answers
//! together.

use std::io;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use wakeful::accept::Connection;
use wakeful::log::OncePerSecond;
use wakeful::net::Stream;
use wakeful::task::yield_now;
use wakeful::time::timeout;

use super::admin::{self, Client};
use super::answers::{Answers, ENOUGH};
use super::command::Command;
use super::input::Input;
use super::options::KvOptions;
use super::reply;
use super::resp::Words;
use super::service::Local;
use super::shard::Operation;
use crate::connections::{EndInDrain, LONGEST, discard, end_when_sent, last_time, set_options};
use crate::log;
use crate::patience::PatientStream;

/// After this many keys and commands, other tasks of the loop run.
const STRETCH: usize = 1024;
/// One command for more keys than this lets other tasks run in between.
const MANY_KEYS: usize = 16 * 1024;
/// How long a refused client may continue to send, so that it reads the reason.
const LAST_TIME: Duration = Duration::from_secs(1);

const TOO_MANY: &str = "ERR max number of clients reached";

/// Serves a connection, and counts how it ended.
pub(super) async fn serve(connection: Connection, local: Rc<Local>) -> io::Result<()> {
    let service = local.service.clone();
    let outcome = serve_uncounted(connection, local).await;
    if outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
        service.refusals.timed_out.add_one();
    }
    outcome
}

async fn serve_uncounted(connection: Connection, local: Rc<Local>) -> io::Result<()> {
    let Connection { stream, draining, .. } = connection;
    set_options(&stream, local.service.options.keepalive)?;
    let service = local.service.clone();
    service.running.wait().await;
    let KvOptions { idle_timeout, stall_timeout, .. } = service.options;
    let mut stream = PatientStream::new(stream, stall_timeout);
    let Some(_place) = service.admit() else {
        service.refusals.connections.add_one();
        let mut out = Vec::new();
        reply::error(&mut out, TOO_MANY);
        stream.write_all(&out).await?;
        // Without a place, it is closed at once. If it has sent something, that is a reset.
        let Some(_place) = service.lets_linger() else { return Ok(()) };
        return Box::pin(end(stream.into_inner(), last_time(stall_timeout))).await;
    };
    let mut end_in_drain = EndInDrain::new(&draining, service.linger);
    let mut input = Input::new(local.service.limits);
    let mut session = Session::new(local);
    loop {
        if let Err(text) = input.make_room(&session.local) {
            drop(input);
            session.local.service.refusals.evicted.add_one();
            return session.refuse(stream, text, io::ErrorKind::OutOfMemory).await;
        }
        let told = input.is_empty().then(|| Pin::new(&mut end_in_drain));
        let read = input.read_from(&mut stream, told, idle_timeout);
        let count = session.shrink_if_pending(read).await?;
        if count == 0 {
            return if input.is_empty() {
                if draining.is_started() {
                    drop((input, session));
                    return Box::pin(end_when_sent(stream.into_inner(), LONGEST)).await;
                }
                Ok(())
            } else {
                Err(io::ErrorKind::UnexpectedEof.into())
            };
        }
        let is_last = end_in_drain.has_read(count, stream.get_ref());
        let refused = loop {
            match input.next(&session.local) {
                Ok(Some(words)) => match session.command(words, &mut stream).await? {
                    ControlFlow::Continue(()) => {}
                    ControlFlow::Break(()) => {
                        session.answers.write(&mut stream).await?;
                        drop((input, session));
                        let most = last_time(stall_timeout);
                        return Box::pin(end_when_sent(stream.into_inner(), most)).await;
                    }
                },
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        session.end_read();
        if let Some(error) = refused {
            drop(input);
            if error.is_too_long() {
                session.local.service.refusals.query_buffers.add_one();
            }
            let text = format!("ERR {error}");
            return session.refuse(stream, &text, io::ErrorKind::InvalidData).await;
        }
        session.answers.write(&mut stream).await?;
        // A client that never pauses always leaves a part of its next command.
        if is_last && input.has_given_any() {
            drop((input, session));
            return Box::pin(end_when_sent(stream.into_inner(), LONGEST)).await;
        }
    }
}

/// Closes a connection that was refused. If there were unread bytes, the kernel would reset it, and
/// its peer might never see the reason, nor the answers before it.
async fn end(mut stream: Stream, most: Duration) -> io::Result<()> {
    stream.shutdown_side(std::net::Shutdown::Write)?;
    let rest = async { while let Ok(1..) = discard(&mut stream).await {} };
    let _ = timeout(LAST_TIME, rest).await;
    // That the peer is gone is no news.
    let _ = end_when_sent(stream, most).await;
    Ok(())
}

/// The state between commands.
struct Session {
    local: Rc<Local>,
    client: Client,
    answers: Answers,
    /// The number of commands that were not counted yet.
    done: u64,
    /// The number of keys and commands since other tasks have run.
    stretch: usize,
}

impl Session {
    fn new(local: Rc<Local>) -> Self {
        let client = Client::new(local.service.number_connection());
        let answers = Answers::new(local.clone());
        Self { local, client, answers, done: 0, stretch: 0 }
    }

    /// Writes the answers so far and `text`, and closes the connection.
    ///
    /// # Errors
    /// Always: `kind` with the text, if the kernel has none.
    async fn refuse(
        mut self,
        mut stream: PatientStream,
        text: &str,
        kind: io::ErrorKind,
    ) -> io::Result<()> {
        self.answers.error(text);
        self.answers.write(&mut stream).await?;
        let service = self.local.service.clone();
        let is_memory_short = self.local.shard.borrow().is_spare_given();
        drop(self);
        let place = service.lets_linger();
        // Each that stays takes memory.
        if place.is_some() || !is_memory_short {
            let most = last_time(service.options.stall_timeout);
            Box::pin(end(stream.into_inner(), most)).await?;
        }
        Err(io::Error::new(kind, text.to_owned()))
    }

    /// Completes with `read`. If it has to wait, gives back memory meanwhile.
    #[inline]
    async fn shrink_if_pending<T>(&mut self, read: impl Future<Output = T>) -> T {
        let mut read = std::pin::pin!(read);
        std::future::poll_fn(|cx| {
            let polled = read.as_mut().poll(cx);
            if polled.is_pending() {
                self.answers.shrink();
            }
            polled
        })
        .await
    }

    /// Executes one command. `Break`: it was the last one.
    #[inline]
    async fn command(
        &mut self,
        words: Words<'_>,
        stream: &mut PatientStream,
    ) -> io::Result<ControlFlow<()>> {
        self.done += 1;
        self.stretch += 1;
        match Command::parse(words) {
            Ok(Command::Get(key)) => self.answers.one(Operation::Get, key, &[]),
            Ok(Command::Set(key, value, how)) => self.answers.one(how, key, value),
            Ok(Command::Add(key, count)) => self.answers.one(Operation::Add(count), key, &[]),
            Ok(Command::Ping(None)) => reply::simple(self.answers.out(), "PONG"),
            Ok(Command::Ping(Some(text)) | Command::Echo(text)) => self.answers.text(text),
            // It takes time nevertheless.
            Ok(Command::Nothing) => self.done -= 1,
            Ok(command) => return self.rare(command, stream).await,
            Err(refusal) => self.answers.error(&refusal.to_string()),
        }
        self.pause(stream).await?;
        Ok(ControlFlow::Continue(()))
    }

    /// Commands with many keys, and those without keys.
    async fn rare(
        &mut self,
        command: Command<'_>,
        stream: &mut PatientStream,
    ) -> io::Result<ControlFlow<()>> {
        match command {
            Command::GetAll(keys) => self.get_all(keys, stream).await?,
            Command::Remove(keys) => self.sum(Operation::Remove, keys, stream).await?,
            Command::Exists(keys) => self.sum(Operation::Count, keys, stream).await?,
            Command::SetAll(pairs) if self.is_only_loop() => {
                self.answers.set_all(pairs);
                self.stretch += pairs.len() / 2;
            }
            Command::SetAll(pairs) => {
                for (key, value) in pairs.pairs() {
                    self.answers.set(key, value);
                    self.stretch += 1;
                    self.pause(stream).await?;
                }
                self.answers.end_of_verdict();
            }
            Command::Clear => self.answers.clear(),
            Command::Quit => {
                reply::ok(self.answers.out());
                return Ok(ControlFlow::Break(()));
            }
            Command::Http => {
                static LIMIT: OncePerSecond = OncePerSecond::new();
                if let Some(count) = LIMIT.pass() {
                    log::log!(
                        warn,
                        count,
                        "an HTTP request was sent to the service kv: closing the connection"
                    );
                }
                return Ok(ControlFlow::Break(()));
            }
            Command::Client(words) => self.client.answer(words, self.answers.out()),
            Command::Select(database) => admin::select(database, self.answers.out()),
            Command::Hello(words) => self.client.hello(words, self.answers.out()),
            Command::Commands(words) => {
                if self.answers.make_room(admin::longest_commands(words)) {
                    admin::commands(words, self.answers.out());
                }
            }
            Command::Config(words) => {
                admin::config(&self.local.service, words, self.answers.out());
            }
            Command::Info(sections) => {
                self.settle(stream).await?;
                admin::info(&self.local.service, sections, self.answers.out());
            }
            Command::KeyCount => {
                self.settle(stream).await?;
                let keys = i64::try_from(self.local.service.meters.keys()).unwrap_or(i64::MAX);
                reply::integer(self.answers.out(), keys);
            }
            Command::Get(_)
            | Command::Set(..)
            | Command::Add(..)
            | Command::Ping(_)
            | Command::Echo(_)
            | Command::Nothing => unreachable!("done above"),
        }
        self.pause(stream).await?;
        Ok(ControlFlow::Continue(()))
    }

    /// If this loop owns all keys, no other task runs between them until the answer itself is long
    /// enough to be written.
    async fn get_all(&mut self, keys: Words<'_>, stream: &mut PatientStream) -> io::Result<()> {
        let is_only_loop = self.is_only_loop();
        // The earlier answers and this one together must not need a larger buffer.
        if is_only_loop && self.answers.length() >= ENOUGH / 2 {
            self.answers.write(stream).await?;
        }
        let mut start = self.answers.length();
        reply::array(self.answers.out(), keys.len());
        for key in keys.iter() {
            self.answers.one(Operation::Get, key, &[]);
            self.stretch += 1;
            if !is_only_loop {
                self.pause(stream).await?;
            } else if self.answers.length() - start >= ENOUGH || self.answers.are_full() {
                self.pause(stream).await?;
                start = self.answers.length();
            }
        }
        Ok(())
    }

    /// If this loop owns all keys, no other task runs between them, unless they are very many.
    async fn sum(
        &mut self,
        op: Operation,
        keys: Words<'_>,
        stream: &mut PatientStream,
    ) -> io::Result<()> {
        for (number, key) in (1..).zip(keys.iter()) {
            self.answers.add(op, key);
            self.stretch += 1;
            if !self.is_only_loop() {
                self.pause(stream).await?;
            } else if number % MANY_KEYS == 0 {
                self.let_others_run().await;
            }
        }
        self.answers.end_of_sum();
        Ok(())
    }

    fn is_only_loop(&self) -> bool {
        self.local.service.loops() == 1
    }

    /// Completes all earlier commands, because the next one uses all shards.
    async fn settle(&mut self, stream: &mut PatientStream) -> io::Result<()> {
        self.count();
        if self.answers.are_owed() { self.answers.write(stream).await } else { Ok(()) }
    }

    /// Writes when there are enough answers, and lets other tasks run after a while.
    #[inline]
    async fn pause(&mut self, stream: &mut PatientStream) -> io::Result<()> {
        if self.answers.are_enough() {
            self.answers.write(stream).await?;
        }
        if self.stretch >= STRETCH {
            self.let_others_run().await;
        }
        Ok(())
    }

    async fn let_others_run(&mut self) {
        self.stretch = 0;
        self.end_read();
        yield_now().await;
    }

    /// Does what need not be done after each command.
    fn end_read(&mut self) {
        self.count();
        self.local.shard.borrow_mut().free_removed();
    }

    #[inline]
    fn count(&mut self) {
        let done = std::mem::take(&mut self.done);
        self.local.service.meters.count_commands(self.local.number, done);
    }
}

impl Drop for Session {
    /// A connection may end in the middle of what it has sent, by a `QUIT` for example.
    fn drop(&mut self) {
        self.end_read();
    }
}

#[cfg(test)]
mod tests;
