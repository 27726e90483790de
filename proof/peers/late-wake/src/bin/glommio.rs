//! Glommio with its `shared_channel`, which its documentation recommends between threads. Both ends
//! belong to executors, so the poster is an executor, too. It never yields its thread while it
//! posts.

use std::process::ExitCode;

use glommio::channels::shared_channel;
use glommio::{LocalExecutorBuilder, Placement};
use late_wake::post::Arrivals;
use late_wake::{Context, Measure, Options, Result, main as probe, post, thread, version};

fn main() -> ExitCode {
    probe("late-wake-glommio", version::GLOMMIO, &[("default", &[Measure::Post])], run)
}

fn run(options: &Options) -> Result<()> {
    thread::is_the_loop(options.loop_cpu)?;
    let arrivals = Arrivals::new();
    let (send, receive) = shared_channel::new_bounded::<u64>(1024);
    let poster = options.clone();
    std::thread::Builder::new().name("poster".to_owned()).spawn(move || {
        let posts = async move {
            let send = send.connect().await;
            post::run_and_exit(&poster, arrivals, || {
                send.try_send(1).map_err(|error| late_wake::error(format!("try_send: {error}")))
            })
        };
        match LocalExecutorBuilder::new(Placement::Unbound).make() {
            Ok(executor) => executor.run(posts),
            Err(error) => {
                eprintln!("late-wake-glommio: cannot build the executor: {error}");
                std::process::exit(1);
            }
        }
    })?;
    let executor = LocalExecutorBuilder::new(Placement::Unbound)
        .make()
        .map_err(|error| late_wake::error(error.to_string()))
        .context("cannot build the executor")?;
    executor.run(async move {
        let receive = receive.connect().await;
        while receive.recv().await.is_some() {
            arrivals.arrived();
        }
    });
    Ok(())
}
