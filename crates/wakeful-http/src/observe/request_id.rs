//! Request ids: the client's if it is valid, otherwise one that the loop makes.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use http::{HeaderMap, HeaderName, HeaderValue};

pub(super) const NAME: HeaderName = HeaderName::from_static("x-request-id");
const LONGEST: usize = 128;

/// Where requests get their ids from, as `x-request-id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequestIds {
    /// The server sets no id. A request has only an id that the client sent.
    #[default]
    Off,
    /// A request keeps the client's id if the id has 1 to 128 characters of visible ASCII.
    /// Otherwise the request gets a new one. Use this behind a proxy that makes ids.
    Accept,
    /// Each request gets a new id. Use this for servers that any client can reach: with `Accept`, a
    /// client could use the ids of other requests.
    Replace,
}

/// Makes ids that no other loop or process makes: 64 random bits of the loop, and a count. They can
/// be guessed, because an id is no secret.
#[derive(Debug)]
pub(super) struct Maker {
    of_the_loop: u64,
    count: Cell<u64>,
}

impl Maker {
    pub(super) fn new() -> Self {
        Self { of_the_loop: random(), count: Cell::new(0) }
    }

    fn make(&self) -> Option<HeaderValue> {
        let count = self.count.get();
        self.count.set(count.wrapping_add(1));
        let id = u128::from(self.of_the_loop) << 64 | u128::from(count);
        // 32 hexadecimal digits are always a valid value.
        HeaderValue::from_bytes(&digits(id)).ok()
    }

    /// The id of a request with these headers. The headers are changed to contain it.
    #[inline]
    pub(super) fn id(&self, from: RequestIds, headers: &mut HeaderMap) -> Option<HeaderValue> {
        if from == RequestIds::Off { None } else { self.given_or_made(from, headers) }
    }

    fn given_or_made(&self, from: RequestIds, headers: &mut HeaderMap) -> Option<HeaderValue> {
        if from == RequestIds::Accept {
            let mut given = headers.get_all(NAME).iter();
            if let (Some(id), None) = (given.next(), given.next())
                && is_sane(id.as_bytes())
            {
                return Some(id.clone());
            }
        }
        let id = self.make()?;
        headers.insert(NAME, id.clone());
        Some(id)
    }
}

/// 64 random bits of the operating system. std reads them once per thread, not each time.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

fn digits(mut number: u128) -> [u8; 32] {
    let mut text = [0; 32];
    for digit in text.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 0xf) as usize];
        number >>= 4;
    }
    text
}

fn is_sane(id: &[u8]) -> bool {
    (1..=LONGEST).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_two_loops_differ_and_so_do_those_of_one() {
        let (one, other) = (Maker::new(), Maker::new());
        let ids = [one.make(), one.make(), other.make(), other.make()].map(Option::unwrap);
        assert!(ids.iter().all(|id| is_sane(id.as_bytes()) && id.len() == 32));
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
    }

    #[test]
    fn digits_are_the_numbers() {
        assert_eq!(&digits(0xab), b"000000000000000000000000000000ab");
        assert_eq!(digits(u128::MAX), [b'f'; 32]);
    }

    #[test]
    fn what_is_no_sane_id_is_replaced() {
        let maker = Maker::new();
        let id = |from, given: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for given in given {
                headers.append(NAME, HeaderValue::from_bytes(given).unwrap());
            }
            let id = maker.id(from, &mut headers).unwrap();
            assert!(headers.get_all(NAME).iter().eq([&id]));
            id
        };
        let (longest, longer) = ([b'a'; 128], [b'a'; 129]);
        for sane in [&b"a-B_1/~"[..], &longest] {
            assert_eq!(id(RequestIds::Accept, &[sane]), sane);
            assert_ne!(id(RequestIds::Replace, &[sane]), sane);
        }
        for given in [&[&b""[..]][..], &[b"a b"], &[b"\xff"], &[&longer], &[b"a", b"b"]] {
            assert_eq!(id(RequestIds::Accept, given).len(), 32, "{given:?}");
        }
        assert!(maker.id(RequestIds::Off, &mut HeaderMap::new()).is_none());
    }
}
