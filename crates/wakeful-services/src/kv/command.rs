//! Parses the words of a command into a [`Command`].

use std::fmt::Write;

use super::resp::Words;
use super::shard::{Condition, Operation, Refused, integer};

/// A command with its arguments.
#[derive(Debug, Clone, Copy)]
pub(super) enum Command<'a> {
    Get(&'a [u8]),
    /// A key, its value, and how it is set.
    Set(&'a [u8], &'a [u8], Operation),
    /// A key, and the number to add to its value.
    Add(&'a [u8], i64),
    GetAll(Words<'a>),
    SetAll(Words<'a>),
    Remove(Words<'a>),
    Exists(Words<'a>),
    KeyCount,
    Clear,
    Ping(Option<&'a [u8]>),
    Echo(&'a [u8]),
    Quit,
    Select(&'a [u8]),
    Hello(Words<'a>),
    Client(Words<'a>),
    Config(Words<'a>),
    Commands(Words<'a>),
    Info(Words<'a>),
    /// There are no words. It gets no answer.
    Nothing,
    /// A browser was made to send HTTP here. That ends the connection, as in Redis.
    Http,
}

/// What `COMMAND` returns for a command.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) name: &'static str,
    /// The number of words, including the name. If negative, the minimum number.
    pub(super) arity: i64,
    pub(super) flags: &'static [&'static str],
    /// The positions of the first and the last key, and the step from one to the next.
    pub(super) keys: (i64, i64, i64),
    pub(super) group: &'static str,
    pub(super) summary: &'static str,
}

const NO_KEYS: (i64, i64, i64) = (0, 0, 0);
const READS: &[&str] = &["readonly", "fast"];
const WRITES: &[&str] = &["write", "denyoom"];
const CONNECTION: &[&str] = &["loading", "stale", "fast"];
const SERVER: &[&str] = &["loading", "stale"];

const fn describe(
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    keys: (i64, i64, i64),
    group: &'static str,
    summary: &'static str,
) -> Description {
    Description { name, arity, flags, keys, group, summary }
}

/// All commands.
pub(super) const DESCRIPTIONS: [Description; 21] = [
    describe("client", -2, SERVER, NO_KEYS, "connection", "ID, SETNAME, GETNAME, SETINFO."),
    describe("command", -1, SERVER, NO_KEYS, "server", "What there is: COUNT, INFO, DOCS, LIST."),
    describe("config", -2, SERVER, NO_KEYS, "server", "GET: settings of the service."),
    describe("dbsize", 1, READS, NO_KEYS, "server", "The number of keys."),
    describe("decr", 2, WRITES, (1, 1, 1), "string", "Takes one from the number at a key."),
    describe("decrby", 3, WRITES, (1, 1, 1), "string", "Subtracts from the number at a key."),
    describe("del", -2, &["write"], (1, -1, 1), "generic", "Removes keys."),
    describe("echo", 2, CONNECTION, NO_KEYS, "connection", "Answers with its argument."),
    describe("exists", -2, READS, (1, -1, 1), "generic", "How many of the keys there are."),
    describe("flushall", -1, &["write"], NO_KEYS, "server", "Removes all keys."),
    describe("get", 2, READS, (1, 1, 1), "string", "The value of a key."),
    describe("hello", -1, CONNECTION, NO_KEYS, "connection", "What this is. RESP2 only."),
    describe("incr", 2, WRITES, (1, 1, 1), "string", "Adds one to the number at a key."),
    describe("incrby", 3, WRITES, (1, 1, 1), "string", "Adds to the number at a key."),
    describe("info", -1, SERVER, NO_KEYS, "server", "How the service does."),
    describe("mget", -2, READS, (1, -1, 1), "string", "The values of keys."),
    describe("mset", -3, WRITES, (1, -1, 2), "string", "Sets keys."),
    describe("ping", -1, CONNECTION, NO_KEYS, "connection", "Answers with PONG."),
    describe("quit", -1, CONNECTION, NO_KEYS, "connection", "Closes the connection."),
    describe("select", 2, CONNECTION, NO_KEYS, "connection", "There is database 0 only."),
    describe("set", -3, WRITES, (1, 1, 1), "string", "Sets a key: NX, XX, GET."),
];

/// Why a command is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("ERR unknown command '{name}', with args beginning with: {arguments}")]
    Unknown { name: String, arguments: String },
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(String),
    #[error("ERR syntax error")]
    Syntax,
    #[error("ERR option '{0}' is not supported: keys do not expire here")]
    Expiry(&'static str),
    #[error(transparent)]
    Number(#[from] Refused),
}

impl<'a> Command<'a> {
    /// # Errors
    /// There is no such command, or not with these arguments.
    #[inline]
    pub(super) fn parse(words: Words<'a>) -> Result<Self, Refusal> {
        let name = words.get(0).unwrap_or_default();
        // The name in upper case, padded with zeros. No command has more letters.
        let mut upper = [0; 8];
        let Some(letters) = upper.get_mut(..name.len()) else {
            return Err(unknown(name, words));
        };
        letters.copy_from_slice(name);
        letters.make_ascii_uppercase();
        let wrong = || Refusal::Arity(printable(name, 16).to_ascii_lowercase());
        let (first, second) = (words.get(1), words.get(2));
        let exactly = |count| (words.len() == count).then_some(()).ok_or_else(wrong);
        let rest = words.skip(1);
        let some = |least| if rest.len() >= least { Ok(rest) } else { Err(wrong()) };
        Ok(match (&upper, first, second) {
            (b"GET\0\0\0\0\0", Some(key), None) => Self::Get(key),
            (b"SET\0\0\0\0\0", Some(key), Some(value)) => {
                Self::Set(key, value, set_operation(words)?)
            }
            (b"INCR\0\0\0\0", Some(key), None) => Self::Add(key, 1),
            (b"DECR\0\0\0\0", Some(key), None) => Self::Add(key, -1),
            (b"INCRBY\0\0", Some(key), Some(count)) if words.len() == 3 => {
                Self::Add(key, integer(count).ok_or(Refused::NotAnInteger)?)
            }
            (b"DECRBY\0\0", Some(key), Some(count)) if words.len() == 3 => {
                let count = integer(count).ok_or(Refused::NotAnInteger)?;
                Self::Add(key, count.checked_neg().ok_or(Refused::Overflow)?)
            }
            (b"GET\0\0\0\0\0" | b"SET\0\0\0\0\0", ..) => return Err(wrong()),
            (b"INCR\0\0\0\0" | b"DECR\0\0\0\0", ..) => return Err(wrong()),
            (b"INCRBY\0\0" | b"DECRBY\0\0", ..) => return Err(wrong()),
            (b"MGET\0\0\0\0", ..) => Self::GetAll(some(1)?),
            (b"MSET\0\0\0\0", Some(_), Some(_)) if rest.len().is_multiple_of(2) => {
                Self::SetAll(rest)
            }
            (b"MSET\0\0\0\0", ..) => return Err(wrong()),
            (b"DEL\0\0\0\0\0", ..) => Self::Remove(some(1)?),
            (b"EXISTS\0\0", ..) => Self::Exists(some(1)?),
            (b"DBSIZE\0\0", ..) => exactly(1).map(|()| Self::KeyCount)?,
            (b"FLUSHALL", None, _) => Self::Clear,
            (b"FLUSHALL", Some(how), None) => clear_operation(how)?,
            (b"FLUSHALL", ..) => return Err(Refusal::Syntax),
            (b"PING\0\0\0\0", message, None) => Self::Ping(message),
            (b"PING\0\0\0\0", ..) => return Err(wrong()),
            (b"ECHO\0\0\0\0", Some(message), None) => Self::Echo(message),
            (b"ECHO\0\0\0\0", ..) => return Err(wrong()),
            (b"QUIT\0\0\0\0", ..) => Self::Quit,
            (b"SELECT\0\0", Some(database), None) => Self::Select(database),
            (b"SELECT\0\0", ..) => return Err(wrong()),
            (b"HELLO\0\0\0", ..) => Self::Hello(rest),
            (b"CLIENT\0\0", ..) => Self::Client(some(1)?),
            (b"CONFIG\0\0", ..) => Self::Config(some(1)?),
            (b"COMMAND\0", ..) => Self::Commands(rest),
            (b"INFO\0\0\0\0", ..) => Self::Info(rest),
            (b"POST\0\0\0\0" | b"HOST:\0\0\0", ..) => Self::Http,
            (_, None, _) if words.len() == 0 => Self::Nothing,
            _ => return Err(unknown(name, words)),
        })
    }
}

#[inline]
fn set_operation(words: Words<'_>) -> Result<Operation, Refusal> {
    let (mut condition, mut swap) = (Condition::Always, false);
    for option in words.skip(3).iter() {
        let once =
            |new| if condition == Condition::Always { Ok(new) } else { Err(Refusal::Syntax) };
        if option.eq_ignore_ascii_case(b"NX") {
            condition = once(Condition::IfAbsent)?;
        } else if option.eq_ignore_ascii_case(b"XX") {
            condition = once(Condition::IfPresent)?;
        } else if option.eq_ignore_ascii_case(b"GET") {
            swap = true;
        } else {
            let same = |name: &&str| option.eq_ignore_ascii_case(name.as_bytes());
            let expiry = ["EX", "PX", "EXAT", "PXAT", "KEEPTTL"].into_iter().find(same);
            return Err(expiry.map_or(Refusal::Syntax, Refusal::Expiry));
        }
    }
    Ok(if swap { Operation::Swap(condition) } else { Operation::Set(condition) })
}

/// Both options do the same here: the answer comes when the keys are gone, and their memory is
/// freed in the background.
fn clear_operation<'a>(how: &[u8]) -> Result<Command<'a>, Refusal> {
    let known = how.eq_ignore_ascii_case(b"ASYNC") || how.eq_ignore_ascii_case(b"SYNC");
    if known { Ok(Command::Clear) } else { Err(Refusal::Syntax) }
}

#[cold]
fn unknown(name: &[u8], words: Words<'_>) -> Refusal {
    let mut arguments = String::new();
    for word in words.skip(1).iter() {
        let _ = write!(arguments, "'{}' ", printable(word, 128 - arguments.len()));
        if arguments.len() >= 128 {
            break;
        }
    }
    Refusal::Unknown { name: printable(name, 128), arguments }
}

/// The beginning of a client's bytes, in a form that can be shown.
pub(super) fn printable(bytes: &[u8], most: usize) -> String {
    bytes[..bytes.len().min(most)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests;
