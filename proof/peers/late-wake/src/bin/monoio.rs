//! Monoio with its feature `sync`, which allows other threads to call its wakers. The channel is
//! the same as wakeful's.

use std::process::ExitCode;

use late_wake::post::Arrivals;
use late_wake::{Context, Measure, Options, Result, main as probe, post, thread, version};
use monoio::{IoUringDriver, LegacyDriver, RuntimeBuilder};

fn main() -> ExitCode {
    let variants: &[(&str, &[Measure])] =
        &[("uring", &[Measure::Post]), ("epoll", &[Measure::Post])];
    probe("late-wake-monoio", version::MONOIO, variants, run)
}

fn run(options: &Options) -> Result<()> {
    thread::is_the_loop(options.loop_cpu)?;
    let arrivals = Arrivals::new();
    let (send, receive) = async_channel::unbounded::<()>();
    let receives = async move {
        while receive.recv().await.is_ok() {
            arrivals.arrived();
        }
    };
    post::start(options, arrivals, move || send.try_send(()).context("nobody receives"))?;
    let wanted = "cannot build the runtime: is io_uring allowed?";
    if options.variant == "epoll" {
        RuntimeBuilder::<LegacyDriver>::new().build().context(wanted)?.block_on(receives);
    } else {
        RuntimeBuilder::<IoUringDriver>::new().build().context(wanted)?.block_on(receives);
    }
    Ok(())
}
