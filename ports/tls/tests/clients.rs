use std::fs;

use harness::Program;
use reqwest::{Certificate, Client};
use tokio::task::JoinSet;

harness::on_both!("tls", clients_come_by_tls);

async fn clients_come_by_tls(program: Program) {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
    let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let service = program.env("CERTIFICATE", certificate).env("KEY", key).start().await;

    // The tests of both programs are one process.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let root = Certificate::from_der(made.cert.der()).unwrap();
    let client = move |http1_only: bool| {
        let builder = Client::builder().tls_certs_only([root.clone()]);
        if http1_only { builder.http1_only() } else { builder }.build().unwrap()
    };
    let url = format!("https://localhost:{}", service.addr().port());
    let mut clients = JoinSet::new();
    for n in 0..16_u8 {
        let (url, client) = (url.clone(), client(n % 2 == 0));
        clients.spawn(async move {
            let expected = if n % 2 == 0 { "by HTTP/1.1" } else { "by HTTP/2.0" };
            for _ in 0..10 {
                let answer = client.get(&url).send().await.unwrap();
                assert_eq!(answer.text().await.unwrap(), expected);
            }
            let body = vec![n; 300_000];
            let echo = client.post(format!("{url}/echo")).body(body.clone()).send().await.unwrap();
            assert!(echo.bytes().await.unwrap() == body);
        });
    }
    clients.join_all().await;

    let unknown = Client::builder().tls_certs_only([]).build().unwrap();
    assert!(unknown.get(&url).send().await.is_err());
    service.end().await;
}
