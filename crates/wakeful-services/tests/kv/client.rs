//! A service in this process, and a client of it that blocks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use wakeful::IdlePolicy;
use wakeful::accept::{Serving, SharedListener};
use wakeful::net::ListenAddr;
use wakeful_services::ServeOptions;
use wakeful_services::kv::{self, KvOptions};

pub(crate) const GUARD: Duration = Duration::from_secs(30);

/// Each test runs with one loop, where nothing is sent, and with several.
pub(crate) const LOOPS: [usize; 2] = [1, 4];

pub(crate) struct Service {
    pub(crate) serving: Serving,
    pub(crate) addr: SocketAddr,
}

impl Service {
    pub(crate) fn start(loops: usize, options: KvOptions) -> Self {
        let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let serve =
            ServeOptions::new().loops(loops).moves(None).idle(IdlePolicy::Park).grace(GUARD);
        let serving = kv::start(&serve, options, vec![listener]).unwrap();
        let ListenAddr::Tcp(addr) = serving.local_addrs()[0] else { unreachable!("it is TCP") };
        Self { serving, addr }
    }

    pub(crate) fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.addr).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream.set_write_timeout(Some(GUARD)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client(BufReader::new(stream))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Option<Vec<u8>>),
    Array(Option<Vec<Answer>>),
}

pub(crate) fn ok() -> Answer {
    Answer::Simple("OK".to_owned())
}

pub(crate) fn error(text: &str) -> Answer {
    Answer::Error(text.to_owned())
}

pub(crate) fn bulk(text: impl AsRef<[u8]>) -> Answer {
    Answer::Bulk(Some(text.as_ref().to_vec()))
}

pub(crate) const NULL: Answer = Answer::Bulk(None);

pub(crate) struct Client(BufReader<TcpStream>);

pub(crate) fn encode(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.as_ref().len()).as_bytes());
        bytes.extend_from_slice(word.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

impl Client {
    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        self.0.get_mut()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream().write_all(bytes).unwrap();
    }

    /// The words of a line, as an array.
    pub(crate) fn ask(&mut self, line: &str) -> Answer {
        self.ask_words(&line.split(' ').collect::<Vec<_>>())
    }

    pub(crate) fn ask_words(&mut self, words: &[impl AsRef<[u8]>]) -> Answer {
        self.send(&encode(words));
        self.answer()
    }

    pub(crate) fn answer(&mut self) -> Answer {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let text = line.strip_suffix("\r\n").unwrap_or_else(|| panic!("no line: {line:?}"));
        let (kind, rest) = text.split_at(1);
        match kind {
            "+" => Answer::Simple(rest.to_owned()),
            "-" => Answer::Error(rest.to_owned()),
            ":" => Answer::Integer(rest.parse().unwrap()),
            "$" if rest == "-1" => Answer::Bulk(None),
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.0.read_exact(&mut bytes).unwrap();
                assert!(bytes.ends_with(b"\r\n"));
                bytes.truncate(bytes.len() - 2);
                Answer::Bulk(Some(bytes))
            }
            "*" if rest == "-1" => Answer::Array(None),
            "*" => Answer::Array(Some(
                (0..rest.parse::<usize>().unwrap()).map(|_| self.answer()).collect(),
            )),
            _ => panic!("{line:?}"),
        }
    }

    /// Has the peer closed, with nothing before?
    pub(crate) fn is_closed(&mut self) -> bool {
        self.0.read(&mut [0; 1]).unwrap() == 0
    }
}
