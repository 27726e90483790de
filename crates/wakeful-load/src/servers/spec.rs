//! Parses how the user names a server.

use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;

use thiserror::Error;

/// A server to measure: one to start, or one that runs already.
///
/// It is parsed from `NAME=COMMAND`, `COMMAND`, `NAME=ADDRESS` or `ADDRESS`. A command is split as
/// a shell would split it, without variables or redirections. It contains `{addr}` or `{port}`,
/// which is replaced by the address or port to listen on. An address is `HOST:PORT` or
/// `unix:/PATH`. A name has no spaces, and none of `/`, `:`, `{` and quotes. So a command that
/// begins by setting a variable needs `env` before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerSpec {
    /// A program to start.
    Command {
        /// The name in reports. By default, the file name of the program.
        name: String,
        /// The program and its arguments. `{addr}`, `{host}` and `{port}` are replaced at the
        /// start.
        argv: Vec<String>,
    },
    /// A server that runs already.
    Running {
        /// The name in reports. By default, the address.
        name: String,
        /// `HOST:PORT` or `unix:/PATH`.
        target: String,
    },
}

/// The reason why a text names no server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecError {
    /// Neither a command nor an address.
    #[error(
        "{0:?} names no server: write NAME=COMMAND, with {{addr}} in the command, or HOST:PORT"
    )]
    Empty(String),
    /// The name before `=` is missing.
    #[error("there is no name before the = of {0:?}")]
    NoName(String),
    /// A quotation mark is not closed, or there is a backslash at the end.
    #[error("the command {0:?} has a quote that is not closed, or ends in a backslash")]
    Quote(String),
    /// A URL instead of an address.
    #[error("{0:?} is a URL: an address is HOST:PORT or unix:/PATH, without a scheme or a path")]
    Url(String),
    /// An address without a valid port.
    #[error("the address {0:?} needs a port from 1 to 65535: HOST:PORT")]
    Port(String),
    /// `unix:` and nothing after it.
    #[error("{0:?} needs the path of a socket: unix:/PATH")]
    NoPath(String),
    /// A command that is not told where to listen.
    #[error(
        "the command {0:?} lacks {{addr}}: it is started on a free port, and {{addr}} (or {{port}}) stands for where \
         it has to listen, as in --listen {{addr}}"
    )]
    NoPlaceholder(String),
}

impl ServerSpec {
    /// Returns the name in reports.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Command { name, .. } | Self::Running { name, .. } => name,
        }
    }
}

impl FromStr for ServerSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let text = text.trim();
        let (name, rest) = split_name(text);
        if name == Some("") {
            return Err(SpecError::NoName(text.to_owned()));
        }
        let rest = rest.trim();
        let argv = shlex::split(rest).ok_or_else(|| SpecError::Quote(rest.to_owned()))?;
        let Some(program) = argv.first() else { return Err(SpecError::Empty(text.to_owned())) };
        if let [word] = argv.as_slice()
            && is_address(word)?
        {
            let name = name.unwrap_or(word).to_owned();
            return Ok(Self::Running { name, target: word.clone() });
        }
        if !argv.iter().any(|word| word.contains("{addr}") || word.contains("{port}")) {
            return Err(SpecError::NoPlaceholder(rest.to_owned()));
        }
        let file_name = || Path::new(program).file_name().unwrap_or(program.as_ref());
        let name = name.map_or_else(|| file_name().to_string_lossy().into_owned(), str::to_owned);
        Ok(Self::Command { name, argv })
    }
}

/// What is before the first `=`, if that can be a name, and the rest.
fn split_name(text: &str) -> (Option<&str>, &str) {
    let no_name = |c: char| c.is_whitespace() || matches!(c, '/' | ':' | '{' | '}' | '"' | '\'');
    match text.split_once('=') {
        Some((name, rest)) if !name.contains(no_name) => (Some(name), rest),
        _ => (None, text),
    }
}

/// Whether a single word is an address; an error if it is meant to be one.
fn is_address(word: &str) -> Result<bool, SpecError> {
    if let Some(path) = word.strip_prefix("unix:") {
        return if path.is_empty() { Err(SpecError::NoPath(word.to_owned())) } else { Ok(true) };
    }
    if word.contains("://") {
        return Err(SpecError::Url(word.to_owned()));
    }
    if word.contains(['/', '{']) {
        return Ok(false);
    }
    let port_is_one = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_address = match word.rsplit_once(':') {
        // If there are several colons, all but the last have to belong to an IPv6 address.
        Some((host, _)) if host.contains(':') => {
            word.parse::<SocketAddr>().is_ok_and(|address| address.port() > 0)
        }
        Some((host, port)) => !host.is_empty() && port_is_one(port),
        None => return Ok(false),
    };
    if is_address { Ok(true) } else { Err(SpecError::Port(word.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ServerSpec {
        text.parse().unwrap()
    }

    fn command(name: &str, argv: &[&str]) -> ServerSpec {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        ServerSpec::Command { name: name.to_owned(), argv }
    }

    fn running(name: &str, target: &str) -> ServerSpec {
        ServerSpec::Running { name: name.to_owned(), target: target.to_owned() }
    }

    #[test]
    fn commands_with_and_without_a_name() {
        assert_eq!(parse("a=./srv {addr}"), command("a", &["./srv", "{addr}"]));
        assert_eq!(parse("./bin/srv {addr}"), command("srv", &["./bin/srv", "{addr}"]));
        let expected = command("srv", &["./srv", "--listen={addr}"]);
        assert_eq!(parse(" ./srv --listen={addr} "), expected);
        // An `=` after a space belongs to the command.
        assert_eq!(parse("node 20=x {addr}"), command("node", &["node", "20=x", "{addr}"]));
    }

    #[test]
    fn commands_are_split_like_a_shell_does() {
        let expected = command("my", &["sh", "-c", "exec srv '{addr}'", "a b"]);
        assert_eq!(parse(r#"my=sh -c "exec srv '{addr}'" a\ b"#), expected);
        assert_eq!(parse("x=srv --port {port}"), command("x", &["srv", "--port", "{port}"]));
    }

    #[test]
    fn addresses_with_and_without_a_name() {
        assert_eq!(parse("a=127.0.0.1:7001"), running("a", "127.0.0.1:7001"));
        assert_eq!(parse("127.0.0.1:7001"), running("127.0.0.1:7001", "127.0.0.1:7001"));
        assert_eq!(parse("localhost:80"), running("localhost:80", "localhost:80"));
        assert_eq!(parse("[::1]:80"), running("[::1]:80", "[::1]:80"));
        assert_eq!(parse("unix:/run/a=b"), running("unix:/run/a=b", "unix:/run/a=b"));
        assert_eq!(parse("a=unix:/run/a"), running("a", "unix:/run/a"));
        assert_eq!(parse("a=unix:/run/a").name(), "a");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, part) in [
            ("", "names no server"),
            ("a=", "names no server"),
            ("=srv {addr}", "no name before the ="),
            ("a=srv '{addr}", "not closed"),
            ("http://127.0.0.1:80", "without a scheme"),
            ("a=http://127.0.0.1:80/", "without a scheme"),
            ("127.0.0.1:0", "needs a port"),
            ("127.0.0.1:x", "needs a port"),
            (":80", "needs a port"),
            ("::1", "needs a port"),
            ("a=127.0.0.1:70000", "needs a port"),
            ("unix:", "unix:/PATH"),
            ("./srv", "lacks {addr}"),
            ("a=srv --listen 127.0.0.1:80", "as in --listen {addr}"),
            ("srv {host}", "lacks {addr}"),
        ] {
            let error = text.parse::<ServerSpec>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }
}
