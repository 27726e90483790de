//! docs/workers.md

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use wakeful::LoopGroup;
use wakeful_http::{Running, Server};
use wakeful_workers::{Master, Role};

fn start() -> Result<ExitCode, Box<dyn Error>> {
    let group = LoopGroup::builder().loops(1);
    let master = Master::new(group.clone())
        .listen(["0.0.0.0:8080".parse()?])
        .workers(4)
        .drain_timeout(Duration::from_secs(15)); // then a worker that still drains is killed
    let mut worker = match master.run()? {
        Role::Worker(worker) => worker,
        Role::Ended(code) => return Ok(code),
    };
    let group = group.heartbeats(worker.heartbeats()).sibling(worker.sibling());
    let server = Server::from_listeners(worker.listeners()?).group(group);
    let app = Router::new().route("/", get(|| async { "hello\n" }));
    worker.serve(
        || server.start(app),
        Running::failure,
        |running| running.shutdown(Duration::from_secs(10)),
    )?;
    Ok(ExitCode::SUCCESS)
}
