//! The master's side: places for its workers' reports, and the list that they read.

use std::io;
use std::iter;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::page::Page;
use super::roster::{LoopInfo, Roster, WorkerInfo};
use super::{ROSTER, Reports, Wires, ring};
use crate::sys;

#[derive(Debug)]
pub(crate) struct Desk {
    wires: Wires,
    /// For each place, whether a living worker has it. The number of a place is one more than its
    /// index.
    is_taken: Vec<bool>,
    written: Option<Roster>,
}

impl Desk {
    /// `lifeline` is readable when the master is gone.
    ///
    /// # Errors
    /// No memory; no descriptors left.
    pub(crate) fn new(lifeline: OwnedFd) -> io::Result<Self> {
        let bell = || sys::bell().map(Arc::new);
        let wires = Wires {
            page: Page::new()?,
            asks: bell()?,
            news: bell()?,
            asks_master: bell()?,
            lifeline: Arc::new(lifeline),
        };
        let mut desk = Self { wires, is_taken: Vec::new(), written: None };
        desk.list(false, false, iter::empty(), |_| Vec::new());
        Ok(desk)
    }

    /// Takes a place for a worker: that of a worker that is gone, if there is one.
    pub(crate) fn take(&mut self) -> usize {
        let free = self.is_taken.iter().position(|is_taken| !is_taken);
        let free = free.unwrap_or_else(|| {
            self.is_taken.push(true);
            self.is_taken.len() - 1
        });
        self.is_taken[free] = true;
        free + 1
    }

    /// Frees the place of a worker that is gone. Its last report stays.
    pub(crate) fn free(&mut self, place: usize) {
        self.is_taken[place - 1] = false;
    }

    /// Makes the reports for the worker that has this place.
    pub(crate) fn reports(&self, place: usize) -> Reports {
        Reports::new(self.wires.clone(), place)
    }

    /// Writes the list of workers, if something has changed since the last time, or a worker asks
    /// what the loops do. An error is logged, and the workers use the old list.
    pub(crate) fn list(
        &mut self,
        is_in_charge: bool,
        is_served_elsewhere: bool,
        workers: impl Iterator<Item = WorkerInfo>,
        loops: impl Fn(&WorkerInfo) -> Vec<LoopInfo>,
    ) {
        let (places, workers) = (self.is_taken.len(), workers.collect());
        let roster = Roster { is_in_charge, is_served_elsewhere, places, workers };
        let is_asked = rustix::io::read(&self.wires.asks_master, &mut [0; 8]).is_ok();
        if (is_asked || self.written.as_ref() != Some(&roster))
            && let Err(error) = self.write(roster, loops)
        {
            log!(warn, %error, "cannot write the list of workers: /workers may be out of date");
        }
    }

    fn write(
        &mut self,
        roster: Roster,
        loops: impl Fn(&WorkerInfo) -> Vec<LoopInfo>,
    ) -> io::Result<()> {
        self.wires.page.write(ROSTER, std::process::id(), roster.to_text(loops).as_bytes())?;
        self.written = Some(roster);
        ring(&self.wires.news);
        Ok(())
    }
}

impl AsFd for Desk {
    /// Readable when a worker asks for a new list.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wires.asks_master.as_fd()
    }
}
