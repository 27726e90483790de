use harness::Program;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

harness::on_both!("login", who_shows_a_token_is_let_in);

async fn who_shows_a_token_is_let_in(program: Program) {
    let service = program.env("SECRET", "a secret of the test").start().await;
    let mut clients = JoinSet::new();
    for n in 0..20 {
        let (login, account) = (service.url("/login"), service.url("/account"));
        clients.spawn(async move {
            let (client, name) = (Client::new(), format!("user {n}"));
            let password = format!("the password of {name}");
            let answer = client.post(&login).json(&json!({ "name": name, "password": password }));
            let answer: Value = answer.send().await.unwrap().json().await.unwrap();
            assert_eq!(answer["kind"], "Bearer");
            let token = answer["token"].as_str().unwrap();
            for _ in 0..10 {
                let shown = client.get(&account).bearer_auth(token).send().await.unwrap();
                assert_eq!(shown.text().await.unwrap(), format!("the account of {name}"));
            }
            // Another signature.
            let forged = format!("{}x", token.rsplit_once('.').unwrap().0);
            let forged = client.get(&account).bearer_auth(forged).send().await.unwrap();
            assert_eq!(forged.status(), StatusCode::UNAUTHORIZED);
        });
    }
    clients.join_all().await;

    let client = Client::new();
    let none = client.get(service.url("/account")).send().await.unwrap();
    assert_eq!(none.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(none.text().await.unwrap(), "no token");
    let wrong = json!({ "name": "somebody", "password": "a guess" });
    let wrong = client.post(service.url("/login")).json(&wrong).send().await.unwrap();
    assert_eq!(wrong.status(), StatusCode::FORBIDDEN);
    service.end().await;
}
