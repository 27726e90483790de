use futures_util::{SinkExt, StreamExt};
use harness::{GUARD, Program, Service};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

harness::on_both!("chat", what_one_says_all_read);

struct Client(WebSocketStream<TcpStream>);

impl Client {
    async fn connect(service: &Service) -> Self {
        let stream = TcpStream::connect(service.addr()).await.unwrap();
        let url = format!("ws://{}/chat", service.addr());
        Self(client_async(url, stream).await.unwrap().0)
    }

    async fn say(&mut self, text: &str) {
        self.0.send(Message::text(text)).await.unwrap();
    }

    /// Reads on until it is `text`.
    async fn reads(&mut self, text: &str) {
        let read = async {
            while self.0.next().await.expect("it goes on").unwrap() != Message::text(text) {}
        };
        timeout(GUARD, read).await.unwrap_or_else(|_| panic!("{text} did not come"));
    }
}

async fn what_one_says_all_read(program: Program) {
    let service = program.start().await;
    // On all loops.
    let mut clients = Vec::new();
    for n in 0..16 {
        let mut client = Client::connect(&service).await;
        client.say(&format!("client {n}")).await;
        client.reads(&format!("client {n} has come")).await;
        clients.push(client);
    }
    let mut other = Client::connect(&service).await;
    other.say("client 3").await;
    other.reads("this name is taken").await;
    other.say("somebody else").await;
    other.reads("somebody else has come").await;

    for round in 0..10 {
        for (n, client) in clients.iter_mut().enumerate() {
            client.say(&format!("{round} from {n}")).await;
        }
        // Each reads all of them, in whatever order.
        for client in &mut clients {
            let mut open = clients_of(round);
            while !open.is_empty() {
                let message = timeout(GUARD, client.0.next()).await.expect("in time");
                let message = message.expect("it goes on").unwrap().into_text().unwrap();
                open.retain(|text| *text != message.as_str());
            }
        }
    }

    let mut first = clients.remove(0);
    first.0.close(None).await.unwrap();
    other.reads("client 0 has left").await;
    // A client that just goes, and one that breaks the rules.
    drop(clients.remove(0));
    other.reads("client 1 has left").await;
    let _ = clients[0].0.send(Message::text("x".repeat(5000))).await;
    other.reads("client 2 has left").await;

    // The others are still there when the service ends, and learn of it.
    service.end().await;
    let gone = async { while let Some(Ok(_)) = other.0.next().await {} };
    timeout(GUARD, gone).await.expect("the connection ends");
}

fn clients_of(round: usize) -> Vec<String> {
    (0..16).map(|n| format!("client {n}: {round} from {n}")).collect()
}
