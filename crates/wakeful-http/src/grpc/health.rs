//! The health service (`grpc.health.v1`). It is tonic's, with one difference: from the moment when
//! the server is told to end, every service is NOT_SERVING.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_health::server::{HealthReporter, HealthService};

use super::shutdown::is_draining;
use crate::drain::{DrainBegins, drain_begins};

/// Makes a health service, and a reporter with which the program sets the state of its services. It
/// is like `tonic_health::server::health_reporter`, with one difference: when the server is no
/// longer ready ([`Readiness`](crate::Readiness)), every service is NOT_SERVING. Clients that watch
/// a service are notified. When the server drains, their streams end with UNAVAILABLE.
#[must_use]
pub fn health_reporter() -> (HealthReporter, HealthServer<DrainingHealth<HealthService>>) {
    let reporter = HealthReporter::new();
    let service = HealthService::from_health_reporter(reporter.clone());
    (reporter, HealthServer::new(DrainingHealth::new(service)))
}

/// A health service that answers NOT_SERVING when the server is no longer ready. Before that it
/// gives the answers of the inner service.
#[derive(Debug, Clone)]
pub struct DrainingHealth<H> {
    inner: H,
}

impl<H> DrainingHealth<H> {
    /// Wraps `inner`.
    pub fn new(inner: H) -> Self {
        Self { inner }
    }
}

#[tonic::async_trait]
impl<H: Health> Health for DrainingHealth<H>
where
    H::WatchStream: Unpin,
{
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let response = self.inner.check(request).await?;
        let is_ready = crate::loop_state::readiness().is_none_or(|readiness| readiness.is_ready());
        Ok(if is_ready { response } else { Response::new(not_serving()) })
    }

    type WatchStream = HealthUpdates<H::WatchStream>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let response = self.inner.watch(request).await?;
        let state = State::Watching(match crate::loop_state::readiness() {
            Some(readiness) => Box::pin(readiness.until_not_ready()),
            None => Box::pin(std::future::pending()),
        });
        Ok(response.map(|inner| HealthUpdates { inner, state }))
    }
}

fn not_serving() -> HealthCheckResponse {
    HealthCheckResponse { status: ServingStatus::NotServing.into() }
}

/// The stream of health updates for a watching client.
pub struct HealthUpdates<W> {
    inner: W,
    state: State,
}

enum State {
    /// Waits until the server is no longer ready.
    Watching(Pin<Box<dyn Future<Output = ()> + Send>>),
    /// NOT_SERVING was sent.
    NotServing(DrainBegins),
    Ended,
}

impl<W> fmt::Debug for HealthUpdates<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthUpdates").finish_non_exhaustive()
    }
}

impl<W> Stream for HealthUpdates<W>
where
    W: Stream<Item = Result<HealthCheckResponse, Status>> + Unpin,
{
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        match &mut this.state {
            State::Watching(not_ready) => {
                if not_ready.as_mut().poll(cx).is_ready() {
                    this.state = State::NotServing(drain_begins());
                    return Poll::Ready(Some(Ok(not_serving())));
                }
                Pin::new(&mut this.inner).poll_next(cx)
            }
            State::NotServing(begins) => {
                ready!(Pin::new(begins).poll(cx));
                this.state = State::Ended;
                Poll::Ready(Some(Err(is_draining())))
            }
            State::Ended => Poll::Ready(None),
        }
    }
}
