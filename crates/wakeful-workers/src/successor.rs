//! The upgrade: the program is started again from its file, and gets the sockets.
//!
//! What the new process needs to know is in one variable of its environment, a word or more a line:
//! whose successor it is, where it says that it is ready, and the sockets with their names. It is
//! believed only by a child of the process that it names.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, getppid, pidfd_open};

use crate::listeners::{Inherited, Listeners};
use crate::sys::{self, End, News, end_of};

/// The environment variable with which a master tells a new master that it is the successor. Its
/// first line is `from` and the process id of the old master.
pub const SUCCEEDS: &str = "WAKEFUL_SUCCEEDS";

/// A program's file that is being written cannot be executed. So often, and after such pauses, it
/// is tried again.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// How the program was started.
#[derive(Debug)]
pub(crate) struct Program {
    /// An error: nobody can say (there is no /proc).
    path: io::Result<PathBuf>,
    arguments: Vec<OsString>,
}

impl Program {
    /// To be asked at the start: later the file may be another one, which the kernel would call
    /// deleted.
    pub(crate) fn this() -> Self {
        let mut arguments = env::args_os();
        let called = arguments.next().map(PathBuf::from);
        Self {
            path: as_called(called).ok_or(()).or_else(|()| env::current_exe()),
            arguments: arguments.collect(),
        }
    }
}

/// The path by which this program was called, if it leads to this program: through symbolic links,
/// which may lead elsewhere by the time of an upgrade.
fn as_called(called: Option<PathBuf>) -> Option<PathBuf> {
    let called = called.filter(|called| called.components().count() > 1)?;
    let path = env::current_dir().ok()?.join(called);
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    let is_this = identity(&path)? == identity(Path::new("/proc/self/exe"))?;
    is_this.then_some(path)
}

/// A new master that has been started.
#[derive(Debug)]
pub(crate) struct Successor {
    process: Child,
    /// Readable when it is dead.
    pidfd: OwnedFd,
    /// A byte comes when all its workers accept. The end comes if it gives up, which it need not
    /// die of; nor need it come when it dies, if it has started others that have this, too. `None`:
    /// the end has come.
    ready: Option<OwnedFd>,
    /// When it has taken too long. `None`: it is killed.
    pub(crate) start_by: Option<Instant>,
    is_given_up: bool,
    /// It is dead, and a debugger has not let go of it.
    is_held: bool,
}

/// How far a successor is.
#[derive(Debug)]
pub(crate) enum Progress {
    Starting,
    Ready,
    /// With how it ended.
    Failed(String),
}

impl Successor {
    /// # Errors
    /// The file cannot be executed; a limit of processes or descriptors.
    pub(crate) fn start(
        program: &Program,
        listeners: &Listeners,
        start_by: Option<Instant>,
    ) -> io::Result<Self> {
        let (ready, told) = sys::pipe_of_news()?;
        // Open in the child, and closed here when it has been started. This thread is the only one,
        // so nobody else can start a program meanwhile.
        let told_there = rustix::io::dup(&told)?;
        let passed = listeners.for_successor()?;
        let told_line = format!("ready {}", told_there.as_raw_fd());
        let from = format!("from {}", std::process::id());
        let lines = passed.iter().map(|(name, fd)| format!("listener {} {name}", fd.as_raw_fd()));
        let lines: Vec<_> = [from, told_line].into_iter().chain(lines).collect();
        let path = program.path.as_ref().map_err(|error| {
            io::Error::new(error.kind(), format!("this program's own file is not known: {error}"))
        })?;
        let mut command = Command::new(path);
        command.args(&program.arguments).env(SUCCEEDS, lines.join("\n"));
        let mut process = spawn(&mut command).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        // It has not been waited for, so the number is its own.
        match pidfd_open(Pid::from_child(&process), PidfdFlags::empty()) {
            Ok(pidfd) => {
                let (is_given_up, is_held) = (false, false);
                Ok(Self { process, pidfd, ready: Some(ready), start_by, is_given_up, is_held })
            }
            Err(error) => {
                // One that lives on is waited for by nobody.
                if sys::signal_child(Pid::from_child(&process), None, Signal::KILL) {
                    let _ = process.wait();
                }
                Err(error.into())
            }
        }
    }

    /// Readable when [`progress`](Self::progress) has something to say.
    pub(crate) fn news(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ready.iter().chain([&self.pidfd]).map(AsFd::as_fd)
    }

