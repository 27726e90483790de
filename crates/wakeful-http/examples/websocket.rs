//! A chat among the clients of one loop, over WebSockets:
//! `cargo run -p wakeful-http --features ws --example websocket`, then open http://127.0.0.1:8080
//! in two windows.
//!
//! The list of guests is an `Rc` in a thread-local: sockets and their tasks stay on their loop, so
//! nothing is `Send` and nothing is locked. With one loop, as here, every guest meets every other.

use std::cell::RefCell;
use std::rc::Rc;

use async_channel::Sender;
use axum::Router;
use axum::response::{Html, Response};
use axum::routing::{any, get};
use futures_lite::future::or;
use wakeful::LoopGroup;
use wakeful_http::Server;
use wakeful_http::ws::{Message, Utf8Bytes, WebSocket, WebSocketUpgrade};

thread_local! {
    static GUESTS: Rc<RefCell<Vec<Sender<Utf8Bytes>>>> = Rc::default();
}

/// How many lines may wait for a guest. A guest with more of them is disconnected.
const LINES: usize = 100;

enum Event {
    Heard(Utf8Bytes),
    Said(Message),
    Left,
}

async fn chat(mut socket: WebSocket) {
    let guests = GUESTS.with(Rc::clone);
    let (hear, heard) = async_channel::bounded(LINES);
    guests.borrow_mut().push(hear);
    loop {
        let others = async { heard.recv().await.map_or(Event::Left, Event::Heard) };
        let own =
            async { socket.recv().await.and_then(Result::ok).map_or(Event::Left, Event::Said) };
        match or(own, others).await {
            Event::Said(Message::Text(line)) => {
                guests.borrow_mut().retain(|guest| guest.try_send(line.clone()).is_ok());
            }
            Event::Said(_) => {}
            Event::Heard(line) => {
                if socket.send(Message::Text(line)).await.is_err() {
                    return;
                }
            }
            Event::Left => return,
        }
    }
}

async fn open(ws: WebSocketUpgrade) -> Response {
    ws.max_message_size(4096).on_upgrade(chat)
}

const PAGE: &str = r#"<!doctype html><title>chat</title><input autofocus><pre></pre><script>
const socket = new WebSocket(`ws://${location.host}/chat`);
const [input, lines] = document.querySelectorAll("input, pre");
socket.onmessage = event => lines.append(event.data + "\n");
socket.onclose = event => lines.append(`closed: ${event.code} ${event.reason}\n`);
input.onchange = () => { socket.send(input.value); input.value = ""; };
</script>"#;

fn main() -> std::io::Result<()> {
    let app = Router::new().route("/", get(|| async { Html(PAGE) })).route("/chat", any(open));
    Server::bind("127.0.0.1:8080")?.group(LoopGroup::builder().loops(1)).serve(app)
}
