//! The rest of a request's body that nobody needs, with HTTP/2.
//!
//! If a body is dropped before its end, h2 resets the stream when the response has ended. If too
//! many would be reset at a time, the rest is read and discarded for a while: see
//! [`ResetRation`]. Most bodies end meanwhile, and then there is no reset.

use http_body_util::{BodyExt, LengthLimitError};
use hyper::body::{Body, Incoming};
use wakeful::LoopHandle;
use wakeful::task::consume_budget;
use wakeful::time::{sleep_until, timeout_at};

use super::received::Received;
use crate::connection::{ResetRation, Turn};
use crate::foreign_code;

/// The rest of a request that is refused.
pub(super) fn rest_of(body: Incoming) -> Received {
    Received::new(body, usize::MAX, true)
}

/// Drops a body, now or later.
pub(super) fn drop_in_turn(body: Received, resets: &ResetRation) {
    foreign_code::contain(|| {
        // A body may be dropped anywhere. Nothing can be read on where no loop runs.
        if !body.is_end_stream()
            && LoopHandle::try_current().is_ok()
            && let Some(turn) = resets.wait()
        {
            wakeful::spawn(read_on(body, turn)).detach();
        }
    });
}

async fn read_on(mut body: Received, turn: Turn) {
    let at = turn.at();
    let has_ended = async {
        loop {
            match body.frame().await {
                Some(Ok(_)) => consume_budget().await,
                // The limit of a body's length is no end.
                Some(Err(error)) => break !error.is::<LengthLimitError>(),
                None => break true,
            }
        }
    };
    match timeout_at(at, has_ended).await {
        Ok(true) => turn.give_back(),
        Ok(false) => sleep_until(at).await,
        Err(_) => {}
    }
}