    pub(crate) fn process(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn progress(&mut self) -> Progress {
        // Also if it was ready: who is dead takes over nothing.
        match end_of(Pid::from_child(&self.process), &self.pidfd) {
            Some(End::As(status)) => {
                let status = ExitStatus::from_raw(status.as_raw());
                return Progress::Failed(format!("has ended ({status})"));
            }
            Some(End::Held) => {
                self.is_held = true;
                return Progress::Failed("has ended, held by a debugger".to_owned());
            }
            None => {}
        }
        match self.ready.as_ref().map(sys::news) {
            None | Some(News::NotYet) => {}
            Some(News::Accepts) if !self.is_given_up => {
                self.ready = None;
                return Progress::Ready;
            }
            Some(News::Accepts | News::End) => self.ready = None,
        }
        Progress::Starting
    }

    /// Whoever waits for it, as it has failed and a debugger has not let go of it.
    pub(crate) fn unburied(&self) -> Option<Pid> {
        self.is_held.then(|| Pid::from_child(&self.process))
    }

    pub(crate) fn kill(&mut self) {
        self.start_by = None;
        self.signal(Signal::KILL);
    }

    /// It is not to succeed any more: it ends, and so do its workers, until `end_by`.
    pub(crate) fn give_up(&mut self, end_by: Option<Instant>) {
        self.is_given_up = true;
        self.start_by = end_by;
        self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) {
        sys::signal_child(Pid::from_child(&self.process), Some(self.pidfd.as_fd()), signal);
    }
}

/// Waits a moment for whoever still writes to the program's file, or has just forked from who did.
fn spawn(command: &mut Command) -> io::Result<Child> {
    for _ in 0..TRIES {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
    command.spawn()
}

/// What a master has from the one that it succeeds.
#[derive(Debug, Default)]
pub(crate) struct Inheritance {
    ready: Option<OwnedFd>,
    pub(crate) listeners: Vec<Inherited>,
}

impl Inheritance {
    /// Of the process's environment; of none if nobody has started it as a successor.
    ///
    /// # Errors
    /// What the environment says is not true.
    pub(crate) fn take() -> io::Result<Self> {
        let Some(Told { ready, listeners }) = Told::this() else { return Ok(Self::default()) };
        let numbers: Vec<RawFd> =
            [ready].into_iter().chain(listeners.iter().map(|(_, number)| *number)).collect();
        let taken = sys::take_descriptors(&numbers).map_err(|error| {
            io::Error::new(error.kind(), format!("what {SUCCEEDS} names is not open: {error}"))
        })?;
        let Some(taken) = taken else { return Ok(Self::default()) };
        let mut taken = taken.into_iter();
        let ready = taken.next();
        let names = listeners.into_iter().map(|(name, _)| name);
        Ok(Self { ready, listeners: names.zip(taken).collect() })
    }

    /// Is there a master before this one, that is still in charge?
    pub(crate) fn is_waited_for(&self) -> bool {
        self.ready.is_some()
    }

    /// This master's workers accept: the one before may go.
    pub(crate) fn ready(&mut self) {
        if let Some(ready) = self.ready.take() {
            // It may be gone by now, and then it has nothing to do any more.
            let _ = rustix::io::write(&ready, &[1]);
        }
    }
}

/// Returns whether a master started this process as its successor. Its sockets then come from that
/// master, and not, for example, from a service manager, which has passed them only to the first
/// master.
///
/// After the successor has taken over, it has another parent, and the result is `false`.
#[must_use]
pub fn is_successor() -> bool {
    Told::this().is_some()
}

/// The variable's text, understood.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    ready: RawFd,
    listeners: Vec<(String, RawFd)>,
}

impl Told {
    /// What this process was told, if it was started as a successor.
    fn this() -> Option<Self> {
        let text = env::var_os(SUCCEEDS)?.into_string().ok()?;
        Self::parse(&text, getppid().map(Pid::as_raw_pid))
    }

    /// `None`: it is not for this process, whose parent is `parent`.
    fn parse(text: &str, parent: Option<i32>) -> Option<Self> {
        let mut lines = text.lines();
        let from = number(lines.next()?.strip_prefix("from ")?)?;
        if Some(from) != parent {
            return None;
        }
        let ready = number(lines.next()?.strip_prefix("ready ")?)?;
        let listener = |line: &str| {
            let (fd, name) = line.strip_prefix("listener ")?.split_once(' ')?;
            Some((name.to_owned(), number(fd)?))
        };
        let listeners = lines.map(listener).collect::<Option<_>>()?;
        Some(Self { ready, listeners })
    }
}

fn number<N: FromStr>(text: &str) -> Option<N> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_child_of_who_is_named_believes_it() {
        let text = "from 7\nready 3\nlistener 4 127.0.0.1:0\nlistener 5 unix:/a b";
        let listeners = vec![("127.0.0.1:0".to_owned(), 4), ("unix:/a b".to_owned(), 5)];
        assert_eq!(Told::parse(text, Some(7)), Some(Told { ready: 3, listeners }));
        assert_eq!(Told::parse(text, Some(8)), None);
        assert_eq!(Told::parse(text, None), None);
    }

    #[test]
    fn what_is_not_understood_is_not_believed() {
        for text in ["", "from 7", "from 7\nready x", "from 7\nready 3\nlistener 4"] {
            assert_eq!(Told::parse(text, Some(7)), None, "{text}");
        }
    }
}
