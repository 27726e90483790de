//! The messages of a master to its service manager. Without a manager (`NOTIFY_SOCKET`) nothing
//! happens.

use std::collections::VecDeque;
use std::env;
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, getsockname, socket_with,
};
use rustix::time::{ClockId, clock_gettime};
use wakeful::net::ListenAddr;

use crate::{passing, sys};

/// The prefix of the names (`LISTEN_FDNAMES`) of sockets that a master has stored in its service
/// manager. Other code must not use these sockets.
pub const KEPT: &str = "wakeful,";

/// The beginning of the address of a Unix socket.
const UNIX: &str = "unix:";

/// The longest name that a manager accepts (sd_notify(3)).
const LONGEST_NAME: usize = 255;

/// Messages that wait until the manager has room for them.
static WAITING: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// The socket for all messages. It stays open, because later there may be no descriptor for it.
static SOCKET: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// How often sending is tried again.
pub(crate) const AGAIN: Duration = Duration::from_millis(100);

/// How long a manager that is busy may take before it has closed sockets. Until then their
/// addresses are in use.
const UNTIL_HANDLED: Duration = Duration::from_secs(10);

/// How long a process may take between its fork and the program that it executes.
const UNTIL_EXECUTED: Duration = Duration::from_secs(1);

/// The master reports that it is alive no more often than this. A shorter `WatchdogSec=` cannot be
/// kept.
const MOST_OFTEN: Duration = Duration::from_millis(10);

/// The most messages that wait. A manager that reads never lets as many wait.
const MOST_WAITING: usize = 64;

/// Reports that all workers accept.
pub(crate) fn ready() {
    // After an upgrade the new master is another process than the one that the manager started.
    tell(format!("MAINPID={}\nREADY=1", std::process::id()));
}

/// Reports that this master is in charge, because another process may have reported that it was.
pub(crate) fn still_in_charge() {
    tell(format!("MAINPID={}", std::process::id()));
}

/// Reports that `successor` is in charge. It says so itself, but what this master has said of its
/// own workers meanwhile may have come later.
pub(crate) fn succeeded_by(successor: u32) {
    tell(format!("MAINPID={successor}\nREADY=1"));
}

/// Reports that workers are being replaced. [`ready`] reports the end of that.
pub(crate) fn reloading() {
    let now = clock_gettime(ClockId::Monotonic);
    tell(format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1_000));
}

pub(crate) fn stopping() {
    tell("STOPPING=1".to_owned());
}

/// How many sockets the manager keeps for a later master (`FileDescriptorStoreMax=`). It has said
/// so since version 254. It drops those that it has no room for, and does not say so.
pub(crate) fn most_kept() -> usize {
    env::var("FDSTORE").ok().and_then(|most| most.parse().ok()).unwrap_or_default()
}

/// Does the manager keep sockets for a later master?
pub(crate) fn keeps_sockets() -> bool {
    most_kept() > 0
}

/// Whether a service manager has a socket, too, so that the next master can get it from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    No,
    /// The manager has no room for so many.
    NoRoom,
    /// The socket came from the manager.
    Before,
    /// The manager gets the socket as soon as it has room.
    NotYet,
    Yes,
}

/// Gives the manager a socket to keep. The next master finds it in [`kept`]. (Without `FDPOLL=0`
/// the manager would drop a socket that is shut down, which may listen again.)
pub(crate) fn keep(listener: &str, socket: BorrowedFd<'_>) -> Kept {
    let name = kept_name(listener);
    if name.len() > LONGEST_NAME {
        log!(
            warn,
            "the service manager cannot keep the socket of {listener} for the next master: its name is too long"
        );
        return Kept::No;
    }
    let text = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}");
    match send(&text, &[socket]) {
        Ok(()) => Kept::Yes,
        Err(error) if may_pass(error) => Kept::NotYet,
        Err(error) => {
            log!(warn, %error, "cannot give the service manager a socket to keep for the next master");
            Kept::No
        }
    }
}

/// Tells the manager to forget the socket of a listener that is no longer in the settings. The name
/// is the listener's own, or the manager's.
pub(crate) fn forget(listener: &str) {
    let name = match listener.starts_with(KEPT) {
        true => listener.to_owned(),
        false => kept_name(listener),
    };
    tell(format!("FDSTOREREMOVE=1\nFDNAME={name}"));
}

