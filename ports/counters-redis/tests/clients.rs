use futures_util::future::join_all;
use harness::{GUARD, Program, Redis, Service, until};
use reqwest::{Client, Response, StatusCode};

harness::on_both!("counters-redis", connections_serve_all_loops);

/// By a connection of its own.
async fn get(service: &Service, path: &str) -> Response {
    Client::new().get(service.url(path)).send().await.unwrap()
}

async fn post(service: &Service, path: &str, body: &str) -> String {
    let path = service.url(path);
    let answer = Client::new().post(path).body(body.to_owned()).send().await.unwrap();
    let status = answer.status();
    let text = answer.text().await.unwrap();
    assert_eq!(status, StatusCode::OK, "{text}");
    text
}

async fn connections_serve_all_loops(program: Program) {
    let redis = Redis::start().await;
    let mut service = program.env("REDIS_URL", redis.url()).start().await;

    // One connection for the requests of all loops.
    let counts = join_all((0..200).map(|_| post(&service, "/counters/visits", ""))).await;
    let mut counts: Vec<u32> = counts.iter().map(|count| count.parse().unwrap()).collect();
    counts.sort_unstable();
    assert_eq!(counts, (1..=200).collect::<Vec<_>>());

    // All connections of the pool wait, and get what others push.
    let waiting = join_all((0..8).map(|_| get(&service, "/queues/work")));
    let pushing =
        join_all((0..8).map(async |n| post(&service, "/queues/work", &n.to_string()).await));
    let mut items = Vec::new();
    for answer in tokio::join!(waiting, pushing).0 {
        assert_eq!(answer.status(), StatusCode::OK);
        items.push(answer.text().await.unwrap());
    }
    items.sort();
    assert_eq!(items, ["0", "1", "2", "3", "4", "5", "6", "7"]);

    let mut subscribers = join_all((0..6).map(|_| get(&service, "/channels/news"))).await;
    assert_eq!(post(&service, "/channels/news", "hear, hear").await, "6");
    for subscriber in &mut subscribers {
        let event = tokio::time::timeout(GUARD, subscriber.chunk()).await.expect("an event");
        assert_eq!(event.unwrap().unwrap(), "data: hear, hear\n\n");
    }
    drop(subscribers);
    // Redis learns that they have gone, because the streams were dropped.
    until("nobody subscribes", async || {
        (post(&service, "/channels/news", "anybody?").await == "0").then_some(())
    })
    .await;

    // All connections break: the manager makes a new one.
    redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let visits = until("the connection is made again", async || {
        let answer = get(&service, "/counters/visits").await;
        if answer.status().is_success() { Some(answer.text().await.unwrap()) } else { None }
    })
    .await;
    assert_eq!(visits, "200");

    if !service.on_wakeful() {
        return service.end().await;
    }
    // The signal comes while a request waits for Redis. It gets what comes then.
    let waiting = tokio::spawn(Client::new().get(service.url("/queues/last")).send());
    until("a request waits", async || {
        redis.command(&["CLIENT", "LIST"]).contains("cmd=blpop").then_some(())
    })
    .await;
    service.terminate();
    until("the service drains", async || {
        std::net::TcpStream::connect(service.addr()).is_err().then_some(())
    })
    .await;
    redis.command(&["RPUSH", "queue:last", "item"]);
    assert_eq!(waiting.await.unwrap().unwrap().text().await.unwrap(), "item");
    assert!(service.ended().await.success(), "{}", service.stderr());
    assert!(!service.stderr().contains("panicked"), "{}", service.stderr());
}
