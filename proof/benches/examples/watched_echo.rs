//! What heartbeats cost a request: an echo on a group of loops that park, which another thread
//! watches or not. `instructions.sh` and `syscalls.sh` measure it.
//!
//! `watched_echo watched|unwatched LOOPS ADDR`. SIGTERM ends it.

use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wakeful::heartbeat::Watchdog;
use wakeful::net::TcpListener;
use wakeful::{EventLoop, IdlePolicy, LoopGroup, LoopGroupBuilder};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let served = match &args[..] {
        [_, how, loops, addr] if how == "watched" || how == "unwatched" => {
            serve(how == "watched", loops.parse().unwrap_or(1), addr.clone())
        }
        _ => {
            eprintln!("usage: watched_echo watched|unwatched LOOPS ADDR");
            return ExitCode::from(2);
        }
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("watched_echo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(is_watched: bool, loops: usize, addr: String) -> io::Result<()> {
    let parks = EventLoop::builder().idle(IdlePolicy::Park);
    let settings = LoopGroup::builder().loops(loops).event_loop(parks);
    let group = if is_watched { watch(settings)? } else { settings }.build()?;
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

/// As a process does that has forked the group's: here it is a thread.
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
