//! The HTTP service: pages for browsers, health checks, and tests of clients.

use std::hint::black_box;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{any, get, post};
use bytes::Bytes;
use futures_core::Stream;
use rustix::time::{ClockId, clock_gettime};
use wakeful::accept::{Descriptors, SharedListener};
use wakeful::signal::{SIGHUP, Signals};
use wakeful_http::observe::{Observe, RequestIds, TraceContext};
use wakeful_http::ws::{WebSocket, WebSocketUpgrade};
use wakeful_http::{Readiness, Running};

use crate::ServeOptions;
use crate::admin::{self, RunningService};
use crate::for_requests::{self, Others};
use crate::scrape::Scrape;

pub use wakeful_http::access_log::{AccessLog, Destination, Format, Query};
pub use wakeful_http::files::{Precompressed, ServeDir};

/// The longest sleep of `/sleep/{ms}`.
pub const MAX_SLEEP: Duration = Duration::from_secs(60);
/// The maximum CPU time of `/cpu/{us}`.
pub const MAX_CPU_TIME: Duration = Duration::from_millis(100);
/// The maximum number of bytes that `/bytes/{n}` sends: 1 GiB.
pub const MAX_BYTES: u64 = 1 << 30;

/// How many descriptors the rest of the process opens now and then.
const FOR_OTHERS: usize = 2;

/// The state of the handlers. `scrape` is set when the loops exist, because it counts them.
#[derive(Debug, Clone)]
struct Shared {
    scrape: Arc<OnceLock<Scrape>>,
    readiness: Readiness,
}

/// The settings of the HTTP service.
#[derive(Debug, Clone, Default)]
#[must_use = "a setter returns the changed options"]
pub struct HttpOptions {
    files: Option<ServeDir>,
    access_log: Option<AccessLog>,
}

impl HttpOptions {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the files that are served on all paths that are not the service's own, including `/`.
    /// The default is `None`: no files.
    pub fn files(mut self, files: impl Into<Option<ServeDir>>) -> Self {
        self.files = files.into();
        self
    }

    /// Sets the access log. With a log, requests also get ids, and the service continues traces. If
    /// the log is a file, SIGHUP reopens it. The default is `None`: no log.
    pub fn access_log(mut self, log: impl Into<Option<AccessLog>>) -> Self {
        self.access_log = log.into();
        self
    }
}

impl HttpOptions {
    /// How many descriptors the service keeps back. A request for a file opens that file, and the
    /// root directory for a moment.
    fn descriptors(&self) -> Descriptors {
        match self.files {
            Some(_) => {
                let spare = Descriptors::limit().map_or(32, |limit| admin::share(limit, 32));
                Descriptors::new().per_connection(1).spare(spare)
            }
            None => Descriptors::default(),
        }
    }

    /// The files of this service, of which no more are open at a time than descriptors are left for
    /// them: with HTTP/2 one connection may ask for many.
    fn bounded_files(
        &mut self,
        options: &ServeOptions,
        admin: &[SharedListener],
    ) -> io::Result<Option<ServeDir>> {
        let kept = admin::descriptors(self.descriptors(), admin);
        let Some(files) = self.files.take() else { return Ok(None) };
        let others = Others { idle: 0, rest: admin::kept_for(admin) + FOR_OTHERS };
        Ok(Some(match for_requests::most(options, kept, others)? {
            Some(most) => files.max_open_files_by(most),
            None => files,
        }))
    }

    fn observe(&self) -> Observe {
        match &self.access_log {
            Some(log) => Observe::new()
                .access_log(log.clone())
                .request_ids(RequestIds::Replace)
                .trace_context(TraceContext::Continue),
            None => Observe::new(),
        }
    }
}

/// Starts the service on `listeners`. The listeners of `admin` answer `/healthz`, `/readyz`,
/// `/metrics` and `/workers`, on a separate loop. If there are such listeners, only they answer
/// `/metrics`, so clients do not see it.
///
/// # Errors
/// The loops cannot be started, or signals cannot be caught.
pub fn start(
    options: &ServeOptions,
    mut http: HttpOptions,
    listeners: Vec<SharedListener>,
    admin: Vec<SharedListener>,
) -> io::Result<RunningService> {
    let descriptors = admin::descriptors(http.descriptors(), &admin);
    let server = options.http_server(listeners).observe(http.observe()).descriptors(descriptors);
    let shared = Shared { scrape: Arc::default(), readiness: server.readiness() };
    let router = router(shared.clone(), http.bounded_files(options, &admin)?);
    let router = if admin.is_empty() { router.merge(metrics(shared.clone())) } else { router };
    let running = server.start(router)?;
    let mut registry = admin::registry(&running, options);
    if let Some(log) = http.access_log {
        wakeful_prometheus::register_access_log(&mut registry, log.clone());
        reopen_on_hup(&running, log)?;
    }
    let scrape = Scrape::new(registry, options.reports.clone())?;
    // This is the only place that sets it.
    let _ = shared.scrape.set(scrape.clone());
    RunningService::new(running, admin, scrape)
}

