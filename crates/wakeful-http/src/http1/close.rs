//! How an HTTP/1 connection ends: by itself, by one of its limits, or by a failure. The client
//! should still receive the last answer.

use std::pin::pin;

use futures_util::future::select;
use http::StatusCode;
use wakeful::accept::Draining;
use wakeful::time::sleep;

use super::observed::Observed;
use crate::connection::{ConnectionState, Liveness, PREFACE, unasked_answer};
use crate::counts::Refusal;
use crate::limits::Limits;
use crate::lingering_close;
use crate::upgrade::Io;

/// What ended the connection.
pub(super) enum Ended {
    /// hyper has finished.
    ByItself(hyper::Result<()>),
    /// A limit was reached.
    By(Refusal),
}

/// Finds out which limit hyper found exceeded, from what it has left in its buffer.
fn what_is_too_large(unread: &[u8], limits: &Limits) -> Refusal {
    // A head that is too large stays in the buffer. A head with a length that hyper cannot
    // represent is removed from it first.
    let has_head = unread.len() >= limits.max_header_size
        || memchr::memchr_iter(b'\n', unread).nth(limits.max_headers).is_some();
    if has_head { Refusal::HeaderTooLarge } else { Refusal::BodyTooLarge }
}

/// Was the target longer than hyper's own limit of 65,534 bytes?
fn is_uri_too_long(error: &hyper::Error) -> bool {
    // Only the text tells it from a head that is too large.
    error.is_parse_too_large() && error.to_string().starts_with("URI too long")
}

/// Closes the connection so that the client can still read the last answer. `unread` is what hyper
/// has left in its buffer.
pub(super) async fn close(
    mut io: impl Io + Liveness,
    ended: Ended,
    unread: &[u8],
    observed: &Observed,
    state: &ConnectionState,
    draining: &Draining,
) -> hyper::Result<()> {
    let has_come = !unread.is_empty();
    match ended {
        Ended::By(Refusal::HeaderTimeout) if has_come => {
            answer(io, StatusCode::REQUEST_TIMEOUT, state).await;
        }
        // Nothing has come, or the client does not read.
        Ended::By(Refusal::HeaderTimeout) => {}
        // The client takes next to nothing, so nothing is waited for.
        Ended::By(Refusal::SlowResponse) => {
            io.abort();
            io.resets_at_close();
        }
        Ended::By(_) => close_after_failure(io, observed).await,
        Ended::ByItself(result) => {
            if result.is_ok() && !observed.is_shut.get() {
                lingering_close::linger_while_it_takes(&mut io, Liveness::unsent).await;
                observed.is_unsent.set(io.at_risk() > 0);
            }
            if result.as_ref().is_err_and(hyper::Error::is_user) {
                close_after_failure(io, observed).await;
                return result;
            }
            let limits = state.loop_state().limits();
            let too_large =
                observed.found_too_large.get().then(|| what_is_too_large(unread, limits));
            let refusal = match &result {
                Err(error) if is_uri_too_long(error) => Some(Refusal::UriTooLong),
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
                answer(io, status, state).await;
                return result;
            }
            // hyper itself has answered, with a 4xx, unless HTTP/2's preface came after a request.
            if refusal.is_some() && !unread.starts_with(PREFACE) {
                state.loop_state().counts().response(StatusCode::BAD_REQUEST);
            }
            // The last answer is written. Bytes that are still on their way must not reset the
            // connection before the client has read it.
            if refusal.is_some() {
                lingering_close::linger_while_it_takes(&mut io, Liveness::unsent).await;
                return result;
            }
            let sends_rest = state.closing().is_after_refusal() || state.last_body().is_left();
            let has_ended = result.is_err() || observed.client_has_ended(unread);
            let silence = state.loop_state().going_away();
            if sends_rest || !has_ended && (has_come || lingering_close::has_come(&mut io).await) {
                // The client still sends the rest of an upload, or has sent more requests than were
                // answered. It may read the last response later.
                let linger =
                    lingering_close::linger_while_it_reads(&mut io, silence, Liveness::unsent);
                if sends_rest {
                    // An upload may be longer than the grace period of a drain. (Boxed, so that
                    // other connections are no larger.)
                    let drained = Box::pin(async {
                        draining.started().await;
                        sleep(state.loop_state().going_away()).await;
                    });
                    select(pin!(linger), drained).await;
                } else {
                    linger.await;
                }
            } else if !has_ended && observed.is_unsent.get() {
                // Another request may come while the client reads, and must not reset the
                // connection.
                lingering_close::linger_until_sent(&mut io, silence, Liveness::unsent).await;
            }
            return result;
        }
    }
    Ok(())
}

/// Answers without a complete request. The client can still read the earlier responses.
async fn answer(mut io: impl Io + Liveness, status: StatusCode, state: &ConnectionState) {
    if unasked_answer::write(&mut io, status, state.loop_state()).await {
        lingering_close::linger_while_it_takes(&mut io, Liveness::unsent).await;
    }
}

/// Closes the connection after the service or a body has failed or panicked, or a limit has ended
/// it. The client can still read the earlier responses. The close itself may mark the end of the
/// failed response (HTTP/1.0). Then the close resets the connection (TLS: sends no
/// `close_notify`), because the response would look complete.
pub(super) async fn close_after_failure(mut io: impl Io + Liveness, observed: &Observed) {
    if observed.ends_by_close.get() {
        // Also if this is dropped during the wait.
        io.abort();
        if io.plain_tcp().is_some() {
            lingering_close::wait_until_sent(&mut io, Liveness::unsent).await;
            return;
        }
    }
    lingering_close::linger_while_it_takes(&mut io, Liveness::unsent).await;
}
