//! The protocol of clients and the machine's keeper of CPUs: one text in each message of a
//! `SOCK_SEQPACKET` Unix socket.
//!
//! | request | answer |
//! |---|---|
//! | `hold CPUS MICROSECONDS` | `held CPUS`, or `refused REASON` |
//! | `release` | `released` |
//! | `status` | `status`, a line feed, and lines of text |
//! | anything else | `refused REASON` |
//!
//! CPUS is a list such as `0-3,8`, in ascending order. MICROSECONDS is how long a CPU may take to
//! leave its idle state; `0` allows no idle state. A hold replaces the previous hold of the
//! connection, and lasts until `release` or the end of the connection. After `refused` the
//! connection holds nothing.
//!
//! Each request has one answer, in the order of the requests. If a client leaves so many answers
//! unread (some hundred) that its buffer is full, it loses its connection. The keeper sends one
//! message without a request: `ended REASON`, when it ends a hold.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use crate::cpu_list::{format_cpus, parse_cpus};

/// The default path of the keeper's socket.
pub const SOCKET: &str = "/run/wakeful/keeper.sock";

/// The environment variable that names another socket than [`SOCKET`]. If it is empty, no keeper is
/// used.
pub const SOCKET_VARIABLE: &str = "WAKEFUL_KEEPER";

/// Returns the path at which this process looks for the keeper: the value of the environment
/// variable [`SOCKET_VARIABLE`], or [`SOCKET`] without it. Returns `None` if the variable is empty.
#[must_use]
pub fn socket_path() -> Option<PathBuf> {
    match std::env::var_os(SOCKET_VARIABLE) {
        Some(path) => Some(PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty()),
        None => Some(PathBuf::from(SOCKET)),
    }
}

/// The maximum length of a request, in bytes. A longer request is refused.
pub const MOST_REQUEST_BYTES: usize = 4096;

/// The maximum length of an answer, in bytes.
pub const MOST_ANSWER_BYTES: usize = 8192;

/// The maximum time in a hold request, in microseconds: about half an hour. No idle state takes
/// longer to leave.
pub const MOST_MICROSECONDS: u32 = 2_000_000_000;

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Hold these CPUs instead of those that the connection held before.
    Hold {
        /// In ascending order, at least one.
        cpus: Vec<usize>,
        /// How long each of them may take to leave its idle state, at most [`MOST_MICROSECONDS`].
        microseconds: u32,
    },
    /// End the hold.
    Release,
    /// List the clients and their holds.
    Status,
}

/// An answer of the keeper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// These CPUs are held for this connection.
    Held(Vec<usize>),
    /// No CPU is held for this connection any more.
    Released,
    /// No CPU is held for this connection. The text says why.
    Refused(String),
    /// Sent without a request: no CPU is held for this connection any more. The text says why.
    Ended(String),
    /// Lines of text.
    Status(String),
}

/// The reason why a message is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The message is empty.
    #[error("the message is empty: expected hold, release or status")]
    Empty,
    /// The message is too long.
    #[error("the message is too long: at most {MOST_REQUEST_BYTES} bytes")]
    TooLong,
    /// The message contains a byte that is not text.
    #[error("the message is not text: control bytes, or not UTF-8")]
    NotText,
    /// The request is unknown, or has too many words.
    #[error("not understood: expected `hold CPUS MICROSECONDS`, `release` or `status`")]
    Unknown,
    /// The list of CPUs is not valid.
    #[error("expected CPUs in ascending order, as 0-3,8, each below 8192")]
    Cpus,
    /// The time is not valid.
    #[error("expected whole microseconds, 0 to {MOST_MICROSECONDS}")]
    Microseconds,
}

impl Request {
    /// Parses a request.
    ///
    /// # Errors
    /// The message is not a valid request, or a value is out of range.
    pub fn parse(message: &[u8]) -> Result<Self, ProtocolError> {
        if message.len() > MOST_REQUEST_BYTES {
            return Err(ProtocolError::TooLong);
        }
        let text = std::str::from_utf8(message).map_err(|_| ProtocolError::NotText)?;
        // A shell's `echo` ends its text with a line feed.
        let text = text.strip_suffix('\n').unwrap_or(text);
        if text.is_empty() {
            return Err(ProtocolError::Empty);
        }
        if text.chars().any(char::is_control) {
            return Err(ProtocolError::NotText);
        }
        let words: Vec<&str> = text.split(' ').collect();
        match words[..] {
            ["hold", cpus, microseconds] => Ok(Self::Hold {
                cpus: parse_cpus(cpus).ok_or(ProtocolError::Cpus)?,
                microseconds: parse_microseconds(microseconds)
                    .ok_or(ProtocolError::Microseconds)?,
            }),
            ["release"] => Ok(Self::Release),
            ["status"] => Ok(Self::Status),
            _ => Err(ProtocolError::Unknown),
        }
    }

    /// Makes a request to hold CPUs. The CPUs may have any order. The time is rounded down to whole
    /// microseconds.
    ///
    /// # Errors
    /// `cpus` is empty; a CPU number is higher than the kernel allows; or the time is longer than
    /// [`MOST_MICROSECONDS`].
    pub fn hold(cpus: &[usize], tolerated: Duration) -> Result<Self, ProtocolError> {
        let cpus = parse_cpus(&format_cpus(cpus)).ok_or(ProtocolError::Cpus)?;
        let microseconds = u32::try_from(tolerated.as_micros()).ok();
        let microseconds = microseconds.filter(|micros| *micros <= MOST_MICROSECONDS);
        Ok(Self::Hold { cpus, microseconds: microseconds.ok_or(ProtocolError::Microseconds)? })
    }
}

