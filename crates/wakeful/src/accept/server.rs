//! The frame of a server: on every loop of a group it takes connections from shared listeners,
//! hands each to a task of that loop, and drains at the end.

use std::future::Future;
use std::io;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use super::accepting::{Accepting, accept};
use super::connection::Connection;
use super::descriptors::{self, Descriptors};
use super::dispatch::Dispatch;
use super::draining::{Draining, StartsAtEnd};
use super::gate::Gate;
use super::inbox::Inbox;
use super::limit::Limit;
use super::loop_server::{LoopServer, Shared};
use super::moving::Mover;
use super::open_listeners::OpenListeners;
use super::opening::Opening;
use super::reserve::Reserve;
use super::room::{self, Room};
use super::route::Route;
use super::serving::Serving;
use super::set_up::{self, SetUp};
use super::shared_listener::{self, SharedListener};
use super::siblings;
use super::stand_in::{self, StandIn};
use super::stop::Stop;
use super::strategy::AcceptStrategy;
use super::syn_filter::SynFilter;
use super::when_full::WhenFull;
use crate::balance::balancer::Balancer;
use crate::balance::counts::Counts;
use crate::balance::dispatch_placement::Placement;
use crate::balance::move_settings::Moves;
use crate::event_loop::spawn;
use crate::group::{LoopGroup, LoopGroupBuilder, early_end};
use crate::net::{Listener, listen_bound_tcp};
use crate::supervise::supervise;
use crate::sys::fork_check::Process;

const SERVES_NOBODY: &str =
    "a limit of 0 connections lets nobody in: set 1 or more, or `None` for no limit";

/// Serves connections on every loop of a group. For HTTP use `wakeful-http`; this type is for other
/// protocols.
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
/// # Threads
/// `Send`: start it on any thread.
#[derive(Debug)]
#[must_use = "call `start`"]
pub struct ConnectionServer {
    listeners: Vec<SharedListener>,
    group: LoopGroupBuilder,
    max_connections: Option<usize>,
    when_full: WhenFull,
    descriptors: Descriptors,
    strategy: Option<AcceptStrategy>,
    moves: Option<Moves>,
    started_at: Option<&'static Location<'static>>,
    set_ups: Vec<SetUp>,
}

impl ConnectionServer {
    /// Makes a server for `listeners`, on a group with the default settings. It opens as many
    /// connections as the process has descriptors for.
    pub fn new(listeners: Vec<SharedListener>) -> Self {
        Self {
            listeners,
            group: LoopGroupBuilder::default(),
            max_connections: None,
            when_full: WhenFull::default(),
            descriptors: Descriptors::default(),
            strategy: None,
            moves: Some(Moves::default()),
            started_at: None,
            set_ups: Vec::new(),
        }
    }

    /// Sets the group of loops that serve the connections.
    pub fn group(mut self, group: LoopGroupBuilder) -> Self {
        self.group = group;
        self
    }

    /// Sets how many connections may be open at a time, on all loops together: 1 or more. With
    /// `None`, the default, the process's [`descriptors`](Self::descriptors) set the limit. Further
    /// connections wait in the kernel's backlog until one closes. While connections wait, the
    /// server asks open ones to close, if their handlers await
    /// [`Draining::started_or_asked`](super::Draining::started_or_asked).
    pub fn max_connections(mut self, connections: impl Into<Option<usize>>) -> Self {
        self.max_connections = connections.into();
        self
    }

    /// Sets what happens to a connection beyond the limit. The default is [`WhenFull::Wait`].
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Sets how many descriptors the server keeps free for the files and backends of its
    /// connections. This has an effect only without [`max_connections`](Self::max_connections).
    pub fn descriptors(mut self, kept: Descriptors) -> Self {
        self.descriptors = kept;
        self
    }

    /// Sets how connections reach the loops. The default is [`AcceptStrategy::Exclusive`]. On loops
    /// that have Tokio as a guest (feature `tokio`) it is [`AcceptStrategy::Dispatch`]: these loops
    /// sleep in Tokio's epoll, and with `Exclusive` the kernel would wake all of them for a
    /// connection. For listeners of [`SharedListener::from_sockets`] it is
    /// [`AcceptStrategy::ReusePort`].
    pub fn strategy(mut self, strategy: AcceptStrategy) -> Self {
        self.strategy = Some(strategy);
        self
    }

    /// Sets when connections move to other loops, if their handlers support it: see
    /// [`Moving`](super::Moving). With `None` they never move. The default is [`Moves::new`].
    pub fn moves(mut self, moves: impl Into<Option<Moves>>) -> Self {
        self.moves = moves.into();
        self
    }

