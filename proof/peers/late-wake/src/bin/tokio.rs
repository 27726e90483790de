//! Tokio: a current-thread runtime, or a multi-thread one with one worker. Posts: `Handle::spawn`,
//! or a task that is woken through its own channel. Deferred work: a task that a task spawns.
//! `burn` has a task that always yields, and asks for events in every turn, so this runtime never
//! sleeps.

use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::ExitCode;

use late_wake::deferred::Marks;
use late_wake::post::Arrivals;
use late_wake::{
    Context, Measure, Options, Result, deferred, main as probe, post, thread, version,
};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;

const POST: &[Measure] = &[Measure::Post];
const BOTH: &[Measure] = &[Measure::Post, Measure::Deferred];

fn main() -> ExitCode {
    let variants = [
        ("current-thread", BOTH),
        ("current-thread-mpsc", POST),
        ("current-thread-burn", POST),
        ("current-thread-burn-mpsc", POST),
        ("multi-thread", BOTH),
        ("multi-thread-mpsc", POST),
    ];
    probe("late-wake-tokio", version::TOKIO, &variants, run)
}

fn run(options: &Options) -> Result<()> {
    let runtime = build(options)?;
    let handle = runtime.handle().clone();
    if options.variant.contains("burn") {
        handle.spawn(async {
            loop {
                tokio::task::yield_now().await;
            }
        });
    }
    match options.measure {
        Measure::Deferred => start_deferred(options, &handle)?,
        Measure::Post => start_posts(options, handle)?,
    }
    // A current-thread runtime works within this call. In the multi-thread runtime, the workers do.
    runtime.block_on(std::future::pending())
}

fn build(options: &Options) -> Result<Runtime> {
    let cpu = options.loop_cpu;
    let mut builder = if options.variant.starts_with("multi-thread") {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).on_thread_start(move || {
            if let Err(error) = thread::is_the_loop(cpu) {
                eprintln!("{error:#}");
                std::process::exit(1);
            }
        });
        builder
    } else {
        thread::is_the_loop(cpu)?;
        Builder::new_current_thread()
    };
    if options.variant.contains("burn") {
        builder.max_io_events_per_tick(4).event_interval(61);
    }
    builder.enable_all().build().context("cannot build the runtime")
}

fn start_posts(options: &Options, handle: Handle) -> Result<()> {
    let arrivals = Arrivals::new();
    if !options.variant.ends_with("-mpsc") {
        return post::start(options, arrivals, move || {
            drop(handle.spawn(async { arrivals.arrived() }));
            Ok(())
        });
    }
    let (send, mut receive) = mpsc::unbounded_channel::<()>();
    handle.spawn(async move {
        while receive.recv().await.is_some() {
            arrivals.arrived();
        }
    });
    post::start(options, arrivals, move || send.send(()).context("nobody receives"))
}

fn start_deferred(options: &Options, handle: &Handle) -> Result<()> {
    let (peer, idle) = StdUnixStream::pair()?;
    idle.set_nonblocking(true)?;
    handle.spawn(async move {
        // The other end lives as long as this one.
        let _peer = peer;
        if let Ok(idle) = UnixStream::from_std(idle) {
            idle.readable().await.ok();
        }
    });
    let timer = options.timer;
    handle.spawn(async move { tokio::time::sleep(timer).await });
    let marks = Marks::new();
    let [first, second] = [handle.clone(), handle.clone()];
    deferred::start(
        options,
        marks,
        move || {
            drop(first.spawn(async {
                marks.first();
                tokio::spawn(async { marks.local() });
                marks.until_second();
            }));
            Ok(())
        },
        move || {
            drop(second.spawn(async { marks.second() }));
            Ok(())
        },
    )
}
