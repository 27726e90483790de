//! Who waits at a Unix socket that was shut down, so that nobody else comes in. Such a socket is
//! always readable, so poll(2) does not tell. The kernel's table of Unix sockets does
//! (`/proc/net/unix`, proc(5)): a connection in a backlog is a socket of its own there, with the
//! listener's name.

use std::borrow::Cow;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use wakeful::net::ListenAddr;

/// The state `SS_CONNECTING`: connected by the client, and not accepted.
const CONNECTING: &[u8] = b"02";

/// May clients wait at the Unix socket of this address? `true` if the table cannot be read.
pub(crate) fn may_be_waited_at(addr: &ListenAddr) -> bool {
    let name = match addr {
        ListenAddr::Tcp(_) => return false,
        ListenAddr::Unix(path) => Cow::from(path.as_os_str().as_bytes()),
        ListenAddr::Abstract(name) => {
            // The table has an @ for each zero byte, the first of which makes the name abstract.
            let shown = name.iter().map(|byte| if *byte == 0 { b'@' } else { *byte });
            Cow::from_iter([b'@'].into_iter().chain(shown))
        }
    };
    let table = fs::read("/proc/net/unix").ok();
    table.is_none_or(|table| table.split(|byte| *byte == b'\n').any(|line| waits_at(line, &name)))
}

/// A line has seven words, of which the sixth is the state, and the name, which may have spaces.
fn waits_at(line: &[u8], name: &[u8]) -> bool {
    let Some(before) = line.strip_suffix(name) else { return false };
    let words = before.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    words.enumerate().filter(|(place, word)| *place != 5 || *word == CONNECTING).count() == 7
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

    use wakeful::accept::SharedListener;

    use super::*;
    use crate::sys;

    fn connect(addr: &ListenAddr) -> std::io::Result<UnixStream> {
        UnixStream::connect_addr(&match addr {
            ListenAddr::Unix(path) => SocketAddr::from_pathname(path)?,
            ListenAddr::Abstract(name) => SocketAddr::from_abstract_name(name)?,
            ListenAddr::Tcp(_) => unreachable!("it is a Unix socket"),
        })
    }

    #[test]
    fn only_who_is_not_accepted_waits_at_a_unix_socket_that_lets_nobody_in() {
        let name = format!("wakeful backlog {}", std::process::id());
        let directory = std::env::temp_dir();
        let addrs = [
            ListenAddr::Unix(directory.join(&name)),
            ListenAddr::Abstract(name.as_bytes().into()),
            ListenAddr::Abstract(format!("{name}\0\0 \0").into_bytes().into()),
        ];
        for addr in &addrs {
            let listener = SharedListener::bind(addr).unwrap();
            assert!(!may_be_waited_at(addr), "{addr}");
            let early = [connect(addr).unwrap(), connect(addr).unwrap()];
            listener.let_nobody_in().unwrap();
            assert!(connect(addr).is_err(), "{addr}");
            let socket = UnixListener::from(sys::duplicate(listener.as_fd()).unwrap());
            // Connections that are in use are in the table, too.
            let mut accepted = Vec::new();
            for _ in &early {
                assert!(may_be_waited_at(addr), "{addr}");
                accepted.push(socket.accept().unwrap());
            }
            assert!(!may_be_waited_at(addr), "{addr}");
        }
    }
}
