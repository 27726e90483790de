//! RESP, the protocol of Redis. A command is an array of bulk strings; an answer is one value.
//!
//! An answer that contains an error is a failure. The types of RESP3 are understood, too. Pushed
//! messages and attributes answer no request, and are dropped.
//!
//! The reader remembers its place in nested values, so it looks at no byte twice, except in an
//! unfinished line, of which it searches only the new bytes. Announced lengths are counted down,
//! never allocated.

use std::sync::Arc;

use super::{
    Answer, Conversation, Draw, InOrder, InvalidTemplate, Outcome, Protocol, ProtocolError,
    Template,
};

/// Values that are nested deeper than this are refused.
const MAX_DEPTH: usize = 64;
/// Lines that are longer than this are refused. Bulk strings are not lines.
const MAX_LINE: usize = 64 << 10;

/// The placeholder for a key in a command.
const KEY: &str = "{key}";
/// The number of digits of a key. It is fixed, so that all requests of a kind have the same length.
const KEY_DIGITS: usize = 12;

/// A conversation in [`Protocol::Resp`].
#[derive(Debug, Clone)]
pub struct Resp {
    prepared: Arc<[Command]>,
    keys: InOrder,
    reader: Reader,
}

/// An encoded command.
#[derive(Debug)]
struct Command {
    bytes: Vec<u8>,
    /// Where the digits of each key begin in `bytes`.
    keys: Vec<usize>,
}

impl Resp {
    /// Makes a conversation that sends the template's command, or `ECHO` with the template's body
    /// if the command is empty. Each request replaces `{key}` by the key that was drawn, in 12
    /// digits.
    ///
    /// # Errors
    /// The command consists only of blanks.
    pub fn new(template: &Template) -> Result<Self, InvalidTemplate> {
        Self::of_commands(std::slice::from_ref(template))
    }

    /// Like [`new`](Self::new), but with several commands. Each request sends the one that was
    /// drawn.
    ///
    /// # Errors
    /// There are no commands, or one of them consists only of blanks.
    pub fn of_commands(templates: &[Template]) -> Result<Self, InvalidTemplate> {
        if templates.is_empty() {
            return Err(InvalidTemplate::NoCommand(String::new()));
        }
        let prepared = templates.iter().map(Command::new).collect::<Result<Vec<_>, _>>()?;
        let (keys, reader) = (InOrder::default(), Reader::default());
        Ok(Self { prepared: prepared.into(), keys, reader })
    }
}

impl Command {
    fn new(template: &Template) -> Result<Self, InvalidTemplate> {
        let mut words: Vec<&[u8]> =
            template.path.split_ascii_whitespace().map(str::as_bytes).collect();
        if template.path.is_empty() {
            words = vec![b"ECHO", &template.body];
        } else if words.is_empty() {
            return Err(InvalidTemplate::NoCommand(template.path.clone()));
        } else if !template.body.is_empty() {
            words.push(&template.body);
        }
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        let mut keys = Vec::new();
        for (index, word) in words.iter().enumerate() {
            // The body is sent unchanged, even if it contains `{key}`.
            let is_payload = index + 1 == words.len() && std::ptr::eq(*word, &*template.body);
            let places: Vec<usize> = match std::str::from_utf8(word) {
                Ok(text) if !is_payload => text.match_indices(KEY).map(|(at, _)| at).collect(),
                _ => Vec::new(),
            };
            let length = word.len() - places.len() * KEY.len() + places.len() * KEY_DIGITS;
            bytes.extend_from_slice(format!("${length}\r\n").as_bytes());
            let mut copied = 0;
            for place in places {
                bytes.extend_from_slice(&word[copied..place]);
                keys.push(bytes.len());
                bytes.extend_from_slice(&[b'0'; KEY_DIGITS]);
                copied = place + KEY.len();
            }
            bytes.extend_from_slice(&word[copied..]);
            bytes.extend_from_slice(b"\r\n");
        }
        Ok(Self { bytes, keys })
    }

    fn append(&self, key: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        for place in &self.keys {
            let mut rest = key;
            for digit in out[start + place..][..KEY_DIGITS].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
    }
}

impl Conversation for Resp {
    fn open(&mut self, _out: &mut Vec<u8>) {}

    fn may_request(&self) -> bool {
        true
    }

    fn request(&mut self, out: &mut Vec<u8>) -> u64 {
        self.request_drawn(Draw::default(), out)
    }

    fn request_drawn(&mut self, draw: Draw, out: &mut Vec<u8>) -> u64 {
        self.prepared[draw.kind].append(draw.key, out);
        self.keys.ask()
    }

