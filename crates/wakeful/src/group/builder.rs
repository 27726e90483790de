use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use super::loop_group::LoopGroup;
use super::worker::Worker;
use crate::balance::activity::{Activity, Targets};
use crate::balance::board::{Board, Seat};
use crate::balance::siblings::{OurTurn, Sibling};
use crate::event_loop::{EventLoopBuilder, LoopHandle};
#[cfg(feature = "tokio")]
use crate::guest::Choice;
use crate::heartbeat::Heartbeats;
use crate::sys::fork_check::Process;
use crate::sys::thread::allowed_cpus;
use crate::task::keep_a_thread;

/// More loops than any machine has CPUs.
const MOST_LOOPS: usize = 65_536;

impl LoopGroup {
    /// Makes a group with the default settings: one loop for each CPU that this process may use.
    ///
    /// # Errors
    /// The same as for [`LoopGroupBuilder::build`].
    pub fn new() -> io::Result<Self> {
        Self::builder().build()
    }

    /// Returns a builder for a group with other settings.
    pub fn builder() -> LoopGroupBuilder {
        LoopGroupBuilder::default()
    }
}

/// The settings of a [`LoopGroup`].
///
/// | setting | default | range | what it does |
/// |---|---|---|---|
/// | [`loops`](Self::loops) | those of the heartbeats, or one for each CPU that this process may use | 1 to 65,536 | sets the number of loops, each on its own thread |
/// | [`pin`](Self::pin) | not pinned | | pins each thread to a CPU, in turn |
/// | [`name`](Self::name) | `wakeful` | Linux shows about 10 bytes | names the threads `NAME-0`, `NAME-1`, ... |
/// | [`concentrate`](Self::concentrate) | up to a utilisation of 0.6 | [`Targets`] | concentrates light load on few loops |
/// | [`event_loop`](Self::event_loop) | [`EventLoopBuilder`]'s | | sets the settings of each loop |
/// | [`heartbeats`](Self::heartbeats) | none | made for this group | shows a supervising process what the loops do |
/// | [`sibling`](Self::sibling) | none | used by no other group | shares light load with other processes |
/// | `tokio`, `tokio_handle` (feature `tokio`) | none | | runs Tokio on each loop, or uses one beside them |
#[derive(Debug, Clone)]
#[must_use = "call `build`"]
pub struct LoopGroupBuilder {
    loops: Option<NonZeroUsize>,
    pinning: Pinning,
    name: String,
    concentration: Option<Targets>,
    event_loop: EventLoopBuilder,
    heartbeats: Option<Heartbeats>,
    sibling: Option<Sibling>,
    /// Replaces the `tokio` setting of the loops.
    #[cfg(feature = "tokio")]
    tokio: Option<Choice>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pinning {
    Free,
    ToCpus,
}

impl Default for LoopGroupBuilder {
    fn default() -> Self {
        Self {
            loops: None,
            pinning: Pinning::Free,
            name: "wakeful".to_owned(),
            concentration: Some(Targets::default()),
            event_loop: EventLoopBuilder::default(),
            heartbeats: None,
            sibling: None,
            #[cfg(feature = "tokio")]
            tokio: None,
        }
    }
}

impl LoopGroupBuilder {
    /// Sets the number of loops. With 0, the default, a group with
    /// [`heartbeats`](Self::heartbeats) has as many as they were made for. Another group has as
    /// many as there are CPUs that this process may use, according to the affinity mask and the
    /// cgroup's CPU quota.
    pub fn loops(mut self, loops: usize) -> Self {
        self.loops = NonZeroUsize::new(loops);
        self
    }

    /// Pins each loop's thread to one of the CPUs of this process's affinity mask, in turn.
    pub fn pin(mut self) -> Self {
        self.pinning = Pinning::ToCpus;
        self
    }

