//! The service with other settings, for `ports/measure`: `catalogue-variants current-thread` is
//! `tokio.rs` on one thread, and `catalogue-variants guest` is `wakeful.rs` with the idle policy
//! `IDLE` on all its loops.

use std::env;
use std::error::Error;

use axum::Router;
use tokio::runtime::Builder;
use wakeful::{EventLoop, IdlePolicy, LoopGroup};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

async fn app() -> Result<Router> {
    catalogue::router(catalogue::items().await?, catalogue::cache().await?)
}

async fn on_tokio(addr: String) -> Result<()> {
    let app = app().await?;
    let listener = tokio::net::TcpListener::bind(addr).await?;
    Ok(axum::serve(listener, app).await?)
}

async fn on_wakeful(addr: String, idle: IdlePolicy) -> Result<()> {
    let app = app().await?;
    let group = LoopGroup::builder().event_loop(EventLoop::builder().idle(idle));
    Ok(wakeful_http::Server::bind(addr)?.group(group).tokio().run(app).await?)
}

fn main() -> Result<()> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    match env::args().nth(1).as_deref() {
        Some("current-thread") => {
            Builder::new_current_thread().enable_all().build()?.block_on(on_tokio(addr))
        }
        Some("guest") => {
            let idle: IdlePolicy = env::var("IDLE")?.parse()?;
            EventLoop::builder().idle(idle).tokio().build()?.block_on(on_wakeful(addr, idle))?
        }
        _ => Err("usage: catalogue-variants current-thread|guest".into()),
    }
}
