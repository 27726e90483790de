//! The bytes that are sent on a connection. Each direction has a stream of bytes that follows from
//! the connection's number, so a receiver knows which byte has to come at each position.

use std::sync::LazyLock;

use crate::ledger::Side;

/// The client's stream begins with the connection's number. By it the server knows which connection
/// it is.
pub(crate) const HEADER: usize = 8;

/// All streams consist of these random bytes: each begins at its own position, and starts again at
/// the end. The length is a prime, so that no loss of a round number of bytes goes unnoticed.
const PERIOD: usize = 65_521;

/// The first bytes follow once more after the end, so that a piece of up to this length is
/// contiguous.
const LONGEST: usize = 16 * 1024;

static RANDOM: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = fastrand::Rng::with_seed(1);
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(PERIOD).collect();
    bytes.extend_from_within(..LONGEST);
    bytes
});

/// Returns what `side` sends from `position` on, without its header: up to `length` bytes, which
/// must be at most [`LONGEST`].
fn piece(id: u64, side: Side, position: u64, length: usize) -> &'static [u8] {
    let start = fastrand::Rng::with_seed(id << 1 | side as u64).u64(..);
    let start = (start % PERIOD as u64 + position % PERIOD as u64) % PERIOD as u64;
    let start = usize::try_from(start).expect("less than the period");
    &RANDOM[start..start + length]
}

/// Fills `buf` with what `side` sends from `position` on.
pub(crate) fn fill(id: u64, side: Side, position: u64, buf: &mut [u8]) {
    for (number, part) in buf.chunks_mut(LONGEST).enumerate() {
        let position = position + (number * LONGEST) as u64;
        part.copy_from_slice(piece(id, side, position, part.len()));
    }
    if side == Side::Client && position < HEADER as u64 {
        let header = id.to_be_bytes().into_iter().skip(position as usize);
        buf.iter_mut().zip(header).for_each(|(to, byte)| *to = byte);
    }
}

/// Returns the first position at which `received` is wrong. `side` sent it from `position` on.
pub(crate) fn first_difference(id: u64, side: Side, position: u64, received: &[u8]) -> Option<u64> {
    let mut sent = vec![0; received.len()];
    fill(id, side, position, &mut sent);
    if sent == received {
        return None;
    }
    let equal = sent.iter().zip(received).take_while(|(sent, received)| sent == received).count();
    Some(position + equal as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(id: u64, side: Side, position: u64) -> [u8; 600] {
        let mut buf = [0; 600];
        fill(id, side, position, &mut buf);
        buf
    }

    #[test]
    fn a_difference_is_found_where_it_is() {
        let mut received = stream(7, Side::Server, 1000);
        assert_eq!(first_difference(7, Side::Server, 1000, &received), None);
        received[123] ^= 1;
        assert_eq!(first_difference(7, Side::Server, 1000, &received), Some(1123));
    }

    #[test]
    fn a_byte_lost_repeated_or_of_another_stream_is_a_difference() {
        for start in [8, 245, 500, 70_000] {
            let received = stream(7, Side::Client, start);
            for (id, side, position) in [
                (7, Side::Client, start + 1),
                (7, Side::Client, start - 1),
                (7, Side::Client, start + 256),
                (7, Side::Server, start),
                (8, Side::Client, start),
            ] {
                let found = first_difference(id, side, position, &received[..100]);
                assert!(found.is_some(), "{id} {side:?} {position}");
            }
        }
    }

    #[test]
    fn a_client_says_first_who_it_is() {
        assert_eq!(stream(0x0102, Side::Client, 0)[..8], [0, 0, 0, 0, 0, 0, 1, 2]);
    }
}
