use harness::Program;
use reqwest::Client;
use tokio::task::JoinSet;

harness::on_both!("measured", all_requests_are_counted);

async fn all_requests_are_counted(program: Program) {
    let service = program.start().await;
    let mut clients = JoinSet::new();
    for n in 0..16_u32 {
        let (fast, wait) = (service.url("/fast"), service.url(&format!("/wait/{n}")));
        clients.spawn(async move {
            let client = Client::new();
            for _ in 0..25 {
                assert_eq!(client.get(&fast).send().await.unwrap().text().await.unwrap(), "fast");
            }
            assert_eq!(client.post(&fast).send().await.unwrap().status().as_u16(), 201);
            assert_eq!(client.post(&wait).send().await.unwrap().status().as_u16(), 204);
        });
    }
    clients.join_all().await;

    let metrics = Client::new().get(service.url("/metrics")).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let count = |name: &str, labels: [(&str, &str); 3]| {
        let has = |line: &&str| labels.iter().all(|(k, v)| line.contains(&format!("{k}=\"{v}\"")));
        let lines = metrics.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        let line =
            lines.clone().find(has).unwrap_or_else(|| panic!("{name} {labels:?}\n{metrics}"));
        line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()
    };
    let total = "axum_http_requests_total";
    for (method, path, status, expected) in [
        ("GET", "/fast", "200", 400),
        ("POST", "/fast", "201", 16),
        ("POST", "/wait/{milliseconds}", "204", 16),
    ] {
        let labels = [("method", method), ("endpoint", path), ("status", status)];
        assert_eq!(count(total, labels), expected, "{labels:?}");
        assert_eq!(count("axum_http_requests_duration_seconds_count", labels), expected);
    }
    service.end().await;
}
