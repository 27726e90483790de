//! One file.

use std::convert::Infallible;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderValue, Method, Request, Response};
use tower_service::Service;

use super::answer;
use super::beneath::Root;
use super::body::FileBody;
use super::open_files::Place;
use super::path::Target;
use super::response_future::ResponseFuture;
use super::settings::{Precompressed, Shared};

/// Serves one file, for any request path.
///
/// ```no_run
/// use axum::Router;
/// use wakeful_http::files::ServeFile;
///
/// fn main() -> std::io::Result<()> {
///     let app = Router::new().route_service("/favicon.ico", ServeFile::new("public/icon.ico")?);
///     wakeful_http::Server::bind("127.0.0.1:8080")?.serve(app)
/// }
/// ```
///
/// It answers like [`ServeDir`](super::ServeDir) for a file: GET and HEAD, ranges, conditional
/// requests, and 404 if the file no longer exists. Use it as the
/// [`fallback`](super::ServeDir::fallback) of a directory for the page of a single-page
/// application.
///
/// | setting | default | range | what it does |
/// |---|---|---|---|
/// | [`content_type`](Self::content_type) | by the name's extension | any value | `content-type` |
/// | [`cache_control`](Self::cache_control) | none | any value | `cache-control` of 200, 206 and 304 |
/// | [`precompressed`](Self::precompressed) | [`Precompressed::Ignore`] | | whether clients that accept compression get the file at `path` with `.br` or `.gz` appended |
/// | [`chunk_size`](Self::chunk_size) | 64 KiB | 4 KiB to 1 MiB | bytes that one job reads and sends |
/// | [`max_jobs`](Self::max_jobs) | 4,096 | 1 and more | further requests get 503 with `retry-after: 1` |
/// | [`max_open_files`](Self::max_open_files) | none | 3 and more, or `None` | further requests wait, 30 s at most; then 503 with `retry-after: 1` |
///
/// The file is opened for each request, so a deployment may replace it. Clients do not choose its
/// path, so all symbolic links are followed.
///
/// # Threads
/// `Send` and `Sync`. Clones share their settings and limits.
#[derive(Debug, Clone)]
pub struct ServeFile {
    shared: Arc<Shared>,
    name: Arc<[u8]>,
}

impl ServeFile {
    /// Makes a service for the file at `path`. A relative path starts at the current working
    /// directory.
    ///
    /// # Errors
    /// The file does not exist, is not a regular file, or may not be opened.
    pub fn new(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        Self::open(path).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot serve {}: {error}", path.display()))
        })
    }

    fn open(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let no_file = || io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(no_file());
        };
        let root = Root::of_file(directory)?;
        let name = name.as_bytes();
        if !root.open()?.file(name)?.metadata()?.is_file() {
            return Err(no_file());
        }
        Ok(Self { shared: Arc::new(Shared::new(root)), name: name.into() })
    }

    /// Sets the `content-type`, which by default depends on the name's extension.
    #[must_use]
    pub fn content_type(self, value: HeaderValue) -> Self {
        self.with(|shared| shared.content_type = Some(value))
    }

    /// Sets the `cache-control` header, for example `max-age=3600` or `no-cache`.
    #[must_use]
    pub fn cache_control(self, value: HeaderValue) -> Self {
        self.with(|shared| shared.cache_control = Some(value))
    }

    /// Sets whether clients get a compressed file that exists beside the file: its name with `.br`
    /// or `.gz` appended.
    #[must_use]
    pub fn precompressed(self, precompressed: Precompressed) -> Self {
        self.with(|shared| shared.precompressed = precompressed)
    }

    /// Sets how many bytes one job reads. The response to a slow client keeps two such chunks in
    /// memory.
    #[must_use]
    pub fn chunk_size(self, bytes: usize) -> Self {
        self.with(|shared| shared.set_chunk_size(bytes))
    }

    /// Sets how many jobs of this service and its clones may run or wait on the blocking pool.
    /// Beyond that, requests get 503. Responses that have begun continue, with one job each.
    #[must_use]
    pub fn max_jobs(self, jobs: usize) -> Self {
        self.with(|shared| shared.set_max_jobs(jobs))
    }

    /// Sets how many files this service and its clones may have open at a time, which is two more
    /// than the responses that may be under way: see
    /// [`ServeDir::max_open_files`](super::ServeDir::max_open_files).
    #[must_use]
    pub fn max_open_files(self, files: impl Into<Option<usize>>) -> Self {
        self.with(|shared| shared.set_max_open_files(files.into()))
    }

    fn with(mut self, set: impl FnOnce(&mut Shared)) -> Self {
        set(Arc::make_mut(&mut self.shared));
        self
    }

    /// Answers a GET or HEAD. Blocks.
    pub(super) fn answer(
        &self,
        method: &Method,
        headers: &HeaderMap,
        place: &mut Place,
    ) -> Response<FileBody> {
        let target = Target { name: self.name.to_vec(), is_directory: false };
        answer::answer_file(&self.shared, target, method, headers, place)
    }
}

impl<B> Service<Request<B>> for ServeFile {
    type Response = Response<FileBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture {
        let (parts, _) = request.into_parts();
        if let Some(refused) = ResponseFuture::of_method(&parts.method) {
            return refused;
        }
        let this = self.clone();
        ResponseFuture::of_job(&self.shared, move |mut place| {
            this.answer(&parts.method, &parts.headers, &mut place)
        })
    }
}
