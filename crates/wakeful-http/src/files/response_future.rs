//! The future of a response that a job of the pool makes.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{HeaderValue, Method, Response, StatusCode, header};

use super::answer;
use super::body::FileBody;
use super::jobs::{Job, Jobs};
use crate::counts::Refusal;
use crate::loop_state;

/// The future of [`ServeDir`](super::ServeDir) and [`ServeFile`](super::ServeFile).
///
/// # Cancel safety
/// Dropping it removes its job from the pool's queue. A job that already runs finishes.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture(State);

#[derive(Debug)]
enum State {
    Running(Job<Response<FileBody>>),
    Ready(Option<Box<Response<FileBody>>>),
}

impl ResponseFuture {
    pub(super) fn ready(response: Response<FileBody>) -> Self {
        Self(State::Ready(Some(Box::new(response))))
    }

    /// `None`: files are served by this method.
    pub(super) fn of_method(method: &Method) -> Option<Self> {
        if *method == Method::GET || *method == Method::HEAD {
            return None;
        }
        let mut response = answer::plain(StatusCode::METHOD_NOT_ALLOWED);
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        Some(Self::ready(response))
    }

    pub(super) fn of_job(
        jobs: &Jobs,
        job: impl FnOnce() -> Response<FileBody> + Send + 'static,
    ) -> Self {
        match jobs.try_run(job) {
            Some(job) => Self(State::Running(job)),
            None => Self::ready(unavailable(Refusal::FileJobs)),
        }
    }
}

impl Future for ResponseFuture {
    type Output = Result<Response<FileBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = match &mut self.0 {
            State::Running(job) => match ready!(Pin::new(job).poll(cx)) {
                Ok(response) => response,
                // The job cannot have been aborted, so this means that no thread could be started
                // for it, which is in the log.
                Err(error) if error.is_cancelled() => unavailable(Refusal::NoThread),
                // The job panicked, and the panic hook has reported it.
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
