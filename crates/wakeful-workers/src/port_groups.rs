//! The sockets of a master whose workers' loops have one each (`SO_REUSEPORT`).
//!
//! The master makes and keeps all of them. The worker in place `n` always gets the sockets of that
//! place, and so does the one that replaces it: what waits in their backlogs waits for it.
//!
//! A socket that is to get no connections is left out by a program ([`steering`](crate::steering)):
//! a new one until its worker accepts, and one whose worker leaves. The program knows a socket by
//! its place in the kernel's list, so all that changes the list is done here. A socket that begins
//! to listen goes to the end of it. When one stops, the last one takes its place.
//!
//! To close a socket resets the connections in its backlog. So one that leaves is left out first.
//! Its worker accepts what the backlog holds, and drains. If more is there, or comes by handshakes
//! that were under way, one more worker is started for it, and drains as well. The socket closes
//! when nothing has come for a while, during which a filter lets nobody begin.

mod group;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wakeful::accept::SharedListener;
use wakeful::net::ListenAddr;

pub(crate) use self::group::{Inherited, address_of, let_in_again, let_nobody_in};
use self::group::{Member, PortGroup, stop_listening};
use crate::listen_again::has_stopped;
use crate::sys;

/// So long the worker that leaves has for its backlog before another one is started for it.
const UNTIL_BACKLOG_IS_EMPTY: Duration = Duration::from_millis(100);

/// A client whose segment was lost completes its handshake after 1 s, or after 3 s.
const LINGER: Duration = Duration::from_millis(3_500);

/// The sockets of all addresses.
#[derive(Debug, Default)]
pub(crate) struct PortGroups {
    /// Of each worker.
    loops: usize,
    groups: Vec<PortGroup>,
    /// Places whose sockets are to close.
    leaving: BTreeMap<usize, Stage>,
}

/// Of a place that leaves.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Its worker accepts what has come.
    Settles(Instant),
    /// Whatever comes is accepted by another one. If nothing does, it closes then.
    Closes(Instant),
}

/// What is in a place whose sockets leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inside {
    /// A worker that accepts what waits, or is going to.
    Accepting,
    /// One that drains, or a worker of the predecessor.
    Draining,
    Nobody,
}

impl PortGroups {
    /// Sockets for `workers` on each of `addrs`, those among `inherited` from there.
    ///
    /// # Errors
    /// The text names the address.
    pub(crate) fn open(
        addrs: &[ListenAddr],
        (workers, loops): (usize, usize),
        inherited: &mut Vec<Inherited>,
    ) -> io::Result<Self> {
        let mut this = Self { loops, ..Self::default() };
        for addr in addrs {
            let (mut group, is_open) = match PortGroup::inherit(addr, inherited)? {
                // Connections are the predecessor's, which continues if this master fails.
                Some(group) => (group, false),
                None => {
                    let before: Vec<_> = this.addrs().cloned().collect();
                    (PortGroup::bind(addr, &before)?, true)
                }
            };
            group.fill(0..workers * loops, is_open)?;
            this.groups.push(group);
        }
        Ok(this)
    }

    /// Those that no predecessor has, if nothing has changed since they were opened.
    pub(crate) fn made_here(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.groups.iter().flat_map(PortGroup::made_here).map(AsFd::as_fd)
    }

    /// Do the workers share their sockets instead?
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(crate) fn addrs(&self) -> impl Iterator<Item = &ListenAddr> {
        self.groups.iter().filter_map(|group| Some(group.members.first()?.socket.local_addr()))
    }

    /// A worker is going to be started in this place. New sockets get no connections yet.
    ///
    /// # Errors
    /// No descriptors left. The text names the address.
    pub(crate) fn make(&mut self, place: usize, wanted: usize) -> io::Result<()> {
        if place >= wanted {
            // It accepts what waits there, and drains.
            return Ok(());
        }
        // A filter stays until its worker accepts: the predecessor may end meanwhile, and nobody
        // would accept who comes in.
        self.leaving.remove(&place);
        let slots = self.slots(place);
        self.groups.iter_mut().try_for_each(|group| group.fill(slots.clone(), false))
    }

    /// Its sockets are not to close any more.
    fn stay(&mut self, place: usize) {
        self.leaving.remove(&place);
        self.members_of(place).for_each(Member::let_in_again);
    }

