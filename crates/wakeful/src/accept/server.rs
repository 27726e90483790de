//! A server's frame: on every loop of a group, take connections from shared listeners, hand each to a task
//! of that loop, and in the end drain.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::panic::Location;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::backlog::accept_out;
use super::balance::Balance;
use super::dispatch::{Dispatch, Inbox};
use super::draining::StartsAtEnd;
use super::here::{Here, Route, Shared};
use super::limit::Limit;
use super::moving::{Mover, Moves, Moving};
use super::open_listeners::OpenListeners;
use super::quiet::Quiet;
use super::socket_file::SocketFile;
use super::stop::Stop;
use super::strategy::Opening;
use super::trouble::{Reserve, Trouble};
use super::{AcceptStrategy, Counts, Descriptors, Draining, Listener, SharedListener};
use crate::event_loop::{LoopHandle, spawn};
use crate::group::{Loads, LoopGroup, LoopGroupBuilder, ShutdownError};
use crate::net::{ListenAddr, PeerAddr, Stream};
use crate::sys::panics;
use crate::sys::patience::Patience;
use crate::sys::process::Process;
use crate::task::{JoinHandle, supervise, yield_now};

/// Serves connections on every loop of a group. HTTP is in `wakeful-http`; this is for protocols of
/// your own.
///
/// ```
/// use std::time::Duration;
/// use wakeful::accept::{ConnectionServer, SharedListener};
/// use wakeful::net::TcpStream;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let listener = SharedListener::bind(&"127.0.0.1:0".parse()?)?;
/// let addr = listener.socket_addr().expect("it is TCP");
/// let running = ConnectionServer::new(vec![listener]).start(|| {
///     async |mut connection| {
///         let mut buf = [0; 64];
///         if let Ok(read) = connection.stream.read(&mut buf).await {
///             let _ = connection.stream.write_all(&buf[..read]).await;
///         }
///     }
/// })?;
/// let answer = wakeful::block_on(async {
///     let mut client = TcpStream::connect(addr).await?;
///     client.write_all(b"echo").await?;
///     let mut buf = [0; 64];
///     client.read(&mut buf).await.map(|read| buf[..read].to_vec())
/// })?;
/// assert_eq!(answer, b"echo");
/// running.shutdown(Duration::from_secs(1))?;
/// # Ok(())
/// # }
/// ```
///
/// *Threads*: `Send`: start it on any thread.
#[derive(Debug)]
#[must_use = "call `start`"]
pub struct ConnectionServer {
    listeners: Vec<SharedListener>,
    group: LoopGroupBuilder,
    max_connections: usize,
    descriptors: Descriptors,
    strategy: AcceptStrategy,
    moves: Option<Moves>,
    started_at: Option<&'static Location<'static>>,
}

impl ConnectionServer {
    /// Takes connections from `listeners`, as many as the process has descriptors for, on a group with the default settings.
    pub fn new(listeners: Vec<SharedListener>) -> Self {
        Self {
            listeners,
            group: LoopGroupBuilder::default(),
            max_connections: 0,
            descriptors: Descriptors::default(),
            strategy: AcceptStrategy::default(),
            moves: Some(Moves::default()),
            started_at: None,
        }
    }

    /// The loops that serve.
    pub fn group(mut self, group: LoopGroupBuilder) -> Self {
        self.group = group;
        self
    }

    /// How many connections are open at a time, on all loops together. Further ones wait in the kernel's backlog
    /// until one closes. 0, the default, means as many as the process's [`descriptors`](Self::descriptors) allow.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// How many descriptors the server keeps back from its connections, for the files and backends that they need. It matters
    /// only without [`max_connections`](Self::max_connections).
    pub fn descriptors(mut self, kept: Descriptors) -> Self {
        self.descriptors = kept;
        self
    }