/// The sockets of these listeners that an earlier master has given to the manager, with the names
/// of [`kept_name`]. The others close, and the manager forgets them.
pub(crate) fn kept<'a>(listeners: impl Iterator<Item = &'a ListenAddr>) -> Vec<(String, OwnedFd)> {
    let wanted: Vec<_> = listeners.map(|addr| kept_name(&addr.to_string())).collect();
    let (wanted, others) = all_kept().into_iter().partition(|(name, _)| wanted.contains(name));
    give_up(others);
    wanted
}

/// Closes the sockets that an earlier master has stored in the service manager, and tells the
/// manager to do so, too. Call this in a program that was restarted and listens without a
/// [`Master`](crate::Master), before it listens: the sockets would keep their addresses in use, and
/// clients could still connect to them.
///
/// It waits until the manager has closed them, but not for long. Without such sockets it does
/// nothing. Do not use their descriptors any more (`LISTEN_FDS`, with names that begin with
/// [`KEPT`]).
pub fn close_kept() {
    give_up(all_kept());
    close();
}

fn all_kept() -> Vec<(String, OwnedFd)> {
    let passed = sd_notify::listen_fds_with_names().into_iter().flatten();
    let (numbers, names): (Vec<_>, Vec<_>) =
        passed.filter(|(_, name)| name.starts_with(KEPT)).unzip();
    match sys::take_descriptors(&numbers) {
        Ok(taken) => names.into_iter().zip(taken.unwrap_or_default()).collect(),
        Err(error) => {
            log!(warn, %error, "cannot take over the sockets that the service manager kept");
            Vec::new()
        }
    }
}

/// Closes sockets that the manager keeps, here and there. Their addresses may be those of new
/// sockets.
fn give_up(kept: Vec<(String, OwnedFd)>) {
    if kept.is_empty() {
        return;
    }
    let mut addrs = Vec::new();
    for (name, socket) in kept {
        log!(info, "closing the socket that the service manager has kept as {name}");
        addrs.extend(getsockname(&socket).ok().and_then(|addr| SocketAddr::try_from(addr).ok()));
        drop(socket);
        forget(&name);
    }
    match wait_for_manager() {
        Ok(()) => wait_until_free(&addrs),
        Err(error) => {
            log!(warn, %error, "cannot wait until the service manager has closed sockets: their addresses may still be in use");
        }
    }
}

/// A process that the manager is just starting has copies of the manager's descriptors until it
/// executes its program. Waits for that, but not for long.
fn wait_until_free(addrs: &[SocketAddr]) {
    let until = Instant::now() + UNTIL_EXECUTED;
    while Instant::now() < until && addrs.iter().any(is_in_use) {
        thread::sleep(AGAIN);
    }
}

fn is_in_use(addr: &SocketAddr) -> bool {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let bound = socket.and_then(|socket| {
        // Connections of before do not count.
        set_socket_reuseaddr(&socket, true)?;
        bind(&socket, addr)
    });
    bound == Err(Errno::ADDRINUSE)
}

