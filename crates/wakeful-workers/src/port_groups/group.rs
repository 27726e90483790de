//! The sockets of one address in the order of the kernel's list, and which of them get connections.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{Shutdown, getsockname, shutdown};
use wakeful::accept::SharedListener;
use wakeful::net::ListenAddr;

use crate::listen_again::{has_stopped, listen_again};
use crate::steering::choose_among;
use crate::{sys, systemd};

/// The prefix of the name of a socket that is passed to a successor. Its number among those of the
/// address follows.
const EACH: &str = "reuse-port ";

/// The same prefix, for a socket that gets no connections.
const EACH_LEFT_OUT: &str = "reuse-port-left-out ";

/// A socket of this master's predecessor, with the name that it had there or with a service
/// manager.
pub(crate) type Inherited = (String, OwnedFd);

/// The sockets of one address.
#[derive(Debug)]
pub(super) struct PortGroup {
    /// The address as it was asked for. With port 0 the name stays the same whatever port the
    /// kernel chose.
    pub(super) name: String,
    /// The sockets in the order of the kernel's list. After them come the sockets that were shut
    /// down, which the list does not have.
    pub(super) members: Vec<Member>,
    /// Whether a program chooses among the sockets, or may do so.
    pub(super) is_steered: bool,
    /// How many of the first ones came from a predecessor.
    inherited: usize,
}

#[derive(Debug)]
pub(super) struct Member {
    /// For loop `l` of worker `n` this is `n` times the number of loops, plus `l`.
    pub(super) slot: usize,
    pub(super) socket: SharedListener,
    /// Whether the socket gets connections.
    pub(super) is_open: bool,
    /// Whether a filter may keep clients out.
    pub(super) may_be_filtered: bool,
}

impl Member {
    fn new(slot: usize, socket: SharedListener, is_open: bool) -> Self {
        Self { slot, socket, is_open, may_be_filtered: false }
    }

    /// Was the socket shut down, so that the kernel's list does not have it?
    fn has_stopped(&self) -> bool {
        has_stopped(self.socket.as_fd())
    }

    pub(super) fn let_nobody_in(&mut self) {
        self.may_be_filtered = true;
        let_nobody_in(&self.socket);
    }

    pub(super) fn let_in_again(&mut self) {
        if std::mem::take(&mut self.may_be_filtered) {
            let_in_again(&self.socket);
        }
    }
}

impl PortGroup {
    /// Listens on `addr`, with one socket. `others` are open already.
    ///
    /// # Errors
    /// The text names the address.
    pub(super) fn bind(addr: &ListenAddr, others: &[ListenAddr]) -> io::Result<Self> {
        let first = Member::new(0, SharedListener::bind_first(addr, others)?, true);
        let name = addr.to_string();
        Ok(Self { name, members: vec![first], is_steered: false, inherited: 0 })
    }

