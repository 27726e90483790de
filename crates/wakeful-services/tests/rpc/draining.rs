//! A server that drains finishes calls, and tells streams, which then end.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tonic::Code;
use tonic::body::Body;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use wakeful_http::DrainPlan;
use wakeful_http::grpc::GrpcLayer;
use wakeful_services::rpc::RpcOptions;
use wakeful_services::rpc::proto::{EchoRequest, ServerStreamRequest};

use super::channel::*;
use super::watched::{Watched, assert_dropped_on_its_loop};

#[test]
fn health_says_so_before_the_drain_and_ends_its_watch_with_it() {
    let running = service(&RpcOptions::default());
    let addr = addr(&running);
    let (watching, watched) = mpsc::channel();
    let watcher = thread::spawn(move || {
        client(async {
            let channel = Channel::to(addr).await;
            let mut health = HealthClient::with_origin(channel.clone(), channel.origin());
            let service = "wakeful.echo.v1.Echo".to_owned();
            let request = HealthCheckRequest { service };
            let check = health.check(request.clone()).await.unwrap().into_inner();
            assert_eq!(check.status(), ServingStatus::Serving);
            let mut updates = health.watch(request.clone()).await.unwrap().into_inner();
            let first = updates.message().await.unwrap().unwrap();
            assert_eq!(first.status(), ServingStatus::Serving);
            watching.send(()).unwrap();
            let second = updates.message().await.unwrap().unwrap();
            assert_eq!(second.status(), ServingStatus::NotServing);
            // The server continues as before: a client that has not noticed yet is answered.
            let mut late = Channel::to(addr).await.echo();
            late.unary(EchoRequest::default()).await.unwrap();
            let check = health.check(request).await.unwrap().into_inner();
            assert_eq!(check.status(), ServingStatus::NotServing);
            assert_eq!(updates.message().await.unwrap_err().code(), Code::Unavailable);
        });
    });
    watched.recv().unwrap();
    let plan = DrainPlan::new().pre_drain(Duration::from_secs(2)).grace(GUARD);
    assert_eq!(running.drain(plan).unwrap(), 0);
    watcher.join().unwrap();
}

#[test]
fn a_unary_call_in_flight_is_finished_however_long_after_the_streams() {
    let running = service(&RpcOptions::default());
    let addr = addr(&running);
    let (calling, called) = mpsc::channel();
    let caller = thread::spawn(move || {
        client(async {
            let echo = Channel::to(addr).await.echo();
            let (mut slow, mut quick) = (echo.clone(), echo);
            let request = EchoRequest { delay_ms: 1500, ..EchoRequest::default() };
            let slow = wakeful::spawn(async move { slow.unary(request).await });
            // After it on the same connection.
            wakeful::task::yield_now().await;
            quick.unary(EchoRequest::default()).await.unwrap();
            calling.send(()).unwrap();
            slow.await.unwrap().unwrap();
        });
    });
    called.recv().unwrap();
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
    caller.join().unwrap();
}

#[test]
fn streams_end_with_unavailable_whether_they_wait_or_never_do() {
    for count in [1, u64::MAX] {
        let (watched, seen) = Watched::new();
        let running = serve(watched, GrpcLayer::new().linger(Duration::from_millis(10)));
        let addr = addr(&running);
        let (streaming, streamed) = mpsc::channel();
        let streamer = thread::spawn(move || {
            client(async {
                let mut echo = Channel::to(addr).await.echo();
                let request = ServerStreamRequest { count, ..ServerStreamRequest::default() };
                let mut answers = echo.server_stream(request).await.unwrap().into_inner();
                answers.message().await.unwrap().unwrap();
                streaming.send(()).unwrap();
                loop {
                    match answers.message().await {
                        Ok(answer) => assert!(answer.is_some(), "it never ends"),
                        Err(status) => break assert_eq!(status.code(), Code::Unavailable),
                    }
                }
            });
        });
        streamed.recv().unwrap();
        assert_eq!(running.shutdown(GUARD).unwrap(), 0);
        streamer.join().unwrap();
        assert_dropped_on_its_loop(&seen);
    }
}

/// A request's body that is sent by hand, and stays open.
fn open_body() -> (async_channel::Sender<Result<Frame<Bytes>, tonic::Status>>, Body) {
    let (sender, receiver) = async_channel::unbounded();
    (sender, Body::new(StreamBody::new(receiver)))
}

#[test]
fn a_client_that_streams_on_is_cut_but_not_in_its_first_message() {
    let running = service(&RpcOptions::default());
    let addr = addr(&running);
    let (sending, sent) = mpsc::channel();
    let (drained, is_drained) = async_channel::bounded::<()>(1);
    let sender = thread::spawn(move || {
        client(async {
            let mut channel = Channel::to(addr).await;
            let begin = |channel: &mut Channel, method: &str, start: &'static [u8]| {
                let (frames, body) = open_body();
                frames.try_send(Ok(Frame::data(Bytes::from_static(start)))).unwrap();
                let uri = format!("{}wakeful.echo.v1.Echo/{method}", channel.origin());
                let request = http::Request::post(uri)
                    .header("content-type", "application/grpc")
                    .body(body)
                    .unwrap();
                (frames, wakeful::spawn(channel.0.send_request(request)))
            };
            // A message of two bytes (the field `message`, empty), of which one has come.
            let (half, unary) = begin(&mut channel, "Unary", &[0, 0, 0, 0, 2, 0x0a]);
            let (_whole, stream) = begin(&mut channel, "ClientStream", &[0, 0, 0, 0, 2, 0x0a, 0]);
            channel.echo().unary(EchoRequest::default()).await.unwrap();
            sending.send(()).unwrap();
            // Cut a second after the drain began: the first one has had as long.
            let stream = stream.await.unwrap().unwrap();
            assert_eq!(stream.headers()["grpc-status"], "14");
            half.try_send(Ok(Frame::data(Bytes::from_static(&[0])))).unwrap();
            half.close();
            let answer = unary.await.unwrap().unwrap().into_body().collect().await.unwrap();
            assert_eq!(answer.trailers().unwrap()["grpc-status"], "0");
            drop(is_drained);
        });
    });
    sent.recv().unwrap();
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
    drop(drained);
    sender.join().unwrap();
}

#[test]
fn a_client_that_does_not_read_cannot_hold_up_the_drain() {
    let (watched, seen) = Watched::new();
    let running = serve(watched, GrpcLayer::new().linger(Duration::ZERO));
    let addr = addr(&running);
    let (streaming, streamed) = mpsc::channel();
    let (end, ended) = async_channel::bounded::<()>(1);
    let streamer = thread::spawn(move || {
        client(async {
            let mut echo = Channel::to(addr).await.echo();
            let request = ServerStreamRequest { count: u64::MAX, ..ServerStreamRequest::default() };
            let _unread = echo.server_stream(request).await.unwrap();
            streaming.send(()).unwrap();
            let _ = ended.recv().await;
        });
    });
    streamed.recv().unwrap();
    // Its window is full: nothing can be said to it, and the grace period ends it.
    assert!(running.shutdown(Duration::from_millis(300)).unwrap() <= 1);
    assert_dropped_on_its_loop(&seen);
    drop(end);
    streamer.join().unwrap();
}
