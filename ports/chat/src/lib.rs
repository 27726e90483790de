//! A chat: the first message of a client is its name, and from then on all read what it says.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::any;
use futures_util::{SinkExt, StreamExt};
use tokio::sync::broadcast;

struct Room {
    names: Mutex<HashSet<String>>,
    said: broadcast::Sender<String>,
}

async fn enter(ws: WebSocketUpgrade, State(room): State<Arc<Room>>) -> Response {
    ws.max_message_size(4096).on_upgrade(|socket| chat(socket, room))
}

async fn chat(socket: WebSocket, room: Arc<Room>) {
    let (mut sender, mut receiver) = socket.split();
    let name = loop {
        let Some(Ok(Message::Text(name))) = receiver.next().await else { return };
        if room.names.lock().unwrap().insert(name.to_string()) {
            break name;
        }
        if sender.send(Message::text("this name is taken")).await.is_err() {
            return;
        }
    };
    let mut said = room.said.subscribe();
    let _ = room.said.send(format!("{name} has come"));
    let mut writer = tokio::spawn(async move {
        while let Ok(text) = said.recv().await {
            if sender.send(Message::text(text)).await.is_err() {
                return;
            }
        }
    });
    let mut reader = tokio::spawn({
        let (room, name) = (room.clone(), name.clone());
        async move {
            while let Some(Ok(Message::Text(text))) = receiver.next().await {
                let _ = room.said.send(format!("{name}: {text}"));
            }
        }
    });
    tokio::select! {
        _ = &mut writer => reader.abort(),
        _ = &mut reader => writer.abort(),
    }
    room.names.lock().unwrap().remove(name.as_str());
    let _ = room.said.send(format!("{name} has left"));
}

pub fn router() -> Router {
    let room = Room { names: Mutex::default(), said: broadcast::channel(1000).0 };
    Router::new().route("/chat", any(enter)).with_state(Arc::new(room))
}
