//! wakeful. Posts: a closure by `LoopHandle::post`, or a task that is woken through a channel.
//! Deferred work: a task, a callback of this turn, or a callback of the next turn.

use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::ExitCode;

use late_wake::deferred::Marks;
use late_wake::post::Arrivals;
use late_wake::{
    Context, Measure, Options, Result, deferred, main as probe, post, thread, version,
};
use wakeful::net::UnixStream;
use wakeful::{EventLoop, IdlePolicy, LoopHandle};

const POST: &[Measure] = &[Measure::Post];
const DEFERRED: &[Measure] = &[Measure::Deferred];

fn main() -> ExitCode {
    let variants = [
        ("run", POST),
        ("run-spin", POST),
        ("channel", POST),
        ("channel-spin", POST),
        ("task", DEFERRED),
        ("this-turn", DEFERRED),
        ("next-turn", DEFERRED),
    ];
    probe("late-wake-wakeful", version::WAKEFUL, &variants, run)
}

fn run(options: &Options) -> Result<()> {
    thread::is_the_loop(options.loop_cpu)?;
    let spins = options.variant.ends_with("-spin");
    let idle = if spins { IdlePolicy::Spin } else { IdlePolicy::Park };
    let mut event_loop = EventLoop::builder().idle(idle).build()?;
    match options.measure {
        Measure::Deferred => start_deferred(options, &event_loop)?,
        Measure::Post => start_posts(options, &event_loop)?,
    }
    event_loop.run().context("the loop")
}

fn start_posts(options: &Options, event_loop: &EventLoop) -> Result<()> {
    let arrivals = Arrivals::new();
    let handle = event_loop.handle();
    if options.variant.starts_with("run") {
        return post::start(options, arrivals, move || {
            handle.post(|| arrivals.arrived()).context("the loop ended")
        });
    }
    let (send, receive) = async_channel::unbounded::<()>();
    let receives = async move {
        while receive.recv().await.is_ok() {
            arrivals.arrived();
        }
    };
    event_loop.spawn(receives).detach();
    post::start(options, arrivals, move || send.try_send(()).context("nobody receives"))
}

fn start_deferred(options: &Options, event_loop: &EventLoop) -> Result<()> {
    let (peer, idle) = StdUnixStream::pair()?;
    event_loop
        .spawn(async move {
            // The other end lives as long as this one.
            let _peer = peer;
            if let Ok(mut idle) = UnixStream::from_std(idle) {
                idle.read(&mut [0; 1]).await.ok();
            }
        })
        .detach();
    event_loop.spawn(wakeful::time::sleep(options.timer)).detach();
    let queue: fn(&'static Marks) = match options.variant.as_str() {
        "task" => |marks| wakeful::spawn(async { marks.local() }).detach(),
        "this-turn" => |marks| wakeful::run_this_turn(|| marks.local()),
        _ => |marks| wakeful::run_next_turn(|| marks.local()),
    };
    let counted = event_loop.handle();
    let marks = Marks::counting(move || counted.metrics().parks);
    let [first, second]: [LoopHandle; 2] = [event_loop.handle(), event_loop.handle()];
    deferred::start(
        options,
        marks,
        move || {
            let post = move || {
                marks.first();
                queue(marks);
                marks.until_second();
            };
            first.post(post).context("the loop ended")
        },
        move || second.post(|| marks.second()).context("the loop ended"),
    )
}
