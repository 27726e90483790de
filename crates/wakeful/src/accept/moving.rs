//! Connections that move to another loop, between two requests.
//!
//! A loop tells its connections' handlers when it stops being active, or when it has much more to
//! do than the others. A handler that can stop (all requests are answered, nothing is in flight)
//! hands its connection over, with the bytes that it has read and not used. A handler of the same
//! server continues with it on the other loop. A handler that never asks keeps its connections on
//! its loop.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::arrival::{Arrival, Held};
use super::draining::Draining;
use super::routes::Routes;
use crate::balance::balancer::Balancer;
use crate::net::{Attached, PeerAddr, Stream};

/// How one loop's connections move to other loops.
#[derive(Debug)]
pub(super) struct Mover {
    pub(super) number: usize,
    pub(super) balancer: Arc<Balancer>,
    pub(super) routes: Arc<Routes>,
    pub(super) draining: Draining,
}

/// Tells a handler whether its connection should move to another loop, and moves it.
///
/// ```
/// # use wakeful::accept::Connection;
/// // Answers each line; between two of them, the connection may move.
/// async fn serve(connection: Connection) -> std::io::Result<()> {
///     let Connection { mut stream, peer, unread: mut line, moving, .. } = connection;
///     let mut buf = [0; 512];
///     loop {
///         while let Some(end) = line.iter().position(|byte| *byte == b'\n') {
///             let answer: Vec<u8> = line.drain(..=end).collect();
///             stream.write_all(&answer).await?;
///         }
///         if moving.is_wanted() {
///             match moving.hand_over(stream, peer, line) {
///                 Ok(()) => return Ok(()),
///                 Err(kept) => (stream, line) = kept,
///             }
///         }
///         let read = stream.read(&mut buf).await?;
///         if read == 0 {
///             return Ok(());
///         }
///         line.extend_from_slice(&buf[..read]);
///     }
/// }
/// ```
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread, like the connection.
#[derive(Debug)]
pub struct Moving {
    mover: Rc<Mover>,
    held: Rc<RefCell<Option<Held>>>,
    /// When the connection came to this loop, in nanoseconds on the balance's clock.
    since: u64,
}

impl Moving {
    pub(super) fn new(mover: Rc<Mover>, held: Rc<RefCell<Option<Held>>>) -> Self {
        let since = mover.balancer.now();
        Self { mover, held, since }
    }

