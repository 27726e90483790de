//! What is said on a connection: for each direction a stream of bytes that follows from the connection's number, so that a receiver
//! knows at each position which byte has to come.

use crate::ledger::Side;

/// The client's stream begins with the connection's number, by which the server knows which connection it is.
pub(crate) const HEADER: usize = 8;

/// The byte at `position` of what `side` sends on connection `id`.
fn byte(id: u64, side: Side, position: u64) -> u8 {
    if side == Side::Client && position < HEADER as u64 {
        return id.to_be_bytes()[usize::try_from(position).unwrap_or(0)];
    }
    // Neighbouring positions, connections and directions differ, and no period is a power of two.
    let block = (id << 1 | side as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (position / 251);
    (block.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u8 ^ (position % 251) as u8
}

/// Fills `buf` with what `side` sends from `position` on.
pub(crate) fn fill(id: u64, side: Side, position: u64, buf: &mut [u8]) {
    buf.iter_mut().zip(position..).for_each(|(to, at)| *to = byte(id, side, at));
}

/// The first position at which `received`, which `side` sent from `position` on, is not what it should be.
pub(crate) fn first_difference(
    id: u64,
    side: Side,
    position: u64,
    received: &[u8],
) -> Option<u64> {
    received.iter().zip(position..).find(|&(&got, at)| got != byte(id, side, at)).map(|(_, at)| at)
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
