//! A loop inside somebody else's: here a plain `poll(2)` loop that has a descriptor of its own.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use wakeful::EventLoop;

/// The task writes the numbers up to this one, and the foreign loop ends when it has read it.
const LAST: u8 = 3;

fn main() -> std::io::Result<()> {
    let mut event_loop = EventLoop::new()?;
    let (mut theirs, mut ours) = UnixStream::pair()?;
    let task = async move {
        for number in 1..=LAST {
            wakeful::time::sleep(Duration::from_millis(5)).await;
            println!("wakeful: tick {number}");
            theirs.write_all(&[number]).expect("the foreign loop reads");
        }
    };
    event_loop.spawn(task).detach();
    let mut last_read = 0;
    while last_read != LAST {
        // With work at hand, the foreign loop only looks at its own descriptors.
        let may_park = event_loop.prepare_to_park()?;
        let limit = if may_park { None } else { Some(&Timespec { tv_sec: 0, tv_nsec: 0 }) };
        let mut fds = [PollFd::new(&event_loop, PollFlags::IN), PollFd::new(&ours, PollFlags::IN)];
        // A signal ends poll(2), but not the permission to park.
        retry_on_intr(|| poll(&mut fds, limit))?;
        if fds[1].revents().contains(PollFlags::IN) {
            let mut byte = [0];
            ours.read_exact(&mut byte)?;
            [last_read] = byte;
            println!("foreign loop: byte {last_read}");
        }
        // Takes what there is, and ends the permission to park.
        event_loop.turn(Some(Duration::ZERO))?;
    }
    Ok(())
}