    /// How connections reach the loops. By default, [`AcceptStrategy::Exclusive`].
    pub fn strategy(mut self, strategy: AcceptStrategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// When connections go on to other loops, if their handlers let them: see [`Moving`]. `None`: never.
    pub fn moves(mut self, moves: Option<Moves>) -> Self {
        self.moves = moves;
        self
    }

    /// The place that names the server's connections in [`longest_poll`](crate::LoopMetrics::longest_poll) and in the report of a
    /// [slow turn](crate::EventLoopBuilder::slow_turn). The default is the caller of [`start`](Self::start). For crates that start a server on behalf of their caller.
    pub fn started_at(mut self, place: &'static Location<'static>) -> Self {
        self.started_at = Some(place);
        self
    }

    /// Starts the loops. `make` runs once on each of them and returns the handler of that loop's connections, which
    /// need not be `Send`; a connection is open as long as its handler's future runs.
    ///
    /// # Errors
    /// As for [`LoopGroupBuilder::build`]; a listener cannot be watched (`max_user_watches`), or not be had for each loop
    /// ([`AcceptStrategy::ReusePort`]).
    #[track_caller]
    pub fn start<M, H, F>(self, make: M) -> io::Result<Serving>
    where
        M: Fn() -> H + Send + Sync + 'static,
        H: Fn(Connection) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        let started_at = self.started_at.unwrap_or(Location::caller());
        let group = self.group.build()?;
        let loops = group.handles().len();
        let openings = self.strategy.openings(&self.listeners, loops)?;
        let mut quiet = Quiet::default();
        for opening in openings.iter().flatten() {
            quiet.add(opening.socket(), opening.holders());
        }
        let mut listeners = OpenListeners::new();
        let mut open_on = |of: &Vec<Opening>| -> Vec<_> {
            of.iter().map(|opening| listeners.add(opening.socket())).collect()
        };
        let open_on_loops: Vec<_> = openings.iter().map(&mut open_on).collect();
        let (stop, stopped) = async_channel::bounded(1);
        let process = Process::current()?;
        let stop = Stop::new(stop, process);
        let (open, all_closed) = mpsc::channel();
        let (tell, told) = async_channel::bounded(1);
        let counts = Arc::new(Counts::new(loops));
        // After the loops and the listeners, whose descriptors count as open.
        let limit = match self.max_connections {
            0 => Limit::by_descriptors(self.descriptors, process),
            connections => Limit::of(connections, process),
        };
        let balance = Balance::new(&group, counts.clone(), self.moves);
        let shared = Shared { open, limit, counts: counts.clone(), balance, tell };
        let addrs = self.listeners.iter().map(|l| l.local_addr().clone()).collect();
        let files = self.listeners.iter().filter_map(SharedListener::file).collect();
        let is_dispatched = matches!(self.strategy, AcceptStrategy::Dispatch(_));
        let mut dispatch = Dispatch::new(self.strategy, &counts, loops);
        let make = Arc::new(make);
        let openings = openings.into_iter().zip(open_on_loops);
        for (number, (handle, (openings, open))) in group.handles().iter().zip(openings).enumerate()
        {
            let (make, shared, stopped) = (make.clone(), shared.clone(), stopped.clone());
            let told = told.clone();
            let (dispatcher, inbox) = dispatch.of_next_loop();
            let routes = dispatch.routes.clone();
            let started = handle.run_and_wait(move || {
                let listeners: io::Result<Vec<_>> =
                    openings.into_iter().map(Opening::attach).collect();
                let listeners = listeners?;
                let doors = listeners.iter().filter_map(Listener::door).cloned();
                shared.balance.enter(number, doors);
                let (handler, draining, reserve) = (make(), Draining::default(), Reserve::new()?);
                let balance = shared.balance.clone();
                let mover = Rc::new(Mover { number, balance, routes, draining: draining.clone() });
                let here = Rc::new(Here {
                    number,
                    handler,
                    started_at,
                    shared,
                    draining,
                    reserve,
                    mover,
                    open,
                });
                let route = Rc::new(dispatcher.map_or(Route::Here, Route::Placed));
                let accepting = |(place, listener): (usize, Listener)| {
                    let listener = Rc::new(listener);
                    let kept = Rc::downgrade(&listener);
                    let (here, route) = (here.clone(), route.clone());
                    let accept =
                        move || accept(listener.clone(), place, here.clone(), route.clone());
                    (kept, spawn(supervise("accepting connections", accept)))
                };
                let listeners = listeners.into_iter().enumerate().map(accepting).collect();
                let serve_inbox = |inbox: Inbox| {
                    let (inbox, here) = (Rc::new(inbox), here.clone());
                    let serve = move || inbox.clone().serve(here.clone());
                    spawn(supervise("taking connections from other loops", serve))
                };
                let inbox = inbox.map(serve_inbox);
                let draining = StartsAtEnd(here.draining.clone());
                let accepting =
                    Accepting { here, listeners, route, inbox, is_dispatched, draining };
                spawn(accepting.end_when(stopped, told)).detach();
                io::Result::Ok(())
            });
            started.map_err(io::Error::other)??;
        }
        Ok(Serving { files, listeners, group, addrs, quiet, stop, all_closed, counts })
    }
}

