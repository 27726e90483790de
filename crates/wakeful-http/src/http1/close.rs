//! How an HTTP/1 connection ends: by itself, by one of its limits, or by a panic. The client should
//! still receive the last answer.

use std::any::Any;

use http::StatusCode;
use hyper::rt::{Read, Write};

use super::observed::Observed;
use crate::connection::{ConnectionState, lingering_close, unasked_answer};
use crate::counts::Refusal;
use crate::limits::Limits;

/// What ended it.
pub(super) enum Ended {
    /// hyper is done with it.
    ByItself(hyper::Result<()>),
    /// One of its limits.
    By(Refusal),
    /// The service, or a body.
    ByPanic(Box<dyn Any + Send>),
}

/// Which limit hyper found exceeded, by what it has left in its buffer.
fn what_is_too_large(unread: &[u8], limits: &Limits) -> Refusal {
    // A head that is too large stays there. One that names a length beyond what hyper can count is
    // taken off first.
    let has_head = unread.len() >= limits.max_header_size
        || memchr::memchr_iter(b'\n', unread).nth(limits.max_headers).is_some();
    if has_head { Refusal::HeaderTooLarge } else { Refusal::BodyTooLarge }
}

/// Closes it, so that the client learns of what was answered last. `unread` is what hyper has left
/// in its buffer.
pub(super) async fn close<IO: Read + Write + Unpin>(
    mut io: IO,
    ended: Ended,
    unread: &[u8],
    observed: &Observed,
    state: &ConnectionState,
) -> hyper::Result<()> {
    let has_come = !unread.is_empty();
    match ended {
        Ended::By(Refusal::HeaderTimeout) if has_come => {
            unasked_answer::send(&mut io, StatusCode::REQUEST_TIMEOUT, state.loop_state()).await;
        }
        Ended::By(_) | Ended::ByPanic(_) => {}
        Ended::ByItself(result) => {
            if result.is_ok() && !observed.is_shut.get() {
                lingering_close::linger(&mut io).await;
            }
            let has_failed = matches!(&result, Err(error) if error.is_user());
            if has_failed && observed.ends_by_close.get() {
                // With TLS, a close that is announced would make the response look complete.
                return result;
            }
            let limits = state.loop_state().limits();
            let too_large =
                observed.found_too_large.get().then(|| what_is_too_large(unread, limits));
            let refusal = match &result {
                Err(error) if error.is_parse_too_large() => {
                    too_large.or(Some(Refusal::HeaderTooLarge))
                }
                Err(error) if error.is_parse() => Some(Refusal::Malformed),
                _ => None,
            };
            if let Some(refusal) = refusal {
                state.loop_state().refuse(refusal);
            }
            if let Some(refusal) = too_large {
                let status = match refusal {
                    Refusal::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
                    _ => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                };
                unasked_answer::send(&mut io, status, state.loop_state()).await;
                return result;
            }
            // Its own answer is written; what is still on its way to it must not reset the
            // connection before that was read.
            if has_failed
                || refusal.is_some()
                || state.closing().is_after_refusal()
                || state.last_body().is_left()
            {
                lingering_close::linger(&mut io).await;
            } else if has_come && result.is_ok() {
                // More requests have come than we answer, and the client may still read the last
                // response.
                lingering_close::linger_while_it_reads(&mut io, state.loop_state().going_away())
                    .await;
            }
            return result;
        }
    }
    Ok(())
}