    fn receive(
        &mut self,
        input: &[u8],
        _out: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<usize, ProtocolError> {
        let mut taken = 0;
        let error = |what| ProtocolError::new(Protocol::Resp, what);
        while let Some(step) = self.reader.step(&input[taken..]).map_err(error)? {
            taken += step.taken;
            if let Some(outcome) = step.answer {
                if self.keys.waiting().is_none() {
                    return Err(error("an answer that nobody asked for".into()));
                }
                self.keys.answer(outcome, answers);
            }
        }
        Ok(taken)
    }

    fn close(&mut self, _answers: &mut Vec<Answer>) {}

    fn is_closing(&self) -> bool {
        false
    }
}

/// The reader's place in an answer.
#[derive(Debug, Clone, Default)]
struct Reader {
    /// The values that have begun and are not complete, outermost first. There are at most
    /// `MAX_DEPTH`.
    open: Vec<Aggregate>,
    /// How many bytes of a bulk string are still to come, without its line break. At 0, only the
    /// line break is still to come.
    bulk: Option<u64>,
    /// How many bytes of an unfinished line have been searched for its end.
    searched: usize,
    /// Whether the current answer has contained an error so far.
    failed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Aggregate {
    left: u64,
    /// Whether this is a pushed message or an attribute, which is no part of an answer.
    aside: bool,
}

struct Step {
    taken: usize,
    answer: Option<Outcome>,
}

impl Reader {
    /// Takes one line, or a part of a bulk string. Returns `None` if more bytes are needed.
    fn step(&mut self, input: &[u8]) -> Result<Option<Step>, String> {
        match self.bulk {
            Some(0) => {
                let Some(end) = input.first_chunk() else { return Ok(None) };
                if end != b"\r\n" {
                    return Err("a bulk string does not end where it said".into());
                }
                self.bulk = None;
                Ok(Some(Step { taken: 2, answer: self.value_ends() }))
            }
            Some(_) if input.is_empty() => Ok(None),
            Some(left) => {
                let taken = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                self.bulk = Some(left - taken as u64);
                Ok(Some(Step { taken, answer: None }))
            }
            None => {
                let Some(line) = self.line(input)? else { return Ok(None) };
                let answer = self.value_begins(line)?;
                Ok(Some(Step { taken: line.len() + 2, answer }))
            }
        }
    }

    /// Returns the line in front of the input, without its line break, or `None` if it is not
    /// complete.
    fn line<'a>(&mut self, input: &'a [u8]) -> Result<Option<&'a [u8]>, String> {
        let new = input.get(self.searched..).unwrap_or_default();
        let Some(end) = new.iter().position(|&byte| byte == b'\n') else {
            self.searched = input.len();
            return if input.len() > MAX_LINE {
                Err(format!("a line of more than {MAX_LINE} bytes"))
            } else {
                Ok(None)
            };
        };
        let end = self.searched + end;
        self.searched = 0;
        let line = input[..end].strip_suffix(b"\r");
        line.ok_or_else(|| "a line that ends without a carriage return".into()).map(Some)
    }

    fn value_begins(&mut self, line: &[u8]) -> Result<Option<Outcome>, String> {
        let Some((&kind, rest)) = line.split_first() else {
            return Err("an empty line where a value should begin".into());
        };
        let aside = self.open.iter().any(|it| it.aside);
        match kind {
            b'+' | b':' | b',' | b'(' | b'_' | b'#' => return Ok(self.value_ends()),
            b'-' => {
                self.failed |= !aside;
                return Ok(self.value_ends());
            }
            b'$' | b'!' | b'=' => {
                self.failed |= kind == b'!' && !aside;
                self.bulk = length(rest)?;
                if self.bulk.is_some() {
                    return Ok(None);
                }
                return Ok(self.value_ends());
            }
            b'*' | b'~' | b'%' | b'>' | b'|' => {}
            _ => return Err(format!("no value begins with {:?}", char::from(kind))),
        }
        let pairs = matches!(kind, b'%' | b'|');
        let aside = matches!(kind, b'>' | b'|');
        if kind == b'>' && !self.open.is_empty() {
            return Err("a pushed message inside a value".into());
        }
        let left = match length(rest)? {
            // The value is empty, or null as an array can be, so it is complete at once. A pushed
            // message or an attribute completes no answer.
            None | Some(0) => return Ok(if aside { None } else { self.value_ends() }),
            Some(count) if pairs => count.checked_mul(2).ok_or("a map longer than can be")?,
            Some(count) => count,
        };
        if self.open.len() == MAX_DEPTH {
            return Err(format!("values nested deeper than {MAX_DEPTH}"));
        }
        self.open.push(Aggregate { left, aside });
        Ok(None)
    }