    /// The worker in this place accepts.
    pub(crate) fn admit(&mut self, place: usize) {
        self.stay(place);
        let slots = self.slots(place);
        for group in &mut self.groups {
            group.change(|member| {
                if slots.contains(&member.slot) {
                    member.is_open = true;
                }
            });
        }
    }

    /// The worker in this place is dead: clients go elsewhere until another one is
    /// [admitted](Self::admit), if there is anywhere else. Those that wait there go on waiting.
    pub(crate) fn avoid(&mut self, place: usize) {
        let slots = self.slots(place);
        for group in &mut self.groups {
            let is_elsewhere = |member: &Member| member.is_open && !slots.contains(&member.slot);
            if group.members.iter().any(is_elsewhere) {
                group.change(|member| member.is_open &= !slots.contains(&member.slot));
            }
        }
    }

    /// Places from this one on are not wanted any more: no connection goes there. Those before it
    /// are.
    pub(crate) fn retire(&mut self, wanted: usize, now: Instant) {
        let back: Vec<_> = self.leaving.keys().copied().filter(|place| *place < wanted).collect();
        back.into_iter().for_each(|place| self.stay(place));
        let (first, loops) = (wanted * self.loops, self.loops);
        for group in &mut self.groups {
            group.change(|member| {
                if member.slot >= first {
                    member.is_open = false;
                }
            });
            let leaves =
                group.members.iter().map(|member| member.slot).filter(|slot| *slot >= first);
            for slot in leaves {
                self.leaving
                    .entry(slot / loops)
                    .or_insert(Stage::Settles(now + UNTIL_BACKLOG_IS_EMPTY));
            }
        }
    }

    /// Closes sockets that have left. Returns the places where connections wait, and nobody accepts
    /// them.
    pub(crate) fn look(&mut self, now: Instant, inside: impl Fn(usize) -> Inside) -> Vec<usize> {
        let is_waited_at = |place| self.sockets_of(place).any(|one| is_waited_at(one.as_fd()));
        let free: Vec<_> = self.free(&inside).map(|place| (place, is_waited_at(place))).collect();
        let (mut waiting, mut over, mut quiet) = (Vec::new(), Vec::new(), Vec::new());
        for (place, is_waited_at) in free {
            let Some(stage) = self.leaving.get_mut(&place) else { continue };
            match *stage {
                Stage::Settles(until) if now < until => {}
                _ if is_waited_at => {
                    waiting.push(place);
                    *stage = Stage::Settles(now + UNTIL_BACKLOG_IS_EMPTY);
                }
                Stage::Closes(at) if at <= now && inside(place) == Inside::Nobody => {
                    over.push(place);
                }
                Stage::Closes(at) if now < at => {}
                Stage::Settles(_) | Stage::Closes(_) => {
                    *stage = Stage::Closes(now + LINGER);
                    quiet.push(place);
                }
            }
        }
        for place in quiet {
            self.members_of(place).for_each(Member::let_nobody_in);
        }
        for place in over {
            let slots = self.slots(place);
            self.groups.iter_mut().for_each(|group| group.close(|slot| slots.contains(&slot)));
            self.leaving.remove(&place);
        }
        waiting
    }