    /// Returns whether the connection should move. Call it when nothing is in flight. As long as no
    /// connection should move, the call costs one load from memory.
    #[inline]
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.mover.balancer.gives(self.mover.number) && self.is_rested()
    }

    #[cold]
    fn is_rested(&self) -> bool {
        let Mover { number, balancer, draining, routes } = &*self.mover;
        let here = balancer.now().saturating_sub(self.since);
        let rest = balancer.moves().map_or(u128::MAX, |moves| moves.interval.as_nanos());
        u128::from(here) >= rest && !draining.is_started() && !routes.is_closed(*number)
    }

    /// Attaches `luggage`, the handler's own state of the connection, which moves with it. The
    /// handler on the other loop gets it with [`carried`](Self::carried). A later call replaces the
    /// luggage.
    pub fn carry(&self, luggage: Box<dyn Any + Send>) {
        let before = self.held.borrow_mut().as_mut().and_then(|held| held.carried.replace(luggage));
        // The destructor of `before` is user code, so nothing is borrowed while it runs.
        drop(before);
    }

    /// Takes the luggage that the previous handler attached with [`carry`](Self::carry). After a
    /// failed [`hand_over`](Self::hand_over), a handler takes its own luggage back this way.
    #[must_use]
    pub fn carried(&self) -> Option<Box<dyn Any + Send>> {
        self.held.borrow_mut().as_mut()?.carried.take()
    }

    /// Gives the connection to another loop of the server. The handler there gets the connection,
    /// and `unread`: the bytes that were read but not answered. The handler here should then end. A
    /// loop that cannot take the connection passes it on to another one.
    ///
    /// # Errors
    /// The connection should no longer move (see [`is_wanted`](Self::is_wanted)), the server
    /// drains, the other loop has ended, or the connection was already handed over. The error
    /// returns the stream and `unread`, and the connection stays on this loop.
    pub fn hand_over(
        &self,
        stream: Stream,
        peer: PeerAddr,
        unread: Vec<u8>,
    ) -> Result<(), (Stream, Vec<u8>)> {
        let Mover { number, balancer, routes, .. } = &*self.mover;
        // When this loop takes no more, the others may stop taking at any moment. As long as it
        // does, `send` brings the connection back here if no other loop takes it. With a dispatcher
        // all loops may stop taking meanwhile, this one too.
        if routes.is_closed(*number) {
            return Err((stream, unread));
        }
        let Some(to) = balancer.taker(*number).filter(|to| !routes.is_closed(*to)) else {
            return Err((stream, unread));
        };
        let Some(held) = self.held.take() else { return Err((stream, unread)) };
        let stream = stream.detach().with_unread(unread);
        self.send(Arrival::moved(stream, peer, held, to), to)
    }

    /// # Errors
    /// All loops have ended. The connection stays on this loop.
    fn send(&self, arrival: Arrival, to: usize) -> Result<(), (Stream, Vec<u8>)> {
        let Mover { number, routes, .. } = &*self.mover;
        let Err(arrival) = routes.try_send(arrival, to) else { return Ok(()) };
        match arrival.stays_on(*number) {
            Ok((Attached { stream, unread }, held)) => {
                self.held.replace(Some(held));
                Err((stream, unread))
            }
            Err(arrival) => {
                routes.turn_away(*arrival);
                Ok(())
            }
        }
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    use rustix::io::Errno;

    use crate::accept::arrival::Arrival;
    use crate::accept::{Connection, ConnectionServer, Moves, SharedListener};
    use crate::group::{LoopGroup, Targets};
    use crate::net::TcpStream;
    use crate::sys::failures::{self, Call};
    use crate::{EventLoopBuilder, IdlePolicy, block_on};

    const PIPELINED: u8 = 3;

    /// A handler that echoes each byte, uses much CPU time for it, and may move between any two
    /// bytes.
    async fn serve(connection: Connection) -> std::io::Result<()> {
        let Connection { mut stream, peer, mut unread, moving, .. } = connection;
        let mut buf = [0; 16];
        loop {
            while !unread.is_empty() {
                let began = Instant::now();
                while began.elapsed() < Duration::from_micros(200) {
                    std::hint::spin_loop();
                }
                let byte = unread.remove(0);
                stream.write_all(&[byte]).await?;
                if moving.is_wanted() {
                    match moving.hand_over(stream, peer, unread) {
                        Ok(()) => return Ok(()),
                        Err(kept) => (stream, unread) = kept,
                    }
                }
            }
            let read = stream.read(&mut buf).await?;
            if read == 0 {
                return Ok(());
            }
            unread.extend_from_slice(&buf[..read]);
        }
    }

    /// Does what [`serve`] does, until its connection should move. Then it closes its loop's inbox,
    /// as the end of a drain does, and says whether the connection should still move, and did.
    async fn serve_to_the_end(connection: Connection, says: mpsc::Sender<(bool, bool)>) {
        let Connection { mut stream, peer, moving, .. } = connection;
        let mut buf = [0; 16];
        while let Ok(read @ 1..) = stream.read(&mut buf).await {
            let began = Instant::now();
            while began.elapsed() < Duration::from_micros(600) {
                std::hint::spin_loop();
            }
            if stream.write_all(&buf[..read]).await.is_err() {
                return;
            }
            if moving.is_wanted() {
                moving.mover.routes.close_one(moving.mover.number);
                let is_wanted = moving.is_wanted();
                let moved = moving.hand_over(stream, peer, Vec::new());
                // Only the first one is heard.
                let _ = says.send((is_wanted, moved.is_ok()));
                match moved {
                    Ok(()) => return,
                    Err((kept, _)) => stream = kept,
                }
            }
        }
    }

    /// Moves its connection while the dispatcher ends, and so all loops take no more. It says on
    /// which loop the connection is, and echoes what it had read before.
    async fn serve_what_no_loop_takes(connection: Connection, says: mpsc::Sender<usize>) {
        let Connection { mut stream, peer, moving, .. } = connection;
        let mut buf = [0; 16];
        let read = stream.read(&mut buf).await.unwrap();
        moving.carry(Box::new("luggage"));
        let held = moving.held.take().unwrap();
        let to = 1 - moving.mover.number;
        let detached = stream.detach().with_unread(&buf[..read]);
        moving.mover.routes.close();
        let sent = moving.send(Arrival::moved(detached, peer, held, to), to);
        let Err((mut stream, unread)) = sent else { return };
        assert!(moving.carried().is_some_and(|luggage| luggage.is::<&str>()));
        says.send(moving.mover.number).unwrap();
        stream.write_all(&unread).await.unwrap();
        // Until the client closes it.
        let _ = stream.read(&mut buf).await;
    }

    /// A client that sends bytes until it is told to stop. Every answer must come, in order.
    async fn ask_until(addr: String, stop: &AtomicBool) {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let mut next = 0_u8;
        while !stop.load(Ordering::Relaxed) {
            let requests: Vec<u8> = (0..PIPELINED).map(|step| next.wrapping_add(step)).collect();
            stream.write_all(&requests).await.unwrap();
            let mut answers = [0; PIPELINED as usize];
            let mut got = 0;
            while got < answers.len() {
                let read = stream.read(&mut answers[got..]).await.unwrap();
                assert!(read > 0, "the connection was lost on its way");
                got += read;
            }
            assert_eq!(answers, requests[..]);
            next = next.wrapping_add(PIPELINED);
        }
    }

    /// A server whose loop is soon busy enough to give connections to the other one.
    fn server() -> (ConnectionServer, String) {
        let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listener.local_addr().to_string();
        let event_loop = EventLoopBuilder::default().idle(IdlePolicy::Park);
        let targets = Targets::new().utilisation(0.05).least(1);
        let group = LoopGroup::builder().loops(2).event_loop(event_loop).concentrate(targets);
        let moves = Moves::new().interval(Duration::from_millis(10));
        (ConnectionServer::new(vec![listener]).group(group).moves(Some(moves)), addr)
    }

    #[test]
    fn connections_of_a_busy_loop_go_on_to_another_one_and_no_byte_is_lost() {
        let (server, addr) = server();
        let serving = server.start(|| async |connection| serve(connection).await.unwrap()).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| block_on(ask_until(addr.clone(), &stop)));
            }
            while serving.counts().moved() == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(serving.shutdown(Duration::from_secs(10)).unwrap(), 0);
    }

    #[test]
    fn a_connection_stays_on_a_loop_that_takes_no_more_itself() {
        let (server, addr) = server();
        let (says, said) = mpsc::channel();
        let handler = move |connection| serve_to_the_end(connection, says.clone());
        let serving = server.start(move || handler.clone()).unwrap();
        let stop = AtomicBool::new(false);
        let first = thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| block_on(ask_until(addr.clone(), &stop)));
            }
            let first = said.recv_timeout(Duration::from_secs(30));
            stop.store(true, Ordering::Relaxed);
            first
        });
        assert_eq!(first, Ok((false, false)));
        assert_eq!(serving.shutdown(Duration::from_secs(10)).unwrap(), 0);
    }

    #[test]
    fn a_connection_that_no_loop_takes_any_more_stays_with_what_it_has_not_answered() {
        let (server, addr) = server();
        let (says, said) = mpsc::channel();
        let handler = move |connection| serve_what_no_loop_takes(connection, says.clone());
        let serving = server.start(move || handler.clone()).unwrap();
        block_on(async {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(b"asked").await.unwrap();
            let mut answer = [0; 5];
            let mut got = 0;
            while got < answer.len() {
                let read = stream.read(&mut answer[got..]).await.unwrap();
                assert!(read > 0, "the connection was lost on its way");
                got += read;
            }
            assert_eq!(&answer, b"asked");
            let counts = serving.counts();
            let of_loop = counts.loops().nth(said.recv().unwrap()).unwrap();
            assert_eq!((of_loop.open(), counts.open(), counts.turned_away()), (1, 1, 0));
        });
        assert_eq!(serving.shutdown(Duration::from_secs(10)).unwrap(), 0);
    }

    #[test]
    fn a_connection_that_can_neither_move_nor_stay_is_closed_and_counted() {
        let (server, addr) = server();
        let (says, _said) = mpsc::channel();
        let handler = move |connection| {
            failures::fail(Call::Watch, Errno::NOSPC, 1);
            serve_what_no_loop_takes(connection, says.clone())
        };
        let serving = server.start(move || handler.clone()).unwrap();
        block_on(async {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(b"asked").await.unwrap();
            assert!(matches!(stream.read(&mut [0; 1]).await, Ok(0)));
        });
        let counts = serving.counts();
        assert_eq!(serving.shutdown(Duration::from_secs(10)).unwrap(), 0);
        assert_eq!((counts.open(), counts.turned_away()), (0, 1));
    }
}
