//! How another loop accepts while the dispatcher is blocked.
//!
//! With [`Dispatch`](super::AcceptStrategy::Dispatch) the first loop accepts for all. If it does
//! not return from a turn, the group's watchdog (`balance::board`) calls another loop. That loop
//! accepts from the same sockets, and hands connections to the loops as the dispatcher would,
//! except to the blocked one. It leaves the sockets when the dispatcher is back. Meanwhile both may
//! accept: the kernel gives each connection to one of them.
//!
//! For a loop that is not called, this costs only a waiting task.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_channel::{Receiver, Sender};

use super::accepting::accept;
use super::connection::Connection;
use super::loop_server::LoopServer;
use super::route::Route;
use super::shared_listener::SharedListener;
use super::strategy::DISPATCHER;
use crate::balance::board::Board;
use crate::event_loop::spawn;
use crate::net::{DetachedListener, ListenAddr};
use crate::sys::once_per_second::OncePerSecond;
use crate::sys::panics;
use crate::task::JoinHandle;
use crate::time::sleep;

/// How often a loop that stands in checks whether the dispatcher is back.
const LOOK: Duration = Duration::from_millis(10);

/// The part of a loop that may stand in for the dispatcher.
#[derive(Debug)]
pub(super) struct StandIn {
    called: Receiver<()>,
    sockets: Arc<[Socket]>,
    board: Arc<Board>,
}

/// A socket from which the dispatcher accepts. The dispatcher keeps it open.
#[derive(Debug)]
struct Socket {
    fd: Weak<OwnedFd>,
    addr: ListenAddr,
    is_lent: bool,
}

/// Makes the parts of all loops, in the order of their numbers. The dispatcher has none.
pub(super) fn of_loops(
    board: &Arc<Board>,
    listeners: &[SharedListener],
    loops: usize,
) -> Vec<Option<StandIn>> {
    let socket = |listener: &SharedListener| Socket {
        fd: Arc::downgrade(&listener.fd),
        addr: listener.local_addr().clone(),
        is_lent: listener.is_lent(),
    };
    let sockets: Arc<[Socket]> = listeners.iter().map(socket).collect();
    let mut calls = Vec::new();
    let mut stand_in = || {
        let (call, called) = async_channel::bounded(1);
        calls.push(call);
        StandIn { called, sockets: sockets.clone(), board: board.clone() }
    };
    let of_loops = (0..loops).map(|number| (number != DISPATCHER).then(&mut stand_in)).collect();
    board.watch(Box::new(move |board| call_one(board, &calls)));
    of_loops
}

/// Calls a loop if the dispatcher is blocked: the first one that is not blocked itself, and so an
/// active one if possible. `false`: no loop will ever come.
fn call_one(board: &Board, calls: &[Sender<()>]) -> bool {
    let is_stuck = board.stuck();
    if is_stuck(DISPATCHER) {
        let loops = calls.iter().zip(DISPATCHER + 1..);
        let mut free = loops.filter(|(call, number)| !call.is_closed() && !is_stuck(*number));
        if let Some((call, _)) = free.next() {
            // A full channel means that the loop has been called already.
            let _ = call.try_send(());
        }
    }
    calls.iter().any(|call| !call.is_closed())
}

impl StandIn {
    /// The channel of calls. Closing it ends [`serve`](Self::serve).
    pub(super) fn calls(&self) -> Receiver<()> {
        self.called.clone()
    }

    /// Stands in whenever it is called, from when the server has started until it stops, or the
    /// dispatcher has ended.
    pub(super) async fn serve<H, F>(self: Rc<Self>, server: Rc<LoopServer<H>>, route: Rc<Route>)
    where
        H: Fn(Connection) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        server.shared.gate.opens().await;
        while self.called.recv().await.is_ok() {
            while self.is_needed() && !self.called.is_closed() {
                let accepting = self.accept_from_all(&server, &route);
                // When the dispatcher ends, it closes all inboxes.
                if !self.is_any_open() || server.mover.routes.is_closed(server.number) {
                    return;
                }
                if accepting.0.is_empty() {
                    // A limit of watches, or no memory: the next try may succeed.
                    sleep(LOOK).await;
                } else {
                    let number = server.number;
                    panics::log!(
                        info,
                        number,
                        "user code has blocked the loop that accepts: another loop accepts meanwhile"
                    );
                    while self.is_needed() && !self.called.is_closed() {
                        sleep(LOOK).await;
                    }
                    accepting.end().await;
                }
            }
        }
    }

    /// Does the dispatcher still have a listener?
    fn is_any_open(&self) -> bool {
        self.sockets.iter().any(|socket| socket.fd.strong_count() > 0)
    }

    fn is_needed(&self) -> bool {
        self.board.stuck()(DISPATCHER)
    }

    fn accept_from_all<H, F>(&self, server: &Rc<LoopServer<H>>, route: &Rc<Route>) -> Tasks
    where
        H: Fn(Connection) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        let mut tasks = Tasks(Vec::new());
        for (place, socket) in self.sockets.iter().enumerate() {
            let Some(fd) = socket.fd.upgrade() else { continue };
            match DetachedListener::new(fd, &socket.addr).lent(socket.is_lent).attach() {
                Ok(listener) => {
                    let (server, route) = (server.clone(), route.clone());
                    tasks.0.push(spawn(accept(Rc::new(listener), place, server, route)));
                }
                Err(refused) => {
                    static LIMIT: OncePerSecond = OncePerSecond::new();
                    if let Some(count) = LIMIT.pass() {
                        let error = refused.error();
                        panics::log!(warn, %error, count, "a loop cannot watch a listener");
                    }
                }
            }
        }
        tasks
    }
}

/// The tasks that accept, one for each listener. Dropping this aborts them.
struct Tasks(Vec<JoinHandle<()>>);

impl Tasks {
    /// Ends the tasks, and returns when they have left the listeners.
    async fn end(mut self) {
        for task in std::mem::take(&mut self.0) {
            task.abort();
            let _ = task.await;
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}
