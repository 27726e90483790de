//! Properties of all conversations: arbitrary bytes do no harm, and the answers do not depend on
//! how the bytes were cut into reads.

use proptest::{collection::vec, prelude::*};

use super::*;

/// Plays the generator's part: passes the bytes in pieces of `step`, each after the bytes that were
/// not taken. Returns the answers, and how many bytes are left.
pub(super) fn take(
    conversation: &mut impl Conversation,
    bytes: &[u8],
    step: usize,
) -> Result<(Vec<Answer>, usize), ProtocolError> {
    take_all(conversation, bytes.chunks(step.max(1)))
}

pub(super) fn take_all<'a>(
    conversation: &mut impl Conversation,
    parts: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(Vec<Answer>, usize), ProtocolError> {
    let (mut input, mut out, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    for part in parts {
        input.extend_from_slice(part);
        let taken = conversation.receive(&input, &mut out, &mut answers)?;
        assert!(taken <= input.len());
        input.drain(..taken);
    }
    Ok((answers, input.len()))
}

/// Returns one character per answer: `+` for a success, `-` for a failure.
pub(super) fn outcomes(answers: &[Answer]) -> String {
    let sign = |it: &Answer| if it.outcome == Outcome::Success { '+' } else { '-' };
    answers.iter().map(sign).collect()
}

const ALL: [Protocol; 4] = [Protocol::Frames, Protocol::Resp, Protocol::Http1, Protocol::Http2];

fn template(protocol: Protocol) -> Template {
    let mut template = Template::of_size(40);
    if matches!(protocol, Protocol::Http1 | Protocol::Http2) {
        template.method = "POST".into();
        template.path = "/".into();
        template.authority = "localhost".into();
    }
    template
}

/// Returns a conversation with requests under way.
fn busy(protocol: Protocol, requests: usize) -> AnyConversation {
    let mut conversation = Requests::new(protocol, &template(protocol)).unwrap().conversation();
    let mut out = Vec::new();
    conversation.open(&mut out);
    if protocol == Protocol::Http2 {
        conversation.receive(&[0, 0, 0, 4, 0, 0, 0, 0, 0], &mut out, &mut Vec::new()).unwrap();
    }
    for _ in 0..requests {
        assert!(conversation.may_request());
        conversation.request(&mut out);
    }
    conversation
}

/// Bytes that often match the protocol's grammar.
fn nearly(protocol: Protocol) -> BoxedStrategy<Vec<u8>> {
    let words: &'static [&'static [u8]] = match protocol {
        Protocol::Frames => &[b"\0\0\0\x28", b"\0\0\0\0", b"\0\0\0\x01", b"\xff\xff\xff\xff"],
        Protocol::Resp => &[
            b"\r\n",
            b"$",
            b"*",
            b"%",
            b">",
            b"|",
            b"-",
            b"+",
            b":",
            b"_",
            b"#t",
            b"1",
            b"-1",
            b"9223372036854775807",
            b"$3\r\nabc\r\n",
            b"*2\r\n",
            b"+OK\r\n",
            b"=3",
            b"!3",
            b"~0",
        ],
        Protocol::Http1 => &[
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.0 404 \r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 204 No\r\n\r\n",
            b"content-length: 3\r\n",
            b"connection: close\r\n",
            b"transfer-encoding: chunked\r\n",
            b"content-length: 18446744073709551615\r\n",
            b"\r\n",
            b"3\r\nabc\r\n",
            b"0\r\n",
            b"ffffffffffffffff\r\n",
            b"abc",
            b"x: y\r\n",
            b"\n",
        ],
        Protocol::Http2 => &[
            b"\0\0\x01\x01\x05\0\0\0\x01\x88",
            b"\0\0\x01\x01\x04\0\0\0\x03\x88",
            b"\0\0\x03\0\x01\0\0\0\x03abc",
            b"\0\0\x04\x03\0\0\0\0\x05\0\0\0\x08",
            b"\0\0\x08\x06\0\0\0\0\0abcdefgh",
            b"\0\0\x04\x08\0\0\0\0\0\x7f\xff\xff\xff",
            b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0",
            b"\0\0\x06\x04\0\0\0\0\0\0\x04\x7f\xff\xff\xff",
            b"\0\0\x08\x07\0\0\0\0\0\0\0\0\x03\0\0\0\0",
            b"\0\0\x01\x01\0\0\0\0\x01\x88",
            b"\0\0\x01\x09\x04\0\0\0\x01\x88",
            b"\0\0\x04\x01\x0d\0\0\0\x05\x02\x88\0\0",
            b"\0\0\x05\x01\x25\0\0\0\x07\0\0\0\0\x01",
            b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x01",
        ],
    };
    let word = prop_oneof![
        4 => proptest::sample::select(words).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 0..12),
    ];
    vec(word, 0..24).prop_map(|words| words.concat()).boxed()
}

/// Returns the pieces of the bytes between the cuts, which may be anywhere.
fn cut<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect()
}

fn protocol() -> impl Strategy<Value = Protocol> {
    proptest::sample::select(&ALL[..])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2048) })]

    #[test]
    fn arbitrary_bytes_do_no_harm(
        protocol in protocol(),
        bytes in vec(any::<u8>(), 0..400),
        cuts in vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut conversation = busy(protocol, 5);
        let _ = take_all(&mut conversation, cut(&bytes, &cuts));
        conversation.close(&mut Vec::new());
    }

    #[test]
    fn cuts_change_nothing(
        (protocol, bytes) in protocol().prop_flat_map(|it| (Just(it), nearly(it))),
        cuts in vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut whole = busy(protocol, 5);
        let mut parts = whole.clone();
        let once = take_all(&mut whole, [&bytes[..]]);
        let cut = take_all(&mut parts, cut(&bytes, &cuts));
        // If the stream is faulty, the answers before the fault are lost with the error, and the
        // fault may be noticed a little later.
        if let (Ok(once), Ok(cut)) = (&once, &cut) {
            prop_assert_eq!(once, cut);
            let (mut at_end, mut at_cut_end) = (Vec::new(), Vec::new());
            whole.close(&mut at_end);
            parts.close(&mut at_cut_end);
            prop_assert_eq!(at_end, at_cut_end);
            prop_assert_eq!(whole.is_closing(), parts.is_closing());
            let mut keys: Vec<_> = once.0.iter().map(|it| it.key).collect();
            keys.sort_unstable();
            keys.dedup();
            prop_assert_eq!(keys.len(), once.0.len(), "a key answered twice");
        }
    }
}

#[test]
fn a_request_allocates_nothing_but_output() {
    for protocol in ALL {
        let mut conversation = busy(protocol, 1);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let (a, b) = (conversation.request(&mut first), conversation.request(&mut second));
        assert_ne!(a, b);
        assert_eq!(first.len(), second.len());
    }
}
