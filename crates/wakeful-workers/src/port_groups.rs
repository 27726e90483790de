//! The sockets of a master whose workers' loops have one each (`SO_REUSEPORT`).
//!
//! The master makes and keeps all of them. The worker in place `n` always gets the sockets of that
//! place, and so does the one that replaces it: what waits in their backlogs waits for it.
//!
//! A BPF program ([`steering`](crate::steering)) leaves out sockets that should get no connections:
//! a new socket until its worker accepts, and a socket whose worker leaves. The program identifies
//! a socket by its place in the kernel's list, so everything that changes the list is done here. A
//! socket that begins to listen goes to the end of the list. When one stops, the last one takes its
//! place. So it is when another process shuts one down (`ss -K`), and before each change here the
//! master looks for such sockets.
//!
//! Closing a socket resets the connections in its backlog. So a socket that should close is left
//! out first. Its worker accepts what the backlog holds, and drains. If there is more, or
//! handshakes that were under way bring more, one more worker is started for it, and drains as
//! well. The socket closes when nothing has come for a while, during which a filter keeps new
//! clients out.

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

/// How long a leaving worker may take for its backlog before another worker is started for it.
const UNTIL_BACKLOG_IS_EMPTY: Duration = Duration::from_millis(100);

/// A client whose segment was lost completes its handshake after 1 s, or after 3 s.
const LINGER: Duration = Duration::from_millis(3_500);

/// The sockets of all addresses.
#[derive(Debug, Default)]
pub(crate) struct PortGroups {
    /// The number of loops of each worker.
    loops: usize,
    groups: Vec<PortGroup>,
    /// The places whose sockets will close.
    leaving: BTreeMap<usize, Stage>,
}

/// The stage of a place that leaves.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Its worker accepts what has come.
    Settles(Instant),
    /// Another worker accepts what still comes. If nothing comes, the sockets close at this time.
    Closes(Instant),
}

/// What is in a place whose sockets leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inside {
    /// A worker that accepts what waits, or is about to.
    Accepting,
    /// A worker that drains, or one of the predecessor.
    Draining,
    Nobody,
}

impl PortGroups {
    /// Opens sockets for `workers` on each of `addrs`. It uses the ones in `inherited` if they are
    /// there.
    ///
    /// # Errors
    /// The text names the address.
    pub(crate) fn open(
        addrs: &[ListenAddr],
        (workers, loops): (usize, usize),
        inherited: &mut Vec<Inherited>,
    ) -> io::Result<Self> {
        let mut this = Self { loops, ..Self::default() };
        let opened = addrs.iter().try_for_each(|addr| this.add(addr, workers, inherited));
        opened.inspect_err(|_| this.stop_what_is_made())?;
        Ok(this)
    }

    fn add(
        &mut self,
        addr: &ListenAddr,
        workers: usize,
        inherited: &mut Vec<Inherited>,
    ) -> io::Result<()> {
        let (group, is_open) = match PortGroup::inherit(addr, inherited)? {
            // The predecessor still gets the connections, and continues if this master fails.
            Some(group) => (group, false),
            None => {
                let before: Vec<_> = self.addrs().cloned().collect();
                (PortGroup::bind(addr, &before)?, true)
            }
        };
        let slots = 0..workers * self.loops;
        self.groups.push(group);
        self.groups.last_mut().map_or(Ok(()), |group| group.fill(slots, is_open))
    }

    /// Called when a successor cannot start, before it closes its sockets.
    pub(crate) fn stop_what_is_made(&self) {
        self.groups.iter().flat_map(PortGroup::made_here).for_each(stop_listening);
    }

    /// The sockets that no predecessor has, if nothing has changed since they were opened.
    pub(crate) fn made_here(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.groups.iter().flat_map(PortGroup::made_here).map(AsFd::as_fd)
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = &SharedListener> {
        self.groups.iter().flat_map(|group| &group.members).map(|member| &member.socket)
    }

    /// Do the workers share their sockets instead?
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(crate) fn addrs(&self) -> impl Iterator<Item = &ListenAddr> {
        self.groups.iter().filter_map(|group| Some(group.members.first()?.socket.local_addr()))
    }

    /// Called before a worker is started in this place. Opens its sockets, which get no connections
    /// yet.
    ///
    /// # Errors
    /// No descriptors left. The text names the address.
    pub(crate) fn make(&mut self, place: usize, wanted: usize) -> io::Result<()> {
        if place >= wanted {
            // The worker accepts what waits there, and drains.
            return Ok(());
        }
        // A filter stays until the worker accepts, because the predecessor may end meanwhile, and
        // then no worker would accept new clients.
        self.leaving.remove(&place);
        let slots = self.slots(place);
        self.groups.iter_mut().try_for_each(|group| group.fill(slots.clone(), false))
    }

    /// Cancels the closing of a place's sockets.
    fn stay(&mut self, place: usize) {
        self.leaving.remove(&place);
        self.members_of(place).for_each(Member::let_in_again);
    }

    /// Called when the worker in this place accepts.
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

    /// Called when the worker in this place is dead. New clients go to other places until another
    /// worker is [admitted](Self::admit), if there are other places. Clients that wait there
    /// continue to wait.
    pub(crate) fn avoid(&mut self, place: usize) {
        let slots = self.slots(place);
        for group in &mut self.groups {
            let is_elsewhere = |member: &Member| member.is_open && !slots.contains(&member.slot);
            if group.members.iter().any(is_elsewhere) {
                group.change(|member| member.is_open &= !slots.contains(&member.slot));
            }
        }
    }

    /// Called when places from this one on are no longer wanted. They get no more connections.
    /// Places before it do.
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

    /// Closes sockets that are done. Returns the places where connections wait and no worker
    /// accepts them.
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

    /// The descriptors that are readable when connections come that no worker accepts.
    pub(crate) fn watched(&self, inside: impl Fn(usize) -> Inside) -> Vec<BorrowedFd<'_>> {
        let closes = |place: &usize| matches!(self.leaving[place], Stage::Closes(_));
        let watched = self.free(&inside).filter(closes);
        let sockets = watched.flat_map(|place| self.sockets_of(place)).map(AsFd::as_fd);
        // A socket that was shut down would always be readable.
        sockets.filter(|socket| !has_stopped(*socket)).collect()
    }

