//! The service itself. Its streams are mapped and not spawned, so a client that does not read
//! delays only itself, and nothing is buffered for it.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tonic::{Code, Request, Response, Status, Streaming};
use wakeful::time::{Sleep, sleep};

use super::proto::echo_server::Echo;
use super::proto::{ClientStreamResponse, EchoRequest, EchoResponse, ServerStreamRequest};

/// The longest delay, and the longest interval, that a client may ask for.
pub const MAX_DELAY: Duration = Duration::from_secs(60);

/// The service has no state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Echoing;

#[tonic::async_trait]
impl Echo for Echoing {
    async fn unary(&self, request: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        let request = request.into_inner();
        if let Some(delay) = delay(request.delay_ms)? {
            sleep(delay).await;
        }
        answer(request, 0).map(Response::new)
    }

    type ServerStreamStream = Repeated;

    async fn server_stream(
        &self,
        request: Request<ServerStreamRequest>,
    ) -> Result<Response<Repeated>, Status> {
        let ServerStreamRequest { echo, count, interval_ms } = request.into_inner();
        let echo = echo.unwrap_or_default();
        let interval = delay(interval_ms)?;
        let pause = delay(echo.delay_ms)?.map(sleep);
        Ok(Response::new(Repeated { echo, interval, pause, number: 0, count }))
    }

    async fn client_stream(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<ClientStreamResponse>, Status> {
        let mut requests = request.into_inner();
        let mut told = ClientStreamResponse::default();
        while let Some(request) = requests.message().await? {
            if let Some(delay) = delay(request.delay_ms)? {
                sleep(delay).await;
            }
            let echo = answer(request, told.messages)?;
            told.messages += 1;
            told.payload_bytes += echo.payload.len() as u64;
            told.message = echo.message;
        }
        Ok(Response::new(told))
    }

    type BidiStreamStream = Echoes;

    async fn bidi_stream(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<Echoes>, Status> {
        let requests = request.into_inner();
        Ok(Response::new(Echoes { requests, delayed: None, number: 0 }))
    }
}

/// # Errors
/// The failure that the client asks for; or the client asks for an unknown one.
fn answer(request: EchoRequest, number: u64) -> Result<EchoResponse, Status> {
    if let Some(failure) = request.fail {
        let code = i32::try_from(failure.code).unwrap_or(i32::MAX);
        if !(1..=16).contains(&code) {
            let message = format!("fail.code is 1 to 16, not {}", failure.code);
            return Err(Status::invalid_argument(message));
        }
        return Err(Status::new(Code::from_i32(code), failure.message));
    }
    Ok(EchoResponse { message: request.message, payload: request.payload, number })
}

/// # Errors
/// The delay is too long.
fn delay(ms: u32) -> Result<Option<Duration>, Status> {
    let delay = Duration::from_millis(ms.into());
    if delay > MAX_DELAY {
        let message = format!("at most {} ms, not {ms}", MAX_DELAY.as_millis());
        return Err(Status::invalid_argument(message));
    }
    Ok(Some(delay).filter(|delay| !delay.is_zero()))
}

/// A stream that repeats the same answer.
#[derive(Debug)]
pub(super) struct Repeated {
    echo: EchoRequest,
    interval: Option<Duration>,
    /// The pause before the next answer.
    pause: Option<Sleep>,
    number: u64,
    count: u64,
}

impl Stream for Repeated {
    type Item = Result<EchoResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.number == this.count {
            return Poll::Ready(None);
        }
        if let Some(pause) = &mut this.pause {
            ready!(Pin::new(pause).poll(cx));
        }
        this.pause = this.interval.map(sleep);
        let answer = answer(this.echo.clone(), this.number);
        this.number = if answer.is_ok() { this.number + 1 } else { this.count };
        Poll::Ready(Some(answer))
    }
}

/// An answer for each request.
#[derive(Debug)]
pub(super) struct Echoes {
    requests: Streaming<EchoRequest>,
    /// An answer that is delayed, with its timer.
    delayed: Option<(Sleep, EchoRequest)>,
    number: u64,
}

impl Stream for Echoes {
    type Item = Result<EchoResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let request = match &mut this.delayed {
            Some((sleep, _)) => {
                ready!(Pin::new(sleep).poll(cx));
                this.delayed.take().map(|(_, request)| request)
            }
            None => match ready!(Pin::new(&mut this.requests).poll_next(cx)).transpose()? {
                Some(request) => match delay(request.delay_ms)? {
                    Some(delay) => {
                        this.delayed = Some((sleep(delay), request));
                        return Pin::new(this).poll_next(cx);
                    }
                    None => Some(request),
                },
                None => None,
            },
        };
        let number = this.number;
        this.number += 1;
        Poll::Ready(request.map(|request| answer(request, number)))
    }
}