    /// Readable when connections come that nobody accepts.
    pub(crate) fn watched(&self, inside: impl Fn(usize) -> Inside) -> Vec<BorrowedFd<'_>> {
        let closes = |place: &usize| matches!(self.leaving[place], Stage::Closes(_));
        let watched = self.free(&inside).filter(closes);
        let sockets = watched.flat_map(|place| self.sockets_of(place)).map(AsFd::as_fd);
        // One that somebody has shut down would be readable for ever.
        sockets.filter(|socket| !has_stopped(*socket)).collect()
    }

    /// When to look, though nothing comes.
    pub(crate) fn next_at(&self, inside: impl Fn(usize) -> Inside) -> Option<Instant> {
        let at = |place| match self.leaving[&place] {
            Stage::Settles(at) | Stage::Closes(at) => at,
        };
        self.free(&inside).map(at).min()
    }

    /// Where nobody accepts.
    fn free(&self, inside: impl Fn(usize) -> Inside) -> impl Iterator<Item = usize> {
        let places = self.leaving.keys().copied();
        places.filter(move |place| inside(*place) != Inside::Accepting)
    }

    /// Descriptors of its own for the worker in this place: for each address as many as it has
    /// loops.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn for_worker(&self, place: usize) -> io::Result<Vec<OwnedFd>> {
        let own = |group: &PortGroup| {
            let slots = self.slots(place);
            let members = group.members.iter().filter(|member| slots.contains(&member.slot));
            let mut own: Vec<_> = members.collect();
            own.sort_by_key(|member| member.slot);
            if own.is_empty() {
                // The predecessor had this place elsewhere only.
                own.extend(group.members.first());
            }
            let loops = own.into_iter().cycle().take(self.loops);
            loops.map(|member| sys::duplicate(member.socket.as_fd())).collect::<Vec<_>>()
        };
        self.groups.iter().flat_map(own).collect()
    }

    /// All of this master's workers accept, and it is in charge.
    pub(crate) fn take_charge(&mut self, wanted: usize, now: Instant) {
        (0..wanted).for_each(|place| self.admit(place));
        self.retire(wanted, now);
        // A predecessor has left out others.
        self.groups.iter_mut().for_each(PortGroup::steer);
    }

    /// For a successor, in the order of the kernel's list.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn for_successor(&self) -> io::Result<Vec<Inherited>> {
        let pass = |group: &PortGroup| {
            let pass = |member: &Member| {
                Ok((group.name_of(member), sys::duplicate_to_pass(&member.socket)?))
            };
            group.members.iter().map(pass).collect::<Vec<_>>()
        };
        self.groups.iter().flat_map(pass).collect()
    }

    /// A successor has failed. It may have steered, and let clients in where none were to come. The
    /// sockets that it made, `its_own`, are at the end of the kernel's list, and its workers may
    /// still have them.
    pub(crate) fn steer_again(&mut self, its_own: Vec<OwnedFd>, now: Instant) {
        let leaving: Vec<_> = self.leaving.keys().copied().collect();
        for place in leaving {
            self.members_of(place).for_each(Member::let_in_again);
            self.leaving.insert(place, Stage::Settles(now + UNTIL_BACKLOG_IS_EMPTY));
        }
        self.groups.iter_mut().for_each(PortGroup::steer_anew);
        // From the last one on, so that the others keep their places.
        its_own.into_iter().rev().for_each(stop_listening);
        self.groups.iter_mut().for_each(PortGroup::steer);
    }

    /// Another master has them.
    pub(crate) fn clear(&mut self) {
        self.groups.clear();
        self.leaving.clear();
    }

    pub(crate) fn listen_again(&mut self) {
        self.groups.iter_mut().for_each(PortGroup::listen_again);
    }

    /// Where connections wait.
    pub(crate) fn waited_at(&self) -> BTreeSet<usize> {
        let members = self.groups.iter().flat_map(|group| &group.members);
        let waited_at = members.filter(|member| is_waited_at(member.socket.as_fd()));
        waited_at.map(|member| member.slot / self.loops).collect()
    }

    /// No client comes in any more. Returns whether handshakes with other hosts may be under way.
    pub(crate) fn let_nobody_in(&self) -> bool {
        let members = || self.groups.iter().flat_map(|group| &group.members);
        members().for_each(|member| let_nobody_in(&member.socket));
        members().any(|member| is_reached_by_others(&member.socket))
    }

    fn slots(&self, place: usize) -> std::ops::Range<usize> {
        place * self.loops..(place + 1) * self.loops
    }

    fn sockets_of(&self, place: usize) -> impl Iterator<Item = &SharedListener> {
        let slots = self.slots(place);
        let members = self.groups.iter().flat_map(|group| &group.members);
        members.filter(move |member| slots.contains(&member.slot)).map(|member| &member.socket)
    }

    fn members_of(&mut self, place: usize) -> impl Iterator<Item = &mut Member> {
        let slots = self.slots(place);
        let members = self.groups.iter_mut().flat_map(|group| &mut group.members);
        members.filter(move |member| slots.contains(&member.slot))
    }
}

pub(crate) fn is_waited_at(socket: BorrowedFd<'_>) -> bool {
    let mut fd = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    let is_ready = poll(&mut fd, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
    // One that was shut down is readable, too.
    is_ready && fd[0].revents().contains(PollFlags::IN) && !fd[0].revents().contains(PollFlags::HUP)
}

/// May peers on other hosts connect?
pub(crate) fn is_reached_by_others(socket: &SharedListener) -> bool {
    socket.socket_addr().is_some_and(|addr| !addr.ip().to_canonical().is_loopback())
}

#[cfg(test)]
mod tests;