/// A connection for a handler.
///
/// *Threads*: Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub struct Connection {
    /// Its bytes.
    pub stream: Stream,
    /// Who is at the other end.
    pub peer: PeerAddr,
    /// Which of the server's listeners it came to, by its place among them.
    pub listener: usize,
    /// When the server begins to drain.
    pub draining: Draining,
    /// What the handler before read and did not use, if the connection comes from another loop: see [`Moving`].
    pub unread: Vec<u8>,
    /// Whether it should go on to another loop.
    pub moving: Moving,
}

/// A server that runs. Dropping it aborts all connections and stops the loops.
///
/// *Threads*: `Send`, not `Sync`; `shutdown` and dropping it block, so do neither on one of its loops.
#[derive(Debug)]
pub struct Serving {
    /// Dropped first, while the sockets are open: see `socket_file.rs`. The sockets themselves are the loops', so that they close when the loops stop accepting.
    files: Vec<Arc<SocketFile>>,
    /// Dropped before the loops end.
    listeners: OpenListeners,
    group: LoopGroup,
    addrs: Vec<ListenAddr>,
    quiet: Quiet,
    stop: Stop,
    all_closed: mpsc::Receiver<Infallible>,
    counts: Arc<Counts>,
}

impl Serving {
    /// Where it listens, with the ports that the kernel chose where 0 was asked for.
    #[must_use]
    pub fn local_addrs(&self) -> &[ListenAddr] {
        &self.addrs
    }

    /// The loops' handles.
    #[must_use]
    pub fn handles(&self) -> &[LoopHandle] {
        self.group.handles()
    }

    /// How busy the loops are, and how many of them are active; to be read from any thread.
    #[must_use]
    pub fn loads(&self) -> Loads {
        self.group.loads()
    }

    /// Counts of this server, to be read from any thread.
    #[must_use]
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Completes with an error when the server can accept no more: its last listener was shut down or closed by somebody
    /// else, or the loops that accepted have ended. Open connections are still served: call
    /// [`shutdown`](Self::shutdown) to let them finish. If the server ends before, the future never completes.
    ///
    /// A listener that only lacks descriptors or memory is tried again, and does not count as failed. Neither does one whose
    /// descriptor was closed while its loops slept: the kernel tells nobody.
    ///
    /// [`run_until_terminated_or_failed`](crate::signal::run_until_terminated_or_failed) does so.
    ///
    /// *Threads*: the future is `Send` and runs on any executor.
    pub fn failure(&self) -> impl Future<Output = io::Error> + Send + use<> {
        self.listeners.failure()
    }

