//! A server's frame: on every loop of a group, take connections from shared listeners, hand each to a task
//! of that loop, and in the end drain.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::balance::Balance;
use super::dispatch::Dispatch;
use super::exclusive::SocketFile;
use super::here::{Here, Route, Shared};
use super::limit::Limit;
use super::moving::{Mover, Moves, Moving};
use super::quiet::Quiet;
use super::strategy::Opening;
use super::trouble::{Reserve, Trouble};
use super::{AcceptStrategy, Counts, Draining, Listener, SharedListener};
use crate::event_loop::{LoopHandle, spawn};
use crate::group::{Loads, LoopGroup, LoopGroupBuilder, ShutdownError};
use crate::net::{ListenAddr, PeerAddr, Stream};
use crate::task::{JoinHandle, consume_budget, yield_now};

/// The kernel keeps a backlog's length in 16 bits, or bounds it by `net.core.somaxconn`, 4,096 by default. When the server stops no more are taken from
/// one, however many come.
const GREATEST_BACKLOG: usize = 65_536;

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
    strategy: AcceptStrategy,
    moves: Option<Moves>,
}

impl ConnectionServer {
    /// Takes connections from `listeners`, without a limit, on a group with the default settings.
    pub fn new(listeners: Vec<SharedListener>) -> Self {
        Self {
            listeners,
            group: LoopGroupBuilder::default(),
            max_connections: 0,
            strategy: AcceptStrategy::default(),
            moves: Some(Moves::default()),
        }
    }

    /// The loops that serve.
    pub fn group(mut self, group: LoopGroupBuilder) -> Self {
        self.group = group;
        self
    }

    /// How many connections are open at a time, on all loops together. Further ones wait in the kernel's backlog
    /// until one closes. 0 means no limit.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
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

    /// Starts the loops. `make` runs once on each of them and returns the handler of that loop's connections, which
    /// need not be `Send`; a connection is open as long as its handler's future runs.
    ///
    /// # Errors
    /// As for [`LoopGroupBuilder::build`]; a listener cannot be watched (`max_user_watches`), or not be had for each loop
    /// ([`AcceptStrategy::ReusePort`]).
    pub fn start<M, H, F>(self, make: M) -> io::Result<Serving>
    where
        M: Fn() -> H + Send + Sync + 'static,
        H: Fn(Connection) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        let group = self.group.build()?;
        let loops = group.handles().len();
        let openings = self.strategy.openings(&self.listeners, loops)?;
        let mut quiet = Quiet::new()?;
        openings.iter().flatten().for_each(|opening| quiet.add(opening.socket()));
        let (stop, stopped) = async_channel::bounded(1);
        let (open, all_closed) = mpsc::channel();
        let counts = Arc::new(Counts::new(loops));
        let limit = Limit::new(self.max_connections);
        let balance = Balance::new(&group, counts.clone(), self.moves);
        let shared = Shared { open, limit, counts: counts.clone(), balance };
        let addrs = self.listeners.iter().map(|l| l.local_addr().clone()).collect();
        let files = self.listeners.iter().filter_map(SharedListener::file).collect();
        let is_dispatched = matches!(self.strategy, AcceptStrategy::Dispatch(_));
        let mut dispatch = Dispatch::new(self.strategy, &counts, loops);
        let make = Arc::new(make);
        for (number, (handle, openings)) in group.handles().iter().zip(openings).enumerate() {
            let (make, shared, stopped) = (make.clone(), shared.clone(), stopped.clone());
            let (dispatcher, inbox) = dispatch.of_next_loop();
            let routes = dispatch.routes.clone();
            let started = handle.run_and_wait(move || {
                let listeners: io::Result<Vec<_>> =
                    openings.into_iter().map(Opening::attach).collect();
                let listeners = listeners?;
                let doors = listeners.iter().filter_map(Listener::door).map(Arc::downgrade);
                shared.balance.enter(number, doors);
                let (handler, draining, reserve) = (make(), Draining::default(), Reserve::new()?);
                let balance = shared.balance.clone();
                let mover = Rc::new(Mover { number, balance, routes, draining: draining.clone() });
                let here = Rc::new(Here { number, handler, shared, draining, reserve, mover });
                let route = Rc::new(dispatcher.map_or(Route::Here, Route::Placed));
                let accepting = |(place, listener): (usize, Listener)| {
                    let listener = Rc::new(listener);
                    let kept = Rc::downgrade(&listener);
                    (kept, spawn(accept(listener, place, here.clone(), route.clone())))
                };
                let listeners = listeners.into_iter().enumerate().map(accepting).collect();
                let inbox = inbox.map(|inbox| spawn(inbox.serve(here.clone())));
                let accepting = Accepting { here, listeners, route, inbox, is_dispatched };
                spawn(accepting.end_when(stopped)).detach();
                io::Result::Ok(())
            });
            started.map_err(io::Error::other)??;
        }
        Ok(Serving { group, addrs, files, quiet, stop, all_closed, counts })
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
    group: LoopGroup,
    addrs: Vec<ListenAddr>,
    /// The sockets themselves are the loops', so that they close when the loops stop accepting.
    files: Vec<Arc<SocketFile>>,
    quiet: Quiet,
    stop: async_channel::Sender<Infallible>,
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

