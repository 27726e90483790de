//! Which bytes a `Range` header asks for (RFC 9110, 14).
//!
//! `http-range-header` parses the header, and this file decides what may be sent. The header is
//! ignored, as the RFC allows, if it is not understood, or asks for more than [`MAX_RANGES`] parts,
//! or for more bytes in total than the file has. The answer is then the whole file. So no request
//! costs more than sending the file.

use std::num::NonZeroUsize;
use std::ops::Range;

use http_range_header::{SyntacticallyCorrectRange as Asked, parse_range_header_with_max_ranges};

/// More parts than a client needs (PDF viewers ask for a handful), and few enough to be cheap.
pub(super) const MAX_RANGES: NonZeroUsize = NonZeroUsize::new(16).unwrap();

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ranges {
    /// No range applies: send everything.
    Whole,
    /// None of them begins within the file: 416.
    Unsatisfiable,
    /// At least one, each non-empty and within the file, in the order they were asked for.
    Parts(Vec<Range<u64>>),
}

/// Reads `header` for a file of `size` bytes.
pub(super) fn parse(header: &[u8], size: u64) -> Ranges {
    // An empty file has no range that a response could name. Clients that always send a range get
    // the empty file.
    if size == 0 {
        return Ranges::Whole;
    }
    let text = std::str::from_utf8(header).ok();
    let asked = text.and_then(|text| parse_range_header_with_max_ranges(text, MAX_RANGES).ok());
    let Some(asked) = asked else { return Ranges::Whole };
    let parts = asked.into_ranges().into_iter().map(|range| within(range, size));
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    let total: u128 = parts.iter().map(|part| u128::from(part.end - part.start)).sum();
    match parts.len() {
        0 => Ranges::Unsatisfiable,
        _ if total > size.into() => Ranges::Whole,
        _ => Ranges::Parts(parts),
    }
}

/// The part of the range that the file has. It is empty if the range begins beyond the end. A
/// number beyond 64 bits counts as the largest one.
fn within(asked: Asked, size: u64) -> Range<u64> {
    match asked {
        Asked::FromStart(first) => first..size,
        Asked::FromLast(length) => size - length.min(size)..size,
        Asked::Indexed(first, last) => first..last.saturating_add(1).min(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Makes ranges from pairs of start and end.
    fn parts<const N: usize>(parts: [(u64, u64); N]) -> Ranges {
        Ranges::Parts(parts.map(|(start, end)| start..end).to_vec())
    }

    #[test]
    fn the_examples_of_the_rfc() {
        assert_eq!(parse(b"bytes=0-499", 10_000), parts([(0, 500)]));
        assert_eq!(parse(b"bytes=500-999", 10_000), parts([(500, 1000)]));
        assert_eq!(parse(b"bytes=-500", 10_000), parts([(9500, 10_000)]));
        assert_eq!(parse(b"bytes=9500-", 10_000), parts([(9500, 10_000)]));
        assert_eq!(parse(b"bytes=0-0,-1", 10_000), parts([(0, 1), (9999, 10_000)]));
        assert_eq!(parse(b"Bytes= 0-0 ,\t, 5-6", 10_000), parts([(0, 1), (5, 7)]));
    }

    #[test]
    fn ends_are_cut_and_what_begins_beyond_the_end_is_left_out() {
        assert_eq!(parse(b"bytes=5-100", 10), parts([(5, 10)]));
        assert_eq!(parse(b"bytes=-100", 10), parts([(0, 10)]));
        assert_eq!(parse(b"bytes=0-1,10-11", 10), parts([(0, 2)]));
        assert_eq!(parse(b"bytes=10-", 10), Ranges::Unsatisfiable);
        assert_eq!(parse(b"bytes=-0", 10), Ranges::Unsatisfiable);
        let huge = b"bytes=99999999999999999999999-999999999999999999999999999";
        assert_eq!(parse(huge, 10), Ranges::Unsatisfiable);
        assert_eq!(parse(b"bytes=0-99999999999999999999999", 10), parts([(0, 10)]));
        assert_eq!(parse(b"bytes=0-", u64::MAX), parts([(0, u64::MAX)]));
    }

    #[test]
    fn what_is_not_understood_or_too_much_is_ignored() {
        for header in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=a-b",
            "bytes=5-4",
            "bytes=1",
            "items=0-1",
            "bytes=+1-2",
            "bytes=0-1,x",
            "bytes=0 -1",
            "bytes=0-1-2",
            "bytes=0-9,0-9",
            "bytes=-5,-6",
        ] {
            assert_eq!(parse(header.as_bytes(), 10), Ranges::Whole, "{header}");
        }
        assert_eq!(parse(b"bytes=\xff-1", 10), Ranges::Whole);
        let many = |count| format!("bytes={}", vec!["1-1"; count].join(","));
        assert!(matches!(parse(many(MAX_RANGES.get()).as_bytes(), 100), Ranges::Parts(_)));
        assert_eq!(parse(many(MAX_RANGES.get() + 1).as_bytes(), 100), Ranges::Whole);
        // Absurd headers: more digits than any number needs, more commas than ranges.
        assert_eq!(parse(format!("bytes={:031}-", 1).as_bytes(), 10), Ranges::Whole);
        assert_eq!(parse(format!("bytes={}0-1", ",".repeat(100)).as_bytes(), 10), Ranges::Whole);
        assert_eq!(parse(b"bytes=0-", 0), Ranges::Whole);
        assert_eq!(parse(b"bytes=0-,-1", u64::MAX), Ranges::Whole);
    }

    proptest! {
        #[test]
        fn what_is_sent_is_within_the_file_and_no_more_than_it(
            header in "bytes=((0|1|9|99|18446744073709551615|-|,| |a){0,30})",
            size in prop_oneof![0_u64..200, Just(u64::MAX)],
        ) {
            if let Ranges::Parts(parts) = parse(header.as_bytes(), size) {
                prop_assert!(!parts.is_empty() && parts.len() <= MAX_RANGES.get());
                prop_assert!(parts.iter().all(|part| part.start < part.end && part.end <= size));
                let total: u128 = parts.iter().map(|part| u128::from(part.end - part.start)).sum();
                prop_assert!(total <= u128::from(size));
            }
        }

        #[test]
        fn a_range_within_the_file_is_what_comes_back(
            (first, length, behind) in (0_u64..1000, 1_u64..1000, 0_u64..1000),
        ) {
            let (last, size) = (first + length - 1, first + length + behind);
            let expected = Ranges::Parts(std::iter::once(first..last + 1).collect());
            prop_assert_eq!(parse(format!("bytes={first}-{last}").as_bytes(), size), expected);
        }
    }
}
