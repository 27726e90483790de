//! What must be true of the frames, whatever is sent. The fuzz target `frames` and the tests check
//! it.

use std::io::Read;

use super::{Frames, HEADER, MAX_PAYLOAD};
use crate::buffers::Budget;

/// For a sequence of frames: how many bytes belong to whole frames, and whether a frame follows
/// that is too long.
fn model(bytes: &[u8]) -> (usize, bool) {
    let mut whole = 0;
    while let Some(header) = bytes[whole..].first_chunk::<HEADER>() {
        let payload = u32::from_be_bytes(*header) as usize;
        if payload > MAX_PAYLOAD {
            return (whole, true);
        }
        if bytes.len() - whole < HEADER + payload {
            break;
        }
        whole += HEADER + payload;
    }
    (whole, false)
}

/// Checks the frames. The first byte says in what pieces the rest comes.
///
/// # Panics
/// An incomplete frame is answered, or an answer differs from its frame, or a frame that is too
/// long is not refused, or a frame before it is not answered.
pub(crate) fn check(data: &[u8]) {
    let Some((step, bytes)) = data.split_first() else { return };
    let (whole, refused) = model(bytes);
    let (mut frames, mut answered) = (Frames::new(Budget::new(usize::MAX)), Vec::new());
    for mut piece in bytes.chunks(usize::from(*step).max(1)) {
        while !piece.is_empty() {
            let before = frames.bytes().len();
            let read = read(&mut frames, &mut piece);
            assert_eq!(frames.bytes().len(), before + read);
            let result = frames.complete().and_then(|complete| {
                answered.extend_from_slice(&frames.bytes()[..complete]);
                frames.consume(complete)
            });
            if result.is_err() {
                assert!(refused, "nothing was too long");
                return assert_eq!(answered, bytes[..whole]);
            }
        }
    }
    assert!(!refused, "one was too long");
    assert_eq!((answered.as_slice(), frames.bytes()), bytes.split_at(whole));
    assert_eq!(frames.end().is_ok(), whole == bytes.len());
}

fn read(frames: &mut Frames, from: &mut &[u8]) -> usize {
    let space = frames.space().expect("there is no limit");
    let count = from.read(space).expect("it is in memory");
    frames.add(count);
    count
}