    /// Handles the end of a value, which may complete the values around it. Returns the outcome if
    /// the whole answer is complete.
    fn value_ends(&mut self) -> Option<Outcome> {
        while let Some(around) = self.open.last_mut() {
            around.left -= 1;
            if around.left > 0 {
                return None;
            }
            let aside = around.aside;
            self.open.pop();
            if aside {
                return None;
            }
        }
        Some(Outcome::of(!std::mem::take(&mut self.failed)))
    }
}

/// Reads a length or a count. Returns `None` for `-1`, the null of RESP2.
fn length(digits: &[u8]) -> Result<Option<u64>, String> {
    if digits == b"-1" {
        return Ok(None);
    }
    let wrong = || {
        format!("{:?} is not a length", String::from_utf8_lossy(&digits[..digits.len().min(32)]))
    };
    if digits.is_empty() {
        return Err(wrong());
    }
    let value = digits.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    });
    value.map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::tests::{outcomes, take};

    fn sent(path: &str, body: &[u8]) -> String {
        let template = Template { path: path.into(), body: body.into(), ..Template::default() };
        let mut out = Vec::new();
        Resp::new(&template).unwrap().request(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn answered(bytes: &[u8]) -> Result<String, String> {
        let ways = [1, 2, 5, bytes.len()].map(|step| {
            let mut resp = Resp::new(&Template::of_size(3)).unwrap();
            for _ in 0..20 {
                resp.request(&mut Vec::new());
            }
            take(&mut resp, bytes, step)
                .map(|(answers, left)| format!("{}{}", outcomes(&answers), ".".repeat(left)))
                .map_err(|error| error.what)
        });
        assert!(ways.iter().all(|way| *way == ways[0]), "{ways:?}");
        ways[0].clone()
    }

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        assert_eq!(sent("", b"abc"), "*2\r\n$4\r\nECHO\r\n$3\r\nabc\r\n");
        assert_eq!(sent("PING", b""), "*1\r\n$4\r\nPING\r\n");
        assert_eq!(sent("SET  k", b"v v"), "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\nv v\r\n");
        let blank = Template { path: " ".into(), ..Template::default() };
        assert!(matches!(Resp::new(&blank), Err(InvalidTemplate::NoCommand(_))));
    }

    #[test]
    fn the_command_that_was_drawn_is_sent_with_its_key() {
        let get = Template { path: "GET a{key}b{key}".into(), ..Template::default() };
        let set = Template { path: "SET {key}".into(), body: b"{key}".into(), ..get.clone() };
        let mut resp = Resp::of_commands(&[get, set]).unwrap();
        let mut said = |kind, key| {
            let mut out = b"before".to_vec();
            resp.request_drawn(Draw { kind, key }, &mut out);
            String::from_utf8(out).unwrap()
        };
        let get = "before*2\r\n$3\r\nGET\r\n$26\r\na000000000042b000000000042\r\n";
        assert_eq!(said(0, 42), get);
        let set = "before*3\r\n$3\r\nSET\r\n$12\r\n123456789012\r\n$5\r\n{key}\r\n";
        assert_eq!(said(1, 123_456_789_012), set);
        assert!(matches!(Resp::of_commands(&[]), Err(InvalidTemplate::NoCommand(_))));
    }

    #[test]
    fn answers_of_every_type() {
        let good = |bytes: &[u8], expected: &str| {
            assert_eq!(answered(bytes).as_deref(), Ok(expected), "{bytes:?}");
        };
        good(b"+OK\r\n-ERR no\r\n:12\r\n", "+-+");
        good(b"$3\r\na\r\n\r\n$-1\r\n$0\r\n\r\n", "+++");
        good(b"*2\r\n*2\r\n:1\r\n$1\r\na\r\n+x\r\n*0\r\n*-1\r\n+y\r\n", "++++");
        good(b"*2\r\n*1\r\n-ERR\r\n+x\r\n+y\r\n", "-+");
        good(b"_\r\n#t\r\n,1.5\r\n(123\r\n!3\r\nERR\r\n=5\r\ntxt:a\r\n", "++++-+");
        good(b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n~1\r\n+a\r\n", "++");
        good(b">2\r\n+message\r\n-x\r\n+OK\r\n", "+");
        good(b"*2\r\n|1\r\n+ttl\r\n:3\r\n+a\r\n+b\r\n|0\r\n+c\r\n", "++");
        good(b"*2\r\n:1\r\n$5\r\nab", "");
        good(b"+O", "..");
    }

    #[test]
    fn faults_are_named() {
        let bad = |bytes: &[u8], part: &str| {
            let what = answered(bytes).unwrap_err();
            assert!(what.contains(part), "{what}");
        };
        bad(b"$1\r\nab\r\n", "does not end");
        bad(b"?\r\n", "no value begins");
        bad(b"\r\n", "empty line");
        bad(b"+OK\n", "carriage return");
        bad(b"$-2\r\n", "not a length");
        bad(b"$\r\n", "not a length");
        bad(b"*99999999999999999999\r\n", "not a length");
        bad(b"%18446744073709551615\r\n", "longer than can be");
        bad(&b"*1\r\n".repeat(65), "nested deeper");
        bad(b"*1\r\n>1\r\n+a\r\n", "pushed");
        bad(&b"+OK\r\n".repeat(21), "nobody asked");
        bad(&[b"+", &[b'a'; MAX_LINE + 10][..]].concat(), "a line of more");
    }
}
