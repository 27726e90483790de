//! The sockets that a master listens on, and passes on: to its workers, and to the master that
//! succeeds it.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::getsockname;
use wakeful::accept::SharedListener;
use wakeful::net::ListenAddr;

use crate::listen_again::{has_stopped, listen_again};
pub(crate) use crate::port_groups::Inherited;
use crate::port_groups::{
    PortGroups, address_of, is_reached_by_others, is_waited_at, let_in_again, let_nobody_in,
};
use crate::sys;
use crate::systemd::{self, KEPT, Kept};
use crate::unix_backlog::may_be_waited_at;

/// The name, instead of an address, of a socket that a service manager passes.
const PASSED: &str = "passed";

/// The error if each loop should have its own socket.
const ONE_IS_PASSED: &str = "a socket that a service manager passes is one for all workers, and each loop needs its own (reuse-port): use the strategy exclusive";

/// How long handshakes that are under way may take to complete, if the peer is not on this host.
pub(crate) const UNTIL_HANDSHAKES_COMPLETE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Listeners {
    all: Vec<Listening>,
    /// Used instead of `all`, if each loop of each worker has its own socket.
    pub(crate) groups: PortGroups,
    /// The sockets for operators.
    admin: Vec<Listening>,
    /// The names of the predecessor's sockets that are no longer in the settings.
    dropped: Vec<String>,
    /// And these sockets.
    dropped_sockets: Vec<SharedListener>,
}

#[derive(Debug)]
struct Listening {
    /// The address as it was asked for. With port 0 the name stays the same whatever port the
    /// kernel chose.
    name: String,
    socket: SharedListener,
    is_inherited: bool,
    kept: Kept,
}

impl Listeners {
    /// Listens on `addrs` and `admin`. It uses the sockets in `inherited` if they are there, and
    /// takes the `passed` ones. Other inherited sockets close, because they are no longer in the
    /// settings. `each` has the numbers of workers and of their loops, if each loop should have its
    /// own socket.
    ///
    /// # Errors
    /// The text names the address.
    pub(crate) fn open(
        addrs: &[ListenAddr],
        passed: Vec<SharedListener>,
        admin: &[ListenAddr],
        mut inherited: Vec<Inherited>,
        each: Option<(usize, usize)>,
    ) -> io::Result<Self> {
        is_same_strategy(addrs, &inherited, each.is_some())?;
        let (mut all, groups) = match each {
            None => (open(addrs, &[], &mut inherited)?, PortGroups::default()),
            Some(_) if !passed.is_empty() => return Err(invalid(ONE_IS_PASSED.to_owned())),
            Some(each) => (Vec::new(), PortGroups::open(addrs, each, &mut inherited)?),
        };
        let before: Vec<_> =
            all.iter().map(|one: &Listening| one.socket.local_addr().clone()).collect();
        let before: Vec<_> = before.into_iter().chain(groups.addrs().cloned()).collect();
        let admin = open(admin, &before, &mut inherited);
        let admin = admin.inspect_err(|_| groups.stop_what_is_made())?;
        let is_passed = |(name, _): &Inherited| name == PASSED;
        let again = inherited.extract_if(.., |one| is_passed(one));
        let again = again.map(|(_, socket)| SharedListener::from_master(socket));
        let again = again.collect::<io::Result<Vec<_>>>()?;
        // The manager has passed them only to the first master.
        let passed = if again.is_empty() { passed } else { again };
        let named = |socket| Listening {
            name: PASSED.to_owned(),
            socket,
            is_inherited: true,
            kept: Kept::Yes,
        };
        all.extend(passed.into_iter().map(named));
        let (mut dropped, mut dropped_sockets) = (Vec::new(), Vec::new());
        for (name, socket) in inherited {
            dropped.push(address(name));
            dropped_sockets.extend(SharedListener::from_predecessor(socket).ok());
        }
        dropped.dedup();
        for name in &dropped {
            log!(info, "no longer listening on {name}");
        }
        if each.is_some() && systemd::keeps_sockets() {
            log!(
                info,
                "the service manager keeps no sockets, since each loop has one (--accept reuse-port)"
            );
            // The manager may still have the sockets of an earlier master.
            dropped.extend(addrs.iter().map(ToString::to_string));
        }
        let listeners = Self { all, groups, admin, dropped, dropped_sockets };
        listeners.serves_somewhere()?;
        listeners.warn_of_lost_files();
        Ok(listeners)
    }

