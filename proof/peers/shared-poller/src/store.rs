//! The keys: in shards, each behind a lock, so that two threads meet only at the same shard.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{PoisonError, RwLock};

const SHARDS: usize = 64;

type Shard = RwLock<HashMap<Box<[u8]>, Box<[u8]>>>;

/// Keys and values, for all threads.
pub struct Store {
    hasher: RandomState,
    shards: Vec<Shard>,
}

impl Default for Store {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        Self { hasher: RandomState::new(), shards }
    }
}

impl Store {
    /// Appends the answer to a command.
    pub fn answer(&self, words: &[&[u8]], out: &mut Vec<u8>) {
        match words {
            [name, key] if name.eq_ignore_ascii_case(b"GET") => {
                let shard = self.shard(key).read().unwrap_or_else(PoisonError::into_inner);
                match shard.get(*key) {
                    Some(value) => {
                        out.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
                        out.extend_from_slice(value);
                        out.extend_from_slice(b"\r\n");
                    }
                    None => out.extend_from_slice(b"$-1\r\n"),
                }
            }
            [name, key, value] if name.eq_ignore_ascii_case(b"SET") => {
                let mut shard = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
                shard.insert((*key).into(), (*value).into());
                out.extend_from_slice(b"+OK\r\n");
            }
            [name, key] if name.eq_ignore_ascii_case(b"DEL") => {
                let mut shard = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
                let removed = shard.remove(*key).is_some();
                out.extend_from_slice(if removed { b":1\r\n" } else { b":0\r\n" });
            }
            [name] if name.eq_ignore_ascii_case(b"PING") => out.extend_from_slice(b"+PONG\r\n"),
            _ => out.extend_from_slice(b"-ERR only GET, SET, DEL and PING are known\r\n"),
        }
    }

    fn shard(&self, key: &[u8]) -> &Shard {
        let hash = self.hasher.hash_one(key).to_ne_bytes();
        &self.shards[usize::from(hash[0]) % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_is_got_until_it_is_deleted() {
        let store = Store::default();
        let mut out = Vec::new();
        for words in [
            &[&b"get"[..], b"k"][..],
            &[b"SET", b"k", b"value"],
            &[b"GET", b"k"],
            &[b"DEL", b"k"],
            &[b"DEL", b"k"],
            &[b"GET"],
        ] {
            store.answer(words, &mut out);
        }
        let expected = "$-1\r\n+OK\r\n$5\r\nvalue\r\n:1\r\n:0\r\n-ERR only GET, SET, DEL and PING are known\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
