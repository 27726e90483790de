//! A server's frame: on every loop of a group, take connections from shared listeners, hand each to a task
//! of that loop, and in the end drain.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use async_lock::{Semaphore, SemaphoreGuardArc};

use super::balance::Balance;
use super::exclusive::SocketFile;
use super::moving::{Arrival, Moves, Moving};
use super::{Draining, Listener, SharedListener, is_shortage};
use crate::event_loop::{LoopHandle, spawn};
use crate::group::{LoopGroup, LoopGroupBuilder, ShutdownError};
use crate::net::{ListenAddr, PeerAddr, Stream};
use crate::task::JoinHandle;
use crate::time::sleep;

/// More connections than there can be.
const NO_LIMIT: usize = usize::MAX / 2;

/// After an accept that failed for want of descriptors or memory, a listener is left alone for so long.
const BACK_OFF: Duration = Duration::from_millis(50);

/// A listener that goes on failing is logged again after so long.
const LOG_AGAIN: Duration = Duration::from_secs(60);

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
    moves: Option<Moves>,
}

impl ConnectionServer {
    /// Takes connections from `listeners`, without a limit, on a group with the default settings.
    pub fn new(listeners: Vec<SharedListener>) -> Self {
        Self {
            listeners,
            group: LoopGroupBuilder::default(),
            max_connections: NO_LIMIT,
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
        self.max_connections = match connections {
            0 => NO_LIMIT,
            limit => limit.min(NO_LIMIT),
        };
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
    /// As for [`LoopGroupBuilder::build`]; a listener cannot be watched (`max_user_watches`).
    pub fn start<M, H, F>(self, make: M) -> io::Result<Serving>
    where
        M: Fn() -> H + Send + Sync + 'static,
        H: Fn(Connection) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        let group = self.group.build()?;
        let (stop, stopped) = async_channel::bounded(1);
        let (open, all_closed) = mpsc::channel();
        let (inlets, arrivals): (Vec<_>, Vec<_>) =
            group.handles().iter().map(|_| async_channel::unbounded()).unzip();
        let shared = Shared {
            inlets: inlets.into(),
            moves: self.moves,
            permits: Arc::new(Semaphore::new(self.max_connections)),
            counts: Arc::default(),
            balance: Balance::new(group.board().clone(), self.moves),
        };
        let addrs = self.listeners.iter().map(|l| l.local_addr().clone()).collect();
        let files = self.listeners.iter().filter_map(SharedListener::file).collect();
        let (counts, balance) = (shared.counts.clone(), shared.balance.clone());
        let make = Arc::new(make);
        for ((number, handle), arrivals) in group.handles().iter().enumerate().zip(arrivals) {
            let (make, shared, listeners) = (make.clone(), shared.clone(), self.listeners.clone());
            let (stopped, open) = (stopped.clone(), open.clone());
            let started = handle.run_and_wait(move || {
                let attached: io::Result<Vec<_>> =
                    listeners.iter().map(SharedListener::attach).collect();
                let attached = attached?;
                let doors = attached.iter().filter_map(Listener::door).map(Arc::downgrade);
                shared.balance.enter(number, doors);
                let handler = make();
                let served = Rc::new(Served {
                    number,
                    handler,
                    shared: Rc::new(shared),
                    draining: Draining::default(),
                });
                let draining = served.draining.clone();
                let accepting = attached
                    .into_iter()
                    .map(|listener| spawn(accept(listener, served.clone(), open.clone())))
                    .collect();
                spawn(take_in(arrivals, served)).detach();
                spawn(end_when_stopped(stopped, accepting, draining)).detach();
                io::Result::Ok(())
            });
            started.map_err(io::Error::other)??;
        }
        Ok(Serving { group, addrs, files, stop, all_closed, counts, balance })
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
    stop: async_channel::Sender<Infallible>,
    all_closed: mpsc::Receiver<Infallible>,
    counts: Arc<Counts>,
    balance: Arc<Balance>,
}

impl Serving {
    /// Where it listens, with the ports that the kernel chose where 0 was asked for.
    #[must_use]
    pub fn local_addrs(&self) -> &[ListenAddr] {
        &self.addrs
    }

    /// How many connections went on from one loop to another.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.balance.moves()
    }

    /// The loops' handles.
    #[must_use]
    pub fn handles(&self) -> &[LoopHandle] {
        self.group.handles()
    }

    /// Counts of this server, to be read from any thread.
    #[must_use]
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Stops accepting, tells the connections, waits up to `grace` until all have closed, aborts the rest, and
    /// stops the loops. Returns how many were aborted. It always ends: a loop that one of its tasks blocks is left behind a second
    /// later. Blocks the calling thread.
    ///
    /// # Errors
    /// A loop was blocked, or had ended with an error before.
    pub fn shutdown(self, grace: Duration) -> Result<usize, ShutdownError> {
        self.stop.close();
        drop(self.files);
        // Ends when the last connection drops its sender.
        let _ = self.all_closed.recv_timeout(grace);
        let aborted = self.counts.open();
        if aborted > 0 {
            tracing::warn!(aborted, "the grace period is over");
        }
        self.group.shutdown(Duration::ZERO).map(|()| aborted)
    }
}

/// What a [`ConnectionServer`] counts.
#[derive(Debug, Default)]
pub struct Counts {
    open: AtomicUsize,
    accepted: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    /// Connections that are open now.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Connections accepted since the start.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Accepts that failed since the start: no descriptors or memory left.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

/// What a server's loops share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    permits: Arc<Semaphore>,
    counts: Arc<Counts>,
    pub(super) balance: Arc<Balance>,
    /// Where each loop takes connections in that come from others.
    pub(super) inlets: Arc<[async_channel::Sender<Arrival>]>,
    pub(super) moves: Option<Moves>,
}

/// What an open connection holds; given back when its handler ends, however it does.
#[derive(Debug)]
pub(super) struct Held {
    counts: Arc<Counts>,
    /// Of which loop it is one.
    number: usize,
    balance: Arc<Balance>,
    _open: mpsc::Sender<Infallible>,
    _permit: SemaphoreGuardArc,
}

impl Held {
    pub(super) fn move_to(&mut self, number: usize) {
        self.balance.moved(self.number, number);
        self.number = number;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.counts.open.fetch_sub(1, Ordering::Relaxed);
        self.balance.closed(self.number);
    }
}

/// A loop's part of a server.
struct Served<H> {
    number: usize,
    handler: H,
    shared: Rc<Shared>,
    draining: Draining,
}

impl<H, F> Served<H>
where
    H: Fn(Connection) -> F + 'static,
    F: Future<Output = ()> + 'static,
{
    /// Has the handler serve a connection in a task of its own.
    fn serve(&self, stream: Stream, peer: PeerAddr, unread: Vec<u8>, held: Held) {
        let held = Rc::new(RefCell::new(Some(held)));
        let moving = Moving::new(self.number, self.shared.clone(), held.clone());
        let draining = self.draining.clone();
        let serving = (self.handler)(Connection { stream, peer, draining, unread, moving });
        spawn(async move {
            serving.await;
            drop(held.take());
        })
        .detach();
    }
}

/// Takes connections from one listener until it is aborted. `open` closes when nobody accepts and no connection is left.
async fn accept<H, F>(listener: Listener, served: Rc<Served<H>>, open: mpsc::Sender<Infallible>)
where
    H: Fn(Connection) -> F + 'static,
    F: Future<Output = ()> + 'static,
{
    let (number, shared) = (served.number, &served.shared);
    let mut logged: Option<Instant> = None;
    loop {
        // First the permit: a connection that may not be served stays in the backlog.
        let permit = shared.permits.acquire_arc().await;
        match listener.accept().await {
            Ok((stream, peer)) => {
                shared.counts.accepted.fetch_add(1, Ordering::Relaxed);
                shared.counts.open.fetch_add(1, Ordering::Relaxed);
                shared.balance.accepted(number);
                let held = Held {
                    counts: shared.counts.clone(),
                    number,
                    balance: shared.balance.clone(),
                    _open: open.clone(),
                    _permit: permit,
                };
                served.serve(stream, peer, Vec::new(), held);
            }
            Err(error) => {
                shared.counts.failed.fetch_add(1, Ordering::Relaxed);
                if logged.is_none_or(|at| at.elapsed() > LOG_AGAIN) {
                    let shortage = is_shortage(&error);
                    tracing::error!(%error, shortage, "accept failed; trying again until it works");
                    logged = Some(Instant::now());
                }
                drop(permit);
                sleep(BACK_OFF).await;
            }
        }
    }
}

/// Goes on with connections that come from other loops, as long as the loop runs.
async fn take_in<H, F>(arrivals: async_channel::Receiver<Arrival>, served: Rc<Served<H>>)
where
    H: Fn(Connection) -> F + 'static,
    F: Future<Output = ()> + 'static,
{
    while let Ok(Arrival { stream, peer, held }) = arrivals.recv().await {
        match stream.attach() {
            Ok(attached) => served.serve(attached.stream, peer, attached.unread, held),
            Err(error) => tracing::error!(%peer, %error, "a connection from another loop is lost"),
        }
    }
}

/// Closes the loop's listeners when the server stops, and tells its connections.
async fn end_when_stopped(
    stopped: async_channel::Receiver<Infallible>,
    accepting: Vec<JoinHandle<()>>,
    draining: Draining,
) {
    // Nothing is ever sent: it ends by being closed.
    let _ = stopped.recv().await;
    accepting.iter().for_each(JoinHandle::abort);
    draining.start();
}
