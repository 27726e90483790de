//! The service on a wakeful loop: a task for each connection. A worker posts a reply by
//! [`LoopHandle::post`], which passes it to the task.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::os::unix::net::UnixStream as StdStream;
use std::rc::Rc;
use std::task::{Poll, Waker};

use anyhow::Result;
use wakeful::net::UnixStream;
use wakeful::{EventLoop, IdlePolicy, LoopHandle};

use super::workers::{Request, Workers};
use super::{BYTES, Message};

/// The place where a connection's task waits for its reply.
#[derive(Default)]
struct Slot {
    reply: Cell<Option<Message>>,
    waker: Cell<Option<Waker>>,
}

thread_local! {
    /// The slots of this loop's connections.
    static SLOTS: RefCell<Vec<Rc<Slot>>> = const { RefCell::new(Vec::new()) };
}

pub fn serve(connections: Vec<StdStream>, workers: usize) -> Result<()> {
    // Like the other loops here, it sleeps when there is nothing to do.
    let mut event_loop = EventLoop::builder().idle(IdlePolicy::Park).build()?;
    let posts = (0..workers).map(|_| {
        let handle: LoopHandle = event_loop.handle();
        move |connection: usize, message: Message| {
            // The loop ends after its connections, to which these requests belong. A late reply has
            // no receiver.
            let _ = handle.post(move || put(connection, message));
        }
    });
    let workers = Rc::new(Workers::start(posts.collect()));
    event_loop.block_on(async move {
        let mut tasks = Vec::new();
        for (index, stream) in connections.into_iter().enumerate() {
            let slot = Rc::new(Slot::default());
            SLOTS.with_borrow_mut(|slots| slots.push(slot.clone()));
            let stream = UnixStream::from_std(stream)?;
            tasks.push(wakeful::spawn(connection(index, stream, slot, workers.clone())));
        }
        for task in tasks {
            task.await??;
        }
        anyhow::Ok(())
    })?
}

/// Stores the reply, on the loop.
fn put(connection: usize, message: Message) {
    SLOTS.with_borrow(|slots| {
        slots[connection].reply.set(Some(message));
        if let Some(waker) = slots[connection].waker.take() {
            waker.wake();
        }
    });
}

async fn connection(
    index: usize,
    mut stream: UnixStream,
    slot: Rc<Slot>,
    workers: Rc<Workers<usize>>,
) -> Result<()> {
    let mut message = [0; BYTES];
    // A client that leaves before its reply resets the connection.
    while stream.read(&mut message).await.is_ok_and(|read| read == BYTES) {
        workers.send(index, Request { message, reply_to: index })?;
        let reply = poll_fn(|context| {
            if let Some(reply) = slot.reply.take() {
                return Poll::Ready(reply);
            }
            slot.waker.set(Some(context.waker().clone()));
            Poll::Pending
        });
        let reply = reply.await;
        if stream.write_all(&reply).await.is_err() {
            // The client has left.
            break;
        }
    }
    Ok(())
}
