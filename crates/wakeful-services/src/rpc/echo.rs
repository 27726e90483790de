//! The service itself. Its streams are mapped and not spawned, so a client that does not read
//! delays only itself, and nothing is buffered for it. A stream of large messages lets other tasks
//! run after each of them.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tonic::{Code, Request, Response, Status, Streaming};
use wakeful::task::yield_now;
use wakeful::time::{Sleep, sleep};

use super::proto::echo_server::Echo;
use super::proto::{ClientStreamResponse, EchoRequest, EchoResponse, ServerStreamRequest};

/// The longest delay, and the longest interval, that a client may ask for.
pub const MAX_DELAY: Duration = Duration::from_secs(60);

/// The size of a message that takes long to receive.
const LARGE: usize = 16 * 1024;

/// The service has no state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Echoing;

#[tonic::async_trait]
impl Echo for Echoing {
    async fn unary(&self, request: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        let request = request.into_inner();
        let delay = delay(request.delay_ms)?;
        // A failure has no use for the payload, so the payload is dropped before the delay.
        let answer = answer(request, 0);
        if let Some(delay) = delay {
            sleep(delay).await;
        }
        answer.map(Response::new)
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
        let pace = Pace::of(&request);
        let mut requests = request.into_inner();
        let mut told = ClientStreamResponse::default();
        while let Some(request) = requests.message().await? {
            let (delay, is_long) = (delay(request.delay_ms)?, pace.is_long(&request));
            // Only the length of the payload is told, so the payload is dropped before the delay.
            let echo =
                answer(request, told.messages).map(|echo| (echo.message, echo.payload.len()));
            if let Some(delay) = delay {
                sleep(delay).await;
            } else if is_long {
                yield_now().await;
            }
            let (message, length) = echo?;
            told.messages += 1;
            told.payload_bytes += length as u64;
            told.message = message;
        }
        Ok(Response::new(told))
    }

    type BidiStreamStream = Echoes;

    async fn bidi_stream(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<Echoes>, Status> {
        let pace = Pace::of(&request);
        let requests = request.into_inner();
        Ok(Response::new(Echoes { requests, pace, yields: false, delayed: None, number: 0 }))
    }
}

/// Says after which messages of a stream other tasks must run first.
#[derive(Debug, Clone, Copy)]
struct Pace {
    is_compressed: bool,
}

impl Pace {
    fn of<T>(request: &Request<T>) -> Self {
        let encoding = request.metadata().get("grpc-encoding");
        Self { is_compressed: encoding.is_some_and(|encoding| encoding != "identity") }
    }

    /// Did it take long to receive `request`? A few compressed bytes may become a large message.
    /// The request may show nothing of that, because fields that it does not know are dropped.
    fn is_long(self, request: &EchoRequest) -> bool {
        self.is_compressed || request.payload.len() + request.message.len() > LARGE
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
    pace: Pace,
    /// Whether other tasks must run before the next request is received.
    yields: bool,
    /// An answer that is delayed, with its timer.
    delayed: Option<(Sleep, Result<EchoResponse, Status>)>,
    number: u64,
}

impl Stream for Echoes {
    type Item = Result<EchoResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Some((sleep, _)) = &mut this.delayed {
            ready!(Pin::new(sleep).poll(cx));
            return Poll::Ready(this.delayed.take().map(|(_, answer)| answer));
        }
        if std::mem::take(&mut this.yields) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let request = ready!(Pin::new(&mut this.requests).poll_next(cx)).transpose()?;
        let Some(request) = request else { return Poll::Ready(None) };
        this.yields = this.pace.is_long(&request);
        let delay = delay(request.delay_ms)?;
        let answer = answer(request, this.number);
        this.number += 1;
        let Some(delay) = delay else { return Poll::Ready(Some(answer)) };
        this.delayed = Some((sleep(delay), answer));
        Pin::new(this).poll_next(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use bytes::{BufMut, Bytes, BytesMut};
    use http_body_util::Full;
    use prost::Message;
    use tonic::codec::Codec;
    use tonic_prost::ProstCodec;

    use super::*;

    const MESSAGES: usize = 5;

    /// A stream of messages that have all arrived.
    fn stream_of(payload: usize, encoding: &'static str) -> Request<Streaming<EchoRequest>> {
        let one = EchoRequest { payload: vec![1; payload].into(), ..EchoRequest::default() };
        let one = one.encode_to_vec();
        let mut body = BytesMut::new();
        for _ in 0..MESSAGES {
            body.put_u8(0);
            body.put_u32(u32::try_from(one.len()).unwrap());
            body.put_slice(&one);
        }
        let decoder = ProstCodec::<EchoResponse, EchoRequest>::default().decoder();
        let body = Full::<Bytes>::new(body.freeze());
        let mut request = Request::new(Streaming::new_request(decoder, body, None, None));
        request.metadata_mut().insert("grpc-encoding", encoding.parse().unwrap());
        request
    }

    /// How often other tasks run until `poll` has its output.
    fn turns<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> (usize, T) {
        let mut turns = 0;
        loop {
            if let Poll::Ready(output) = poll(&mut Context::from_waker(Waker::noop())) {
                return (turns, output);
            }
            turns += 1;
        }
    }

    #[test]
    fn streams_let_others_run_after_each_message_that_takes_long() {
        for (payload, encoding, expected) in
            [(1, "identity", 0), (LARGE + 1, "identity", MESSAGES), (1, "gzip", MESSAGES)]
        {
            let mut told = Echoing.client_stream(stream_of(payload, encoding));
            let (between, told) = turns(|cx| told.as_mut().poll(cx));
            assert_eq!(told.unwrap().into_inner().payload_bytes, (MESSAGES * payload) as u64);
            assert_eq!(between, expected, "{payload} bytes, {encoding}");

            let echoes = Echoing.bidi_stream(stream_of(payload, encoding));
            let mut echoes = pin!(futures_lite::future::block_on(echoes).unwrap().into_inner());
            let mut between = 0;
            for number in 0..MESSAGES {
                let (others, answer) = turns(|cx| echoes.as_mut().poll_next(cx));
                between += others;
                assert_eq!(answer.unwrap().unwrap().number, number as u64);
            }
            let (others, end) = turns(|cx| echoes.as_mut().poll_next(cx));
            assert!(end.is_none());
            assert_eq!(between + others, expected, "{payload} bytes, {encoding}");
        }
    }
}