    /// Takes the sockets that a predecessor had on `addr`, or a service manager kept. `None`: there
    /// were none.
    ///
    /// # Errors
    /// They are no sockets that could listen. The text names the address.
    pub(super) fn inherit(
        addr: &ListenAddr,
        inherited: &mut Vec<Inherited>,
    ) -> io::Result<Option<Self>> {
        let name = addr.to_string();
        let kept = systemd::kept_name(&name);
        let place_of = |known: &str| match parse(known) {
            Some(place) => (place.name == name).then_some((place.slot, place.is_open)),
            // The backlog has clients of the previous master, which is gone.
            None => (known == kept).then_some((0, true)),
        };
        // With port 0, several addresses have the same name.
        let Some(bound) = inherited
            .iter()
            .find_map(|(known, socket)| place_of(known).map(|_| getsockname(socket)))
        else {
            return Ok(None);
        };
        let is_here = |(known, socket): &mut Inherited| {
            place_of(known).is_some() && getsockname(socket) == bound
        };
        let mut members = Vec::new();
        for (known, socket) in inherited.extract_if(.., is_here) {
            if known == kept {
                set_socket_reuseport(&socket, true)?;
                // The previous master is gone, so only this one decides which clients come in.
                let_in_again(&socket);
            }
            // As the previous master, or nobody yet if a service manager kept it.
            let listened_at = getsockname(&socket).ok().map(SocketAddr::try_from);
            listen_again(socket.as_fd(), addr, listened_at.and_then(Result::ok));
            let socket = SharedListener::from_master(socket).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot listen on {addr}: {error}"))
            })?;
            let (slot, is_open) = place_of(&known).unwrap_or_default();
            members.push(Member { may_be_filtered: true, ..Member::new(slot, socket, is_open) });
        }
        let inherited = members.len();
        Ok(Some(Self { name, members, is_steered: true, inherited }))
    }

    /// The sockets that no predecessor had, if nothing has changed since the start.
    pub(super) fn made_here(&self) -> impl Iterator<Item = &SharedListener> {
        self.members.iter().skip(self.inherited).map(|member| &member.socket)
    }

    /// The name by which a successor recognises this socket.
    pub(super) fn name_of(&self, member: &Member) -> String {
        let before = if member.is_open { EACH } else { EACH_LEFT_OUT };
        format!("{before}{} {}", member.slot, self.name)
    }

    /// Opens the missing sockets.
    ///
    /// # Errors
    /// No descriptors left. The text names the address.
    pub(super) fn fill(&mut self, slots: Range<usize>, is_open: bool) -> io::Result<()> {
        let has = |slot: &usize| self.members.iter().any(|member| member.slot == *slot);
        let missing: Vec<_> = slots.filter(|slot| !has(slot)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        if !is_open {
            // This comes before the new sockets listen.
            self.steer_anew();
        }
        for slot in missing {
            let end = self.follow_the_list();
            let Some(first) = self.members.first() else { break };
            let socket = first.socket.bind_again().map_err(|error| {
                let text = format!("cannot listen on {} again: {error}", self.name);
                io::Error::new(error.kind(), text)
            })?;
            self.members.insert(end, Member::new(slot, socket, is_open));
        }
        // A single socket may have had no program.
        self.steer();
        Ok(())
    }

    /// Applies `change`, and steers if that has changed which sockets are open.
    pub(super) fn change(&mut self, change: impl FnMut(&mut Member)) {
        let open = |members: &[Member]| members.iter().map(|member| member.is_open).collect();
        let before: Vec<bool> = open(&self.members);
        self.members.iter_mut().for_each(change);
        if before != open(&self.members) {
            self.steer();
        }
    }

    /// Steers connections to the open sockets.
    pub(super) fn steer(&mut self) {
        let places = self.open_places();
        let is_whole = places.len() == self.listening().count();
        if !is_whole {
            self.choose(places);
        } else if self.is_steered
            && let Some(socket) = self.one_that_listens()
        {
            match sys::stop_steering(socket) {
                Ok(()) => self.is_steered = false,
                // A seccomp filter refuses it, so a program that chooses among all sockets is used
                // instead.
                Err(_) => self.choose(places),
            }
        }
    }

    /// The sockets that were not shut down.
    fn listening(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| !member.has_stopped())
    }

    /// A socket by which a program can be attached. It must not be one that was shut down: the
    /// kernel would make a list for that socket alone, and then the socket cannot listen beside the
    /// others any more (EADDRINUSE).
    fn one_that_listens(&self) -> Option<&SharedListener> {
        self.listening().next().map(|member| &member.socket)
    }

    /// Moves the sockets that were shut down to the end. The kernel has removed them from its list:
    /// there, the last socket takes the place of one that stops. Returns the length of the list.
    fn follow_the_list(&mut self) -> usize {
        let mut end = self.members.len();
        for place in (0..self.members.len()).rev() {
            if self.members[place].has_stopped() {
                end -= 1;
                self.members.swap(place, end);
            }
        }
        end
    }

    /// The places of the open sockets in the kernel's list.
    fn open_places(&mut self) -> Vec<usize> {
        let end = self.follow_the_list();
        (0..end).filter(|place| self.members[*place].is_open).collect()
    }

    /// Steers connections to the open sockets, even if another master has steered.
    pub(super) fn steer_anew(&mut self) {
        let places = self.open_places();
        self.choose(places);
    }

    fn choose(&mut self, places: Vec<usize>) {
        // If no socket is open, all connections wait for workers.
        let (Some(socket), false) = (self.one_that_listens(), places.is_empty()) else { return };
        let steered = sys::steer(socket, &choose_among(places));
        self.is_steered = true;
        match steered {
            Ok(()) => {}
            // The kernel has no list for this socket yet.
            Err(error) if self.listening().count() == 1 => {
                log!(debug, %error, "a listener that is alone takes no program");
            }
            Err(error) => {
                let addr = &self.name;
                log!(warn, %error, "cannot choose among the sockets of {addr} (SO_ATTACH_REUSEPORT_CBPF): while a worker comes or goes, clients may have to connect again");
            }
        }
    }

    pub(super) fn close(&mut self, is_over: impl Fn(usize) -> bool) {
        while let Some(place) = self.members.iter().position(|member| is_over(member.slot)) {
            self.take_out(place);
            self.steer();
        }
    }

    /// Removes a socket. The last one takes its place in the kernel's list. Until the program is
    /// changed, the last one is not chosen.
    pub(super) fn take_out(&mut self, place: usize) {
        let slot = self.members[place].slot;
        let mut places = self.open_places();
        let is_it = |member: &Member| member.slot == slot;
        let Some(place) = self.members.iter().position(is_it) else { return };
        if self.members[place].has_stopped() {
            self.members.remove(place);
            return;
        }
        let last = self.listening().count() - 1;
        if place != last && self.members[last].is_open {
            places.retain(|place| *place != last);
            self.choose(places);
        }
        stop_listening(&self.members[place].socket);
        self.members.swap(place, last);
        self.members.remove(last);
    }

    /// Makes the sockets of these slots listen again that were shut down.
    pub(super) fn listen_again(&mut self, is_one: impl Fn(usize) -> bool) {
        let end = self.follow_the_list();
        if end == self.members.len() {
            return;
        }
        for member in self.members.split_off(end) {
            let (addr, bound) = (member.socket.local_addr(), member.socket.socket_addr());
            if is_one(member.slot) {
                listen_again(member.socket.as_fd(), addr, bound);
            }
            // One that listens again is the last of the list.
            let end = self.follow_the_list();
            self.members.insert(end, member);
        }
        self.is_steered = true;
        self.steer();
    }
}

