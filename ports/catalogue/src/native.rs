//! The same service on wakeful without a Tokio runtime: Redis over wakeful's own sockets, one
//! connection for each loop, and the database by `runtime-smol`, on a thread of smol's. `IDLE` is
//! the loops' idle policy.

use std::cell::RefCell;
use std::env;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use catalogue::Cache;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wakeful::net::TcpStream;
use wakeful::{EventLoop, IdlePolicy, LoopBound, LoopGroup, PerLoop, on_this_loop};

/// As long as a `ConnectionManager` waits for an answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// This loop's connection, as soon as there is one and until it ends.
#[derive(Clone, Default)]
struct Connection(Rc<RefCell<Option<MultiplexedConnection>>>);

impl Connection {
    async fn get(&self, client: &Client) -> RedisResult<MultiplexedConnection> {
        if let Some(connected) = self.0.borrow().clone() {
            return Ok(connected);
        }
        let info = client.get_connection_info();
        let stream = TcpStream::connect(info.addr().to_string().as_str()).await?;
        stream.set_nodelay(true)?;
        // redis' own timer needs Tokio or smol.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let stream = OfThisLoop(LoopBound::new(stream));
        let (connected, driver) =
            MultiplexedConnection::new_with_config(info.redis_settings(), stream, config).await?;
        self.0.replace(Some(connected.clone()));
        let this = self.clone();
        wakeful::spawn(async move {
            driver.await;
            this.0.take();
        })
        .detach();
        Ok(connected)
    }
}

#[derive(Clone)]
struct LoopsCache {
    client: Client,
    connections: PerLoop<Connection>,
}

impl Cache for LoopsCache {
    async fn ask(&self, command: Cmd) -> RedisResult<Value> {
        let (client, connection) = (self.client.clone(), self.connections.get());
        let asked = async move {
            let mut connection = connection.get(&client).await?;
            command.query_async(&mut connection).await
        };
        let answer = on_this_loop(wakeful::time::timeout(PATIENCE, asked)).await;
        answer.unwrap_or_else(|elapsed| Err(io::Error::from(elapsed).into()))
    }
}

/// A stream in a type that is `Send`, which redis asks for. It is used on its own loop only.
struct OfThisLoop(LoopBound<TcpStream>);

impl OfThisLoop {
    fn stream(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(self.0.get_mut().expect("its driver runs on its loop"))
    }
}

impl AsyncRead for OfThisLoop {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        AsyncRead::poll_read(self.stream(), cx, buf)
    }
}

impl AsyncWrite for OfThisLoop {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(self.stream(), cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(self.stream(), cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(self.stream(), cx)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let idle: IdlePolicy = env::var("IDLE").unwrap_or("adaptive".into()).parse()?;
    let client = Client::open(env::var("REDIS_URL")?)?;
    let cache = LoopsCache { client, connections: PerLoop::new(Connection::default) };
    let items = wakeful::block_on(catalogue::items())?;
    let app = catalogue::router(items, cache)?;
    let group = LoopGroup::builder().event_loop(EventLoop::builder().idle(idle));
    Ok(wakeful_http::Server::bind(addr)?.group(group).serve(app)?)
}
