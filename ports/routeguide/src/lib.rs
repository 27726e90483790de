//! A map with a place wherever both coordinates are even, and notes that are left on it.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

pub mod proto {
    tonic::include_proto!("routeguide");
}

pub mod client;

pub use proto::guide_server::GuideServer;

use proto::{Area, Note, Place, Point, Summary};

type Notes = HashMap<(i32, i32), Vec<Note>>;

#[derive(Default)]
pub struct Guide {
    notes: Arc<Mutex<Notes>>,
}

fn place(x: i32, y: i32) -> Option<Place> {
    let there = x % 2 == 0 && y % 2 == 0;
    there.then(|| Place { name: format!("place {x}/{y}"), point: Some(Point { x, y }) })
}

#[tonic::async_trait]
impl proto::guide_server::Guide for Guide {
    async fn at(&self, request: Request<Point>) -> Result<Response<Place>, Status> {
        let Point { x, y } = request.into_inner();
        place(x, y).map(Response::new).ok_or_else(|| Status::not_found("no place is there"))
    }

    type WithinStream = ReceiverStream<Result<Place, Status>>;

    async fn within(&self, request: Request<Area>) -> Result<Response<Self::WithinStream>, Status> {
        let Area { from: Some(from), to: Some(to) } = request.into_inner() else {
            return Err(Status::invalid_argument("an area has two points"));
        };
        let (sender, places) = mpsc::channel(4);
        tokio::spawn(async move {
            let points = (from.x..to.x).flat_map(|x| (from.y..to.y).map(move |y| (x, y)));
            for place in points.filter_map(|(x, y)| place(x, y)) {
                if sender.send(Ok(place)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(places)))
    }

    async fn walk(&self, request: Request<Streaming<Point>>) -> Result<Response<Summary>, Status> {
        let mut points = request.into_inner();
        let (mut summary, mut last) = (Summary::default(), None::<Point>);
        while let Some(point) = points.next().await {
            let point = point?;
            summary.points += 1;
            summary.places += u32::from(place(point.x, point.y).is_some());
            if let Some(last) = last {
                summary.distance += u64::from(last.x.abs_diff(point.x) + last.y.abs_diff(point.y));
            }
            last = Some(point);
        }
        Ok(Response::new(summary))
    }

    type NotesStream = Pin<Box<dyn Stream<Item = Result<Note, Status>> + Send>>;

    async fn notes(
        &self,
        request: Request<Streaming<Note>>,
    ) -> Result<Response<Self::NotesStream>, Status> {
        let (mut coming, notes) = (request.into_inner(), self.notes.clone());
        let (sender, going) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(note)) = coming.next().await {
                let Some(Point { x, y }) = note.point else { continue };
                // So that tasks of many calls take turns.
                tokio::time::sleep(Duration::from_millis(1)).await;
                let mut notes = notes.lock().unwrap();
                let there = notes.entry((x, y)).or_default();
                there.iter().for_each(|before| drop(sender.send(Ok(before.clone()))));
                there.push(note);
            }
        });
        let going = tokio_stream::wrappers::UnboundedReceiverStream::new(going);
        Ok(Response::new(Box::pin(going)))
    }
}