/// The parts of the name of a predecessor's socket.
struct Place<'a> {
    slot: usize,
    is_open: bool,
    /// The name of the address.
    name: &'a str,
}

fn parse(known: &str) -> Option<Place<'_>> {
    let of = |before, is_open| Some((known.strip_prefix(before)?, is_open));
    let (rest, is_open) = of(EACH, true).or_else(|| of(EACH_LEFT_OUT, false))?;
    let (slot, name) = rest.split_once(' ')?;
    Some(Place { slot: slot.parse().ok()?, is_open, name })
}

/// The address's name, if `known` is the name of a socket of one loop.
pub(crate) fn address_of(known: &str) -> Option<&str> {
    parse(known).map(|place| place.name)
}

/// Stops listening for good, in all processes, because a worker of the predecessor may have the
/// socket for a while.
///
/// The kernel takes the socket out of the list of its port first, and then out of the table in
/// which it looks for listeners. In between, it gives a new client to this socket, whatever the
/// program says, and would reset it. So a filter drops the client's first segment, and the client
/// sends it again.
pub(super) fn stop_listening(socket: &SharedListener) {
    let_nobody_in(socket);
    if let Err(error) = shutdown(socket, Shutdown::Read) {
        log!(debug, %error, "a listener cannot be shut down");
    }
}

pub(crate) fn let_in_again(socket: impl AsFd) {
    if let Err(error) = sys::let_in_again(socket) {
        log!(warn, %error, "cannot remove a listener's filter: new connections are dropped there");
    }
}

pub(crate) fn let_nobody_in(socket: &SharedListener) {
    if let Err(error) = socket.let_nobody_in() {
        log!(debug, %error, "a listener's filter cannot be attached");
    }
}
