//! Makes an HTTP/2 connection, and accompanies it by a task until its socket is closed.
//!
//! hyper has two parts. One hands requests to h2: this task polls it, and drops it when the
//! connection was idle for too long. The other one owns the socket, and is a task of its own
//! ([`Tasks`]). h2 ends that task when the streams have ended and their last bytes are written. If
//! the server does not read them, that would take for ever. So this task stays, and ends it in
//! time.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::Poll;
use std::time::Duration;

use hyper::client::conn::http2;
use wakeful::io::LoopTimer;
use wakeful::time::{now, sleep_until, timeout_at};

use super::{Http2, Owner, SILENCE};
use crate::client::body::{Outgoing, OutgoingBody};
use crate::client::settings::{ClientBuilder, MOST_STREAMS};
use crate::client::tasks::{PanicListener, Tasks};
use crate::client::transport::{ObservedTransport, Transport};
use crate::client::unused::UnusedTimer;
use crate::foreign_code::{self, Contained};

/// h2's limit of streams until it has applied the server's first settings. No server can set it:
/// its limit has 32 bits, and no limit is `usize::MAX`.
const NO_SETTINGS_YET: usize = usize::MAX - 1;
/// How many streams whose responses were given up h2 remembers, for a second. What still comes on
/// them is ignored. What comes on a stream that is forgotten counts as an error of the server, and
/// h2 ends the connection after 1,024 of these.
const REMEMBERED_RESETS: usize = 4096;
/// How many bytes of a request's body h2 holds at most, besides its last piece.
const SEND_BUFFER: usize = 256 << 10;
/// The least window of a connection. h2 counts how many bytes the unread frames of all responses
/// are short of 256, and ends the connection if the sum is more than half its window. So with a
/// smaller window, a hundred responses of small frames that their clients read slowly would end all
/// requests of the connection.
const LEAST_CONNECTION_WINDOW: u32 = 512 << 20;
/// How long it may take at most to close a connection that has no open streams.
const LONGEST_CLOSE: Duration = Duration::from_secs(5);

type Driven<B> = http2::Connection<ObservedTransport, Outgoing<B>, Tasks>;

pub(in crate::client) async fn start<B: OutgoingBody>(
    owner: Weak<dyn Owner<B>>,
    settings: &ClientBuilder,
    transport: Transport,
) -> hyper::Result<Rc<Http2<B>>> {
    let (io, observed) = ObservedTransport::new(transport);
    let tasks = Tasks::default();
    let headers = u32::try_from(settings.max_header_size).unwrap_or(u32::MAX);
    let (sender, connection) = http2::Builder::new(tasks.clone())
        .timer(LoopTimer)
        .max_header_list_size(headers)
        .initial_max_send_streams(NO_SETTINGS_YET)
        .initial_stream_window_size(settings.stream_window)
        .initial_connection_window_size(connection_window(settings.stream_window))
        .max_send_buf_size(SEND_BUFFER)
        .max_concurrent_reset_streams(REMEMBERED_RESETS)
        .handshake::<_, Outgoing<B>>(io)
        .await?;
    // Only now, because a handshake that cannot be written has to fail.
    observed.hear_out_and_discard();
    let limit = limit(&connection).unwrap_or(1);
    let this = Rc::new(Http2::new(owner, sender, tasks, limit, observed));
    // Also a task that is dropped before its first poll must leave the pool.
    let ending = Ending(this.clone());
    wakeful::spawn(drive(connection, ending, settings.idle_timeout)).detach();
    Ok(this)
}

/// The window of a connection, with room for every stream's window.
fn connection_window(stream_window: u32) -> u32 {
    LEAST_CONNECTION_WINDOW.max(stream_window * u32::from(MOST_STREAMS))
}

/// How many streams the server allows, up to [`MOST_STREAMS`]. `None`: h2 has not applied the
/// server's settings yet.
fn limit<B: OutgoingBody>(connection: &Driven<B>) -> Option<usize> {
    let limit = connection.current_max_send_streams();
    (limit != NO_SETTINGS_YET).then_some(limit.min(MOST_STREAMS.into()))
}

async fn drive<B: OutgoingBody>(connection: Driven<B>, ending: Ending<B>, idle_timeout: Duration) {
    let this = &ending.0;
    hand_over_requests(connection, this, idle_timeout).await;
    this.leave_pool();
    wait_for_close(this, idle_timeout).await;
}

/// Runs until the connection takes no more requests, or was idle for too long.
async fn hand_over_requests<B: OutgoingBody>(
    connection: Driven<B>,
    this: &Http2<B>,
    idle_timeout: Duration,
) {
    let observed = &this.observed;
    let (listener, limit_watch) = (PanicListener::of(&this.tasks), this.tasks.limit_watch());
    let mut connection = Contained::new(connection);
    let mut timer = UnusedTimer::new(idle_timeout);
    let mut settings_are_late = pin!(sleep_until(now() + SILENCE));
    poll_fn(|cx| {
        // After a reset, requests that hyper has not taken yet come back.
        if listener.have_panicked() || observed.is_reset() {
            return Poll::Ready(());
        }
        listener.wakes(cx.waker());
        limit_watch.wakes(cx);
        // This also polls request bodies, which are user code.
        let polled = this.tasks.contain(|| {
            let ended = Pin::new(&mut *connection).poll(cx);
            (ended, limit(&connection))
        });
        let Some((ended, limit)) = polled else { return Poll::Ready(()) };
        if let Poll::Ready(Err(error)) = &ended {
            foreign_code::log!(debug, %error, "a connection of the client ended with an error");
        }
        if ended.is_ready() {
            return Poll::Ready(());
        }
        this.is_heard(observed.heard());
        let has_written_one = this.unwritten.has_written_one(cx);
        if has_written_one {
            this.close_if_over();
        }
        let gets_old = this.is_new.get()
            && (limit.is_some() || settings_are_late.as_mut().poll(cx).is_ready());
        if gets_old {
            this.is_new.set(false);
        }
        let (has_settings, limit) = (limit.is_some(), limit.unwrap_or(1));
        let is_raised = this.limit.replace(limit) < limit;
        limit_watch.set(!has_settings || limit_watch.is_on() && this.open_streams() >= limit);
        if (is_raised || gets_old || has_written_one)
            && let Some(owner) = this.owner.upgrade()
        {
            owner.has_room();
        }
        timer.poll(cx, || this.idle_since())
    })
    .await;
}

/// Waits until h2 has closed the connection. Responses that are under way have the time that they
/// need. From the last one's end on, the rest has a bounded time: the requests' bodies, and what h2
/// and TLS say at the end. After that, the connection's tasks are ended.
async fn wait_for_close<B: OutgoingBody>(this: &Http2<B>, idle_timeout: Duration) {
    let begin = now();
    let patience = idle_timeout.min(LONGEST_CLOSE);
    let mut closed = pin!(this.observed.closed());
    loop {
        this.is_heard(this.observed.heard());
        let end = match this.idle_since() {
            None => now() + patience,
            // The server may still be reading a request.
            Some(since) if this.open_streams() > 0 => since + idle_timeout,
            Some(since) => since.max(begin) + patience,
        };
        if end <= now() {
            return this.tasks.end();
        }
        if timeout_at(end, closed.as_mut()).await.is_ok() {
            return;
        }
    }
}

/// Gives the connection's place back to the pool, even if a request's body panics in the
/// connection's task.
struct Ending<B: OutgoingBody>(Rc<Http2<B>>);

impl<B: OutgoingBody> Drop for Ending<B> {
    fn drop(&mut self) {
        self.0.leave_pool();
        self.0.is_silent_no_more();
    }
}
