//! The sockets that a master listens on, and passes on: to its workers, and to the master that
//! succeeds it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use wakeful::accept::SharedListener;
use wakeful::net::ListenAddr;

use crate::systemd;

/// What stands for a socket that a service manager passes, in the place of an address.
const PASSED: &str = "passed";

/// For handshakes that are under way, where the peer is not on this host.
const SETTLE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Listeners(Vec<Listening>);

#[derive(Debug)]
struct Listening {
    /// As it was asked for: port 0 is one name for whatever port the kernel chose.
    name: String,
    socket: SharedListener,
    /// A service manager has it, too, and the next master can have it from there.
    is_kept: bool,
}

/// A socket of this master's predecessor, and the name that it had there or with a service manager.
pub(crate) type Inherited = (String, OwnedFd);

impl Listeners {
    /// Listens on `addrs`, but has those that are among `inherited` from there, and takes the
    /// sockets that are `passed`. Others that are inherited close: nobody asks for them any more.
    ///
    /// # Errors
    /// The text names the address.
    pub(crate) fn open(
        addrs: &[ListenAddr],
        passed: Vec<SharedListener>,
        mut inherited: Vec<Inherited>,
    ) -> io::Result<Self> {
        let mut all = Vec::new();
        for addr in addrs {
            let name = addr.to_string();
            let socket = match take(&mut inherited, &name) {
                Some(socket) => SharedListener::from_predecessor(socket),
                None => SharedListener::bind(addr),
            };
            let socket = socket.map_err(|error| {
                io::Error::new(error.kind(), format!("cannot listen on {addr}: {error}"))
            })?;
            all.push(Listening { name, socket, is_kept: false });
        }
        let is_passed = |(name, _): &Inherited| name == PASSED;
        let again = inherited.extract_if(.., |one| is_passed(one));
        let again = again.map(|(_, socket)| SharedListener::from_socket(socket));
        let again = again.collect::<io::Result<Vec<_>>>()?;
        // The manager has passed them to the first master only.
        let passed = if again.is_empty() { passed } else { again };
        let named = |socket| Listening { name: PASSED.to_owned(), socket, is_kept: true };
        all.extend(passed.into_iter().map(named));
        for (name, _) in &inherited {
            tracing::info!("listens no more on {name}");
            systemd::forget(name);
        }
        Ok(Self(all))
    }

    /// Descriptors of its own for a worker.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn for_worker(&self) -> io::Result<Vec<OwnedFd>> {
        self.0.iter().map(|one| one.socket.as_fd().try_clone_to_owned()).collect()
    }

    /// Has a service manager keep them, if it does that.
    pub(crate) fn keep(&mut self) {
        if systemd::keeps_sockets() {
            for one in self.0.iter_mut().filter(|one| !one.is_kept) {
                one.is_kept = systemd::keep(&one.name, one.socket.as_fd());
            }
        }
    }

    /// Where they listen.
    pub(crate) fn addrs(&self) -> impl Iterator<Item = &ListenAddr> {
        self.0.iter().map(|one| one.socket.local_addr())
    }

    /// For a successor: names, and descriptors that an `exec` does not close.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn for_successor(&self) -> io::Result<Vec<Inherited>> {
        let pass = |one: &Listening| Ok((one.name.clone(), rustix::io::dup(&one.socket)?));
        self.0.iter().map(pass).collect()
    }

    /// A successor has them now, and files of Unix sockets are its own.
    pub(crate) fn hand_over(&mut self) {
        self.0.drain(..).for_each(|one| one.socket.leave_file());
    }

    /// Nobody comes in any more, but to sockets that a service manager keeps. The workers accept
    /// what has come before they close theirs.
    pub(crate) fn close(&mut self) {
        let own = || self.0.iter().filter(|one| !one.is_kept);
        for one in own() {
            if let Err(error) = one.socket.let_nobody_in() {
                tracing::debug!(%error, "a listener's filter cannot be attached");
            }
        }
        let is_remote = |addr: SocketAddr| !addr.ip().to_canonical().is_loopback();
        if own().any(|one| one.socket.socket_addr().is_some_and(is_remote)) {
            // Handshakes with other hosts are under way: they complete.
            thread::sleep(SETTLE);
        }
        self.0.clear();
    }
}

fn take(inherited: &mut Vec<Inherited>, name: &str) -> Option<OwnedFd> {
    let kept = systemd::kept_name(name);
    let position = inherited.iter().position(|(known, _)| known == name || *known == kept)?;
    Some(inherited.swap_remove(position).1)
}