    /// Lets nobody in any more (see [`AcceptStrategy`]; a client that tries to connect by TCP meanwhile is refused a second later), accepts what the kernel's backlogs hold, closes the listeners, tells the connections, waits up to `grace` until all have closed, aborts the rest, and
    /// stops the loops. Returns how many were aborted. Where the limit of connections or a lack of descriptors keeps
    /// connections in the backlog, the open ones are told first, and those in the backlog are served as the open ones
    /// close. What is left in the backlog after `grace` is closed, and counts as aborted. It always ends: a loop that one of its tasks blocks is left behind a second
    /// later. Blocks the calling thread.
    ///
    /// # Errors
    /// A loop was blocked, or had ended with an error before; or this is a fork of the process that started the server.
    pub fn shutdown(self, grace: Duration) -> Result<usize, ShutdownError> {
        if self.stop.is_forked() {
            // It has none of the loops: their group says so.
            return self.group.shutdown(Duration::ZERO).map(|()| 0);
        }
        // Before the sockets close, and so that no client connects any more.
        drop(self.files);
        drop(self.listeners);
        let mut grace = Patience::new(grace);
        let (settle, began) = (grace.left() / 4, Instant::now());
        self.quiet.begin(settle);
        grace.took(settle, began.elapsed());
        drop(self.stop);
        // Ends when the last connection drops its sender.
        let _ = grace.wait_for(&self.all_closed);
        self.counts.end();
        let aborted = self.counts.open();
        if aborted > 0 {
            panics::log!(warn, aborted, "the grace period is over");
        }
        let ended = self.group.shutdown(Duration::ZERO);
        self.quiet.end();
        ended.map(|()| aborted + self.counts.left())
    }
}

/// Takes connections from one listener until it is aborted, or the listener is broken.
async fn accept<H, F>(listener: Rc<Listener>, place: usize, here: Rc<Here<H>>, route: Rc<Route>)
where
    H: Fn(Connection) -> F + 'static,
    F: Future<Output = ()> + 'static,
{
    let mut trouble = Trouble::default();
    loop {
        let accepted = here.shared.limit.accept(&listener, here.counts()).await;
        let served =
            accepted.and_then(|(accepted, permit)| route.bring(accepted, place, permit, &here));
        match served {
            Ok(()) => trouble.is_over(),
            Err(error) => {
                if trouble.after(&error, &listener, &here).await.is_break() {
                    here.open[place].broke(&error);
                    return;
                }
            }
        }
    }
}

/// What ends when the server stops.
struct Accepting<H> {
    here: Rc<Here<H>>,
    /// A listener that is broken is gone with its task.
    listeners: Vec<(Weak<Listener>, JoinHandle<()>)>,
    route: Rc<Route>,
    /// Serves what comes from other loops.
    inbox: Option<JoinHandle<()>>,
    /// A dispatcher closes all inboxes when it has accepted the last connection; without one, each loop its own.
    is_dispatched: bool,
    draining: StartsAtEnd,
}

impl<H, F> Accepting<H>
where
    H: Fn(Connection) -> F + 'static,
    F: Future<Output = ()> + 'static,
{
    /// Closes the loop's listeners when the server stops, and tells its connections.
    ///
    /// It tells them before that if `told` closes.
    async fn end_when(
        self,
        stopped: async_channel::Receiver<Infallible>,
        told: async_channel::Receiver<Infallible>,
    ) {
        // Nothing is ever sent: it ends by being closed.
        let _ = stopped.recv().await;
        let draining = self.here.draining.clone();
        let tell = spawn(async move {
            let _ = told.recv().await;
            // As below.
            yield_now().await;
            draining.start();
        });
        let mut backlogs = Vec::new();
        for (place, (listener, accepting)) in self.listeners.into_iter().enumerate() {
            let Some(listener) = listener.upgrade() else { continue };
            accepting.abort();
            // Then nobody else keeps the listener open.
            let _ = accepting.await;
            let (here, route) = (self.here.clone(), self.route.clone());
            let accept_out =
                move || accept_out(listener.clone(), place, here.clone(), route.clone());
            backlogs.push(spawn(supervise("accepting what the backlog holds", accept_out)));
        }
        for backlog in backlogs {
            let _ = backlog.await;
        }
        drop(self.route);
        if let Some(inbox) = self.inbox {
            if !self.is_dispatched {
                self.here.mover.routes.close_one(self.here.number);
            }
            let _ = inbox.await;
        }
        // What has just come begins before it is told to end, so that a request that came with its connection is answered.
        yield_now().await;
        drop(self.draining);
        tell.abort();
    }
}
