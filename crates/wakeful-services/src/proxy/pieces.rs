//! Waiting pieces of a body. Each piece costs more memory than its bytes, so small pieces are
//! joined. Otherwise a body in chunks of one byte would take forty times the memory that is
//! counted.

use bytes::{Bytes, BytesMut};

/// Pieces are joined up to this length. Larger ones are only passed on.
const JOINED: usize = 4096;

/// Appends `more` to `last`, if both together are small. Otherwise returns `false`.
pub(super) fn join(last: &mut Bytes, more: &[u8]) -> bool {
    if last.len() + more.len() > JOINED {
        return false;
    }
    // A piece that was joined before has room. A piece that came from a connection shares its
    // buffer with others, and releases it here.
    let mut joined = std::mem::take(last).try_into_mut().unwrap_or_else(|shared| {
        let mut copy = BytesMut::with_capacity(JOINED);
        copy.extend_from_slice(&shared);
        copy
    });
    joined.extend_from_slice(more);
    *last = joined.freeze();
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pieces_become_one_up_to_a_limit() {
        let text = Bytes::from(vec![b'x'; 3 * JOINED]);
        let mut pieces = vec![text.slice(..1)];
        for at in 1..text.len() {
            let piece = text.slice(at..=at);
            if !join(pieces.last_mut().unwrap(), &piece) {
                pieces.push(piece);
            }
        }
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [JOINED; 3]);
        assert_eq!(pieces.concat(), text);
        assert!(!join(&mut pieces[0], b"y"));
        assert!(join(&mut pieces[0], b""));
    }
}