    /// When to check, even if no connection comes.
    pub(crate) fn next_at(&self, inside: impl Fn(usize) -> Inside) -> Option<Instant> {
        let at = |place| match self.leaving[&place] {
            Stage::Settles(at) | Stage::Closes(at) => at,
        };
        self.free(&inside).map(at).min()
    }

    /// The leaving places where no worker accepts.
    fn free(&self, inside: impl Fn(usize) -> Inside) -> impl Iterator<Item = usize> {
        let places = self.leaving.keys().copied();
        places.filter(move |place| inside(*place) != Inside::Accepting)
    }

    /// Duplicates the descriptors for the worker in this place: for each address as many as it has
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
                // The predecessor had this place only for other addresses.
                own.extend(group.members.first());
            }
            let loops = own.into_iter().cycle().take(self.loops);
            loops.map(|member| sys::duplicate(member.socket.as_fd())).collect::<Vec<_>>()
        };
        self.groups.iter().flat_map(own).collect()
    }

    /// Called when all of this master's workers accept, and it is in charge.
    pub(crate) fn take_charge(&mut self, wanted: usize, now: Instant) {
        (0..wanted).for_each(|place| self.admit(place));
        self.retire(wanted, now);
        // The predecessor has left out other sockets.
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

    /// Called when a successor has failed. It may have steered connections, let clients in where no
    /// more should come, and kept them out elsewhere. The sockets that it made, `its_own`, are at
    /// the end of the kernel's list, and its workers may still have them.
    pub(crate) fn steer_again(&mut self, its_own: Vec<OwnedFd>, now: Instant) {
        self.sockets().for_each(let_in_again);
        let leaving: Vec<_> = self.leaving.keys().copied().collect();
        for place in leaving {
            self.leaving.insert(place, Stage::Settles(now + UNTIL_BACKLOG_IS_EMPTY));
        }
        self.groups.iter_mut().for_each(PortGroup::steer_anew);
        // The last one stops first, so that the others keep their places.
        let its_own = its_own.into_iter().rev().map(SharedListener::from_master);
        its_own.flatten().for_each(|socket| stop_listening(&socket));
        self.groups.iter_mut().for_each(PortGroup::steer);
    }

    /// Forgets all sockets, because another master has them.
    pub(crate) fn clear(&mut self) {
        self.groups.clear();
        self.leaving.clear();
    }

    pub(crate) fn listen_again(&mut self) {
        self.groups.iter_mut().for_each(|group| group.listen_again(|_| true));
    }

    /// Called before a worker is started in this place. The sockets of other places stay as they
    /// are: their workers serve other addresses, and would accept no more at these.
    pub(crate) fn listen_again_at(&mut self, place: usize) {
        let slots = self.slots(place);
        let is_one = |slot| slots.contains(&slot);
        self.groups.iter_mut().for_each(|group| group.listen_again(is_one));
    }

    /// The places where connections wait.
    pub(crate) fn waited_at(&self) -> BTreeSet<usize> {
        let members = self.groups.iter().flat_map(|group| &group.members);
        let waited_at = members.filter(|member| is_waited_at(member.socket.as_fd()));
        waited_at.map(|member| member.slot / self.loops).collect()
    }

    /// Lets no more clients in. Returns whether handshakes with other hosts may be under way.
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
    // A socket that was shut down is readable, too.
    is_ready && fd[0].revents().contains(PollFlags::IN) && !fd[0].revents().contains(PollFlags::HUP)
}

/// May peers on other hosts connect?
pub(crate) fn is_reached_by_others(socket: &SharedListener) -> bool {
    socket.socket_addr().is_some_and(|addr| !addr.ip().to_canonical().is_loopback())
}

#[cfg(test)]
mod tests;
