//! What a client asks: each kind of call, with several at a time on one connection.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Code;
use tonic::transport::Channel;

use crate::proto::guide_client::GuideClient;
use crate::proto::{Area, Note, Point};

/// Asks the guide at `addr`, as client `number`.
pub async fn run(addr: &str, number: i32) -> Result<(), Box<dyn std::error::Error>> {
    let channel = Channel::from_shared(format!("http://{addr}"))?;
    let channel = channel.connect_timeout(Duration::from_secs(10)).connect().await?;
    let mut guide = GuideClient::new(channel);

    let place = guide.at(Point { x: 4, y: number * 2 }).await?.into_inner();
    assert_eq!(place.name, format!("place 4/{}", number * 2));
    let error = guide.at(Point { x: 1, y: 1 }).await.expect_err("no place");
    assert_eq!(error.code(), Code::NotFound);

    let mut calls = JoinSet::new();
    for _ in 0..4 {
        calls.spawn(within(guide.clone()));
        calls.spawn(walk(guide.clone()));
    }
    calls.join_all().await;
    notes(guide, number).await;
    Ok(())
}

async fn within(mut guide: GuideClient<Channel>) {
    let area = Area { from: Some(Point { x: 0, y: 0 }), to: Some(Point { x: 60, y: 60 }) };
    let mut places = guide.within(area).await.expect("an area").into_inner();
    let mut count = 0;
    while let Some(place) = places.message().await.expect("no error") {
        assert!(place.name.starts_with("place "));
        count += 1;
    }
    assert_eq!(count, 900);
}

async fn walk(mut guide: GuideClient<Channel>) {
    let way = tokio_stream::iter((0..1000).map(|n| Point { x: n, y: -n }));
    let summary = guide.walk(way).await.expect("a way").into_inner();
    assert_eq!((summary.points, summary.places, summary.distance), (1000, 500, 1998));
}

/// Leaves notes where nobody else does; each one is answered by those before it.
async fn notes(mut guide: GuideClient<Channel>, number: i32) {
    let (sender, notes) = mpsc::unbounded_channel();
    let mut answers =
        guide.notes(UnboundedReceiverStream::new(notes)).await.expect("a call").into_inner();
    for n in 0..5 {
        let point = Some(Point { x: number, y: -1 });
        sender.send(Note { point, text: format!("note {n}") }).expect("the call goes on");
        for before in 0..n {
            let answer = answers.message().await.expect("no error").expect("an answer");
            assert_eq!(answer.text, format!("note {before}"));
        }
    }
    drop(sender);
    assert!(answers.message().await.expect("no error").is_none());
}
