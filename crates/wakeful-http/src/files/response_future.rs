//! The future of a response that a job of the pool makes.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{HeaderValue, Method, Response, StatusCode, header};

use super::answer;
use super::body::FileBody;
use super::jobs::Job;
use super::open_files::Place;
use super::settings::Shared;
use crate::counts::Refusal;
use crate::loop_state;

/// The future of [`ServeDir`](super::ServeDir) and [`ServeFile`](super::ServeFile).
///
/// # Cancel safety
/// Dropping it removes its job from the pool's queue, and itself from the queue of those that wait
/// for a file to close. A job that already runs finishes.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture(State);

type Answering = Job<Response<FileBody>>;

enum State {
    /// Too many files are open.
    Waiting(Pin<Box<dyn Future<Output = Result<Answering, Refusal>> + Send>>),
    Running(Answering),
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

    /// Runs `job` when a request may open its files.
    pub(super) fn of_job(
        shared: &Shared,
        job: impl FnOnce(Place) -> Response<FileBody> + Send + 'static,
    ) -> Self {
        let jobs = &shared.jobs;
        let Some(place) = shared.open_files.try_enter() else {
            return Self::waiting(shared, job);
        };
        match jobs.try_run(move || job(place)) {
            Some(job) => Self(State::Running(job)),
            None => Self::ready(unavailable(Refusal::FileJobs)),
        }
    }

    #[cold]
    fn waiting(
        shared: &Shared,
        job: impl FnOnce(Place) -> Response<FileBody> + Send + 'static,
    ) -> Self {
        let (jobs, open_files) = (shared.jobs.clone(), shared.open_files.clone());
        Self(State::Waiting(Box::pin(async move {
            let place = open_files.enter().await.ok_or(Refusal::OpenFiles)?;
            jobs.try_run(move || job(place)).ok_or(Refusal::FileJobs)
        })))
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.0 {
            State::Waiting(_) => "waiting",
            State::Running(_) => "running",
            State::Ready(_) => "ready",
        };
        f.debug_tuple("ResponseFuture").field(&state).finish()
    }
}

impl Future for ResponseFuture {
    type Output = Result<Response<FileBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Waiting(waiting) = &mut self.0 {
            self.0 = match ready!(waiting.as_mut().poll(cx)) {
                Ok(job) => State::Running(job),
                Err(refusal) => State::Ready(Some(Box::new(unavailable(refusal)))),
            };
        }
        let response = match &mut self.0 {
            State::Waiting(_) => unreachable!("it has been replaced"),
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
