//! A stream between two loops.

use std::io;

use wakeful::net::{Stream, TcpStream, UnixStream};

/// A stream that is on no loop, and so may go to any thread.
#[derive(Debug)]
pub(crate) enum Carried {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

pub(crate) fn detach(stream: Stream) -> Carried {
    match stream {
        Stream::Tcp(stream) => Carried::Tcp(stream.into_std()),
        Stream::Unix(stream) => Carried::Unix(stream.into_std()),
    }
}

impl Carried {
    pub(crate) fn attach(self) -> io::Result<Stream> {
        Ok(match self {
            Self::Tcp(stream) => TcpStream::from_std(stream)?.into(),
            Self::Unix(stream) => UnixStream::from_std(stream)?.into(),
        })
    }
}
