//! What a master passes to workers that execute the program again, because they cannot find it out
//! themselves.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use wakeful_services::tls::TicketSecret;

/// The data of the master. See the [module](self).
#[derive(Debug)]
pub(super) struct Handed {
    /// The master's command line, with what its settings file said when it started.
    pub(super) words: Vec<OsString>,
    /// The secret for session tickets, common to all workers.
    pub(super) tickets: Option<TicketSecret>,
}

/// The end of a word. No word contains it.
const END: u8 = 0;

impl Handed {
    /// The words, how long the secret is, and the secret.
    pub(super) fn bytes(words: &[OsString], tickets: Option<&TicketSecret>) -> Vec<u8> {
        let secret = tickets.map(TicketSecret::to_bytes);
        let secret = secret.as_ref().map_or(&[][..], |secret| secret);
        let words = words.iter().flat_map(|word| word.as_bytes().iter().copied().chain([END]));
        [secret.len() as u8].into_iter().chain(secret.iter().copied()).chain(words).collect()
    }

    /// Parses these bytes. `None`: they are other bytes.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first()?;
        let (secret, words) = rest.split_at_checked((*length).into())?;
        let secret: Option<[u8; 32]> = secret.try_into().ok();
        let words = words.strip_suffix(&[END])?.split(|byte| *byte == END);
        let words = words.map(|word| OsStr::from_bytes(word).to_owned()).collect();
        Some(Self { words, tickets: secret.map(TicketSecret::from) })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn workers_are_handed_the_words_and_the_secret() {
        let words: Vec<OsString> =
            ["wakeful", "", "a b\n", "ü"].into_iter().map(OsString::from).collect();
        let words = [words, vec![OsString::from_vec(vec![0xff])]].concat();
        for secret in [None, Some([7; 32])] {
            let tickets = secret.map(TicketSecret::from);
            let handed = Handed::of(&Handed::bytes(&words, tickets.as_ref())).unwrap();
            assert_eq!(handed.words, words);
            assert_eq!(handed.tickets.map(|tickets| tickets.to_bytes()), secret);
        }
        for bytes in [&[][..], &[0], &[32, 1], &[0, b'a']] {
            assert!(Handed::of(bytes).is_none(), "{bytes:?}");
        }
    }
}
