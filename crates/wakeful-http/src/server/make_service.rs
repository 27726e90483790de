//! Services that a tower service makes for each connection, such as axum's
//! `into_make_service_with_connect_info`.

use std::future::{Ready, poll_fn, ready};
use std::io;
use std::net::SocketAddr;
use std::panic::Location;

use futures_util::FutureExt;
use futures_util::future::Either;
use http::{Request, Response};
use http_body::Body;
use hyper::service::Service as HyperService;
use tower_service::Service;
use wakeful::log::OncePerSecond;
use wakeful::net::{ListenAddr, PeerAddr};

use super::caller::Caller;
use super::running::Running;
use super::settings::Server;
use super::tower_service::TowerService;
use crate::error::BoxError;
use crate::foreign_code::{self, Contained};
use crate::request::RequestBody;

impl Server {
    /// Serves like [`serve`](Self::serve), but with a service for each connection, which `make`
    /// makes from the peer's address. If `make` is axum's
    /// `into_make_service_with_connect_info::<SocketAddr>()`, handlers may take
    /// `ConnectInfo<SocketAddr>`. axum has both only with its feature `tokio`.
    ///
    /// `make` and its future must be ready at their first poll, as axum's are. If they are not
    /// ready, or if `make` returns an error, this is logged, and the requests of the connection
    /// fail: the server closes the connection without a response (HTTP/2: it resets the stream).
    ///
    /// ```no_run
    /// use std::net::SocketAddr;
    /// use axum::{Router, extract::ConnectInfo, routing::get};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let who = |ConnectInfo(addr): ConnectInfo<SocketAddr>| async move { addr.to_string() };
    /// let app = Router::new().route("/", get(who));
    /// let app = app.into_make_service_with_connect_info::<SocketAddr>();
    /// wakeful_http::Server::bind("127.0.0.1:8080")?.serve_make_service(app)
    /// # }
    /// ```
    ///
    /// [`serve`](Self::serve) takes routers. It does not compile with a value that makes services:
    ///
    /// ```compile_fail
    /// # use std::net::SocketAddr;
    /// # fn main() -> std::io::Result<()> {
    /// # let app: axum::Router = axum::Router::new();
    /// let app = app.into_make_service_with_connect_info::<SocketAddr>();
    /// wakeful_http::Server::bind("127.0.0.1:8080")?.serve(app)
    /// # }
    /// ```
    ///
    /// Handlers that take a [`Peer`](crate::Peer) do not need this method.
    ///
    /// # Errors
    /// The same as for [`serve`](Self::serve); or the server listens on a Unix socket, whose
    /// clients have no address.
    #[track_caller]
    pub fn serve_make_service<M, S, B>(mut self, make: M) -> io::Result<()>
    where
        M: Service<SocketAddr, Response = S> + Clone + Send + Sync + 'static,
        M::Error: Into<BoxError>,
        S: Service<Request<RequestBody>, Response = Response<B>> + Clone + 'static,
        S::Future: 'static,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        self.started_at = Some(Location::caller());
        self.serve_by(|server| server.start_make_service(make))
    }

    /// Serves like [`serve_make_service`](Self::serve_make_service), but is a future, like
    /// [`run`](Self::run).
    ///
    /// # Errors
    /// The same as for [`run`](Self::run); or the server listens on a Unix socket, whose clients
    /// have no address.
    ///
    /// # Cancel safety
    /// Dropping the future aborts all connections, unless the drain has begun: it continues on its
    /// own thread, as with [`Running::drained`].
    #[track_caller]
    pub fn run_make_service<M, S, B>(mut self, make: M) -> impl Future<Output = io::Result<()>>
    where
        M: Service<SocketAddr, Response = S> + Clone + Send + Sync + 'static,
        M::Error: Into<BoxError>,
        S: Service<Request<RequestBody>, Response = Response<B>> + Clone + 'static,
        S::Future: 'static,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        self.started_at = Some(self.started_at.unwrap_or(Location::caller()));
        self.run_by(move |server| server.start_make_service(make))
    }

    /// Serves like [`run_make_service`](Self::run_make_service), but ends when `stop` completes
    /// instead of at a signal, like [`run_until`](Self::run_until).
    ///
    /// # Errors
    /// The same as for [`run_until`](Self::run_until); or the server listens on a Unix socket,
    /// whose clients have no address.
    ///
    /// # Cancel safety
    /// Dropping the future aborts all connections, unless the drain has begun: it continues on its
    /// own thread, as with [`Running::drained`].
    ///
    /// # Panics
    /// If `stop` panics.
    #[track_caller]
    pub fn run_make_service_until<M, S, B>(
        mut self,
        make: M,
        stop: impl Future<Output = ()>,
    ) -> impl Future<Output = io::Result<()>>
    where
        M: Service<SocketAddr, Response = S> + Clone + Send + Sync + 'static,
        M::Error: Into<BoxError>,
        S: Service<Request<RequestBody>, Response = Response<B>> + Clone + 'static,
        S::Future: 'static,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        self.started_at = Some(self.started_at.unwrap_or(Location::caller()));
        self.run_until_by(move |server| server.start_make_service(make), stop)
    }

    /// Starts the server like [`start`](Self::start), but with a service for each connection, which
    /// `make` makes as in [`serve_make_service`](Self::serve_make_service). A connection that moves
    /// to another loop gets another service.
    ///
    /// # Errors
    /// The same as for [`start`](Self::start); or the server listens on a Unix socket, whose
    /// clients have no address.
    #[track_caller]
    pub fn start_make_service<M, S, B>(self, make: M) -> io::Result<Running>
    where
        M: Service<SocketAddr, Response = S> + Clone + Send + Sync + 'static,
        M::Error: Into<BoxError>,
        S: Service<Request<RequestBody>, Response = Response<B>> + Clone + 'static,
        S::Future: 'static,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        if self.local_addrs().any(|addr| !matches!(addr, ListenAddr::Tcp(_))) {
            let text =
                "clients of a Unix socket have no address to make a service of: take a `Peer`";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.start_per_connection(move || {
            let make = make.clone();
            move |caller: Caller| Made::by(make.clone(), caller)
        })
    }
}

