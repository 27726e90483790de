//! Files of a directory: [`ServeDir`], a tower service for `Server::serve` or axum's
//! `fallback_service` and `nest_service`.
//!
//! No loop waits for a disk: a request is one job on the [blocking
//! pool](wakeful::task::spawn_blocking) that opens the file, decides, and reads the first chunk; a
//! larger file is then read ahead by one chunk. Nothing outside of the directory is ever opened
//! (`beneath`), whatever the path says (`path`) and wherever links lead.
//!
//! `answer` puts the response together, `conditional` and `ranges` are RFC 9110 without I/O, `body`
//! is what is sent, `jobs` bounds the pool's work.

mod answer;
mod beneath;
mod body;
mod conditional;
mod encoding;
mod jobs;
mod path;
mod ranges;
mod settings;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use tower_service::Service;

pub use body::FileBody;
pub use settings::{HiddenFiles, Precompressed};

use jobs::{Job, Jobs};
use settings::Shared;

use crate::counts::Refusal;
use crate::loop_state;

const DEFAULT_CHUNK: usize = 64 * 1024;
const DEFAULT_MAX_JOBS: usize = 4096;

/// Serves the files of a directory.
///
/// ```no_run
/// use axum::{Router, routing::get};
/// use wakeful_http::files::ServeDir;
///
/// fn main() -> std::io::Result<()> {
///     let app = Router::new()
///         .route("/api", get(|| async { "hello" }))
///         .fallback_service(ServeDir::new("public")?);
///     wakeful_http::Server::bind("127.0.0.1:8080")?.serve(app)
/// }
/// ```
///
/// | setting | default | range | what it does |
/// |---|---|---|---|
/// | [`cache_control`](Self::cache_control) | none | any value | `cache-control` of 200, 206 and 304 |
/// | [`precompressed`](Self::precompressed) | [`Precompressed::Ignore`] | | sends `file.br` or `file.gz` in place of `file` to clients that take it |
/// | [`hidden_files`](Self::hidden_files) | [`HiddenFiles::Refuse`] | | names that begin with a dot |
/// | [`chunk_size`](Self::chunk_size) | 64 KiB | 4 KiB to 1 MiB | what is read at a time, and what is sent by one job |
/// | [`max_jobs`](Self::max_jobs) | 4,096 | 1 and more | 503 with `retry-after: 1` beyond it |
///
/// # What it answers
/// * GET and HEAD; 405 with `allow` for any other method. A directory is its `index.html`, and
///   without a slash at its end a redirect (301, relative) to where it has one.
/// * 206 for `range`, with up to 16 parts as `multipart/byteranges`; a header that is malformed, or
///   asks for more parts, or for more bytes than the file has, is ignored, as RFC 9110 allows. 416
///   if no part begins within the file.
/// * 304 and 412 for `if-match`, `if-none-match`, `if-modified-since`, `if-unmodified-since`,
///   `if-range`. The entity tag is made of inode, size and modification time; it is weak while that
///   time is less than a second ago, because a change to come could share it. Machines that serve
///   copies have different tags.
/// * `content-type` by the extension, with `nosniff`; text is said to be UTF-8.
/// * 404 for what is not there, is no regular file, or lies outside: a symbolic link is followed if
///   it stays within the directory (Linux 5.6 and newer; on older ones, and where a seccomp profile
///   forbids `openat2`, no link is). 403 where the file system says so, 503 when there are no
///   descriptors, no memory, too many jobs, or no thread to read on and none can be started
///   (`ulimit -u`, `pids.max`). The last two count as [`Refusal::FileJobs`] and
///   [`Refusal::NoThread`].
/// * A file that becomes shorter while it is sent, or for whose next chunk there is no memory, ends
///   the connection (HTTP/2: the stream); one that grows is sent as long as it was.
///
/// Two slashes in a row, encoded slashes, and `.` or `..` in a path name nothing: 404. Names need
/// not be UTF-8. Behind a prefix, `nest_service("/static", …)`, link to `/static/`: axum gives
/// `/static` the same answer, and then relative links are wrong.
///
/// The directory is looked up for each request, so a deployment may replace it by another one.
///
/// *Threads*: `Send` and `Sync`; clones share their settings and limits.
#[derive(Debug, Clone)]
pub struct ServeDir {
    shared: Arc<Shared>,
}

