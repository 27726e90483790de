//! `Via` (RFC 9110, 7.6.3) names the proxies that a message has passed. It shows whether this proxy
//! is among them.

use std::hash::{BuildHasher, Hasher, RandomState};

use http::header::VIA;
use http::{HeaderMap, HeaderValue, Version};

/// The unique name of a proxy in the `Via` header of requests. A request that arrives with this
/// name has passed the proxy before, and is in a loop.
///
/// The `Via` of responses has only the program's name, because clients need not distinguish
/// instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pseudonym {
    name: u64,
    /// The entries, one for each protocol version.
    entries: [&'static str; 3],
}

impl Pseudonym {
    /// Returns a new name. Its memory is never freed, because a proxy needs the name as long as it
    /// runs.
    #[must_use]
    pub fn unique() -> Self {
        Self::of(RandomState::new().build_hasher().finish())
    }

    fn of(name: u64) -> Self {
        let entry = |version| &*format!("{version} wakeful-{name:016x}").leak();
        Self { name, entries: ["1.0", "1.1", "2.0"].map(entry) }
    }

    /// Returns the name, for another process of the same proxy.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 8] {
        self.name.to_be_bytes()
    }

    /// The entry for a request that came by `version`.
    pub(super) fn entry(self, version: Version) -> HeaderValue {
        HeaderValue::from_static(self.entries[place(version)])
    }

    /// Has a request with these fields passed this proxy before?
    pub(super) fn is_in(self, headers: &HeaderMap) -> bool {
        let own = received_by(self.entries[0].as_bytes());
        let mut values = headers.get_all(VIA).iter();
        values.any(|value| {
            let mut entries = value.as_bytes().split(|byte| *byte == b',');
            entries.any(|entry| received_by(entry) == own)
        })
    }
}

impl From<[u8; 8]> for Pseudonym {
    /// Restores a name from its [bytes](Pseudonym::to_bytes). Its memory is never freed.
    fn from(name: [u8; 8]) -> Self {
        Self::of(u64::from_be_bytes(name))
    }
}

/// The proxy that an entry names: `1.1 name (comment)`.
fn received_by(entry: &[u8]) -> Option<&[u8]> {
    let mut words =
        entry.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    words.nth(1)
}

/// The entry for a response that came by `version`.
pub(super) fn of_response(version: Version) -> HeaderValue {
    HeaderValue::from_static(["1.0 wakeful", "1.1 wakeful", "2.0 wakeful"][place(version)])
}

fn place(version: Version) -> usize {
    match version {
        Version::HTTP_10 => 0,
        Version::HTTP_2 => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_knows_its_own_name_among_others_and_no_other_s() {
        let (one, other) = (Pseudonym::unique(), Pseudonym::unique());
        assert_ne!(one, other);
        let mut headers = HeaderMap::new();
        assert!(!one.is_in(&headers));
        headers.append(VIA, HeaderValue::from_static("1.0 fred, 1.1 wakeful (a comment)"));
        headers.append(VIA, other.entry(Version::HTTP_11));
        assert!(!one.is_in(&headers) && other.is_in(&headers));
        let own = one.entry(Version::HTTP_2);
        let joined = format!("HTTP/1.1 p.example.net,\t{} , 1.1 x", own.to_str().unwrap());
        headers.append(VIA, HeaderValue::try_from(joined).unwrap());
        assert!(one.is_in(&headers));
        assert_eq!(Pseudonym::from(one.to_bytes()), one);
    }
}
