//! Shows what heartbeats cost a request: an echo or an HTTP server, on a group of loops that park.
//! Another thread watches the loops, or not. `instructions.sh` and `syscalls.sh` measure it.
//!
//! `heartbeats echo|http watched|unwatched LOOPS ADDR`. SIGTERM ends it.

use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wakeful::heartbeat::Watchdog;
use wakeful::net::TcpListener;
use wakeful::{EventLoop, IdlePolicy, LoopGroup, LoopGroupBuilder};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let Some((what, is_watched, loops, addr)) = parse(&args) else {
        eprintln!("usage: heartbeats echo|http watched|unwatched LOOPS ADDR");
        return ExitCode::from(2);
    };
    let served = settings(is_watched, loops).and_then(|settings| match what {
        What::Echo => echo(settings, addr),
        What::Http => http(settings, &addr),
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("heartbeats: {error}");
            ExitCode::FAILURE
        }
    }
}

enum What {
    Echo,
    Http,
}

fn parse(args: &[String]) -> Option<(What, bool, usize, String)> {
    let [_, what, how, loops, addr] = args else { return None };
    let what = match &**what {
        "echo" => What::Echo,
        "http" => What::Http,
        _ => return None,
    };
    let is_watched = match &**how {
        "watched" => true,
        "unwatched" => false,
        _ => return None,
    };
    Some((what, is_watched, loops.parse().ok()?, addr.clone()))
}

fn settings(is_watched: bool, loops: usize) -> io::Result<LoopGroupBuilder> {
    let parks = EventLoop::builder().idle(IdlePolicy::Park);
    let settings = LoopGroup::builder().loops(loops).event_loop(parks);
    if is_watched { watch(settings) } else { Ok(settings) }
}

fn http(settings: LoopGroupBuilder, addr: &str) -> io::Result<()> {
    let app = Router::new().route("/", get(async || "hello\n"));
    wakeful_http::Server::bind(addr)?.group(settings).serve(app)
}

fn echo(settings: LoopGroupBuilder, addr: String) -> io::Result<()> {
    let group = settings.build()?;
    let accepted = group.handles()[0].spawn(|| accept(addr)).map_err(io::Error::other)?;
    wakeful::block_on(accepted).map_err(io::Error::other)?
}

async fn accept(addr: String) -> io::Result<()> {
    let listener = TcpListener::bind(&*addr).await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        wakeful::spawn(async move {
            let mut buffer = vec![0; 16 * 1024];
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                if stream.write_all(&buffer[..count]).await.is_err() {
                    break;
                }
            }
        })
        .detach();
    }
}

/// Watches the group as a process would that has forked the group's process. Here the watcher is a
/// thread.
fn watch(settings: LoopGroupBuilder) -> io::Result<LoopGroupBuilder> {
    let mut watchdog = Watchdog::new(Duration::from_secs(30))?;
    let heartbeats = watchdog.heartbeats_for(&settings)?;
    thread::spawn(move || {
        loop {
            let look = watchdog.look(Instant::now());
            assert!(look.stuck.is_empty(), "{look:?}");
            let left = look.next.map(|next| next.saturating_duration_since(Instant::now()));
            let limit = left.and_then(|left| Timespec::try_from(left).ok());
            let mut fds = [PollFd::new(&watchdog, PollFlags::IN)];
            let _ = poll(&mut fds, limit.as_ref());
        }
    });
    Ok(settings.heartbeats(heartbeats))
}
