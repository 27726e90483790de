//! The health service (`grpc.health.v1`): tonic's, which says NOT_SERVING for everything once the server is not ready any more.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_health::server::{HealthReporter, HealthService};

use super::told::is_draining;

/// A reporter, by which the program says which of its services serve, and the service that tells clients. As `tonic_health::server::health_reporter`, but that nothing serves any more once the server
/// is told to end: clients that watch are told, and their stream ends when it drains.
#[must_use]
pub fn health_reporter() -> (HealthReporter, HealthServer<DrainingHealth<HealthService>>) {
    let reporter = HealthReporter::new();
    let service = HealthService::from_health_reporter(reporter.clone());
    (reporter, HealthServer::new(DrainingHealth::new(service)))
}

/// A health service that says NOT_SERVING once the server is not [ready](crate::Readiness), and before that what the one within says.
#[derive(Debug, Clone)]
pub struct DrainingHealth<H> {
    inner: H,
}

impl<H> DrainingHealth<H> {
    /// Around `inner`.
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
        let ends = crate::readiness().is_some_and(|readiness| !readiness.is_ready());
        Ok(if ends { Response::new(not_serving()) } else { response })
    }

    type WatchStream = HealthUpdates<H::WatchStream>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let response = self.inner.watch(request).await?;
        Ok(response.map(|inner| {
            let told = crate::readiness().map(|readiness| Told {
                not_ready: Box::pin(readiness.until_not_ready()),
                draining: Box::pin(readiness.until_draining()),
            });
            HealthUpdates { inner, state: State::Watching, told }
        }))
    }
}

fn not_serving() -> HealthCheckResponse {
    HealthCheckResponse { status: ServingStatus::NotServing.into() }
}

/// What a client that watches is told.
#[derive(Debug)]
pub struct HealthUpdates<W> {
    inner: W,
    state: State,
    told: Option<Told>,
}

/// When the server says so.
struct Told {
    not_ready: Signal,
    draining: Signal,
}

type Signal = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Told")
    }
}

#[derive(Debug, Clone, Copy)]
enum State {
    Watching,
    /// NOT_SERVING was said.
    Told,
    Ended,
}

impl<W> Stream for HealthUpdates<W>
where
    W: Stream<Item = Result<HealthCheckResponse, Status>> + Unpin,
{
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let mut is_due = |signal: fn(&mut Told) -> &mut Signal, cx: &mut Context<'_>| {
            this.told.as_mut().is_some_and(|told| signal(told).as_mut().poll(cx).is_ready())
        };
        match this.state {
            State::Watching if is_due(|told| &mut told.not_ready, cx) => {
                this.state = State::Told;
                Poll::Ready(Some(Ok(not_serving())))
            }
            State::Watching => Pin::new(&mut this.inner).poll_next(cx),
            State::Told if is_due(|told| &mut told.draining, cx) => {
                this.state = State::Ended;
                Poll::Ready(Some(Err(is_draining())))
            }
            State::Told => Poll::Pending,
            State::Ended => Poll::Ready(None),
        }
    }
}
