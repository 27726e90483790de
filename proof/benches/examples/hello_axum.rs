//! One axum router, served by wakeful-http and by `axum::serve`. `many-connections.sh` compares the
//! two.
//!
//! `hello_axum wakeful|tokio ADDR`. One thread; SIGTERM ends it.

use std::io;
use std::process::ExitCode;

use axum::Router;
use axum::routing::get;
use wakeful_http::Limits;

fn main() -> ExitCode {
    let app = Router::new().route("/", get(async || "hello\n"));
    let args: Vec<String> = std::env::args().collect();
    let served = match &args[..] {
        [_, runtime, addr] if runtime == "wakeful" => on_wakeful(app, addr),
        [_, runtime, addr] if runtime == "tokio" => on_tokio(app, addr),
        _ => {
            eprintln!("usage: hello_axum wakeful|tokio ADDR");
            return ExitCode::from(2);
        }
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hello_axum: {error}");
            ExitCode::FAILURE
        }
    }
}

fn on_wakeful(app: Router, addr: &str) -> io::Result<()> {
    let parks = wakeful::EventLoop::builder().idle(wakeful::IdlePolicy::Park);
    let group = wakeful::LoopGroup::builder().loops(1).event_loop(parks);
    // Idle connections stay open.
    let for_ever = std::time::Duration::from_hours(1);
    let limits = Limits::new().header_timeout(for_ever).idle_timeout(for_ever);
    wakeful_http::Server::bind(addr)?.group(group).limits(limits).serve(app)
}

fn on_tokio(app: Router, addr: &str) -> io::Result<()> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async { axum::serve(tokio::net::TcpListener::bind(addr).await?, app).await })
}
