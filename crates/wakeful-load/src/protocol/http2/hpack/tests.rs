//! Tests with the examples of the RFC, and comparisons with another decoder.

use fluke_hpack::decoder::DecoderError;
use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

/// A decoder that builds every field.
struct Full(fluke_hpack::Decoder<'static>);

impl Full {
    fn new() -> Self {
        let mut full = fluke_hpack::Decoder::new();
        full.set_max_allowed_table_size(MAX_TABLE);
        Self(full)
    }

    fn decode(&mut self, block: &[u8]) -> Result<Said, DecoderError> {
        let fields = self.0.decode(block)?;
        let values = |wanted: &[u8]| {
            let of_name = fields.iter().filter(|(name, _)| name == wanted);
            of_name.map(|(_, value)| value.clone()).collect::<Vec<_>>()
        };
        let status = match &values(b":status")[..] {
            [] => Status::Absent,
            [value] => code(value),
            _ => Status::Invalid,
        };
        let grpc_ok = values(b"grpc-status").last().map(|value| value == b"0");
        Ok(Said { status, grpc_ok })
    }
}

fn hex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// RFC 7541, C.5 and C.6: three answers with a table so small that fields are dropped from it.
#[test]
fn the_examples_of_the_rfc() {
    let plain = [
        "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d54\
         6e1768747470733a2f2f7777772e6578616d706c652e636f6d",
        "4803333037c1c0bf",
        "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f\
         3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076\
         657273696f6e3d31",
    ];
    let huffman = [
        "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad1718\
         63c78f0b97c8e9ae82ae43d3",
        "4883640effc1c0bf",
        "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335df\
         dfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
    ];
    for blocks in [plain, huffman] {
        let mut decoder = Decoder { max: 256, ..Decoder::default() };
        let mut sizes = Vec::new();
        let codes = blocks.map(|block| {
            let status = decoder.decode(&hex(block)).unwrap().status;
            sizes.push(decoder.size);
            status
        });
        assert_eq!(codes, [302, 307, 200].map(Status::Code));
        assert_eq!(sizes, [222, 222, 215]);
    }
}

#[test]
fn what_a_status_may_be() {
    let status = |block: &[u8]| Decoder::default().decode(block).unwrap().status;
    assert_eq!(status(b""), Status::Absent);
    assert_eq!(status(b"\x8e"), Status::Code(500));
    assert_eq!(status(b"\x08\x03418"), Status::Code(418));
    assert_eq!(status(b"\x10\x07:status\x03503"), Status::Code(503));
    for invalid in
        [&b"\x08\x0299"[..], b"\x08\x03099", b"\x08\x042000", b"\x08\x03+20", b"\x88\x88"]
    {
        assert_eq!(status(invalid), Status::Invalid, "{}", invalid.escape_ascii());
    }
}

#[test]
fn a_grpc_status_is_known_by_its_name_also_from_the_table() {
    let mut decoder = Decoder::default();
    let mut grpc = |block: &[u8]| decoder.decode(block).unwrap().grpc_ok;
    assert_eq!(grpc(b"\x88"), None);
    assert_eq!(grpc(b"\x10\x0bgrpc-status\x010"), Some(true));
    assert_eq!(grpc(b"\x40\x0bgrpc-status\x0214"), Some(false));
    assert_eq!(grpc(b"\xbe"), Some(false), "the field itself");
    assert_eq!(grpc(b"\x7e\x010"), Some(true), "its name, with another value");
    assert_eq!(grpc(b"\xbe"), Some(true));
}

#[test]
fn faults_are_named() {
    let bad = |block: &[u8], part: &str| {
        let fault = Decoder::default().decode(block).unwrap_err();
        assert!(fault.contains(part), "{fault}");
    };
    bad(b"\x80", "index 0");
    bad(b"\xbe", "not in the table");
    bad(b"\x48", "beyond");
    bad(b"\x48\x0312", "beyond");
    bad(b"\xff", "beyond");
    bad(b"\xff\xff\xff\xff\xff\x0f", "too large");
    bad(b"\x88\x20", "size");
    bad(b"\x3f\xe2\x1f", "size");
    // The end-of-string symbol.
    bad(b"\x48\x84\xff\xff\xff\xff", "Huffman");
}

/// Appends an integer with a prefix of `prefix` bits.
fn put(block: &mut Vec<u8>, first: u8, prefix: u32, value: usize) {
    let most = (1 << prefix) - 1;
    block.push(first | value.min(most) as u8);
    if let Some(mut rest) = value.checked_sub(most) {
        while rest >= 0x80 {
            block.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        block.push(rest as u8);
    }
}

fn put_string(block: &mut Vec<u8>, bytes: &[u8], huffman: bool) {
    if !huffman {
        put(block, 0, 7, bytes.len());
        return block.extend_from_slice(bytes);
    }
    let mut folded = Vec::new();
    httlib_huffman::encode(bytes, &mut folded).unwrap();
    put(block, 0x80, 7, folded.len());
    block.extend_from_slice(&folded);
}

/// The representation of one field. Its index is sometimes beyond the table.
fn field() -> impl Strategy<Value = Vec<u8>> {
    let value = prop_oneof![
        select(&["200", "404", "0", "x"][..]).prop_map(|it| it.as_bytes().to_vec()),
        vec(any::<u8>(), 0..60),
        vec(any::<u8>(), 0..1200),
    ];
    let name = select(&[":status", "grpc-status", "content-length", "x-a"][..]);
    let index = prop_oneof![4 => 1..70_usize, 1 => 8..15_usize, 4 => 62..66_usize];
    let form = select(&[(0x40_u8, 6_u32), (0, 4), (0x10, 4)][..]);
    prop_oneof![
        2 => index.clone().prop_map(|index| {
            let mut block = Vec::new();
            put(&mut block, 0x80, 7, index);
            block
        }),
        3 => (form.clone(), index, value.clone(), any::<bool>()).prop_map(
            |((first, prefix), index, value, huffman)| {
                let mut block = Vec::new();
                put(&mut block, first, prefix, index);
                put_string(&mut block, &value, huffman);
                block
            }
        ),
        3 => (form, name, value, any::<bool>()).prop_map(|((first, _), name, value, huffman)| {
            let mut block = vec![first];
            put_string(&mut block, name.as_bytes(), huffman);
            put_string(&mut block, &value, huffman);
            block
        }),
    ]
}

/// A block, which may begin with a change of the table's size.
fn block() -> impl Strategy<Value = Vec<u8>> {
    (proptest::option::weighted(0.2, 0..4200_usize), vec(field(), 1..12)).prop_map(
        |(size, fields)| {
            let mut block = Vec::new();
            if let Some(size) = size {
                put(&mut block, 0x20, 5, size);
            }
            block.extend(fields.concat());
            block
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn a_full_decoder_says_the_same(blocks in vec(block(), 1..12)) {
        let (mut ours, mut full) = (Decoder::default(), Full::new());
        for block in blocks {
            match (ours.decode(&block), full.decode(&block)) {
                (Ok(ours), Ok(full)) => prop_assert_eq!(ours, full),
                (Err(_), Err(_)) => break,
                (ours, full) => prop_assert!(false, "{:?} but {:?}", ours, full),
            }
            let sum: usize = ours.table.iter().map(|it| it.name + it.value + OVERHEAD).sum();
            prop_assert_eq!(ours.size, sum);
            prop_assert!(sum <= ours.max);
        }
    }

    /// Blocks of arbitrary bytes that both decoders accept mean the same to both.
    #[test]
    fn arbitrary_blocks_do_no_harm(blocks in vec(vec(any::<u8>(), 0..40), 1..4)) {
        let (mut ours, mut full) = (Decoder::default(), Full::new());
        for block in blocks {
            let Ok(ours) = ours.decode(&block) else { break };
            let Ok(full) = full.decode(&block) else { break };
            prop_assert_eq!(ours, full);
        }
    }

    #[test]
    fn what_is_folded_unfolds(bytes in vec(any::<u8>(), 0..300)) {
        let mut block = vec![];
        put_string(&mut block, &bytes, true);
        let mut rest = &block[..];
        let string = string(&mut rest).unwrap();
        let mut decoder = Decoder::default();
        prop_assert_eq!(decoder.unfold(string), Ok(&bytes[..]));
    }
}
