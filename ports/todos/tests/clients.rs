use harness::Program;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

harness::on_both!("todos", todos_are_shared_by_all_clients);

async fn todos_are_shared_by_all_clients(program: Program) {
    let service = program.start().await;
    let list = service.url("/todos");
    let mut clients = JoinSet::new();
    for n in 0..40 {
        let list = list.clone();
        // Each has a connection of its own, so that all loops get some.
        clients.spawn(async move {
            let client = Client::new();
            let new = client.post(&list).json(&json!({ "text": format!("task {n}") }));
            let new = new.send().await.unwrap();
            assert_eq!(new.status(), StatusCode::CREATED);
            let id = new.json::<Value>().await.unwrap()["id"].as_u64().unwrap();
            let todo = format!("{list}/{id}");

            // One waits until the other has done it.
            let done = tokio::spawn(Client::new().get(format!("{todo}/done")).send());
            let change = client.patch(&todo).json(&json!({ "done": true })).send().await.unwrap();
            assert_eq!(change.json::<Value>().await.unwrap()["done"], true);
            let done: Value = done.await.unwrap().unwrap().json().await.unwrap();
            assert_eq!(done, json!({ "id": id, "text": format!("task {n}"), "done": true }));

            if n % 2 == 0 {
                let removed = client.delete(&todo).send().await.unwrap();
                assert_eq!(removed.status(), StatusCode::NO_CONTENT);
                let again = client.delete(&todo).send().await.unwrap();
                assert_eq!(again.status(), StatusCode::NOT_FOUND);
            }
        });
    }
    clients.join_all().await;

    let client = Client::new();
    let all: Vec<Value> = client.get(&list).send().await.unwrap().json().await.unwrap();
    assert_eq!(all.len(), 20);
    let page = client.get(format!("{list}?offset=5&limit=3")).send().await.unwrap();
    assert_eq!(page.json::<Vec<Value>>().await.unwrap(), all[5..8]);

    // Nobody does this one: tower-http's timer ends the wait.
    let new = client.post(&list).json(&json!({ "text": "later" })).send().await.unwrap();
    let id = new.json::<Value>().await.unwrap()["id"].as_u64().unwrap();
    let never = client.get(format!("{list}/{id}/done")).send().await.unwrap();
    assert_eq!(never.status(), StatusCode::REQUEST_TIMEOUT);
    service.end().await;
}
