//! The events for which a master waits.

use std::mem;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use wakeful::limits::explain_call_error;

use super::process::Process;
use super::{AT_ONCE, Running};
use crate::successor::Successor;
use crate::systemd;

/// How often the master checks everything while it cannot wait for events.
const LOOKS: Duration = Duration::from_millis(100);

/// How long the master waits at most while a process must start or end in time. Each such wait
/// shows whether the master itself was paused (SIGSTOP, `docker pause`, a paused virtual
/// machine).
const SLICE: Duration = Duration::from_millis(250);
/// How much later than planned the master may look, and not count as paused.
const LATE: Duration = Duration::from_millis(250);

impl Running {
    pub(super) fn wait(&mut self) {
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let own = [self.signals.as_fd(), self.watchdog.as_fd(), self.desk.as_fd()];
        let mut fds: Vec<_> = own.into_iter().map(readable).collect();
        fds.extend(self.processes.iter().map(|process| readable(process.pidfd.as_fd())));
        let starting = self.processes.iter().filter_map(|process| process.ready.as_ref());
        fds.extend(starting.map(|ready| readable(ready.as_fd())));
        fds.extend(self.successor.iter().flat_map(Successor::news).map(readable));
        let inside = |place| self.inside(place);
        let groups = self.are_sockets_ours().then_some(&self.listeners.groups);
        fds.extend(groups.into_iter().flat_map(|groups| groups.watched(inside)).map(readable));
        let killed_at = self.at_once.map(|since| since + AT_ONCE);
        let alive_at = self.alive_at.map(|(at, _)| at);
        let limits = |process: &Process| [process.start_by, process.end_by];
        let limit = self.processes.iter().flat_map(limits).flatten().min();
        let successor_by = self.successor.as_ref().and_then(|successor| successor.start_by);
        let slice_ends = [limit, successor_by, killed_at]
            .iter()
            .any(Option::is_some)
            .then(|| Instant::now() + SLICE);
        let until = [
            slice_ends,
            self.crew.next_at(),
            self.close_at,
            self.closing.filter(|_| !self.crew.is_clearing()),
            self.look_at,
            self.others_looked_for_at,
            killed_at,
            alive_at,
            limit,
            successor_by,
            systemd::next_at(),
            self.listeners.next_at(),
            groups.and_then(|groups| groups.next_at(inside)),
        ];
        let left = until
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.saturating_duration_since(Instant::now()));
        let limit = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => self.cannot_wait = false,
            // There is no memory; or the call is refused; or the limit of descriptors was lowered
            // below the number of open ones (INVAL).
            Err(error) => {
                if !mem::replace(&mut self.cannot_wait, true) {
                    let least =
                        format!(" RLIMIT_NOFILE (ulimit -n) must be at least {}", fds.len());
                    let advice = if error == Errno::INVAL { &least } else { "" };
                    let error = explain_call_error("ppoll")(error.into());
                    log!(error,
                        %error,
                        "the master cannot wait for events, and looks every {LOOKS:?} instead.{advice}"
                    );
                }
                thread::sleep(left.map_or(LOOKS, |left| left.min(LOOKS)));
            }
        }
        self.put_off_after_pause(left.unwrap_or(Duration::MAX));
    }

    /// If this look comes much later than `planned` after the last one, the master was paused, and
    /// its workers perhaps too. What they have to do in time, they could not do meanwhile, so they
    /// get that much more time.
    fn put_off_after_pause(&mut self, planned: Duration) {
        let now = Instant::now();
        let since_last = now.saturating_duration_since(mem::replace(&mut self.looked_at, now));
        let late = since_last.saturating_sub(planned);
        if late <= LATE {
            return;
        }
        let limits = self.processes.iter_mut().flat_map(|it| [&mut it.start_by, &mut it.end_by]);
        let successor_by = self.successor.as_mut().map(|successor| &mut successor.start_by);
        let own = [&mut self.ends_by, &mut self.at_once];
        for limit in limits.chain(successor_by).chain(own) {
            *limit = limit.and_then(|at| at.checked_add(late));
        }
    }
}
