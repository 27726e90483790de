//! The sockets that a master listens on, and passes on: to its workers, and to the master that
//! succeeds it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::socket_acceptconn;
use rustix::net::{bind, connect_unspec, getsockname, listen};
use wakeful::accept::SharedListener;
use wakeful::net::ListenAddr;

use crate::systemd::{self, Kept};

/// What stands for a socket that a service manager passes, in the place of an address.
const PASSED: &str = "passed";

/// For handshakes that are under way, where the peer is not on this host.
const SETTLE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Listeners {
    all: Vec<Listening>,
    /// Where operators ask.
    admin: Vec<Listening>,
    /// Names of the predecessor's sockets that nobody asks for any more.
    dropped: Vec<String>,
}

#[derive(Debug)]
struct Listening {
    /// As it was asked for: port 0 is one name for whatever port the kernel chose.
    name: String,
    socket: SharedListener,
    kept: Kept,
}

/// A socket of this master's predecessor, and the name that it had there or with a service manager.
pub(crate) type Inherited = (String, OwnedFd);

impl Listeners {
    /// Listens on `addrs` and `admin`, but has those that are among `inherited` from there, and
    /// takes the sockets that are `passed`. Others that are inherited close: nobody asks for them
    /// any more.
    ///
    /// # Errors
    /// The text names the address.
    pub(crate) fn open(
        addrs: &[ListenAddr],
        passed: Vec<SharedListener>,
        admin: &[ListenAddr],
        mut inherited: Vec<Inherited>,
    ) -> io::Result<Self> {
        let mut all = open(addrs, &[], &mut inherited)?;
        let admin = open(admin, &all, &mut inherited)?;
        let is_passed = |(name, _): &Inherited| name == PASSED;
        let again = inherited.extract_if(.., |one| is_passed(one));
        let again = again.map(|(_, socket)| SharedListener::from_socket(socket));
        let again = again.collect::<io::Result<Vec<_>>>()?;
        // The manager has passed them to the first master only.
        let passed = if again.is_empty() { passed } else { again };
        let named = |socket| Listening { name: PASSED.to_owned(), socket, kept: Kept::Yes };
        all.extend(passed.into_iter().map(named));
        let dropped: Vec<_> = inherited.into_iter().map(|(name, _)| name).collect();
        for name in &dropped {
            tracing::info!("no longer listening on {name}");
        }
        let listeners = Self { all, admin, dropped };
        listeners.warn_of_lost_files();
        Ok(listeners)
    }

    /// Names the Unix sockets that no client finds any more.
    pub(crate) fn warn_of_lost_files(&self) {
        for error in self.every().filter_map(|one| one.socket.check_file().err()) {
            tracing::warn!("{error}");
        }
    }

    /// Somebody may have shut a socket down: whoever else has it, or an operator (`ss -K`). It lets
    /// clients in again: else no worker could serve any more.
    pub(crate) fn listen_again(&self) {
        for one in self.every() {
            listen_again(one.socket.as_fd(), one.socket.local_addr(), one.socket.socket_addr());
        }
    }

    /// Descriptors of its own for a worker: those for clients, and those for operators.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn for_worker(&self) -> io::Result<(Vec<OwnedFd>, Vec<OwnedFd>)> {
        let duplicate = |one: &Listening| one.socket.as_fd().try_clone_to_owned();
        let clients = self.all.iter().map(duplicate).collect::<io::Result<_>>()?;
        let operators = self.admin.iter().map(duplicate).collect::<io::Result<_>>()?;
        Ok((clients, operators))
    }

    /// This master is in charge of them now. A service manager keeps them, if it does that, and
    /// forgets those that nobody asks for any more.
    pub(crate) fn take_over(&mut self) {
        self.every().for_each(|one| one.socket.take_file());
        if !systemd::keeps_sockets() {
            return;
        }
        for name in self.dropped.drain(..) {
            systemd::forget(&name);
        }
        self.give_to_keep(Kept::No);
    }

    /// Gives a service manager that had no room those sockets that it is to keep.
    pub(crate) fn give_what_waits(&mut self) {
        self.give_to_keep(Kept::NotYet);
    }

    /// When to try that again.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        let waits = self.every().any(|one| one.kept == Kept::NotYet);
        waits.then(|| Instant::now() + systemd::AGAIN)
    }

    fn give_to_keep(&mut self, which: Kept) {
        let every = self.all.iter_mut().chain(&mut self.admin);
        for one in every.filter(|one| one.kept == which) {
            one.kept = systemd::keep(&one.name, one.socket.as_fd());
        }
    }

    /// Where they listen.
    pub(crate) fn addrs(&self) -> impl Iterator<Item = &ListenAddr> {
        self.all.iter().map(|one| one.socket.local_addr())
    }

    /// For a successor: names, and descriptors that an `exec` does not close.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn for_successor(&self) -> io::Result<Vec<Inherited>> {
        let pass = |one: &Listening| Ok((one.name.clone(), rustix::io::dup(&one.socket)?));
        self.every().map(pass).collect()
    }

    /// A successor has them now, and files of Unix sockets are its own.
    pub(crate) fn hand_over(&mut self) {
        self.all.drain(..).chain(self.admin.drain(..)).for_each(|one| one.socket.leave_file());
    }

    /// Leaves them to the predecessor, which continues to use them.
    pub(crate) fn leave(&mut self) {
        self.all.clear();
        self.admin.clear();
    }

    fn every(&self) -> impl Iterator<Item = &Listening> {
        self.all.iter().chain(&self.admin)
    }

    /// No client comes in any more, but to sockets that a service manager keeps. The workers accept
    /// what has come before they close theirs.
    pub(crate) fn close(&mut self) {
        let own = || self.all.iter().filter(|one| !one.is_kept());
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
        self.all.drain(..).for_each(Listening::end);
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.all.drain(..).chain(self.admin.drain(..)).for_each(Listening::end);
    }
}