    /// Sets the source location that names the server's connections in
    /// [`longest_poll`](crate::LoopMetrics::longest_poll) and in the report of a [slow
    /// turn](crate::EventLoopBuilder::slow_turn). The default is the caller of
    /// [`start`](Self::start). This is for crates that start a server on behalf of their caller.
    pub fn started_at(mut self, place: &'static Location<'static>) -> Self {
        self.started_at = Some(place);
        self
    }

    /// Calls `set_up` on each loop when the server starts, and awaits its future there, before any
    /// loop accepts. Connections wait in the backlog meanwhile.
    ///
    /// Use it for things that a loop needs before its first connection, such as a warm connection
    /// pool or a background task. You may call this several times: each loop then runs its set-ups
    /// one after the other, in the order of the calls. All loops do so at the same time.
    ///
    /// [`start`](Self::start) blocks its thread until all set-ups are done, and returns the first
    /// error. A panic is an error, too. If a future never ends, the server never starts. A signal
    /// ends the wait if [`run_until_terminated`](crate::signal::run_until_terminated) calls the
    /// start.
    ///
    /// ```
    /// use std::cell::Cell;
    /// use wakeful::PerLoop;
    /// use wakeful::accept::{ConnectionServer, SharedListener};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let prepared: PerLoop<Cell<bool>> = PerLoop::new(Cell::default);
    /// let of_loops = prepared.clone();
    /// let server = ConnectionServer::new(vec![SharedListener::bind(&"127.0.0.1:0".parse()?)?])
    ///     .on_each_loop(move || {
    ///         let prepared = of_loops.clone();
    ///         async move {
    ///             prepared.with(|prepared| prepared.set(true));
    ///             Ok(())
    ///         }
    ///     });
    /// let serving = server.start(|| async |_connection| ())?;
    /// assert!(serving.handles()[0].post_and_wait(move || prepared.with(Cell::get))?);
    /// serving.shutdown(std::time::Duration::from_secs(1))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_each_loop<S, F>(mut self, set_up: S) -> Self
    where
        S: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<()>> + 'static,
    {
        self.set_ups.push(SetUp::new(set_up));
        self
    }

