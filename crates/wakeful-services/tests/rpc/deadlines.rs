//! A deadline ends a call wherever it is, and its handler with it.

use std::time::Duration;

use tonic::{Code, Request};
use wakeful_http::grpc::GrpcLayer;
use wakeful_services::rpc::proto::{EchoRequest, ServerStreamRequest};

use super::channel::*;
use super::watched::{Watched, assert_dropped_on_its_loop};

/// Only the server looks at it: tonic's client has no clock here.
fn within<T>(timeout: &'static str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("grpc-timeout", timeout.parse().unwrap());
    request
}

#[test]
fn a_deadline_before_the_response_is_answered_and_the_handler_dropped() {
    let (watched, seen) = Watched::new();
    let running = serve(watched, GrpcLayer::new());
    let status = client(async {
        let mut echo = Channel::to(addr(&running)).await.echo();
        echo.unary(within("500m", EchoRequest::default())).await.unwrap_err()
    });
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(status.message(), "the deadline has passed");
    assert_dropped_on_its_loop(&seen);
}

#[test]
fn a_deadline_in_the_middle_of_a_stream_ends_it_whether_it_waits_or_never_does() {
    let (watched, seen) = Watched::new();
    let running = serve(watched, GrpcLayer::new());
    for count in [3, u64::MAX] {
        client(async {
            let mut echo = Channel::to(addr(&running)).await.echo();
            let request = ServerStreamRequest { count, ..ServerStreamRequest::default() };
            let answers = echo.server_stream(within("500m", request)).await.unwrap();
            let mut answers = answers.into_inner();
            let mut came = 0;
            let status = loop {
                match answers.message().await {
                    Ok(Some(_)) => came += 1,
                    Ok(None) => panic!("it never ends"),
                    Err(status) => break status,
                }
            };
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
            assert!(came >= 3, "{came}");
        });
        assert_dropped_on_its_loop(&seen);
    }
}

#[test]
fn a_longest_deadline_holds_for_calls_that_name_none_or_a_longer_one() {
    let (watched, seen) = Watched::new();
    let running = serve(watched, GrpcLayer::new().max_deadline(Duration::from_millis(500)));
    client(async {
        let mut echo = Channel::to(addr(&running)).await.echo();
        for request in [Request::new(EchoRequest::default()), within("1H", EchoRequest::default())]
        {
            let status = echo.unary(request).await.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded);
        }
    });
    assert_dropped_on_its_loop(&seen);
    assert_dropped_on_its_loop(&seen);
}

#[test]
fn a_deadline_that_cannot_be_read_is_refused_and_the_handler_never_asked() {
    let (watched, seen) = Watched::new();
    let running = serve(watched, GrpcLayer::new());
    client(async {
        let mut echo = Channel::to(addr(&running)).await.echo();
        let status = echo.unary(within("soon", EchoRequest::default())).await.unwrap_err();
        assert_eq!(status.code(), Code::Internal);
        assert_eq!(status.message(), "malformed grpc-timeout: \"soon\"");
    });
    running.shutdown(GUARD).unwrap();
    assert!(seen.is_empty());
}