impl Listening {
    /// The file of a socket that a service manager keeps stays for the next master.
    fn end(self) {
        if self.is_kept() {
            self.socket.leave_file();
        }
    }

    fn is_kept(&self) -> bool {
        self.kept == Kept::Yes
    }
}

/// If it has been shut down. `bound` is where an internet socket was, and `addr` names it.
fn listen_again(socket: BorrowedFd<'_>, addr: &ListenAddr, bound: Option<SocketAddr>) {
    if socket_acceptconn(socket) != Ok(false) {
        return;
    }
    match open_again(socket, bound) {
        Ok(()) => tracing::warn!("{addr} had been shut down: listening again"),
        Err(error) => {
            let error = io::Error::from(error);
            tracing::error!(%error, "{addr} has been shut down: cannot listen again");
        }
    }
}

fn open_again(socket: BorrowedFd<'_>, bound: Option<SocketAddr>) -> Result<(), Errno> {
    if let Some(addr) = bound {
        // Else each connection would begin as shut down as this socket is (`ss -K`).
        connect_unspec(socket)?;
        // It has lost a port that the kernel chose, and has kept one that was asked for (EINVAL).
        bind(socket, &addr).or_else(|error| match error {
            Errno::INVAL => Ok(()),
            _ => Err(error),
        })?;
    }
    // The kernel lowers it to its own limit.
    listen(socket, i32::MAX)
}

/// `others` are open already.
///
/// # Errors
/// The text names the address.
fn open(
    addrs: &[ListenAddr],
    others: &[Listening],
    inherited: &mut Vec<Inherited>,
) -> io::Result<Vec<Listening>> {
    let mut open: Vec<Listening> = Vec::new();
    for addr in addrs {
        let name = addr.to_string();
        if name.contains('\n') {
            // A name is passed on as a part of a line.
            let text = format!("cannot listen on {addr:?}: its name has a line break");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let socket = match take(inherited, &name) {
            Some(socket) => {
                // A service manager may have kept one that was shut down.
                let bound = getsockname(&socket).ok();
                let bound = bound.and_then(|bound| SocketAddr::try_from(bound).ok());
                listen_again(socket.as_fd(), addr, bound);
                SharedListener::from_predecessor(socket).map_err(|error| {
                    io::Error::new(error.kind(), format!("cannot listen on {addr}: {error}"))
                })?
            }
            None => {
                let before = others.iter().chain(&open).map(|one| one.socket.local_addr());
                SharedListener::bind_beside(addr, before)?
            }
        };
        open.push(Listening { name, socket, kept: Kept::No });
    }
    Ok(open)
}

fn take(inherited: &mut Vec<Inherited>, name: &str) -> Option<OwnedFd> {
    let kept = systemd::kept_name(name);
    let position = inherited.iter().position(|(known, _)| known == name || *known == kept)?;
    Some(inherited.remove(position).1)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn any() -> OwnedFd {
        TcpListener::bind("127.0.0.1:0").unwrap().into()
    }

    #[test]
    fn sockets_of_a_predecessor_keep_their_order() {
        let passed = |sockets: usize| {
            (0..sockets).map(|_| (PASSED.to_owned(), any())).collect::<Vec<Inherited>>()
        };
        let addr = |socket: &OwnedFd| {
            SharedListener::from_socket(socket.try_clone().unwrap()).unwrap().socket_addr()
        };
        let mut inherited = passed(3);
        let expected: Vec<_> = inherited.iter().map(|(_, socket)| addr(socket)).collect();
        inherited.insert(0, ("127.0.0.1:0".to_owned(), any()));
        let asked: [ListenAddr; 1] = ["127.0.0.1:0".parse().unwrap()];
        let listeners = Listeners::open(&asked, Vec::new(), &[], inherited).unwrap();
        let found: Vec<_> = listeners.all.iter().map(|one| one.socket.socket_addr()).collect();
        assert_eq!(found[1..], expected);
        assert!(listeners.dropped.is_empty());
    }

    #[test]
    fn a_name_that_is_no_line_is_refused() {
        let asked: [ListenAddr; 1] = ["unix:/tmp/a\nb".parse().unwrap()];
        let error = Listeners::open(&asked, Vec::new(), &[], Vec::new()).unwrap_err();
        assert!(error.to_string().contains("line break"), "{error}");
    }
}