    /// Sets the prefix of the threads' names. Linux shows the first 15 bytes of a name, including
    /// the loop's number. If the prefix has a NUL byte, [`build`](Self::build) returns an error.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Concentrates connections on as few loops as `targets` allow. The other loops keep their
    /// connections, and sleep. With 10,000 requests a second over 16 loops, each loop has 1.6 ms
    /// between two requests. So each loop would sleep in between, or spin and use a whole CPU. On
    /// one loop, requests are 0.1 ms apart.
    ///
    /// *Growth* is quick. It begins if the mean utilisation of about a tenth of a second is above
    /// the target, or if all active loops have worked without a pause for 40 ms. The group then
    /// activates as many loops as are needed to return to the target, at least one. *Shrinking* is
    /// slow: the group deactivates one loop after half a second in which the remaining loops would
    /// have stayed a quarter below the target.
    ///
    /// This applies only to connections that the group's own
    /// [`ConnectionServer`](crate::accept::ConnectionServer) accepts. Tasks run where they are
    /// spawned.
    ///
    /// Connections that arrived under light load are all on the same few loops. When the load
    /// grows, connections move to the other loops if their handlers ask whether to
    /// [move](crate::accept::Moving) (HTTP/1.1 and the services of this project do). Long-lived
    /// connections that never move keep their loops busy while other loops have little to do. For
    /// such connections (HTTP/2 and gRPC with few clients, other protocols) choose
    /// [`spread`](Self::spread).
    ///
    /// If a handler blocks the active loops, new connections wait for 30 ms, until another loop
    /// accepts them. This holds for
    /// [`AcceptStrategy::Exclusive`](crate::accept::AcceptStrategy::Exclusive);
    /// [`AcceptStrategy`](crate::accept::AcceptStrategy) describes the others.
    pub fn concentrate(mut self, targets: Targets) -> Self {
        self.concentration = Some(targets);
        self
    }

    /// Spreads connections over all loops, even under light load. Under light load each loop then
    /// sleeps, or spins, between its few requests.
    pub fn spread(mut self) -> Self {
        self.concentration = None;
        self
    }

    /// Sets the settings of each loop.
    pub fn event_loop(mut self, settings: EventLoopBuilder) -> Self {
        self.event_loop = settings;
        self
    }

    /// Makes this group take turns with other processes that accept from the same sockets: see
    /// [`Siblings`](crate::accept::Siblings). Under light load only a few of these processes wait
    /// for connections. The target of [`concentrate`](Self::concentrate) also applies to processes.
    /// A group that [spreads](Self::spread) always waits for connections. Its siblings still take
    /// over if it is full, stuck, stopped or dead. This setting has no effect if each loop has a
    /// socket of its own
    /// ([`AcceptStrategy::ReusePort`](crate::accept::AcceptStrategy::ReusePort)).
    ///
    /// A sibling and its clones belong to one group until that group's loops have ended. Until
    /// then, [`build`](Self::build) fails for any other group.
    pub fn sibling(mut self, sibling: impl Into<Option<Sibling>>) -> Self {
        self.sibling = sibling.into();
        self
    }

    /// Makes each loop write to this page of shared memory whether it sleeps, and which task it
    /// runs. A supervising process reads the page: see [`heartbeat`](crate::heartbeat).
    ///
    /// Each page is for one group. [`build`](Self::build) fails if the heartbeats were made for
    /// fewer loops. It also fails if these loops have Tokio as a guest, but the heartbeats were
    /// made for loops without it.
    pub fn heartbeats(mut self, heartbeats: Heartbeats) -> Self {
        self.heartbeats = Some(heartbeats);
        self
    }

    /// Runs Tokio as a guest on each loop: see [`wakeful::tokio`](crate::tokio). The loops share
    /// 512 threads for `tokio::task::spawn_blocking`; each loop may use at least 8.
    ///
    /// When the group ends, each loop's Tokio runtime continues until all loops have ended, for
    /// half a second at most. It may own sockets of a client that other loops still use.
    ///
    /// The default strategy of a [`ConnectionServer`](crate::accept::ConnectionServer) on this
    /// group is [`Dispatch`](crate::accept::AcceptStrategy::Dispatch).
    #[cfg(feature = "tokio")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
    pub fn tokio(mut self) -> Self {
        self.tokio = Some(Choice::guest());
        self
    }

    /// Uses an existing Tokio runtime, with its own threads, beside the loops. `tokio::spawn`,
    /// `tokio::time` and `tokio::net` work in the loops' tasks. Tokio's sockets, timers and tasks
    /// belong to that runtime, so their wakes reach a loop from another thread. The runtime must
    /// outlive the group.
    ///
    /// In the loops' tasks Tokio's types spend no budget. A task that reads from a Tokio socket
    /// which always has data does not return to its loop: use
    /// [`task::budgeted`](crate::task::budgeted).
    ///
    /// A `current_thread` runtime has no threads of its own, so [`build`](Self::build) fails with
    /// it.
    #[cfg(feature = "tokio")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
    pub fn tokio_handle(mut self, handle: ::tokio::runtime::Handle) -> Self {
        self.tokio = Some(Choice::Beside(handle));
        self
    }

