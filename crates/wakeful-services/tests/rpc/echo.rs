//! What goes in comes out: all kinds of call, sizes beyond every window, trailers, and calls that
//! are given up.

use bytes::Bytes;
use http_body_util::BodyExt;
use tonic::Code;
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use wakeful_http::grpc::GrpcLayer;
use wakeful_services::rpc::RpcOptions;
use wakeful_services::rpc::proto::{EchoRequest, Failure, ServerStreamRequest};

use super::channel::*;
use super::watched::{Watched, is_dropped_on_its_loop};

fn message(text: &str) -> EchoRequest {
    EchoRequest { message: text.to_owned(), ..EchoRequest::default() }
}

/// A stream that is ready at once, without a runtime.
fn stream_of(requests: Vec<EchoRequest>) -> Requests {
    Requests(requests.into_iter())
}

struct Requests(std::vec::IntoIter<EchoRequest>);

impl futures_core::Stream for Requests {
    type Item = EchoRequest;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<EchoRequest>> {
        std::task::Poll::Ready(self.0.next())
    }
}

#[test]
fn all_four_kinds_of_call_echo() {
    let running = service(&RpcOptions::default());
    client(async {
        let mut echo = Channel::to(addr(&running)).await.echo();
        let answer = echo.unary(message("one")).await.unwrap().into_inner();
        assert_eq!((answer.message.as_str(), answer.number), ("one", 0));

        let request =
            ServerStreamRequest { echo: Some(message("many")), count: 100, interval_ms: 0 };
        let mut answers = echo.server_stream(request).await.unwrap().into_inner();
        for number in 0..100 {
            let answer = answers.message().await.unwrap().unwrap();
            assert_eq!((answer.message.as_str(), answer.number), ("many", number));
        }
        assert!(answers.message().await.unwrap().is_none());

        let requests: Vec<_> = (0..100).map(|n| message(&n.to_string())).collect();
        let told = echo.client_stream(stream_of(requests.clone())).await.unwrap().into_inner();
        assert_eq!((told.messages, told.message.as_str()), (100, "99"));

        let mut answers = echo.bidi_stream(stream_of(requests)).await.unwrap().into_inner();
        for number in 0..100 {
            let answer = answers.message().await.unwrap().unwrap();
            assert_eq!((answer.message, answer.number), (number.to_string(), number));
        }
        assert!(answers.message().await.unwrap().is_none());
    });
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

#[test]
fn messages_beyond_every_window_pass_both_ways() {
    let running = service(&RpcOptions::new().max_message(64 << 20));
    let payload = Bytes::from_iter((0..20 << 20).map(|n: u32| (n / 7) as u8));
    client(async {
        let echo = Channel::to(addr(&running)).await.echo();
        // Two at once share the connection's window.
        let large = EchoRequest { payload: payload.clone(), ..EchoRequest::default() };
        let calls = [0, 1].map(|_| {
            let (mut echo, large) = (echo.clone(), large.clone());
            wakeful::spawn(async move { echo.unary(large).await.unwrap().into_inner() })
        });
        for call in calls {
            assert!(call.await.unwrap().payload == payload);
        }
        let mut echo = echo;
        let three = stream_of(vec![large; 3]);
        let mut answers = echo.bidi_stream(three).await.unwrap().into_inner();
        for _ in 0..3 {
            assert!(answers.message().await.unwrap().unwrap().payload == payload);
        }
    });
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

#[test]
fn a_message_beyond_the_limit_is_refused_and_the_connection_goes_on() {
    let running = service(&RpcOptions::new().max_message(1000));
    client(async {
        let mut echo = Channel::to(addr(&running)).await.echo();
        let large = EchoRequest { payload: vec![1; 1001].into(), ..EchoRequest::default() };
        let status = echo.unary(large.clone()).await.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "{status}");
        // A few bytes, which become too many.
        let mut compressing = echo.clone().send_compressed(CompressionEncoding::Gzip);
        let status = compressing.unary(large).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert_eq!(echo.unary(message("small")).await.unwrap().into_inner().message, "small");
    });
}

#[test]
fn every_status_code_and_its_message_reach_the_client() {
    let running = service(&RpcOptions::default());
    client(async {
        let mut echo = Channel::to(addr(&running)).await.echo();
        for code in 1..=16 {
            let fail = Some(Failure { code, message: format!("why {code}: ü%\n") });
            let status =
                echo.unary(EchoRequest { fail, ..EchoRequest::default() }).await.unwrap_err();
            assert_eq!(status.code(), Code::from_i32(code.try_into().unwrap()));
            assert_eq!(status.message(), format!("why {code}: ü%\n"));
        }
        let fail = Some(Failure { code: 17, message: String::new() });
        let status = echo.unary(EchoRequest { fail, ..EchoRequest::default() }).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let late = EchoRequest { delay_ms: 60_001, ..EchoRequest::default() };
        assert_eq!(echo.unary(late).await.unwrap_err().code(), Code::InvalidArgument);
    });
}

/// An empty message.
fn call(channel: &Channel, path: &str) -> http::Request<Body> {
    let body = Body::new(http_body_util::Full::new(Bytes::from_static(&[0; 5])));
    http::Request::post(format!("{}{path}", channel.origin().to_string().trim_end_matches('/')))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .unwrap()
}

#[test]
fn the_status_comes_in_trailers_or_alone_in_the_header() {
    let running = service(&RpcOptions::default());
    client(async {
        let mut channel = Channel::to(addr(&running)).await;
        let request = call(&channel, "/wakeful.echo.v1.Echo/Unary");
        let response = channel.0.send_request(request).await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/grpc");
        assert!(!response.headers().contains_key("grpc-status"));
        let collected = response.into_body().collect().await.unwrap();
        assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(collected.to_bytes(), &[0; 5][..]);

        let request = call(&channel, "/wakeful.echo.v1.Echo/Missing");
        let response = channel.0.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["grpc-status"], "12");
        assert!(hyper::body::Body::is_end_stream(response.body()));
    });
}

#[test]
fn a_call_that_its_client_gives_up_is_dropped_on_its_loop() {
    let (watched, seen) = Watched::new();
    let running = serve(watched, GrpcLayer::new());
    client(async {
        let echo = Channel::to(addr(&running)).await.echo();
        let unary = {
            let mut echo = echo.clone();
            wakeful::spawn(async move { echo.unary(EchoRequest::default()).await })
        };
        // RST_STREAM with CANCEL; the connection stays.
        is_dropped_on_its_loop(&seen, || unary.abort()).await;

        let mut echo = echo;
        let mut stream =
            echo.bidi_stream(stream_of(vec![message("x")])).await.unwrap().into_inner();
        assert!(stream.message().await.unwrap().is_some());
        is_dropped_on_its_loop(&seen, || drop(stream)).await;
    });
    assert_eq!(running.counts().accepted(), 1);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}
