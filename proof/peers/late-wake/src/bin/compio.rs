//! Compio, whose wakers may be called by other threads. The channel is the same as wakeful's.

use std::process::ExitCode;

use compio::runtime::RuntimeBuilder;
use late_wake::post::Arrivals;
use late_wake::{Context, Measure, Options, Result, main as probe, post, thread, version};

fn main() -> ExitCode {
    probe("late-wake-compio", version::COMPIO, &[("default", &[Measure::Post])], run)
}

fn run(options: &Options) -> Result<()> {
    thread::is_the_loop(options.loop_cpu)?;
    let arrivals = Arrivals::new();
    let (send, receive) = async_channel::unbounded::<()>();
    post::start(options, arrivals, move || send.try_send(()).context("nobody receives"))?;
    RuntimeBuilder::new().build().context("cannot build the runtime")?.block_on(async move {
        while receive.recv().await.is_ok() {
            arrivals.arrived();
        }
    });
    Ok(())
}
