//! Commands of RESP: arrays of bulk strings.

/// The longest valid request, in bytes.
const LONGEST: usize = 16 << 20;
const MOST_WORDS: usize = 1024;

/// What the first bytes are.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A command.
    Command {
        /// Its name and its arguments.
        words: Vec<&'a [u8]>,
        /// The length of the command, in bytes.
        length: usize,
    },
    /// The beginning of a command.
    Incomplete,
}

/// Parses the first command.
pub fn parse(bytes: &[u8]) -> Result<Parsed<'_>, &'static str> {
    let mut at = 0;
    let Some(count) = number(bytes, &mut at, b'*', MOST_WORDS)? else {
        return Ok(Parsed::Incomplete);
    };
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let Some(length) = number(bytes, &mut at, b'$', LONGEST)? else {
            return Ok(Parsed::Incomplete);
        };
        let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= length + 2) else {
            return Ok(Parsed::Incomplete);
        };
        if &rest[length..length + 2] != b"\r\n" {
            return Err("a bulk string does not end where it said");
        }
        words.push(&rest[..length]);
        at += length + 2;
    }
    Ok(Parsed::Command { words, length: at })
}

/// Reads the number of the line at `at`, which begins with `kind`.
fn number(
    bytes: &[u8],
    at: &mut usize,
    kind: u8,
    most: usize,
) -> Result<Option<usize>, &'static str> {
    let line = &bytes[*at..];
    let Some(end) = line.iter().take(32).position(|&byte| byte == b'\n') else {
        return if line.len() < 32 { Ok(None) } else { Err("a length that does not end") };
    };
    let digits = line[..end].strip_suffix(b"\r").and_then(|line| line.strip_prefix(&[kind]));
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    let number = digits.and_then(|digits| digits.parse().ok()).filter(|number| *number <= most);
    *at += end + 1;
    number.map(Some).ok_or("no length")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_taken_once_it_is_all_there() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n";
        let command = Parsed::Command { words: vec![b"GET", b"k"], length: 20 };
        assert_eq!(parse(bytes), Ok(command));
        for cut in 0..20 {
            assert_eq!(parse(&bytes[..cut]), Ok(Parsed::Incomplete), "{cut}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for bytes in [
            &b"GET k\r\n"[..],
            b"*x\r\n",
            b"*9999999\r\n",
            b"*1\r\n$99999999\r\n",
            b"*1\r\n$1\r\nabc",
            &[b'*'; 40],
        ] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
    }
}
