//! A loop inside calloop: tasks, timers and sockets of wakeful beside the foreign loop's own
//! sources, on one thread, and work from another thread for the loop within. `source.rs` is what it
//! takes.

mod source;

use std::error::Error;
use std::time::Duration;

use calloop::timer::{TimeoutAction, Timer};
use wakeful::EventLoop;
use wakeful::net::UnixStream;

use self::source::Wakeful;

fn main() -> Result<(), Box<dyn Error>> {
    let event_loop = EventLoop::new()?;
    let handle = event_loop.handle();
    let echo = event_loop.spawn(async {
        let (mut one, mut other) = UnixStream::pair()?;
        for number in 1..=3 {
            wakeful::time::sleep(Duration::from_millis(5)).await;
            one.write_all(&[number]).await?;
            let mut byte = [0];
            other.read(&mut byte).await?;
            println!("wakeful: byte {} came back", byte[0]);
        }
        std::io::Result::Ok(())
    });

    let mut foreign = calloop::EventLoop::<bool>::try_new()?;
    foreign.handle().insert_source(Wakeful::new(event_loop)?, move |(), _, done| {
        *done = echo.is_finished();
    })?;
    let mut ticks = 0;
    foreign.handle().insert_source(
        Timer::from_duration(Duration::from_millis(4)),
        move |_, _, _| {
            ticks += 1;
            println!("calloop: tick {ticks}");
            TimeoutAction::ToDuration(Duration::from_millis(4))
        },
    )?;

    let producer = std::thread::spawn(move || {
        handle.post_and_wait(|| println!("wakeful: a closure of another thread"))
    });
    let mut done = false;
    while !done {
        // `None`: calloop sleeps until one of its sources has something. Wakeful's is among them.
        foreign.dispatch(None, &mut done)?;
    }
    producer.join().expect("no panic")?;
    Ok(())
}