    /// Sockets that were shut down and cannot listen again are kept for later. The workers serve
    /// the others.
    ///
    /// # Errors
    /// There is no other.
    fn serves_somewhere(&self) -> io::Result<()> {
        let all = || self.all.iter().map(|one| &one.socket).chain(self.groups.sockets());
        let Some(first) = all().next() else { return Ok(()) };
        if all().any(|socket| !has_stopped(socket.as_fd())) {
            return Ok(());
        }
        let (addr, in_use) = (first.local_addr(), io::ErrorKind::AddrInUse);
        let text =
            format!("cannot listen on {addr}: the socket was shut down, and cannot listen again");
        Err(io::Error::new(in_use, text))
    }

    /// Logs the Unix sockets that clients can no longer find.
    pub(crate) fn warn_of_lost_files(&self) {
        for error in self.every().filter_map(|one| one.socket.check_file().err()) {
            log!(warn, "{error}");
        }
    }

    /// Makes sockets listen again that were shut down, by another process that has them or by an
    /// operator (`ss -K`). Otherwise no worker could serve any more.
    pub(crate) fn listen_again(&mut self) {
        self.every().for_each(Listening::listen_again);
        self.groups.listen_again();
    }

    /// The same, before a worker is started in this place.
    pub(crate) fn listen_again_at(&mut self, place: usize) {
        self.every().for_each(Listening::listen_again);
        self.groups.listen_again_at(place);
    }