    /// Starts the loops. `make` runs once on each loop and returns the handler of that loop's
    /// connections, which need not be `Send`. A connection is open as long as its handler's future
    /// runs.
    ///
    /// No loop accepts before all of them have started. If the start fails, no connection has been
    /// accepted.
    ///
    /// # Errors
    /// The same as for [`LoopGroupBuilder::build`]; [`max_connections`](Self::max_connections) is
    /// 0; two listeners are clones of each other; epoll cannot watch a listener
    /// (`max_user_watches`); a socket for each loop cannot be opened
    /// ([`AcceptStrategy::ReusePort`]); a listener of [`SharedListener::from_sockets`] has sockets
    /// for another number of loops, or the strategy is not `ReusePort`; or a set-up of
    /// [`on_each_loop`](Self::on_each_loop) fails.
    #[track_caller]
    pub fn start<M, H, F>(self, make: M) -> io::Result<Serving>
    where
        M: Fn() -> H + Send + Sync + 'static,
        H: Fn(Connection) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        let started_at = self.started_at.unwrap_or(Location::caller());
        if self.max_connections == Some(0) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, SERVES_NOBODY));
        }
        if let Some(listener) = shared_listener::given_twice(&self.listeners) {
            let addr = listener.local_addr();
            let text = format!(
                "the same socket was given twice, that of {addr}: clones of a listener share its \
                 socket, so give only one of them"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let has_one_each = self.listeners.iter().any(SharedListener::is_for_each_loop);
        let strategy = self.strategy.unwrap_or(match self.group.has_guests() {
            _ if has_one_each => AcceptStrategy::ReusePort,
            true => AcceptStrategy::Dispatch(Placement::default()),
            false => AcceptStrategy::default(),
        });
        let heartbeats = self.group.its_heartbeats().cloned();
        let group = self.group.build()?;
        if let Err(error) = set_up::run(self.set_ups, group.handles(), heartbeats.as_ref()) {
            return Err(failed(group, error));
        }
        let loops = group.handles().len();
        let has_siblings = group.board().turn().is_some();
        let openings = match strategy.openings(&self.listeners, loops, has_siblings) {
            Ok(openings) => openings,
            Err(error) => return Err(failed(group, error)),
        };
        let mut filter = SynFilter::default();
        for opening in openings.iter().flatten() {
            filter.add(opening.socket(), opening.holders());
        }
        let bound: Vec<_> = openings.iter().flatten().filter_map(Opening::bound).collect();
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
        let (room, asked) = Room::new(loops, self.when_full);
        let limit = match self.max_connections {
            None => Limit::by_descriptors(self.descriptors, process, room.clone()),
            Some(connections) => Limit::of(connections, process, room.clone()),
        };
        let balancer =
            Balancer::new(group.board().clone(), group.handles(), counts.clone(), self.moves);
        let (gate, at_gate) = Gate::new();
        let shared = Shared {
            open,
            limit: limit.clone(),
            counts: counts.clone(),
            balancer,
            tell: tell.clone(),
            gate: at_gate,
        };
        let addrs = self.listeners.iter().map(|l| l.local_addr().clone()).collect();
        let files = self.listeners.iter().filter_map(SharedListener::file).collect();
        let is_dispatched = matches!(strategy, AcceptStrategy::Dispatch(_));
        let mut dispatch = Dispatch::new(strategy, &counts, loops);
        let mut stand_ins = match is_dispatched {
            true => stand_in::of_loops(group.board(), &self.listeners, loops).into_iter(),
            false => Vec::new().into_iter(),
        };
        let make = Arc::new(make);
        let openings = openings.into_iter().zip(open_on_loops).zip(asked);
        for (number, (handle, ((openings, open), asked))) in
            group.handles().iter().zip(openings).enumerate()
        {
            let room = Arc::downgrade(&room);
            let (make, shared, stopped) = (make.clone(), shared.clone(), stopped.clone());
            let told = told.clone();
            let (dispatcher, inbox) = dispatch.of_next_loop();
            let stand_in = stand_ins.next().flatten();
            let routes = dispatch.routes.clone();
            let start = move || {
                let listeners: io::Result<Vec<_>> =
                    openings.into_iter().map(Opening::attach).collect();
                let listeners = listeners?;
                let memberships = listeners.iter().filter_map(Listener::membership).cloned();
                shared.balancer.enter(number, memberships);
                let (handler, draining, reserve) = (make(), Draining::default(), Reserve::new()?);
                let balancer = shared.balancer.clone();
                let mover = Rc::new(Mover { number, balancer, routes, draining: draining.clone() });
                let server = Rc::new(LoopServer {
                    number,
                    handler,
                    started_at,
                    shared,
                    draining,
                    reserve,
                    mover,
                    open,
                });
                let route = Rc::new(dispatcher.map_or(Route::Own, Route::Placed));
                let accepting = |(place, listener): (usize, Listener)| {
                    let listener = Rc::new(listener);
                    let kept = Rc::downgrade(&listener);
                    let (server, route) = (server.clone(), route.clone());
                    let accept =
                        move || accept(listener.clone(), place, server.clone(), route.clone());
                    (kept, spawn(supervise("accepting connections", accept)))
                };
                let listeners = listeners.into_iter().enumerate().map(accepting).collect();
                let stands_in = |stand_in: StandIn| {
                    let (calls, stand_in) = (stand_in.calls(), Rc::new(stand_in));
                    let (server, route) = (server.clone(), route.clone());
                    let serve = move || stand_in.clone().serve(server.clone(), route.clone());
                    (calls, spawn(supervise("standing in for the loop that accepts", serve)))
                };
                let stand_in = stand_in.map(stands_in);
                let serve_inbox = |inbox: Inbox| {
                    let (inbox, server) = (Rc::new(inbox), server.clone());
                    let serve = move || inbox.clone().serve(server.clone());
                    spawn(supervise("taking connections from other loops", serve))
                };
                let inbox = inbox.map(serve_inbox);
                let (asked, connections) = (Rc::new(asked), server.draining.clone());
                let give_way =
                    move || room::give_way(asked.clone(), room.clone(), connections.clone());
                spawn(supervise("making room for connections", give_way)).detach();
                let draining = StartsAtEnd(server.draining.clone());
                if number == 0
                    && let Some(turn) = server.shared.balancer.turn()
                {
                    siblings::hear(turn, &server.shared.balancer)?;
                }
                let accepting = Accepting {
                    server,
                    listeners,
                    stand_in,
                    route,
                    inbox,
                    is_dispatched,
                    draining,
                };
                spawn(accepting.end_when(stopped, told)).detach();
                io::Result::Ok(())
            };
            // A task of a set-up, or `make`, may block the loop. A signal ends the start then.
            let started = handle.post_and_wait_unless(start, early_end::listen);
            let started = started
                .map_err(io::Error::other)
                .and_then(|started| started.unwrap_or_else(|| Err(early_end::error())));
            if let Err(error) = started {
                return Err(failed(group, error));
            }
        }
        // If the start had failed, their connections would have been reset with them.
        if let Err(error) = bound.iter().try_for_each(|socket| listen_bound_tcp(socket)) {
            return Err(failed(group, error));
        }
        limit.begin(descriptors::of_keeper(loops));
        gate.open();
        Ok(Serving { files, listeners, group, addrs, filter, stop, tell, all_closed, counts })
    }
}

/// Ends the group of a server that cannot start. Its drop would wait for a loop that user code
/// blocks.
fn failed(group: LoopGroup, error: io::Error) -> io::Error {
    let _ = group.shutdown(Duration::ZERO);
    error
}
