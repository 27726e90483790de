//! A server starts, and serves until it is told to end.

use std::io;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use http::{Request, Response};
use http_body::Body;
use wakeful::accept::{Connection, ConnectionServer};
use wakeful::signal::{self, SIGINT, SIGTERM, Signals};

use super::caller::Caller;
use super::connection;
use super::running::Running;
use super::settings::Server;
use super::tower_service::TowerService;
use crate::error::BoxError;
use crate::foreign_code::{self, Contained};
use crate::limits::PROBES;
use crate::loop_state::{LoopState, ServerState};
use crate::request::RequestBody;
use crate::tls::security::Security;

impl Server {
    /// Serves `service`, such as an axum router, until Ctrl-C or SIGTERM, and then drains. A second
    /// signal ends the drain at once. Blocks the calling thread.
    ///
    /// Pass the router itself, after `with_state` if it has state. Do not call `into_make_service`.
    /// For a service per connection, use [`start_per_connection`](Self::start_per_connection). For
    /// the sender of a request, let handlers take a [`Peer`](crate::Peer) argument. If they take
    /// `ConnectInfo`, use [`serve_make_service`](Self::serve_make_service).
    ///
    /// # Errors
    /// The same as for [`start`](Self::start); a loop already runs on this thread; no listener can
    /// accept any more; or a handler blocked a loop during the drain.
    #[track_caller]
    pub fn serve<S, B>(self, service: S) -> io::Result<()>
    where
        S: tower_service::Service<Request<RequestBody>, Response = Response<B>>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: 'static,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        self.serve_with(move || TowerService(service.clone()))
    }

    /// Serves like [`serve`](Self::serve), but with a hyper service that `make` makes on each loop.
    /// The service need not be `Send`. [`service_fn`](crate::service_fn) makes one from a function.
    ///
    /// ```no_run
    /// use std::cell::Cell;
    /// use std::convert::Infallible;
    /// use std::rc::Rc;
    /// use http::Response;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// wakeful_http::Server::bind("127.0.0.1:8080")?.serve_with(|| {
    ///     let requests_of_this_loop = Rc::new(Cell::new(0_u64));
    ///     wakeful_http::service_fn(move |_request| {
    ///         let requests = requests_of_this_loop.clone();
    ///         async move {
    ///             requests.set(requests.get() + 1);
    ///             Ok::<_, Infallible>(Response::new(format!("request {}", requests.get())))
    ///         }
    ///     })
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The same as for [`serve`](Self::serve).
    #[track_caller]
    pub fn serve_with<M, S, B>(mut self, make: M) -> io::Result<()>
    where
        M: Fn() -> S + Send + Sync + 'static,
        S: hyper::service::Service<Request<RequestBody>, Response = Response<B>> + Clone + 'static,
        S::Future: 'static,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        self.started_at = Some(Location::caller());
        self.serve_by(|server| server.start_with(make))
    }

    /// Runs the server that `start` starts, until a signal ends it or its last listener has failed.
    pub(super) fn serve_by(
        self,
        start: impl FnOnce(Self) -> io::Result<Running>,
    ) -> io::Result<()> {
        let plan = self.drain_plan;
        let drained = signal::run_until_terminated_or_failed(
            || start(self),
            Running::failure,
            move |running: Running| running.drain(plan),
        )?;
        drained.unwrap_or(Ok(0)).map(log_aborted)
    }

    /// Serves like [`serve`](Self::serve), but with a tower service that `make` makes on each loop.
    /// The service need not be `Send`. It may be an axum router with separate state on each loop.
    ///
    /// ```no_run
    /// use std::cell::Cell;
    /// use std::convert::Infallible;
    /// use std::rc::Rc;
    /// use http::{Request, Response};
    /// use tower::service_fn;
    /// use wakeful_http::{RequestBody, Server};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// Server::bind("127.0.0.1:8080")?.serve_each(|| {
    ///     let requests_of_this_loop = Rc::new(Cell::new(0_u64));
    ///     service_fn(move |_: Request<RequestBody>| {
    ///         requests_of_this_loop.set(requests_of_this_loop.get() + 1);
    ///         let answer = Response::new(format!("request {}", requests_of_this_loop.get()));
    ///         std::future::ready(Ok::<_, Infallible>(answer))
    ///     })
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The same as for [`serve`](Self::serve).
    #[track_caller]
    pub fn serve_each<M, S, B>(self, make: M) -> io::Result<()>
    where
        M: Fn() -> S + Send + Sync + 'static,
        S: tower_service::Service<Request<RequestBody>, Response = Response<B>> + Clone + 'static,
        S::Future: 'static,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        self.serve_with(move || TowerService(make()))
    }

    /// Serves like [`serve`](Self::serve), but is a future, for programs with `async` set-up code
    /// on their own loop. The server still has its own loops and threads.
    ///
    /// ```no_run
    /// use axum::{Router, routing::get};
    /// use wakeful_http::Server;
    ///
    /// #[wakeful::main]
    /// async fn main() -> std::io::Result<()> {
    ///     // Here connections to databases are made, for example.
    ///     let app = Router::new().route("/", get(|| async { "hello" }));
    ///     Server::bind("127.0.0.1:8080")?.run(app).await
    /// }
    /// ```
    ///
    /// The server starts at the first poll, which blocks this loop until the server has started.
    ///
    /// # Errors
    /// The same as for [`start`](Self::start); no loop runs on the thread that polls the future;
    /// the signals cannot be caught (no descriptors are left); no listener can accept any more; or
    /// a handler blocked a loop during the drain.
    ///
    /// # Cancel safety
    /// Dropping the future aborts all connections, unless the drain has begun: it continues on its
    /// own thread, as with [`Running::drained`].
    #[track_caller]
    pub fn run<S, B>(mut self, service: S) -> impl Future<Output = io::Result<()>>
    where
        S: tower_service::Service<Request<RequestBody>, Response = Response<B>>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: 'static,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        self.started_at = Some(self.started_at.unwrap_or(Location::caller()));
        self.run_by(move |server| server.start(service))
    }

    /// Serves like [`run`](Self::run), but ends when `stop` completes instead of at a signal.
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use wakeful_http::Server;
    ///
    /// # wakeful::block_on(async {
    /// let (stop, stopped) = async_channel::bounded::<()>(1);
    /// let app = Router::new().route("/", get(|| async { "hello" }));
    /// let server = Server::bind("127.0.0.1:0")?;
    /// let serving = wakeful::spawn(server.run_until(app, async move {
    ///     let _ = stopped.recv().await;
    /// }));
    /// // When it is to end:
    /// stop.close();
    /// serving.await?
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The same as for [`start`](Self::start); no listener can accept any more; or a handler
    /// blocked a loop during the drain.
    ///
    /// # Cancel safety
    /// The same as for [`run`](Self::run).
    ///
    /// # Panics
    /// If `stop` panics.
    #[track_caller]
    pub fn run_until<S, B>(
        mut self,
        service: S,
        stop: impl Future<Output = ()>,
    ) -> impl Future<Output = io::Result<()>>
    where
        S: tower_service::Service<Request<RequestBody>, Response = Response<B>>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: 'static,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        self.started_at = Some(self.started_at.unwrap_or(Location::caller()));
        self.run_until_by(move |server| server.start(service), stop)
    }

    /// Does what [`run`](Self::run) documents.
    pub(super) async fn run_by(
        self,
        start: impl FnOnce(Self) -> io::Result<Running>,
    ) -> io::Result<()> {
        // The signals are caught before the server starts, because a program that sees it listen
        // may at once tell it to end.
        let mut gives_back = signal::GivesBack::at_drop();
        let mut signals = Signals::new(&[SIGINT, SIGTERM])?;
        let plan = self.drain_plan;
        let Some(running) = signal::start_until_told(&signals, || start(self))? else {
            gives_back.after_a_signal();
            return Ok(());
        };
        let failed = until(async { signals.recv().await.map(drop) }, &running).await;
        if failed.is_ok() {
            gives_back.after_a_signal();
        }
        let drained = pin!(running.drained(plan));
        let second = pin!(signal::second_signal(&mut signals));
        match select(drained, second).await {
            Either::Left((drained, _)) => failed.and(drained.map(log_aborted)),
            // After a failure, nothing is waited for.
            Either::Right(_) => failed,
        }
    }

    /// Does what [`run_until`](Self::run_until) documents.
    pub(super) async fn run_until_by(
        self,
        start: impl FnOnce(Self) -> io::Result<Running>,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let plan = self.drain_plan;
        let running = start(self)?;
        let stopped = async {
            stop.await;
            Ok(())
        };
        let failed = until(stopped, &running).await;
        failed.and(running.drained(plan).await.map(log_aborted))
    }

    /// Starts the server, and returns. Use it in programs that decide themselves when the server
    /// ends.
    ///
    /// # Errors
    /// The same as for [`ConnectionServer::start`](wakeful::accept::ConnectionServer::start): for
    /// example, the loops cannot be started,
    /// [`Limits::max_connections`](crate::Limits::max_connections) is 0, or a set-up of
    /// [`on_each_loop`](Self::on_each_loop) fails.
    #[track_caller]
    pub fn start<S, B>(self, service: S) -> io::Result<Running>
    where
        S: tower_service::Service<Request<RequestBody>, Response = Response<B>>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: 'static,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        self.start_with(move || TowerService(service.clone()))
    }

    /// Starts the server like [`start`](Self::start), but with a hyper service that `make` makes on
    /// each loop. The service need not be `Send`.
    ///
    /// # Errors
    /// The same as for [`start`](Self::start).
    #[track_caller]
    pub fn start_with<M, S, B>(self, make: M) -> io::Result<Running>
    where
        M: Fn() -> S + Send + Sync + 'static,
        S: hyper::service::Service<Request<RequestBody>, Response = Response<B>> + Clone + 'static,
        S::Future: 'static,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        self.start_per_connection(move || {
            let service = make();
            move |_| service.clone()
        })
    }

    /// Starts the server like [`start`](Self::start), but with a tower service that `make` makes on
    /// each loop. The service need not be `Send`.
    ///
    /// # Errors
    /// The same as for [`start`](Self::start).
    #[track_caller]
    pub fn start_each<M, S, B>(self, make: M) -> io::Result<Running>
    where
        M: Fn() -> S + Send + Sync + 'static,
        S: tower_service::Service<Request<RequestBody>, Response = Response<B>> + Clone + 'static,
        S::Future: 'static,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        self.start_with(move || TowerService(make()))
    }

    /// Starts the server like [`start_with`](Self::start_with), but with a service for each
    /// connection. `make` runs once on each loop, and returns a function. The server calls that
    /// function for each connection with its [`Caller`](crate::Caller). The function returns the
    /// service. A connection that moves to another loop gets another service.
    ///
    /// # Errors
    /// The same as for [`start`](Self::start).
    #[track_caller]
    pub fn start_per_connection<M, C, S, B>(mut self, make: M) -> io::Result<Running>
    where
        M: Fn() -> C + Send + Sync + 'static,
        C: Fn(Caller) -> S + 'static,
        S: hyper::service::Service<Request<RequestBody>, Response = Response<B>> + 'static,
        S::Future: 'static,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        let started_at = self.started_at.unwrap_or(Location::caller());
        self.ending.begins_here();
        let group = self.take_group();
        let tls: Arc<[_]> = self.tls.into();
        let loops = group.loop_count()?;
        let (max_connections, when_full) = (self.limits.max_connections, self.limits.when_full);
        let limits = self.limits.clamped();
        if let Some(idle) = limits.keepalive {
            let every = (idle / PROBES).max(Duration::from_secs(1));
            self.listeners
                .iter()
                .try_for_each(|listener| listener.set_keepalive(idle, every, PROBES))?;
        }
        // If two of these values, or a service, panicked in their drops, the process would abort.
        let (make, observe) = (Contained::new(make), Contained::new(self.observe));
        let server = ServerState::new(limits, loops, self.ending.readiness().clone());
        let of_loops = server.clone();
        let frame = ConnectionServer::new(self.listeners);
        let frame = self.set_ups.into_iter().fold(frame, ConnectionServer::on_each_loop);
        let frame = self.strategy.into_iter().fold(frame, ConnectionServer::strategy);
        let serving = frame
            .group(group.loops(loops))
            .moves(self.moves)
            .max_connections(max_connections)
            .when_full(when_full)
            .descriptors(self.descriptors)
            .started_at(started_at)
            .start(move || {
                let (service, tls) = (Contained::new(make()), tls.clone());
                let loop_state = LoopState::of_next_loop(&of_loops, &observe);
                move |connection: Connection| {
                    let tls = tls[connection.listener].clone();
                    let security = if tls.is_some() { Security::Tls } else { Security::Plain };
                    let service = service(Caller { peer: connection.peer, security });
                    connection::serve(connection, service, loop_state.clone(), tls)
                }
            })?;
        Ok(Running::new(serving, server, self.ending))
    }
}

/// Waits for `stop`, unless the server fails before.
async fn until(stop: impl Future<Output = io::Result<()>>, running: &Running) -> io::Result<()> {
    match select(pin!(stop), pin!(running.failure())).await {
        Either::Left((stopped, _)) => stopped,
        Either::Right((error, _)) => Err(error),
    }
}

/// Logs how many connections the grace period was too short for, because nobody else is told.
fn log_aborted(aborted: usize) {
    if aborted > 0 {
        foreign_code::log!(
            warn,
            aborted,
            "the drain's grace (`Server::drain_plan`) is over: connections were aborted"
        );
    }
}