    /// Duplicates the descriptors for the worker in this place: those for clients, and those for
    /// operators.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn for_worker(&self, place: usize) -> io::Result<(Vec<OwnedFd>, Vec<OwnedFd>)> {
        let duplicate = |one: &Listening| sys::duplicate(one.socket.as_fd());
        let mut clients = self.all.iter().map(duplicate).collect::<io::Result<Vec<_>>>()?;
        clients.extend(self.groups.for_worker(place)?);
        let operators = self.admin.iter().map(duplicate).collect::<io::Result<_>>()?;
        Ok((clients, operators))
    }

    /// Called when this master is in charge of the sockets. A service manager may keep them. It
    /// then forgets the ones that are no longer in the settings.
    pub(crate) fn take_over(&mut self) {
        self.every().for_each(|one| one.socket.take_file());
        self.let_in_again();
        self.drop_what_is_dropped();
        let before = self.every_mut().filter(|one| one.kept == Kept::Before);
        before.for_each(|one| one.kept = Kept::No);
        if !systemd::keeps_sockets() {
            return;
        }
        for name in self.dropped.drain(..) {
            systemd::forget(&name);
        }
        self.give_to_keep();
    }

    /// Lets no more clients in at sockets that only the old workers have. These drain when this
    /// master is in charge, and serve the clients that have come by then.
    fn drop_what_is_dropped(&mut self) {
        let dropped = mem::take(&mut self.dropped_sockets);
        dropped.iter().for_each(|one| {
            one.take_file();
            let_nobody_in(one);
        });
        if dropped.iter().any(is_reached_by_others) {
            thread::sleep(UNTIL_HANDSHAKES_COMPLETE);
        }
    }

    /// Gives the service manager the sockets that it should keep, and for which it had no room
    /// before.
    pub(crate) fn give_what_waits(&mut self) {
        let waiting = self.every_mut().filter(|one| one.kept == Kept::NotYet);
        waiting.for_each(Listening::give_to_keep);
    }

    /// When to try that again.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        let waits = self.every().any(|one| one.kept == Kept::NotYet);
        waits.then(|| Instant::now() + systemd::AGAIN)
    }

    /// The manager may have some from an earlier master. It does not say whether it had room for a
    /// socket, so it forgets those that are too many before it gets the others.
    fn give_to_keep(&mut self) {
        let most = systemd::most_kept();
        let mut own: Vec<_> = self.every_mut().filter(|one| one.kept != Kept::Yes).collect();
        let too_many = own.split_off(own.len().min(most));
        if !too_many.is_empty() {
            log!(
                warn,
                "the service manager keeps {most} sockets for the next master, and has no room for \
                 {} more: they close with this one. Raise FileDescriptorStoreMax=",
                too_many.len()
            );
        }
        for one in too_many {
            one.kept = Kept::NoRoom;
            systemd::forget(&one.name);
        }
        own.into_iter().for_each(Listening::give_to_keep);
    }

    /// The addresses of all listeners.
    pub(crate) fn addrs(&self) -> impl Iterator<Item = &ListenAddr> {
        self.all.iter().map(|one| one.socket.local_addr()).chain(self.groups.addrs())
    }

    /// For a successor: names, and descriptors that an `exec` does not close.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn for_successor(&self) -> io::Result<Vec<Inherited>> {
        let pass = |one: &Listening| Ok((one.name.clone(), sys::duplicate_to_pass(&one.socket)?));
        let mut all = self.every().map(pass).collect::<io::Result<Vec<_>>>()?;
        all.extend(self.groups.for_successor()?);
        Ok(all)
    }

    /// Called when a successor has the sockets. It also owns the files of Unix sockets.
    pub(crate) fn hand_over(&mut self) {
        self.groups.clear();
        self.all.drain(..).chain(self.admin.drain(..)).for_each(|one| one.socket.leave_file());
    }

    /// Leaves the sockets to the predecessor, which continues to use them and their files.
    pub(crate) fn leave(&mut self) {
        self.groups.clear();
        let all = self.all.drain(..).chain(self.admin.drain(..));
        all.filter(|one| one.is_inherited).for_each(|one| one.socket.leave_file());
    }

    fn every(&self) -> impl Iterator<Item = &Listening> {
        self.all.iter().chain(&self.admin)
    }

    fn every_mut(&mut self) -> impl Iterator<Item = &mut Listening> {
        self.all.iter_mut().chain(&mut self.admin)
    }

    /// Lets no more clients in, except at sockets that a service manager keeps.
    pub(crate) fn let_nobody_in(&self) {
        let own = self.all.iter().filter(|one| !one.is_kept());
        let (unix, tcp): (Vec<_>, Vec<_>) = own.partition(|one| one.is_unix());
        tcp.iter().for_each(|one| let_nobody_in(&one.socket));
        let is_remote = tcp.iter().any(|one| is_reached_by_others(&one.socket));
        if self.groups.let_nobody_in() || is_remote {
            // Handshakes with other hosts may be under way, so this waits until they complete.
            thread::sleep(UNTIL_HANDSHAKES_COMPLETE);
        }
        // A Unix socket lets nobody in ever after, and a manager may have it from an earlier
        // master.
        let keeps = systemd::keeps_sockets();
        let closes = unix.iter().filter(|one| !keeps || one.kept == Kept::NoRoom);
        closes.for_each(|one| let_nobody_in(&one.socket));
    }

    /// Undoes [`let_nobody_in`](Self::let_nobody_in) at the TCP sockets that all workers share. A
    /// master that is dead by now, before or after this one, may have done that.
    pub(crate) fn let_in_again(&self) {
        let tcp = self.every().filter(|one| !one.is_unix());
        tcp.for_each(|one| let_in_again(one.socket.as_fd()));
    }

    /// Returns whether clients wait at a socket that all workers share, and that ends with this
    /// master.
    pub(crate) fn are_waited_at(&self) -> bool {
        self.all.iter().any(|one| !one.is_kept() && one.is_waited_at())
    }

    /// Closes the master's sockets. The workers accept what has come before they close theirs.
    pub(crate) fn close(&mut self) {
        self.groups.clear();
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

    fn give_to_keep(&mut self) {
        self.kept = systemd::keep(&self.name, self.socket.as_fd());
    }

    fn listen_again(&self) {
        let (addr, bound) = (self.socket.local_addr(), self.socket.socket_addr());
        listen_again(self.socket.as_fd(), addr, bound);
    }

    fn is_kept(&self) -> bool {
        matches!(self.kept, Kept::Before | Kept::Yes)
    }

    fn is_unix(&self) -> bool {
        self.socket.socket_addr().is_none()
    }

    fn is_waited_at(&self) -> bool {
        is_waited_at(self.socket.as_fd())
            && (!self.is_unix() || may_be_waited_at(self.socket.local_addr()))
    }
}

/// `others` are open already.
///
/// # Errors
/// The text names the address.
fn open(
    addrs: &[ListenAddr],
    others: &[ListenAddr],
    inherited: &mut Vec<Inherited>,
) -> io::Result<Vec<Listening>> {
    let mut open: Vec<Listening> = Vec::new();
    for addr in addrs {
        let name = addr.to_string();
        if name.contains('\n') {
            // A name is passed on as a part of a line, so it must not have a line break.
            return Err(invalid(format!("cannot listen on {addr:?}: its name has a line break")));
        }
        let mut kept = Kept::No;
        let known = take(inherited, &name);
        let is_inherited = known.is_some();
        let socket = match known {
            Some((known, socket)) => {
                if known.starts_with(KEPT) {
                    kept = Kept::Before;
                    let_in_again(&socket);
                }
                // A service manager may have kept a socket that was shut down.
                let bound = getsockname(&socket).ok();
                let bound = bound.and_then(|bound| SocketAddr::try_from(bound).ok());
                listen_again(socket.as_fd(), addr, bound);
                SharedListener::from_predecessor(socket).map_err(|error| {
                    io::Error::new(error.kind(), format!("cannot listen on {addr}: {error}"))
                })?
            }
            None => {
                let open = open.iter().map(|one| one.socket.local_addr());
                let before = others.iter().chain(open);
                SharedListener::bind_beside(addr, before)?
            }
        };
        open.push(Listening { name, socket, is_inherited, kept });
    }
    Ok(open)
}

