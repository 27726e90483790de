//! A mark on requests that a server may have acted on, and that are sent once more.
//!
//! A pooled connection closes for reasons of its own. But if a new one closes when it has its first
//! request, the request itself may be the cause: a deadly one, which would end one server after the
//! other. So such a request is repeated once at most, whatever its connections were. The mark is an
//! extension of the request. So it also holds at the next host, if the request was given back.

use http::Extensions;

use super::attempt::Acted;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeated {
    AfterPooled,
    AfterNew,
}

/// May a new connection close under the request, so that it is sent again?
pub(super) fn may_follow_a_new_connection(marks: &Extensions) -> bool {
    marks.get::<Repeated>().is_none()
}

/// May an idempotent request with these `marks` be sent again after this attempt?
pub(super) fn may_be_sent_again(marks: &Extensions, acted: Acted) -> bool {
    match acted {
        Acted::No => true,
        Acted::OnceAtMost => marks.get() != Some(&Repeated::AfterNew),
        Acted::OnceAtMostOnNew => may_follow_a_new_connection(marks),
        Acted::Perhaps => false,
    }
}

/// Marks a request that is sent again after this attempt.
pub(super) fn mark(marks: &mut Extensions, acted: Acted) {
    let repeated = match acted {
        Acted::OnceAtMost => Repeated::AfterPooled,
        Acted::OnceAtMostOnNew => Repeated::AfterNew,
        Acted::No | Acted::Perhaps => return,
    };
    marks.insert(repeated);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_connection_is_followed_by_one_repeat_in_all() {
        use Acted::{OnceAtMost, OnceAtMostOnNew};
        for (attempts, is_last_repeated) in [
            (&[OnceAtMostOnNew][..], true),
            (&[OnceAtMostOnNew, OnceAtMostOnNew], false),
            (&[OnceAtMostOnNew, OnceAtMost], false),
            (&[OnceAtMost, OnceAtMostOnNew], false),
            // The retries bound these.
            (&[OnceAtMost, OnceAtMost, OnceAtMost], true),
            (&[OnceAtMostOnNew, Acted::No], true),
            (&[Acted::No, OnceAtMostOnNew], true),
            (&[Acted::Perhaps], false),
        ] {
            let mut marks = Extensions::new();
            let repeated = attempts.iter().map(|acted| {
                let is_repeated = may_be_sent_again(&marks, *acted);
                mark(&mut marks, *acted);
                is_repeated
            });
            assert_eq!(repeated.last(), Some(is_last_repeated), "{attempts:?}");
        }
    }
}