fn parse_microseconds(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| text.parse().ok())?;
    number.filter(|number| *number <= MOST_MICROSECONDS)
}

/// Writes the message.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hold { cpus, microseconds } => {
                write!(f, "hold {} {microseconds}", format_cpus(cpus))
            }
            Self::Release => f.write_str("release"),
            Self::Status => f.write_str("status"),
        }
    }
}

impl Answer {
    /// Parses an answer.
    ///
    /// # Errors
    /// The message is not a valid answer.
    pub fn parse(message: &[u8]) -> Result<Self, ProtocolError> {
        let text = std::str::from_utf8(message).map_err(|_| ProtocolError::NotText)?;
        let (word, rest) = text.split_once([' ', '\n']).unwrap_or((text, ""));
        match word {
            "held" => parse_cpus(rest).map(Self::Held).ok_or(ProtocolError::Cpus),
            "released" => Ok(Self::Released),
            "refused" => Ok(Self::Refused(rest.to_owned())),
            "ended" => Ok(Self::Ended(rest.to_owned())),
            "status" => Ok(Self::Status(rest.to_owned())),
            _ => Err(ProtocolError::Unknown),
        }
    }

    /// Returns the message, cut at [`MOST_ANSWER_BYTES`].
    #[must_use]
    pub fn to_message(&self) -> String {
        let mut text = self.to_string();
        if text.len() > MOST_ANSWER_BYTES {
            let end = "…\n";
            let fits = (0..=MOST_ANSWER_BYTES - end.len()).rev();
            let boundary = fits.into_iter().find(|length| text.is_char_boundary(*length));
            text.truncate(boundary.unwrap_or(0));
            text.push_str(end);
        }
        text
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(cpus) => write!(f, "held {}", format_cpus(cpus)),
            Self::Released => f.write_str("released"),
            Self::Refused(reason) => write!(f, "refused {reason}"),
            Self::Ended(reason) => write!(f, "ended {reason}"),
            Self::Status(text) => write!(f, "status\n{text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        let hold = Request::hold(&[8, 0, 1, 1], Duration::from_nanos(2_999)).unwrap();
        assert_eq!(hold, Request::Hold { cpus: vec![0, 1, 8], microseconds: 2 });
        assert_eq!(hold.to_string(), "hold 0-1,8 2");
        for request in [hold, Request::Release, Request::Status] {
            assert_eq!(Request::parse(request.to_string().as_bytes()), Ok(request.clone()));
            assert_eq!(Request::parse(format!("{request}\n").as_bytes()), Ok(request));
        }
        assert_eq!(Request::hold(&[], Duration::ZERO), Err(ProtocolError::Cpus));
        assert_eq!(Request::hold(&[usize::MAX], Duration::ZERO), Err(ProtocolError::Cpus));
        assert_eq!(Request::hold(&[0], Duration::MAX), Err(ProtocolError::Microseconds));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        use ProtocolError::{Cpus, Empty, Microseconds, NotText, TooLong, Unknown};
        let long = vec![b'0'; MOST_REQUEST_BYTES + 1];
        for (message, error) in [
            (&b""[..], Empty),
            (b"\n", Empty),
            (b"\0", NotText),
            (b"hold 0\0 0", NotText),
            (b"release\r\n", NotText),
            (b"release\n\n", NotText),
            (b"\xff\xfe", NotText),
            (&long, TooLong),
            (b"hold", Unknown),
            (b"hold 0", Unknown),
            (b"hold  0 0", Unknown),
            (b"hold 0 0 0", Unknown),
            (b" release", Unknown),
            (b"RELEASE", Unknown),
            (b"hold x 0", Cpus),
            (b"hold 0-99999999999999999999 0", Cpus),
            (b"hold 0-8192 0", Cpus),
            (b"hold 1,0 0", Cpus),
            (b"hold 0 -1", Microseconds),
            (b"hold 0 2000000001", Microseconds),
            (b"hold 0 99999999999999999999", Microseconds),
            (b"hold 0 n/a", Microseconds),
        ] {
            assert_eq!(Request::parse(message), Err(error), "{}", message.escape_ascii());
        }
    }

    #[test]
    fn answers_are_read_as_they_are_written() {
        for answer in [
            Answer::Held(vec![0, 1, 8]),
            Answer::Released,
            Answer::Refused("CPU 9: no such file".to_owned()),
            Answer::Ended("held for 1s".to_owned()),
            Answer::Status("clients 1\nheld 0\n".to_owned()),
        ] {
            assert_eq!(Answer::parse(answer.to_message().as_bytes()), Ok(answer));
        }
        for message in [&b""[..], b"held", b"held x", b"\xff", b"yes"] {
            assert!(Answer::parse(message).is_err(), "{}", message.escape_ascii());
        }
    }

    #[test]
    fn an_answer_is_cut_where_a_character_ends() {
        let message = Answer::Refused("ä".repeat(MOST_ANSWER_BYTES)).to_message();
        assert!(message.len() <= MOST_ANSWER_BYTES && message.ends_with("…\n"));
    }
}
