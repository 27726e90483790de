//! The health service (`grpc.health.v1`): tonic's, which says NOT_SERVING for everything once the server drains.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use send_wrapper::SendWrapper;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_health::server::{HealthReporter, HealthService};
use wakeful::accept::DrainingStarted;

use super::told::is_draining;

/// A reporter, by which the program says which of its services serve, and the service that tells clients. As `tonic_health::server::health_reporter`, but that nothing serves any more once the server
/// drains: clients that watch are told before their stream ends.
#[must_use]
pub fn health_reporter() -> (HealthReporter, HealthServer<DrainingHealth<HealthService>>) {
    let reporter = HealthReporter::new();
    let service = HealthService::from_health_reporter(reporter.clone());
    (reporter, HealthServer::new(DrainingHealth::new(service)))
}

/// A health service that says NOT_SERVING once the server drains, and before that what the one within says.
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
        let drains = crate::draining().is_some_and(|draining| draining.is_started());
        Ok(if drains { Response::new(not_serving()) } else { response })
    }

    type WatchStream = HealthUpdates<H::WatchStream>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let response = self.inner.watch(request).await?;
        Ok(response.map(|inner| {
            let drained = crate::draining().map(|draining| SendWrapper::new(draining.started()));
            HealthUpdates { inner, state: State::Watching { drained } }
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
}

#[derive(Debug)]
enum State {
    Watching {
        drained: Option<SendWrapper<DrainingStarted>>,
    },
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
        match &mut this.state {
            State::Watching { drained } => {
                let is_drained = |drained: &mut SendWrapper<DrainingStarted>| {
                    Pin::new(&mut **drained).poll(cx).is_ready()
                };
                if drained.as_mut().is_some_and(is_drained) {
                    this.state = State::Told;
                    return Poll::Ready(Some(Ok(not_serving())));
                }
                Pin::new(&mut this.inner).poll_next(cx)
            }
            State::Told => {
                this.state = State::Ended;
                Poll::Ready(Some(Err(is_draining())))
            }
            State::Ended => Poll::Ready(None),
        }
    }
}
