//! docs/workers.md

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use wakeful::LoopGroup;
use wakeful::accept::{ConnectionServer, Serving};
use wakeful_workers::{Master, Role};

fn start() -> Result<ExitCode, Box<dyn Error>> {
    let group = LoopGroup::builder().loops(1);
    let master = Master::new(group.clone()).listen(["0.0.0.0:8080".parse()?]).workers(4);
    let mut worker = match master.run()? {
        Role::Worker(worker) => worker,
        Role::Ended(code) => return Ok(code),
    };
    let group = group.heartbeats(worker.heartbeats()).sibling(worker.sibling());
    let server = ConnectionServer::new(worker.listeners()?).group(group);
    worker.serve(
        || server.start(|| async |_connection| ()),
        Serving::failure,
        |serving| serving.shutdown(Duration::from_secs(10)),
    )?;
    Ok(ExitCode::SUCCESS)
}
