//! What the kernel's trace of a server's threads shows: which thread was woken, and what for.
//!
//! A wake is the `sched_wakeup` of a thread. The thread was woken for what it gets first after
//! that: a connection, or bytes (or the end) of a connection that it has already. If the thread is
//! woken again and has got neither, the wake was in vain. Most wakes in vain never return to the
//! program: the kernel wakes the thread, finds nothing left, and lets the thread sleep again. So no
//! program can count them.

use std::collections::BTreeMap;

/// What happened to one thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Woken {
    /// How many times the thread was woken.
    pub(super) wakes: u64,
    /// The wakes after which the thread first took a connection.
    pub(super) for_accept: u64,
    /// The wakes after which the thread first read from a connection that it had.
    pub(super) for_read: u64,
    /// The connections that the thread took, whether it was woken for them or awake.
    pub(super) accepts: u64,
    /// The accepts for which no connection was left.
    pub(super) refused: u64,
}

impl Woken {
    /// Returns the wakes after which the thread got nothing until the next wake.
    pub(super) fn in_vain(&self) -> u64 {
        self.wakes - self.for_accept - self.for_read
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.wakes += other.wakes;
        self.for_accept += other.for_accept;
        self.for_read += other.for_read;
        self.accepts += other.accepts;
        self.refused += other.refused;
    }
}

/// Reads a trace as tracefs prints it, line by line.
#[derive(Debug, Default)]
pub(super) struct Reader {
    threads: BTreeMap<u32, (Woken, bool)>,
}

impl Reader {
    /// Makes a reader for these threads. Other threads do not count.
    pub(super) fn of(threads: &[u32]) -> Self {
        Self { threads: threads.iter().map(|tid| (*tid, Default::default())).collect() }
    }

    pub(super) fn line(&mut self, line: &str) {
        let Some((event, tid)) = parse(line) else { return };
        let Some((woken, pending)) = self.threads.get_mut(&tid) else { return };
        let useful = match event {
            Event::Woken => {
                woken.wakes += 1;
                *pending = true;
                return;
            }
            Event::Refused => {
                woken.refused += 1;
                return;
            }
            Event::Accepted => {
                woken.accepts += 1;
                &mut woken.for_accept
            }
            Event::Read => &mut woken.for_read,
        };
        if std::mem::take(pending) {
            *useful += 1;
        }
    }

    /// Returns what happened to each thread, by its number.
    pub(super) fn finish(self) -> BTreeMap<u32, Woken> {
        self.threads.into_iter().map(|(tid, (woken, _))| (tid, woken)).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Woken,
    Accepted,
    Refused,
    Read,
}

/// Returns the event of a line and its thread. For a wake, this is the thread that is woken, not
/// the one that wakes it.
fn parse(line: &str) -> Option<(Event, u32)> {
    // ` <idle>-0  [001] d.h4.  4711.123456: sched_wakeup: comm=worker-0 pid=815 prio=120`
    // ` worker-0-815  [001] .....  4711.123460: sys_accept4 -> 0x5`
    if let Some((_, wakeup)) = line.split_once(": sched_wakeup: ") {
        let (_, rest) = wakeup.rsplit_once(" pid=")?;
        return Some((Event::Woken, rest.split(' ').next()?.parse().ok()?));
    }
    let (head, call) = line.split_once(": sys_")?;
    let (name, result) = call.split_once(" -> ")?;
    let result = u64::from_str_radix(result.trim().strip_prefix("0x")?, 16).ok()?;
    let failed = result.cast_signed() < 0;
    let event = match (name.starts_with("accept"), failed) {
        (true, false) => Event::Accepted,
        (true, true) => Event::Refused,
        (false, false) => Event::Read,
        (false, true) => return None,
    };
    // A thread's name may contain anything. Its number follows the last hyphen.
    let (thread, _) = head.rsplit_once(" [")?;
    Some((event, thread.trim_end().rsplit_once('-')?.1.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(trace: &str) -> BTreeMap<u32, Woken> {
        let mut reader = Reader::of(&[7, 8]);
        trace.lines().for_each(|line| reader.line(line));
        reader.finish()
    }

    /// A trace as the kernel prints it.
    const TRACE: &str = "\
# tracer: nop
          client-99      [001] d..2.  100.000001: sched_wakeup: comm=worker-0 pid=7 prio=120 target_cpu=000
          client-99      [001] d..2.  100.000002: sched_wakeup: comm=a pid=3 b pid=8 prio=120 target_cpu=001
        worker-0-7       [000] .....  100.000003: sys_accept4 -> 0x5
     a [0] pid=3-8       [001] .....  100.000004: sys_accept4 -> 0xfffffffffffffff5
        worker-0-7       [000] .....  100.000005: sys_recvfrom -> 0xfffffffffffffff5
          client-99      [001] d..2.  100.000006: sched_wakeup: comm=worker-0 pid=7 prio=120 target_cpu=000
        worker-0-7       [000] .....  100.000007: sys_recvfrom -> 0x20
        worker-0-7       [000] .....  100.000008: sys_accept4 -> 0x6
          client-99      [001] d..2.  100.000009: sched_wakeup: comm=a [0] pid=3 pid=8 prio=120 target_cpu=001
          client-99      [001] d..2.  100.000010: sched_wakeup: comm=client pid=99 prio=120 target_cpu=001
";

    #[test]
    fn a_wake_is_for_what_the_thread_gets_first() {
        let found = read(TRACE)[&7];
        let expected = Woken { wakes: 2, for_accept: 1, for_read: 1, accepts: 2, refused: 0 };
        assert_eq!((found, found.in_vain()), (expected, 0));
    }

    #[test]
    fn a_thread_that_gets_nothing_is_woken_in_vain_whether_it_asks_or_not() {
        let found = read(TRACE)[&8];
        assert_eq!(found, Woken { wakes: 2, refused: 1, ..Woken::default() });
        assert_eq!(found.in_vain(), 2);
    }

    #[test]
    fn other_threads_do_not_count() {
        assert_eq!(read(TRACE).keys().copied().collect::<Vec<_>>(), [7, 8]);
    }
}
