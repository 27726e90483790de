use futures_util::future::join_all;
use harness::{Postgres, Program, Redis, Service, until};
use reqwest::{Client, StatusCode};

harness::on_both!("catalogue", items_are_read_through_the_cache);

#[cfg(feature = "native")]
#[tokio::test]
async fn on_wakeful_without_tokio() {
    let program = Program::on_wakeful(env!("CARGO_BIN_EXE_catalogue-native"));
    items_are_read_through_the_cache(program).await;
}

/// By a connection of its own.
async fn read(service: &Service, id: u64) -> (StatusCode, String) {
    let path = service.url(&format!("/items/{id}"));
    let answer = Client::new().get(path).send().await.unwrap();
    (answer.status(), answer.text().await.unwrap())
}

fn item(id: u64, price: i64) -> (StatusCode, String) {
    (StatusCode::OK, format!(r#"{{"id":{id},"name":"item {id}","price":{price}}}"#))
}

fn body(id: u64, price: i64) -> String {
    format!(r#"{{"name":"item {id}","price":{price}}}"#)
}

async fn items_are_read_through_the_cache(program: Program) {
    let (postgres, redis) = (Postgres::start().await, Redis::start().await);
    let program = program.env("DATABASE_URL", postgres.url()).env("REDIS_URL", redis.url());
    let service = program.start().await;
    let client = Client::new();
    let send = async |request: reqwest::RequestBuilder, body: String| {
        let request = request.header("content-type", "application/json").body(body);
        let answer = request.send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };

    for id in 1..=20 {
        let created = send(client.post(service.url("/items")), body(id, 1)).await;
        assert_eq!(created, item(id, 1));
    }
    // By many clients, so on all loops. The first ones miss.
    for _ in 0..2 {
        let read = join_all((0..200).map(|n| read(&service, 1 + n % 20))).await;
        for (answer, n) in read.into_iter().zip(0..) {
            assert_eq!(answer, item(1 + n % 20, 1));
        }
    }
    assert_eq!(redis.command(&["DBSIZE"]).trim(), "20");
    assert!(redis.command(&["PTTL", "item:1"]).trim().parse::<u32>().unwrap() <= 60_000);

    // What is cached is read without the database, until it is changed here.
    postgres.query("UPDATE items SET price = 2");
    assert_eq!(read(&service, 7).await, item(7, 1));
    assert_eq!(send(client.put(service.url("/items/7")), body(7, 3)).await, item(7, 3));
    assert_eq!(read(&service, 7).await, item(7, 3));
    assert_eq!(redis.command(&["GET", "item:7"]).trim(), item(7, 3).1);

    assert_eq!(read(&service, 99).await.0, StatusCode::NOT_FOUND);
    let missing = send(client.put(service.url("/items/99")), body(99, 1)).await;
    assert_eq!(missing.0, StatusCode::NOT_FOUND);

    // All connections to the cache break: items come from the database, and then from the cache
    // again.
    redis.command(&["FLUSHALL"]);
    redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let again = join_all((0..40).map(|n| read(&service, 1 + n % 20))).await;
    for (answer, n) in again.into_iter().zip(0..) {
        let id = 1 + n % 20;
        assert_eq!(answer, item(id, if id == 7 { 3 } else { 2 }));
    }
    until("the cache is used again", async || {
        read(&service, 1).await;
        (redis.command(&["EXISTS", "item:1"]).trim() == "1").then_some(())
    })
    .await;
    service.end().await;
}
