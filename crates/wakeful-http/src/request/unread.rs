//! The rest of a request's body that nobody needs, with HTTP/2.
//!
//! If a body is dropped before its end, h2 resets the stream when the response has ended. If too
//! many would be reset at a time, the rest is read and discarded for a while: see
//! [`ResetRation`]. Most bodies end meanwhile, and then there is no reset.

use http_body::Body;
use http_body_util::BodyExt;
use wakeful::LoopHandle;
use wakeful::task::consume_budget;
use wakeful::time::{sleep_until, timeout_at};

use crate::connection::{ResetRation, Turn};
use crate::foreign_code;

/// Drops `body`, now or later.
pub(super) fn drop_in_turn<B>(body: B, resets: &ResetRation)
where
    B: Body<Data: Send> + Unpin + 'static,
{
    // A body may be dropped anywhere. Nothing can be read on where no loop runs.
    if LoopHandle::try_current().is_ok()
        && !body.is_end_stream()
        && let Some(turn) = resets.wait()
    {
        wakeful::spawn(read_on(body, turn)).detach();
    } else {
        foreign_code::contain(|| drop(body));
    }
}

async fn read_on<B: Body + Unpin>(mut body: B, turn: Turn) {
    let at = turn.at();
    let read = async {
        while let Some(Ok(_)) = body.frame().await {
            consume_budget().await;
        }
        body.is_end_stream()
    };
    match timeout_at(at, read).await {
        Ok(true) => turn.is_not_needed(),
        // More has come than the limit allows.
        Ok(false) => sleep_until(at).await,
        Err(_) => {}
    }
    foreign_code::contain(|| drop(body));
}
