//! Valid answers, mixed and cut at random places, are understood correctly.

use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};

use super::*;
use crate::protocol::tests::take_all;

const REQUESTS: usize = 6;

/// The messages of one answer. Their order matters. Messages of other streams may come between
/// them, but not between the frames of one message.
#[derive(Debug, Clone)]
struct Said {
    success: bool,
    messages: Vec<Vec<u8>>,
}

/// The heads of answers. Some change the table, and some have Huffman code (such as the 302).
const HEADS: &[(bool, &[u8])] = &[
    (true, b"\x88"),
    (false, b"\x8d"),
    (true, b"\x08\x03307\x00\x01a\x03bcd"),
    (true, b"\x48\x82\x64\x02"),
    (false, b"\x48\x03503\x40\x01a\x03bcd"),
    (true, b"\x8a\x0f\x0d\x81\x1f"),
];

/// Encodes a header block as HEADERS, with or without padding, and as many CONTINUATION frames as
/// there are cuts.
fn block(stream: u32, end: bool, block: &[u8], cuts: &[Index], padding: Option<u8>) -> Vec<u8> {
    let mut at: Vec<_> = cuts.iter().map(|cut| cut.index(block.len() + 1)).collect();
    at.sort_unstable();
    at.push(block.len());
    let (mut bytes, mut from) = (Vec::new(), 0);
    for (number, to) in at.iter().copied().enumerate() {
        let whole = if number == cuts.len() { END_HEADERS } else { 0 };
        let part = &block[from..to];
        if number == 0 {
            let flags = whole | u8::from(end);
            bytes.extend(padded(1, flags, stream, part, padding));
        } else {
            bytes.extend(frame(9, whole, stream, part));
        }
        from = to;
    }
    bytes
}

fn padded(kind: u8, flags: u8, stream: u32, payload: &[u8], padding: Option<u8>) -> Vec<u8> {
    let Some(length) = padding else { return frame(kind, flags, stream, payload) };
    let payload = [&[length], payload, &vec![0; length.into()]].concat();
    frame(kind, flags | 8, stream, &payload)
}

fn said(stream: u32) -> impl Strategy<Value = Said> {
    let padding = || proptest::option::of(0..20_u8);
    let parts = vec((0..300_usize, padding()), 0..4);
    (select(HEADS), 0..3, parts, any::<bool>(), vec(any::<Index>(), 0..3), padding()).prop_map(
        move |((success, head), informational, parts, trailers, cuts, padding)| {
            let mut messages = Vec::new();
            for _ in 0..informational {
                messages.push(block(stream, false, b"\x08\x03103", &cuts, None));
            }
            let end = parts.is_empty() && !trailers;
            messages.push(block(stream, end, head, &cuts, padding));
            for (number, (size, padding)) in parts.iter().enumerate() {
                let end = u8::from(number + 1 == parts.len() && !trailers);
                messages.push(padded(0, end, stream, &vec![b'x'; *size], *padding));
            }
            if trailers {
                messages.push(block(stream, true, b"\x00\x01t\x01v", &cuts, padding));
            }
            Said { success, messages }
        },
    )
}

fn all_said() -> impl Strategy<Value = Vec<Said>> {
    (0..REQUESTS as u32).map(|order| said(2 * order + 1)).collect::<Vec<_>>()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn mixed_and_cut_answers_are_the_same(
        said in all_said(),
        order in vec(any::<Index>(), 100),
        cuts in vec(any::<Index>(), 0..20),
    ) {
        let mut left: Vec<_> = said.iter().map(|it| it.messages.iter()).collect();
        let mut bytes = frame(6, 0, 0, b"ping----");
        for pick in order.iter().cycle() {
            left.retain(|messages| messages.len() > 0);
            if left.is_empty() {
                break;
            }
            let at = pick.index(left.len());
            bytes.extend(left[at].next().into_iter().flatten());
        }
        let mut http = opened(&get(), &[]);
        for _ in 0..REQUESTS {
            http.request(&mut Vec::new());
        }
        let mut at: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        let parts = at.windows(2).map(|ends| &bytes[ends[0]..ends[1]]);
        let (mut answers, rest) = take_all(&mut http, parts).unwrap();
        prop_assert_eq!(rest, 0);
        answers.sort_unstable_by_key(|answer| answer.key);
        let expected: Vec<_> = said.iter().zip(0..).map(|(said, key)| {
            (key, said.success)
        }).collect();
        let is_success = |answer: &Answer| (answer.key, answer.outcome == Outcome::Success);
        prop_assert_eq!(answers.iter().map(is_success).collect::<Vec<_>>(), expected);
        prop_assert!(http.streams.is_empty());
    }
}
