use futures_util::future::join_all;
use harness::{Postgres, Program, until};
use reqwest::{Client, StatusCode, redirect};

harness::on_both!("links-deadpool", a_lazy_pool_serves_all_loops);

async fn a_lazy_pool_serves_all_loops(program: Program) {
    let postgres = Postgres::start().await;
    let service = program.env("DATABASE_URL", postgres.url()).start().await;
    // Each has a connection of its own, and does not follow.
    let client = || Client::builder().redirect(redirect::Policy::none()).build().unwrap();

    // Nothing was connected before: the first requests of several loops are there at once.
    let links = join_all((0..60).map(async |n| {
        let target = format!("http://example.com/{n}");
        let made = client().post(service.url("/")).body(target.clone()).send().await.unwrap();
        assert_eq!(made.status(), StatusCode::OK);
        (made.text().await.unwrap(), target)
    }))
    .await;
    join_all(links.iter().map(async |(link, target)| {
        let client = client();
        for _ in 0..3 {
            let followed = client.get(service.url(link)).send().await.unwrap();
            assert_eq!(followed.status(), StatusCode::TEMPORARY_REDIRECT);
            assert_eq!(followed.headers()["location"], target);
        }
    }))
    .await;
    for none in ["/0", "/none"] {
        let none = client().get(service.url(none)).send().await.unwrap();
        assert_eq!(none.status(), StatusCode::NOT_FOUND);
    }
    let all = client().get(service.url("/export.csv")).send().await.unwrap().text().await.unwrap();
    assert_eq!(all.lines().count(), 60);
    assert!(all.lines().all(|line| line.ends_with(",3")), "{all}");

    // All connections of the pool break: it makes new ones.
    postgres.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()",
    );
    until("the pool connects again", async || {
        let followed = client().get(service.url(&links[0].0)).send().await.unwrap();
        (followed.status() == StatusCode::TEMPORARY_REDIRECT).then_some(())
    })
    .await;
    service.end().await;
}
