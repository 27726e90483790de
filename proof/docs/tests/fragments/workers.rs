//! docs/workers.md

use std::error::Error;
use std::process::ExitCode;

use wakeful::LoopGroup;
use wakeful_workers::{Master, Role};

fn start() -> Result<ExitCode, Box<dyn Error>> {
    let group = LoopGroup::builder().loops(1);
    let master = Master::new(group.clone()).listen(["0.0.0.0:8080".parse()?]).workers(4);
    let mut worker = match master.run()? {
        Role::Worker(worker) => worker,
        Role::Ended(code) => return Ok(code),
    };
    Ok(ExitCode::SUCCESS)
}
