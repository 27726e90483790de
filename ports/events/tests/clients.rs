use harness::{Program, until};
use reqwest::{Client, Response};
use tokio::task::JoinSet;

harness::on_both!("events", events_reach_all_readers);

/// Reads on until `text` has come.
async fn read_to(stream: &mut Response, text: &str) -> String {
    let mut read = String::new();
    while !read.contains(text) {
        let chunk = tokio::time::timeout(harness::GUARD, stream.chunk()).await;
        let chunk = chunk.expect("an event in time").unwrap().expect("the stream goes on");
        read += str::from_utf8(&chunk).unwrap();
    }
    read
}

async fn events_reach_all_readers(program: Program) {
    let service = program.start().await;
    let mut clocks = JoinSet::new();
    for _ in 0..20 {
        let url = service.url("/clock");
        clocks.spawn(async move {
            let mut clock = Client::new().get(url).send().await.unwrap();
            assert_eq!(clock.headers()["content-type"], "text/event-stream");
            let ticks = read_to(&mut clock, "id: 20\n").await;
            assert!(ticks.starts_with("event: tick\nid: 0\ndata: tock\n\n"), "{ticks}");
        });
    }

    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(Client::new().get(service.url("/news")).send().await.unwrap());
    }
    let client = Client::new();
    for n in 0..5 {
        let publish = client.post(service.url("/news")).body(format!("news {n}"));
        assert_eq!(publish.send().await.unwrap().text().await.unwrap(), "20");
        for stream in &mut streams {
            read_to(stream, &format!("data: news {n}\n\n")).await;
        }
    }
    for stream in &mut streams {
        // Nothing happens.
        read_to(stream, ": still here\n").await;
    }
    clocks.join_all().await;

    // The service learns that they have gone.
    drop(streams);
    until("the streams are dropped", async || {
        let readers = client.get(service.url("/readers")).send().await.unwrap();
        (readers.text().await.unwrap() == "0").then_some(())
    })
    .await;
    service.end().await;
}