impl ServeDir {
    /// Serves the files beneath `root`, which may be a relative path: then it is one from the
    /// directory in which the process is now.
    ///
    /// # Errors
    /// `root` is not there, is no directory, or may not be opened.
    pub fn new(root: impl AsRef<Path>) -> io::Result<Self> {
        let root = root.as_ref();
        let opened = beneath::Root::new(root).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot serve {}: {error}", root.display()))
        })?;
        let shared = Shared {
            root: Arc::new(opened),
            cache_control: None,
            precompressed: Precompressed::Ignore,
            hidden_files: HiddenFiles::Refuse,
            chunk_size: DEFAULT_CHUNK as u64,
            jobs: Jobs::new(DEFAULT_MAX_JOBS),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// What caches are told, as `max-age=3600` or `no-cache`.
    #[must_use]
    pub fn cache_control(self, value: HeaderValue) -> Self {
        self.with(|shared| shared.cache_control = Some(value))
    }

    /// Whether compressed files beside the files are used.
    #[must_use]
    pub fn precompressed(self, precompressed: Precompressed) -> Self {
        self.with(|shared| shared.precompressed = precompressed)
    }

    /// What happens to names that begin with a dot.
    #[must_use]
    pub fn hidden_files(self, hidden: HiddenFiles) -> Self {
        self.with(|shared| shared.hidden_files = hidden)
    }

    /// How many bytes a job reads. A slow client holds two chunks in memory.
    #[must_use]
    pub fn chunk_size(self, bytes: usize) -> Self {
        self.with(|shared| shared.chunk_size = bytes.clamp(4 * 1024, 1024 * 1024) as u64)
    }

    /// How many jobs of this service may run or wait on the blocking pool before requests get 503.
    /// Responses that have begun go on, with a job each.
    #[must_use]
    pub fn max_jobs(self, jobs: usize) -> Self {
        self.with(|shared| shared.jobs = Jobs::new(jobs.max(1)))
    }

    fn with(mut self, set: impl FnOnce(&mut Shared)) -> Self {
        set(Arc::make_mut(&mut self.shared));
        self
    }
}

impl<B> Service<Request<B>> for ServeDir {
    type Response = Response<FileBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture {
        let (parts, _) = request.into_parts();
        if parts.method != Method::GET && parts.method != Method::HEAD {
            let mut response = answer::plain(StatusCode::METHOD_NOT_ALLOWED);
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return ResponseFuture::ready(response);
        }
        let Some(target) = path::resolve(parts.uri.path(), self.shared.hidden_files) else {
            return ResponseFuture::ready(answer::plain(StatusCode::NOT_FOUND));
        };
        let shared = self.shared.clone();
        let job = self.shared.jobs.try_run(move || {
            answer::answer(&shared, target, &parts.method, &parts.uri, &parts.headers)
        });
        match job {
            Some(job) => ResponseFuture(State::Running(job)),
            None => ResponseFuture::ready(unavailable(Refusal::FileJobs)),
        }
    }
}

/// The future of [`ServeDir`]. Dropped, it takes its job off the pool's queue.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture(State);

#[derive(Debug)]
enum State {
    Running(Job<Response<FileBody>>),
    Ready(Option<Box<Response<FileBody>>>),
}

impl ResponseFuture {
    fn ready(response: Response<FileBody>) -> Self {
        Self(State::Ready(Some(Box::new(response))))
    }
}

impl Future for ResponseFuture {
    type Output = Result<Response<FileBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = match &mut self.0 {
            State::Running(job) => match ready!(Pin::new(job).poll(cx)) {
                Ok(response) => response,
                // The job cannot have been aborted: it has been refused a thread, which is in the
                // log.
                Err(error) if error.is_cancelled() => unavailable(Refusal::NoThread),
                // It panicked, which the hook has told.
                Err(_) => answer::plain(StatusCode::INTERNAL_SERVER_ERROR),
            },
            State::Ready(response) => match response.take() {
                Some(response) => *response,
                None => answer::plain(StatusCode::INTERNAL_SERVER_ERROR),
            },
        };
        Poll::Ready(Ok(response))
    }
}

#[cold]
fn unavailable(refusal: Refusal) -> Response<FileBody> {
    loop_state::refuse_here(refusal);
    answer::plain(StatusCode::SERVICE_UNAVAILABLE)
}
