//! An HTTP/1 answer without a complete request: 408 for half a header, 503 for a connection above
//! the limit.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use http::StatusCode;
use hyper::rt::{Read, Write};
use wakeful::time::timeout;

use crate::dates;
use crate::lingering_close::linger;
use crate::loop_state::LoopState;

/// The time limit of the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Answers with `status`, and with the note that the connection closes. Lets the client read that.
pub(crate) async fn send<I: Read + Write + Unpin>(
    io: &mut I,
    status: StatusCode,
    loop_state: &LoopState,
) {
    if write(io, status, loop_state).await {
        linger(io).await;
    }
}

/// Like [`send`], but leaves the close to its caller. Returns whether the socket has taken the
/// answer.
pub(crate) async fn write<I: Write + Unpin>(
    io: &mut I,
    status: StatusCode,
    loop_state: &LoopState,
) -> bool {
    let text = text(status, loop_state);
    // The answer fits into the socket's buffer, or the client reads nothing anyway.
    let written = poll_fn(|cx| Pin::new(&mut *io).poll_write(cx, text.as_bytes()));
    matches!(timeout(PATIENCE, written).await, Ok(Ok(_)))
}

/// Like [`send`], but does not wait, so the close may overtake the answer.
pub(crate) fn send_at_once<I: Write + Unpin>(
    io: &mut I,
    status: StatusCode,
    loop_state: &LoopState,
) {
    let text = text(status, loop_state);
    let _ = poll_fn(|cx| Pin::new(&mut *io).poll_write(cx, text.as_bytes())).now_or_never();
}

/// Counts the answer, too.
fn text(status: StatusCode, loop_state: &LoopState) -> String {
    loop_state.counts().response(status);
    let retry = match status {
        StatusCode::SERVICE_UNAVAILABLE => "retry-after: 1\r\n",
        _ => "",
    };
    let date = dates::of_header(SystemTime::now());
    format!(
        "HTTP/1.1 {status}\r\ndate: {date}\r\nconnection: close\r\ncontent-length: 0\r\n{retry}\r\n"
    )
}
