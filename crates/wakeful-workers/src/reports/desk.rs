//! The master's side: places for its workers' reports, and the list that they read.

use std::io;
use std::iter;
use std::sync::{Arc, Mutex};

use rustix::event::{EventfdFlags, eventfd};

use super::page::Page;
use super::roster::{Roster, WorkerInfo};
use super::{ROSTER, Reports, Shared, Wires, ring};

#[derive(Debug)]
pub(crate) struct Desk {
    wires: Wires,
    /// Is the place with one number more a living worker's?
    is_taken: Vec<bool>,
    written: Option<Roster>,
}

impl Desk {
    /// # Errors
    /// No memory; no descriptors left.
    pub(crate) fn new() -> io::Result<Self> {
        let bell = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let page = Page::new()?;
        let (asks, news) = (Arc::new(bell()?), Arc::new(bell()?));
        let mut desk =
            Self { wires: Wires { page, asks, news }, is_taken: Vec::new(), written: None };
        desk.list(false, false, iter::empty());
        Ok(desk)
    }

    /// A place for a worker: that of a worker that is gone, if there is one.
    pub(crate) fn take(&mut self) -> usize {
        let free = self.is_taken.iter().position(|is_taken| !is_taken);
        let free = free.unwrap_or_else(|| {
            self.is_taken.push(true);
            self.is_taken.len() - 1
        });
        self.is_taken[free] = true;
        free + 1
    }

    /// The worker is gone. What it has said stays.
    pub(crate) fn free(&mut self, place: usize) {
        self.is_taken[place - 1] = false;
    }

    /// For the worker that has this place.
    pub(crate) fn reports(&self, place: usize) -> Reports {
        Reports(Arc::new(Shared {
            wires: self.wires.clone(),
            place,
            process: std::process::id(),
            writes: Mutex::new(()),
        }))
    }

    /// Lists the workers, if something has changed since the last time. An error is logged: the
    /// workers go on with the list from before.
    pub(crate) fn list(
        &mut self,
        is_in_charge: bool,
        is_served_elsewhere: bool,
        workers: impl Iterator<Item = WorkerInfo>,
    ) {
        let (places, workers) = (self.is_taken.len(), workers.collect());
        let roster = Roster { is_in_charge, is_served_elsewhere, places, workers };
        if self.written.as_ref() != Some(&roster)
            && let Err(error) = self.write(roster)
        {
            tracing::warn!(%error, "the list of workers cannot be written");
        }
    }

    fn write(&mut self, roster: Roster) -> io::Result<()> {
        self.wires.page.write(ROSTER, std::process::id(), roster.to_text().as_bytes())?;
        self.written = Some(roster);
        ring(&self.wires.news);
        Ok(())
    }
}
