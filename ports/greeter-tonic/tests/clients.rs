use std::time::Duration;

use greeter::proto::greeter_client::GreeterClient;
use greeter::proto::{GreetRequest, PassOnRequest};
use harness::Program;
use tokio::task::JoinSet;
use tonic::{Code, Request};

harness::on_both!("greeter-tonic", all_are_greeted);

async fn all_are_greeted(program: Program) {
    let service = program.start().await;
    let mut clients = JoinSet::new();
    for client in 0..8 {
        let url = service.url("");
        clients.spawn(async move {
            let greeter = GreeterClient::connect(url).await.unwrap();
            // Calls of one connection.
            let mut calls = JoinSet::new();
            for n in 0..25 {
                let mut greeter = greeter.clone();
                calls.spawn(async move {
                    let name = format!("{client}.{n}");
                    let reply = greeter.greet(GreetRequest { name: name.clone() }).await.unwrap();
                    assert_eq!(reply.into_inner().greeting, format!("hello, {name}"));
                });
            }
            calls.join_all().await;
            let mut greeter = greeter;
            let name = format!("client {client}");
            // By way of four more connections, which the service makes to itself.
            let request = PassOnRequest { name: name.clone(), hops: 3 };
            let reply = greeter.pass_on(request).await.unwrap();
            assert_eq!(reply.into_inner().greeting, format!("hello, {name}"));
        });
    }
    clients.join_all().await;

    let mut greeter = GreeterClient::connect(service.url("")).await.unwrap();
    let error = greeter.greet(GreetRequest::default()).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::InvalidArgument, "nobody to greet"));
    // `grpc-timeout` of 0.1 ms: the name makes it sleep for 6 ms.
    let mut request = Request::new(GreetRequest { name: "123456".into() });
    request.set_timeout(Duration::from_micros(100));
    let error = greeter.greet(request).await.unwrap_err();
    assert!(matches!(error.code(), Code::Cancelled | Code::DeadlineExceeded), "{error}");
    service.end().await;
}
