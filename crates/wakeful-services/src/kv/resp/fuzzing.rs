//! What must be true of the parser, whatever it gets. The fuzz target `resp` and the tests check
//! it.

use super::{Limits, Parser, ProtocolError};

/// What a connection would see: commands, and perhaps an error after them.
pub(super) type Seen = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

/// Gives the parser the pieces one after another, as a connection does.
pub(super) fn parse<'a>(limits: Limits, pieces: impl IntoIterator<Item = &'a [u8]>) -> Seen {
    let (mut parser, mut bytes, mut commands) = (Parser::new(limits), Vec::new(), Vec::new());
    for piece in pieces {
        bytes.extend_from_slice(piece);
        loop {
            match parser.parse(&bytes) {
                Ok(None) => break,
                Ok(Some(length)) => {
                    let words = parser.words(&bytes[..length]);
                    commands.push(words.iter().map(<[u8]>::to_vec).collect());
                    bytes.drain(..length);
                }
                Err(error) => return (commands, Some(error)),
            }
        }
    }
    (commands, None)
}

/// The first two bytes say how the rest is cut, and how much is allowed.
///
/// # Panics
/// It is understood differently when it comes in pieces, or a limit does not hold.
pub(crate) fn check(data: &[u8]) {
    let Some(([step, allowed], bytes)) = data.split_first_chunk::<2>() else { return };
    let word = usize::from(*allowed) * 4;
    let limits = Limits { word, command: 2 * word + 64 };
    let whole = parse(limits, [bytes]);
    assert_eq!(parse(limits, bytes.chunks(usize::from(*step).max(1))), whole);
    for command in &whole.0 {
        assert!(command.iter().all(|argument| argument.len() <= limits.word), "{command:?}");
    }
    let words: usize = whole.0.iter().flatten().map(Vec::len).sum();
    assert!(words <= bytes.len(), "more than was sent");
}