    /// Is Tokio a guest of the group's loops? Then they sleep in Tokio's epoll.
    pub(crate) fn has_guests(&self) -> bool {
        #[cfg(feature = "tokio")]
        let guests = match &self.tokio {
            Some(choice) => choice.is_guest(),
            None => self.event_loop.has_guest(),
        };
        #[cfg(not(feature = "tokio"))]
        let guests = false;
        guests
    }

    /// Returns the number of loops that the group will have.
    ///
    /// # Errors
    /// The number of loops is not set, and the number of CPUs cannot be determined.
    pub fn loop_count(&self) -> io::Result<usize> {
        match (self.loops, &self.heartbeats) {
            (Some(loops), _) => Ok(loops.get()),
            // The watching process has counted the CPUs. There may be others now.
            (None, Some(heartbeats)) => Ok(heartbeats.loops().max(1)),
            (None, None) => Ok(thread::available_parallelism()?.get()),
        }
    }

    pub(crate) fn its_heartbeats(&self) -> Option<&Heartbeats> {
        self.heartbeats.as_ref()
    }

    /// Starts the threads and their loops.
    ///
    /// # Errors
    /// No threads or descriptors are left; there would be more than 65,536 loops; the affinity mask
    /// cannot be read or set; the name has a NUL byte; a loop cannot be built, as for
    /// [`EventLoopBuilder::build`]; the heartbeats do not fit this group; or another group has the
    /// sibling. Loops that were already started are stopped.
    pub fn build(self) -> io::Result<LoopGroup> {
        let loops = self.loop_count()?;
        if loops > MOST_LOOPS {
            let text = format!("a group has at most {MOST_LOOPS} loops, and not {loops}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let guests = if self.has_guests() { loops } else { 0 };
        if let Some(heartbeats) = &self.heartbeats {
            heartbeats.fits(loops, guests)?;
        }
        let cpus = match self.pinning {
            Pinning::Free => Vec::new(),
            Pinning::ToCpus => allowed_cpus()?,
        };
        let activity = self.concentration.map(|targets| Activity::new(loops, targets));
        let taken = self.sibling.as_ref().map(Sibling::take).transpose()?;
        let turn = self.sibling.map(|sibling| OurTurn::new(sibling, self.concentration));
        let board = Arc::new(Board::new(loops, activity, turn)?);
        // The call is made on this thread, because it is not pinned to one loop's CPU.
        keep_a_thread(&Process::current()?);
        let event_loop = self.event_loop;
        #[cfg(feature = "tokio")]
        let event_loop = event_loop.for_each_of(loops, self.tokio);
        let mut group = LoopGroup {
            workers: Vec::with_capacity(loops),
            handles: Vec::new(),
            board: board.clone(),
        };
        for number in 0..loops {
            let cpu = (!cpus.is_empty()).then(|| cpus[number % cpus.len()]);
            let name = format!("{}-{number}", self.name);
            let line = self.heartbeats.as_ref().map(|heartbeats| heartbeats.line(number));
            let seat = Seat::new(board.clone(), number, taken.clone());
            group.workers.push(Worker::start(name, cpu, event_loop.clone(), seat, line)?);
        }
        // The loops' guests end together, when the last copy of these settings is gone.
        drop(event_loop);
        group.handles =
            group.workers.iter().map(Worker::handle).cloned().collect::<Vec<LoopHandle>>();
        Ok(group)
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::heartbeat::Watchdog;

    #[test]
    fn more_loops_than_a_group_can_have_are_an_error() {
        for loops in [MOST_LOOPS + 1, usize::MAX] {
            let error = LoopGroup::builder().loops(loops).build().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
    }

    #[test]
    fn a_group_with_heartbeats_has_as_many_loops_as_they_are_for() {
        let mut watchdog = Watchdog::new(Duration::from_secs(60)).unwrap();
        for loops in [1, 3] {
            let heartbeats = watchdog.heartbeats_for(&LoopGroup::builder().loops(loops)).unwrap();
            let group = LoopGroup::builder().heartbeats(heartbeats);
            assert_eq!(group.build().unwrap().handles().len(), loops);
        }
        let heartbeats = watchdog.heartbeats_for(&LoopGroup::builder().loops(3)).unwrap();
        let group = LoopGroup::builder().heartbeats(heartbeats).loops(2);
        assert_eq!(group.build().unwrap().handles().len(), 2);
    }
}
