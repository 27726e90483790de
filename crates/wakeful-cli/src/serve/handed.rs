//! What a master passes to workers that execute the program again, because they cannot find it out
//! themselves.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use wakeful_services::proxy::headers::Pseudonym;
use wakeful_services::tls::TicketSecret;

/// The data of the master. See the [module](self).
#[derive(Debug)]
pub(super) struct Handed {
    /// The master's command line, with what its settings file said when it started.
    pub(super) words: Vec<OsString>,
    /// The secret for session tickets, common to all workers.
    pub(super) tickets: Option<TicketSecret>,
    /// The name by which a proxy recognises its own requests, common to all workers.
    pub(super) pseudonym: Pseudonym,
}

/// The end of a word. No word contains it.
const END: u8 = 0;

impl Handed {
    /// How long the secret is, the secret, the name, and the words.
    pub(super) fn bytes(
        words: &[OsString],
        tickets: Option<&TicketSecret>,
        pseudonym: Pseudonym,
    ) -> Vec<u8> {
        let secret = tickets.map(TicketSecret::to_bytes);
        let secret = secret.as_ref().map_or(&[][..], |secret| secret);
        let words = words.iter().flat_map(|word| word.as_bytes().iter().copied().chain([END]));
        let length = [secret.len() as u8].into_iter();
        let secret = length.chain(secret.iter().copied());
        secret.chain(pseudonym.to_bytes()).chain(words).collect()
    }

    /// Parses these bytes. `None`: they are other bytes.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first()?;
        let (secret, words) = rest.split_at_checked((*length).into())?;
        let secret: Option<[u8; 32]> = secret.try_into().ok();
        let (pseudonym, words) = words.split_first_chunk::<8>()?;
        let words = words.strip_suffix(&[END])?.split(|byte| *byte == END);
        let words = words.map(|word| OsStr::from_bytes(word).to_owned()).collect();
        let tickets = secret.map(TicketSecret::from);
        Some(Self { words, tickets, pseudonym: Pseudonym::from(*pseudonym) })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn workers_are_handed_the_words_the_secret_and_the_name() {
        let pseudonym = Pseudonym::unique();
        let words: Vec<OsString> =
            ["wakeful", "", "a b\n", "ü"].into_iter().map(OsString::from).collect();
        let words = [words, vec![OsString::from_vec(vec![0xff])]].concat();
        for secret in [None, Some([7; 32])] {
            let tickets = secret.map(TicketSecret::from);
            let bytes = Handed::bytes(&words, tickets.as_ref(), pseudonym);
            let handed = Handed::of(&bytes).unwrap();
            assert_eq!(handed.words, words);
            assert_eq!(handed.pseudonym.to_bytes(), pseudonym.to_bytes());
            assert_eq!(handed.tickets.map(|tickets| tickets.to_bytes()), secret);
        }
        for bytes in [&[][..], &[0], &[32, 1], &[0, 0], b"\x0012345678a"] {
            assert!(Handed::of(bytes).is_none(), "{bytes:?}");
        }
    }
}
