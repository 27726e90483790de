//! docs/idle.md

use std::io;
use std::net::SocketAddr;

use axum::Router;

fn a_policy_of_your_own(addr: SocketAddr, app: Router) -> io::Result<()> {
    use wakeful::{EventLoop, IdlePolicy, LoopGroup, idle::Adaptive};
    use wakeful_http::Server;

    let each_loop = EventLoop::builder().idle(IdlePolicy::Adaptive(Adaptive::new().max_cpu(0.5)));
    Server::bind(addr)?.group(LoopGroup::builder().event_loop(each_loop)).serve(app)
}

fn awake() {
    if let Err(error) = wakeful_awake::enable() {
        eprintln!("latency is as it was: {error}");
    }
}

fn spin() -> io::Result<()> {
    wakeful_spin::enable()?;
    Ok(())
}
