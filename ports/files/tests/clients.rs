use std::fs;

use harness::Program;
use reqwest::{Client, StatusCode};
use tokio::task::JoinSet;

harness::on_both!("files", files_arrive_whole_and_in_parts);

async fn files_arrive_whole_and_in_parts(program: Program) {
    let root = tempfile::tempdir().unwrap();
    let large: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    for directory in ["assets", "site/docs"] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    let files: [(&str, &[u8]); 6] = [
        ("index.html", b"<h1>the page</h1>"),
        ("robots.txt", b"User-agent: *"),
        ("assets/large.bin", &large),
        ("assets/app.js", b"alert()"),
        ("assets/app.js.gz", b"compressed beforehand"),
        ("site/docs/index.html", b"<h1>docs</h1>"),
    ];
    for (name, content) in files {
        fs::write(root.path().join(name), content).unwrap();
    }
    let service = program.env("ROOT", root.path()).start().await;

    let mut clients = JoinSet::new();
    for n in 0..20_usize {
        let url = service.url("/assets/large.bin");
        let large = large.clone();
        clients.spawn(async move {
            let client = Client::new();
            let whole = client.get(&url).send().await.unwrap().error_for_status().unwrap();
            assert_eq!(whole.headers()["content-type"], "application/octet-stream");
            assert!(whole.bytes().await.unwrap() == large);
            let (from, to) = (n * 1000, n * 20_000 + 5000);
            let part = client.get(&url).header("range", format!("bytes={from}-{to}"));
            let part = part.send().await.unwrap();
            assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
            assert_eq!(part.headers()["content-range"], format!("bytes {from}-{to}/1000000"));
            assert!(part.bytes().await.unwrap() == large[from..=to]);
        });
    }
    clients.join_all().await;

    let client = Client::new();
    let get = async |path: &str| client.get(service.url(path)).send().await.unwrap();
    assert_eq!(get("/robots.txt").await.text().await.unwrap(), "User-agent: *");
    // A directory has its index, what is nothing at all the page.
    assert_eq!(get("/docs/").await.text().await.unwrap(), "<h1>docs</h1>");
    assert_eq!(get("/any/thing").await.text().await.unwrap(), "<h1>the page</h1>");
    assert_eq!(get("/assets/../index.html").await.text().await.unwrap(), "<h1>the page</h1>");
    assert_eq!(get("/assets/missing").await.status(), StatusCode::NOT_FOUND);
    assert_eq!(get("/assets/..%2findex.html").await.status(), StatusCode::NOT_FOUND);

    let url = service.url("/assets/app.js");
    let compressed = client.get(&url).header("accept-encoding", "gzip").send().await.unwrap();
    assert_eq!(compressed.headers()["content-encoding"], "gzip");
    assert_eq!(compressed.bytes().await.unwrap(), "compressed beforehand");
    let plain = client.get(&url).send().await.unwrap();
    let modified = plain.headers()["last-modified"].clone();
    assert_eq!(plain.bytes().await.unwrap(), "alert()");
    let again = client.get(&url).header("if-modified-since", modified).send().await.unwrap();
    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    let head = client.head(&url).send().await.unwrap();
    assert_eq!(head.headers()["content-length"], "7");
    service.end().await;
}