/// Waits until the manager has handled all messages: then it closes the descriptor that comes with
/// this one (sd_notify_barrier(3)).
///
/// # Errors
/// No descriptors left; the manager takes too long.
fn wait_for_manager() -> io::Result<()> {
    let until = Instant::now() + UNTIL_HANDLED;
    let (closes, theirs) = sys::pipe()?;
    loop {
        send_what_waits();
        let result = match next_at() {
            None => send("BARRIER=1", &[theirs.as_fd()]),
            Some(_) => Err(Errno::AGAIN),
        };
        match result {
            Ok(()) => break,
            Err(error) if may_pass(error) && Instant::now() < until => thread::sleep(AGAIN),
            Err(error) => return Err(error.into()),
        }
    }
    drop(theirs);
    let left = until.saturating_duration_since(Instant::now());
    let mut fd = [PollFd::new(&closes, PollFlags::IN)];
    match retry_on_intr(|| poll(&mut fd, Timespec::try_from(left).ok().as_ref()))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// The manager's name for the socket of a listener. Each listener has another one, of printable
/// ASCII characters without a colon, because the manager ignores any other name (sd_notify(3)). The
/// name of an internet address has a comma for each colon, and so has the beginning of `unix:PATH`.
pub(crate) fn kept_name(listener: &str) -> String {
    let Some(path) = listener.strip_prefix(UNIX) else {
        return format!("{KEPT}{}", listener.replace(':', ","));
    };
    let mut name = format!("{KEPT}{}", UNIX.replace(':', ","));
    for byte in path.bytes() {
        match byte {
            b':' | b'%' | ..b' ' | b'\x7f'.. => {
                // Writing to a string does not fail.
                let _ = write!(name, "%{byte:02X}");
            }
            _ => name.push(char::from(byte)),
        }
    }
    name
}

/// Reports that the master runs, and that no loop of its workers is stuck. If the manager does not
/// read, the message is dropped. `false`: something else is lacking, so try again soon.
pub(crate) fn alive() -> bool {
    let sent = send("WATCHDOG=1", &[]);
    !sent.is_err_and(|error| error != Errno::AGAIN && may_pass(error))
}

/// How often the manager wants to hear that. `None`: never. The variables contain the first
/// master's process id. A successor has another id, but is watched instead.
pub(crate) fn watchdog(is_successor: bool) -> Option<Duration> {
    let limit = if is_successor {
        let microseconds = env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
        Some(Duration::from_micros(microseconds)).filter(|limit| !limit.is_zero())
    } else {
        sd_notify::watchdog_enabled()
    };
    // Half of the time after which the manager gives the service up, as its documentation advises.
    limit.map(|limit| (limit / 2).max(MOST_OFTEN))
}

/// Sends a message now, or as soon as the manager has room. The master never waits for a manager
/// that does not read.
fn tell(text: String) {
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    if waiting.len() == MOST_WAITING {
        waiting.pop_front();
    }
    waiting.push_back(text);
    drop(waiting);
    send_what_waits();
}

/// Sends the waiting messages in order.
pub(crate) fn send_what_waits() {
    let mut failed = None;
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    while let Some(text) = waiting.front() {
        match send(text, &[]) {
            Err(error) if may_pass(error) => break,
            result => failed = result.err().or(failed),
        }
        waiting.pop_front();
    }
    drop(waiting);
    if let Some(error) = failed {
        log!(warn, %error, "cannot notify the service manager");
    }
}

/// When to try again.
pub(crate) fn next_at() -> Option<Instant> {
    let waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    (!waiting.is_empty()).then(|| Instant::now() + AGAIN)
}

/// Has the manager no room now, or is there no descriptor or memory now?
fn may_pass(error: Errno) -> bool {
    matches!(error, Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)
}

/// Sends one message. Without a manager it does nothing, which is no error.
///
/// # Errors
/// `AGAIN`: the manager has no room now.
fn send(text: &str, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let Some(path) = env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
        return Ok(());
    };
    let addr = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddrUnix::new_abstract_name(name)?,
        None => SocketAddrUnix::new(path.as_bytes())?,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let mut kept = SOCKET.lock().unwrap_or_else(PoisonError::into_inner);
    let socket = match kept.take() {
        Some(socket) => socket,
        None => socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?,
    };
    let socket = kept.insert(socket);
    // Each time, because the manager may have bound its address again.
    connect(&*socket, &addr)?;
    passing::send(&*socket, text.as_bytes(), fds)
}

/// Closes the master's socket in a worker, which sends nothing.
pub(crate) fn close() {
    SOCKET.lock().unwrap_or_else(PoisonError::into_inner).take();
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::memory_file;

    #[test]
    fn names_of_plain_addresses_stay_as_they_are() {
        for (listener, expected) in [
            ("127.0.0.1:80", "wakeful,127.0.0.1,80"),
            ("[::1]:80", "wakeful,[,,1],80"),
            ("unix:/run/a, b.sock", "wakeful,unix,/run/a, b.sock"),
            ("unix:@name", "wakeful,unix,@name"),
        ] {
            assert_eq!(kept_name(listener), expected);
        }
    }

    /// The manager would ignore the name, and call the socket `stored`.
    #[test]
    fn a_name_has_only_what_a_manager_accepts_and_is_of_one_listener() {
        let paths =
            ["a:b", "a,b", "a%3Ab", "a%b", "a\tb", "a\0b", "a\x7fb", "a\u{e4}b", "a\u{c4}b"];
        let names: BTreeSet<_> =
            paths.iter().map(|path| kept_name(&format!("unix:/{path}"))).collect();
        assert_eq!(names.len(), paths.len(), "{names:?}");
        let is_accepted = |c: char| (' '..='~').contains(&c) && c != ':';
        assert!(names.iter().all(|name| name.chars().all(is_accepted)), "{names:?}");
        assert!(names.contains("wakeful,unix,/a%C3%A4b"), "{names:?}");
    }

    #[test]
    fn a_socket_whose_name_is_too_long_is_not_kept() {
        let socket = memory_file::create("socket").unwrap();
        let longest = "a".repeat(LONGEST_NAME - kept_name("unix:/").len());
        assert_eq!(keep(&format!("unix:/{longest}"), socket.as_fd()), Kept::Yes);
        assert_eq!(keep(&format!("unix:/{longest}a"), socket.as_fd()), Kept::No);
    }
}
