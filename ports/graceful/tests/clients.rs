use harness::{Program, until};
use reqwest::{Client, StatusCode};
use tokio::task::JoinSet;

harness::on_both!("graceful", what_has_begun_is_answered);

async fn what_has_begun_is_answered(program: Program) {
    let mut service = program.start().await;
    let mut requests = JoinSet::new();
    for n in 0..16 {
        let path = if n % 4 == 0 { "/forever" } else { "/slow" };
        let request = Client::new().get(service.url(path)).send();
        requests.spawn(async move {
            let answer = request.await.unwrap();
            match path {
                "/slow" => assert_eq!(answer.text().await.unwrap(), "slow, and answered"),
                _ => assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT),
            }
        });
    }
    let client = Client::new();
    until("all have begun", async || {
        let begun = client.get(service.url("/begun")).send().await.unwrap();
        (begun.text().await.unwrap() == "16").then_some(())
    })
    .await;
    service.terminate();
    // Nothing new is taken, and what is there is answered.
    until("it accepts no more", async || {
        Client::new().get(service.url("/begun")).send().await.err().map(drop)
    })
    .await;
    requests.join_all().await;
    assert!(service.ended().await.success(), "{}", service.stderr());
    service.end().await;
}