/// Checks that an upgrade does not change the kind of sockets, because the previous master
/// continues with its own sockets if this one fails.
///
/// # Errors
/// The previous master uses the other kind of sockets.
fn is_same_strategy(
    addrs: &[ListenAddr],
    inherited: &[Inherited],
    is_for_each: bool,
) -> io::Result<()> {
    for name in addrs.iter().map(ToString::to_string) {
        let has = |known: &str| inherited.iter().any(|(inherited, _)| inherited == known);
        let has_each = || inherited.iter().any(|(known, _)| address_of(known) == Some(&name));
        let (before, now) = match is_for_each {
            true if has(&name) => ("all workers share a socket", "each loop is to have its own"),
            false if has_each() => ("each loop has a socket", "the workers are to share one"),
            _ => continue,
        };
        return Err(invalid(format!(
            "cannot take over {name}: in the master before {before}, and here {now}. An upgrade \
             cannot change --accept from or to reuse-port: restart instead"
        )));
    }
    Ok(())
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// The address in the name of a socket that is no longer in the settings.
fn address(name: String) -> String {
    address_of(&name).map(ToOwned::to_owned).unwrap_or(name)
}

fn take(inherited: &mut Vec<Inherited>, name: &str) -> Option<Inherited> {
    let kept = systemd::kept_name(name);
    let position = inherited.iter().position(|(known, _)| known == name || *known == kept)?;
    Some(inherited.remove(position))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

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
        let listeners = Listeners::open(&asked, Vec::new(), &[], inherited, None).unwrap();
        let found: Vec<_> = listeners.all.iter().map(|one| one.socket.socket_addr()).collect();
        assert_eq!(found[1..], expected);
        assert!(listeners.dropped.is_empty());
    }

    /// A master that was told to end may be killed before it tells its successor.
    #[test]
    fn clients_that_a_dead_predecessor_kept_out_come_in_again() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        let predecessors = SharedListener::from_socket(socket.into()).unwrap();
        let inherited = vec![(addr.to_string(), sys::duplicate(&predecessors).unwrap())];
        let mut listeners =
            Listeners::open(&[addr.into()], Vec::new(), &[], inherited, None).unwrap();
        let_nobody_in(&predecessors);
        listeners.take_over();
        TcpStream::connect_timeout(&addr, Duration::from_secs(20)).unwrap();
    }

    #[test]
    fn a_socket_that_cannot_listen_again_is_kept_if_there_is_another_one() {
        // The socket keeps a port that was asked for. No other test listens at this address.
        let free = TcpListener::bind("127.44.0.1:0").unwrap().local_addr().unwrap();
        let stopped = TcpListener::bind(free).unwrap();
        rustix::net::shutdown(&stopped, rustix::net::Shutdown::Both).unwrap();
        let other = TcpListener::bind(free).unwrap();
        let other_addr: ListenAddr = "127.0.0.1:0".parse().unwrap();
        let asked = [free.into(), other_addr.clone()];
        let open = |asked: &[ListenAddr]| {
            let inherited = vec![
                (free.to_string(), stopped.try_clone().unwrap().into()),
                (other_addr.to_string(), any()),
            ];
            Listeners::open(asked, Vec::new(), &[], inherited, None)
        };
        let mut listeners = open(&asked).unwrap();
        let stop = |listeners: &Listeners| {
            let (sockets, _) = listeners.for_worker(0).unwrap();
            sockets.iter().map(|one| has_stopped(one.as_fd())).collect::<Vec<_>>()
        };
        assert_eq!(stop(&listeners), [true, false]);
        listeners.listen_again();
        assert_eq!(stop(&listeners), [true, false]);
        let error = open(&asked[..1]).unwrap_err();
        assert!(error.to_string().contains(&format!("cannot listen on {free}")), "{error}");
        drop(other);
        listeners.listen_again();
        assert_eq!(stop(&listeners), [false, false]);
    }

    #[test]
    fn a_name_that_is_no_line_is_refused() {
        let asked: [ListenAddr; 1] = ["unix:/tmp/a\nb".parse().unwrap()];
        let error = Listeners::open(&asked, Vec::new(), &[], Vec::new(), None).unwrap_err();
        assert!(error.to_string().contains("line break"), "{error}");
    }
}