    /// Lets nobody in any more (who tries to connect by TCP meanwhile is refused a second later), accepts what the kernel's backlogs hold (as far as the limit of connections allows), closes the listeners, tells the connections, waits up to `grace` until all have closed, aborts the rest, and
    /// stops the loops. Returns how many were aborted. It always ends: a loop that one of its tasks blocks is left behind a second
    /// later. Blocks the calling thread.
    ///
    /// # Errors
    /// A loop was blocked, or had ended with an error before.
    pub fn shutdown(self, grace: Duration) -> Result<usize, ShutdownError> {
        let began = Instant::now();
        self.quiet.begin(grace / 4);
        self.stop.close();
        drop(self.files);
        // Ends when the last connection drops its sender.
        let _ = self.all_closed.recv_timeout(grace.saturating_sub(began.elapsed()));
        let aborted = self.counts.open();
        if aborted > 0 {
            tracing::warn!(aborted, "the grace period is over");
        }
        let ended = self.group.shutdown(Duration::ZERO);
        self.quiet.end();
        ended.map(|()| aborted)
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
                    return;
                }
            }
        }
    }
}

/// Takes what the kernel's backlog holds, before the listener closes. What would exceed the limit of connections is left in it.
async fn accept_out<H, F>(listener: &Listener, place: usize, here: &Here<H>, route: &Route)
where
    H: Fn(Connection) -> F + 'static,
    F: Future<Output = ()> + 'static,
{
    let mut trouble = Trouble::default();
    for _ in 0..GREATEST_BACKLOG {
        let Some(permit) = here.shared.limit.try_permit() else { return };
        let served = match listener.try_accept_detached() {
            Ok(None) => return,
            Ok(Some(accepted)) => route.bring(accepted, place, permit, here),
            Err(error) => Err(error),
        };
        match served {
            Ok(()) => trouble.is_over(),
            Err(error) => {
                if trouble.after(&error, listener, here).await.is_break() {
                    return;
                }
            }
        }
        consume_budget().await;
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
}

impl<H, F> Accepting<H>
where
    H: Fn(Connection) -> F + 'static,
    F: Future<Output = ()> + 'static,
{
    /// Closes the loop's listeners when the server stops, and tells its connections.
    async fn end_when(self, stopped: async_channel::Receiver<Infallible>) {
        // Nothing is ever sent: it ends by being closed.
        let _ = stopped.recv().await;
        for (place, (listener, accepting)) in self.listeners.into_iter().enumerate() {
            let Some(listener) = listener.upgrade() else { continue };
            accepting.abort();
            // Then nobody else keeps the listener open.
            let _ = accepting.await;
            accept_out(&listener, place, &self.here, &self.route).await;
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
        self.here.draining.start();
    }
}
