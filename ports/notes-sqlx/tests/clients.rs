use std::time::Duration;

use harness::{Postgres, Program, until};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

harness::on_both!("notes-sqlx", one_pool_serves_all_loops);

async fn one_pool_serves_all_loops(program: Program) {
    let postgres = Postgres::start().await;
    let mut service = program.env("DATABASE_URL", postgres.url()).start().await;
    let notes = service.url("/notes");
    let client = Client::new();

    let first = client.post(&notes).json(&json!({ "text": "first" })).send().await.unwrap();
    let first = first.json::<Value>().await.unwrap()["id"].as_i64().unwrap();

    let mut news = client.get(service.url("/news")).send().await.unwrap();

    // Many more clients than connections, each on a connection of its own and several times.
    let mut clients = JoinSet::new();
    for n in 0..60 {
        let notes = notes.clone();
        clients.spawn(async move {
            let client = Client::new();
            for _ in 0..5 {
                let new = client.post(&notes).json(&json!({ "text": format!("note {n}") }));
                let new: Value = new.send().await.unwrap().json().await.unwrap();
                let path = format!("{notes}/{}", new["id"]);
                let read: Value = client.get(path).send().await.unwrap().json().await.unwrap();
                assert_eq!(read, new);
                let like = client.post(format!("{notes}/{first}/likes")).send().await.unwrap();
                assert_eq!(like.status(), StatusCode::OK);
            }
        });
    }
    clients.join_all().await;
    let all: Vec<Value> = client.get(&notes).send().await.unwrap().json().await.unwrap();
    assert_eq!(all.len(), 301);
    assert_eq!(all[0], json!({ "id": first, "text": "first", "likes": 300 }));

    // What PostgreSQL told of it has come, to a listener that holds a connection of the pool.
    let mut heard = String::new();
    while !heard.contains(&format!("data: {first} 300\n")) {
        let chunk = tokio::time::timeout(harness::GUARD, news.chunk()).await.expect("news");
        heard.push_str(std::str::from_utf8(&chunk.unwrap().expect("more")).unwrap());
    }
    drop(news);

    // A transaction that fails leaves nothing behind.
    let many = |texts: &[&str]| {
        let many: Vec<_> = texts.iter().map(|text| json!({ "text": text })).collect();
        client.post(format!("{notes}/many")).json(&many).send()
    };
    assert_eq!(many(&["a", "b", ""]).await.unwrap().status(), StatusCode::CONFLICT);
    assert_eq!(many(&["c", "d"]).await.unwrap().status(), StatusCode::OK);
    let all: Vec<Value> = client.get(&notes).send().await.unwrap().json().await.unwrap();
    assert_eq!(all.len(), 303);
    let none = client.get(format!("{notes}/0")).send().await.unwrap();
    assert_eq!(none.status(), StatusCode::NOT_FOUND);

    // Clients that go while their query runs: the pool has its connections again.
    let impatient = Client::builder().timeout(Duration::from_millis(50)).build().unwrap();
    let slow = (0..6).map(|_| tokio::spawn(impatient.get(service.url("/slow/1000")).send()));
    for gone in slow.collect::<Vec<_>>() {
        assert!(gone.await.unwrap().unwrap_err().is_timeout());
    }
    let mut clients = JoinSet::new();
    for _ in 0..6 {
        clients.spawn(Client::new().get(service.url("/slow/10")).send());
    }
    for answer in clients.join_all().await {
        assert_eq!(answer.unwrap().status(), StatusCode::OK);
    }

    if !service.on_wakeful() {
        return service.end().await;
    }
    // The signal comes while a query runs. Its answer comes all the same.
    let in_flight = tokio::spawn(client.get(service.url("/slow/1500")).send());
    until("the query runs", async || {
        let queries =
            postgres.query("SELECT state FROM pg_stat_activity WHERE query LIKE '%pg_sleep($1%'");
        queries.contains("active").then_some(())
    })
    .await;
    service.terminate();
    let answer = in_flight.await.unwrap().unwrap();
    assert_eq!(answer.text().await.unwrap(), "1500");
    assert!(service.ended().await.success(), "{}", service.stderr());
    assert!(!service.stderr().contains("panicked"), "{}", service.stderr());
}