/// The service of a connection, if one could be made.
struct Made<S>(Option<TowerService<S>>);

impl<S> Made<S> {
    fn by<M>(make: M, caller: Caller) -> Self
    where
        M: Service<SocketAddr, Response = S>,
        M::Error: Into<BoxError>,
    {
        let PeerAddr::Tcp(addr) = caller.peer else { return Self(None) };
        // If one of them panics, its drop may panic, too.
        let mut make = Contained::new(make);
        let making = async {
            poll_fn(|cx| make.poll_ready(cx)).await?;
            Contained::new(Box::pin(make.call(addr))).as_mut().await
        };
        let failed: BoxError = match making.now_or_never() {
            Some(Ok(service)) => return Self(Some(TowerService(service))),
            Some(Err(error)) => error.into(),
            None => "it was not ready at once".into(),
        };
        static LIMIT: OncePerSecond = OncePerSecond::new();
        if let Some(count) = LIMIT.pass() {
            foreign_code::log!(warn, peer = %caller.peer, error = %failed, count, "cannot make a service for a connection: its requests fail");
        }
        Self(None)
    }
}

impl<S, B> HyperService<Request<RequestBody>> for Made<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Either<
        futures_util::future::MapErr<
            <TowerService<S> as HyperService<Request<RequestBody>>>::Future,
            fn(S::Error) -> BoxError,
        >,
        Ready<Result<Response<B>, BoxError>>,
    >;

    fn call(&self, request: Request<RequestBody>) -> Self::Future {
        use futures_util::TryFutureExt as _;
        match &self.0 {
            Some(service) => Either::Left(service.call(request).map_err(Into::into as fn(_) -> _)),
            None => Either::Right(ready(Err("no service was made for this connection".into()))),
        }
    }
}