/// Reopens the access log at SIGHUP, if it is a file. Otherwise the meaning of SIGHUP does not
/// change.
fn reopen_on_hup(running: &Running, log: AccessLog) -> io::Result<()> {
    let Some(handle) = running.handles().first().filter(|_| log.is_file()) else { return Ok(()) };
    let started = handle.post_and_wait(move || {
        let mut hups = Signals::new(&[SIGHUP])?;
        wakeful::spawn(async move {
            while hups.recv().await.is_ok() {
                log.reopen();
            }
        })
        .detach();
        io::Result::Ok(())
    });
    started.map_err(io::Error::other)?
}

fn router(shared: Shared, files: Option<ServeDir>) -> Router {
    let router = match files {
        Some(files) => Router::new().fallback_service(files),
        None => Router::new().route("/", get(index)),
    };
    router
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/echo", post(|body: Body| async { body }))
        .route("/sleep/{ms}", get(sleep))
        .route("/cpu/{us}", get(use_cpu))
        .route("/bytes/{n}", get(send_bytes))
        // On HTTP/2 the method is CONNECT.
        .route("/ws", any(|ws: WebSocketUpgrade| async { ws.on_upgrade(echo_messages) }))
        .with_state(shared)
}

fn metrics(shared: Shared) -> Router {
    Router::new().route("/metrics", get(render_metrics)).with_state(shared)
}

async fn index() -> Html<&'static str> {
    static PAGE: LazyLock<String> =
        LazyLock::new(|| INDEX.replace("{version}", env!("CARGO_PKG_VERSION")));
    Html(PAGE.as_str())
}

const INDEX: &str = include_str!("index.html");

const STARTING: (StatusCode, &str) = (StatusCode::SERVICE_UNAVAILABLE, "starting\n");

/// Ready as soon as the service has its counters (shortly after it accepts), until it is told to
/// end.
async fn ready(State(shared): State<Shared>) -> (StatusCode, &'static str) {
    match shared.scrape.get() {
        Some(_) => admin::ready(&shared.readiness),
        None => STARTING,
    }
}

async fn render_metrics(State(shared): State<Shared>) -> Response {
    match shared.scrape.get() {
        Some(scrape) => admin::render(scrape).await,
        None => STARTING.into_response(),
    }
}

async fn sleep(Path(ms): Path<u64>) -> Result<String, (StatusCode, String)> {
    let duration = Duration::from_millis(ms);
    if duration > MAX_SLEEP {
        let text = format!("at most {} ms\n", MAX_SLEEP.as_millis());
        return Err((StatusCode::BAD_REQUEST, text));
    }
    wakeful::time::sleep(duration).await;
    Ok(format!("slept {ms} ms\n"))
}

/// Computes on the loop's own thread, so nothing else runs on the loop meanwhile.
async fn use_cpu(Path(us): Path<u64>) -> Result<String, (StatusCode, String)> {
    let time = Duration::from_micros(us);
    if time > MAX_CPU_TIME {
        let text = format!("at most {} µs\n", MAX_CPU_TIME.as_micros());
        return Err((StatusCode::BAD_REQUEST, text));
    }
    compute_for(time);
    Ok(format!("used {us} µs of CPU time\n"))
}

/// Returns when this thread has used that much CPU time. Time in which it waits for a CPU does not
/// count.
fn compute_for(time: Duration) {
    let start = thread_cpu_time();
    let mut number = 1_u64;
    while thread_cpu_time().saturating_sub(start) < time {
        // Reading the clock is a system call, so each step computes for a fraction of a
        // microsecond.
        for _ in 0..256 {
            number = black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

fn thread_cpu_time() -> Duration {
    // It is never negative.
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

async fn send_bytes(Path(n): Path<u64>) -> Result<Response, (StatusCode, String)> {
    if n > MAX_BYTES {
        return Err((StatusCode::BAD_REQUEST, format!("at most {MAX_BYTES} bytes\n")));
    }
    let mut response = Response::new(Body::from_stream(Filler { left: n }));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, n.into());
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(response)
}

async fn echo_messages(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if (message.is_text() || message.is_binary()) && socket.send(message).await.is_err() {
            return;
        }
    }
}

/// A body of this many bytes, made in pieces, so that it is never in memory as a whole.
struct Filler {
    left: u64,
}

static PIECE: [u8; 64 * 1024] = [b'w'; 64 * 1024];

impl Stream for Filler {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let piece = &PIECE[..PIECE.len().min(usize::try_from(self.left).unwrap_or(usize::MAX))];
        self.left -= piece.len() as u64;
        Poll::Ready(Some(Ok(Bytes::from_static(piece))))
    }
}
