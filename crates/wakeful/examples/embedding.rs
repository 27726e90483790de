//! A loop inside somebody else's: here a plain `poll(2)` loop that has a descriptor of its own.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use wakeful::EventLoop;

fn main() -> std::io::Result<()> {
    let mut event_loop = EventLoop::new()?;
    let (mut theirs, mut ours) = UnixStream::pair()?;
    let task = event_loop.spawn(async move {
        for number in 1..=3 {
            wakeful::time::sleep(Duration::from_millis(5)).await;
            println!("wakeful: tick {number}");
            theirs.write_all(&[number]).expect("the foreign loop reads");
        }
    });
    while !task.is_finished() {
        // With work at hand, the foreign loop only looks at its own descriptors.
        let may_park = event_loop.prepare_to_park()?;
        let zero = rustix::event::Timespec::default();
        let mut fds = [PollFd::new(&event_loop, PollFlags::IN), PollFd::new(&ours, PollFlags::IN)];
        poll(&mut fds, if may_park { None } else { Some(&zero) })?;
        if fds[1].revents().contains(PollFlags::IN) {
            let mut byte = [0];
            ours.read_exact(&mut byte)?;
            println!("foreign loop: byte {}", byte[0]);
        }
        // Takes what there is, and ends the permission to park.
        event_loop.turn(Some(Duration::ZERO))?;
    }
    Ok(())
}
