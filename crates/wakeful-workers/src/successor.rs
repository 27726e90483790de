//! The upgrade: the program is started again from its file, and gets the sockets.
//!
//! An environment variable names the old master, and the descriptor of a file in memory. Each line
//! of that file names a descriptor: a pipe for the report that the new master is ready, a socket to
//! which it passes the listeners that it makes, and each listener of the old master.
//!
//! Other programs may inherit the variable. So it has an effect only in a child of the process that
//! it names; or, if that process was killed meanwhile, in a process that has the file. (A new
//! master that has read the file has closed it.)

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getppid, pidfd_open};

use crate::listeners::{Inherited, Listeners};
use crate::sys::{self, End, News, end_of};
use crate::{memory_file, passing};

/// The environment variable by which a master tells the new master of an upgrade that it is the
/// successor. Its first line is `from` and the process id of the old master.
pub const SUCCEEDS: &str = "WAKEFUL_SUCCEEDS";

/// A killed process has ended a moment after its children have got another parent.
const UNTIL_IT_HAS_ENDED: Duration = Duration::from_millis(100);

/// How long a new master that was late to take over may take to end, before it is told to end at
/// once.
const AFTER_FIRST_TERM: Duration = Duration::from_secs(1);

/// How long a new master may take that must end at once. It first kills its own workers. If it were
/// killed before, nobody would end them.
pub(crate) const AT_ONCE_FOR_SUCCESSOR: Duration = Duration::from_secs(4);

/// The name of the file in memory.
const TOLD: &str = "wakeful-successor";

/// The file that this process runs, also if it has another path by now, or none.
pub(crate) const THIS_FILE: &str = "/proc/self/exe";

/// A program's file that is being written cannot be executed. So often, and after such pauses, it
/// is tried again.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// How the program was started.
#[derive(Debug)]
pub(crate) struct Program {
    /// An error if it is not known, because there is no /proc.
    path: io::Result<PathBuf>,
    /// The first word of its command line. It need not be a path to the program's file.
    called: OsString,
    arguments: Vec<OsString>,
}

impl Program {
    /// Call this at the start. Later another file may be at this path, and the kernel then marks
    /// the path of this program as deleted.
    pub(crate) fn this() -> Self {
        let mut arguments = env::args_os();
        let called = arguments.next().unwrap_or_default();
        Self {
            path: as_called(Path::new(&called)).ok_or(()).or_else(|()| env::current_exe()),
            called,
            arguments: arguments.collect(),
        }
    }

    #[cfg(test)]
    pub(crate) fn other(path: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(OsString::from).collect();
        Self { path: Ok(path.into()), called: path.into(), arguments }
    }

    /// The same command line again, but of the file that this process runs, whatever is at its path
    /// by now.
    pub(crate) fn again(&self) -> Command {
        let mut command = Command::new(THIS_FILE);
        command.arg0(&self.called).args(&self.arguments);
        // The program that is started is not a successor, unless the caller sets the variable
        // again.
        command.env_remove(SUCCEEDS);
        command
    }
}

/// The path by which this program was called, if it leads to this program: through symbolic links,
/// which may lead elsewhere by the time of an upgrade.
fn as_called(called: &Path) -> Option<PathBuf> {
    if called.components().count() <= 1 {
        return None;
    }
    let path = env::current_dir().ok()?.join(called);
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    let is_this = identity(&path)? == identity(Path::new(THIS_FILE))?;
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
    /// The sockets that it makes come here.
    made: OwnedFd,
    /// When it has taken too long. `None`: it is killed.
    pub(crate) start_by: Option<Instant>,
    /// How often it was told to end. After the first time it is not to take over any more; at the
    /// second it ends its workers at once.
    terms: u32,
    /// Requests to the master before it, which it gets when it is ready.
    to_pass_on: Vec<Signal>,
    /// It is dead, and a debugger has not let go of it.
    is_held: bool,
}

/// A new master that has taken over. It is a child that nobody waits for.
#[derive(Debug)]
pub(crate) struct InCharge {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
}

impl InCharge {
    pub(crate) fn signal(&self, signal: Signal) {
        sys::signal_child(self.pid, Some(self.pidfd.as_fd()), signal);
    }
}

/// How far a successor is.
#[derive(Debug)]
pub(crate) enum Progress {
    Starting,
    Ready,
    /// The new master took over, and has ended since.
    Past,
    /// The new master has failed. The text says how.
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
        let (made, made_there) = passing::ends()?;
        // Open in the child, and closed here when it has been started. This thread is the only one,
        // so nobody else can start a program meanwhile.
        let inheritance = Inheritance {
            predecessor: None,
            ready: Some(sys::duplicate_to_pass(&told)?),
            reported: None,
            is_taken_back: false,
            made: Some(sys::duplicate_to_pass(&made_there)?),
            listeners: listeners.for_successor()?,
        };
        let text = sys::duplicate_to_pass(inheritance.text()?)?;
        let told = told_of(std::process::id(), text.as_raw_fd());
        let path = program.path.as_ref().map_err(|error| {
            io::Error::new(error.kind(), format!("this program's own file is not known: {error}"))
        })?;
        let mut command = Command::new(path);
        command.args(&program.arguments).env(SUCCEEDS, told);
        let mut process = spawn(&mut command).map_err(sys::explain_fork).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        // It has not been waited for, so the number is its own.
        match sys::pidfd_of(Pid::from_child(&process)) {
            Ok(pidfd) => {
                let (terms, is_held) = (0, false);
                let (ready, to_pass_on) = (Some(ready), Vec::new());
                Ok(Self { process, pidfd, ready, made, start_by, terms, to_pass_on, is_held })
            }
            Err(error) => {
                // If it cannot be killed, nothing waits for it.
                if sys::signal_child(Pid::from_child(&process), None, Signal::KILL) {
                    let _ = process.wait();
                }
                Err(error)
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
        // This comes first, because a dead successor cannot take over, even if it was ready.
        match end_of(Pid::from_child(&self.process), &self.pidfd) {
            // Unless it was killed, it ended because it was told to, or has a successor of its own.
            Some(End::As(status)) if status.exit_status().is_some() && self.has_reported() => {
                return Progress::Past;
            }
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
            Some(News::Accepts) if !self.is_given_up() => {
                self.ready = None;
                return Progress::Ready;
            }
            Some(News::Accepts | News::End) => self.ready = None,
        }
        Progress::Starting
    }

    /// Has it reported that its workers accept, and was it to take over?
    fn has_reported(&self) -> bool {
        let news = self.ready.as_ref().map(sys::news);
        !self.is_given_up() && matches!(news, Some(News::Accepts))
    }

    /// Whoever waits for it, as it has failed and a debugger has not let go of it.
    pub(crate) fn unburied(&self) -> Option<Pid> {
        self.is_held.then(|| Pid::from_child(&self.process))
    }

    /// Adds the sockets that it has made to `all`, in the order in which it made them. Its workers
    /// may still have them.
    ///
    /// # Errors
    /// The same as for [`passing::take`].
    pub(crate) fn take_made(&self, all: &mut Vec<OwnedFd>) -> io::Result<()> {
        passing::take(&self.made, all)
    }

    pub(crate) fn kill(&mut self) {
        self.start_by = None;
        self.signal(Signal::KILL);
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.terms > 0
    }

    /// It is not to succeed any more: it ends, and so do its workers, until `end_by`. To be told so
    /// again is a second signal to it: it ends its workers at once.
    pub(crate) fn give_up(&mut self, end_by: Option<Instant>) {
        self.start_by = end_by;
        self.remind();
    }

    /// How long it may take to end when it is told once more. `None`: it was told twice.
    pub(crate) fn patience_after_next_term(&self) -> Option<Duration> {
        [AFTER_FIRST_TERM, AT_ONCE_FOR_SUCCESSOR].get(self.terms as usize).copied()
    }

    /// Tells it once more to end.
    pub(crate) fn remind(&mut self) {
        self.terms = self.terms.saturating_add(1);
        self.signal(Signal::TERM);
    }

    /// It gets this signal when it is ready. Before that, the signal could end it: it may be a
    /// script that has not executed the program yet, and that has unblocked the signal.
    pub(crate) fn pass_on(&mut self, signal: Signal) {
        if !self.to_pass_on.contains(&signal) {
            self.to_pass_on.push(signal);
        }
    }

    /// Called when it is ready, so it reads its signals.
    pub(crate) fn pass_on_what_came(&mut self) {
        std::mem::take(&mut self.to_pass_on).into_iter().for_each(|signal| self.signal(signal));
    }

    /// What is kept of it when it has taken over. The copies of its sockets are not.
    pub(crate) fn in_charge(self) -> InCharge {
        InCharge { pid: Pid::from_child(&self.process), pidfd: self.pidfd }
    }

    fn signal(&self, signal: Signal) {
        sys::signal_child(Pid::from_child(&self.process), Some(self.pidfd.as_fd()), signal);
    }
}

/// Starts the command. If the program's file is busy (ETXTBSY), retries for a moment: another
/// process still writes to it, or was just forked from one that did.
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
    /// The master before this one. It may be dead.
    pub(crate) predecessor: Option<Pid>,
    ready: Option<OwnedFd>,
    /// The other end of that pipe, when this master has reported there that its workers accept.
    reported: Option<OwnedFd>,
    is_taken_back: bool,
    made: Option<OwnedFd>,
    pub(crate) listeners: Vec<Inherited>,
}

impl Inheritance {
    #[cfg(test)]
    pub(crate) fn of(predecessor: Pid, ready: OwnedFd, listeners: Vec<Inherited>) -> Self {
        let (predecessor, ready) = (Some(predecessor), Some(ready));
        Self { predecessor, ready, listeners, ..Self::default() }
    }

    /// Takes the inheritance that the process's environment names. It is empty if the process was
    /// not started as a successor.
    ///
    /// # Errors
    /// The environment or the file that it names is wrong: for example, a descriptor is not open.
    pub(crate) fn take() -> io::Result<Self> {
        let Some((predecessor, text)) = told() else { return Ok(Self::default()) };
        let not_true = |error: io::Error| {
            io::Error::new(error.kind(), format!("{SUCCEEDS} is not valid: {error}"))
        };
        let Some(text) = sys::take_descriptors(&[text]).map_err(not_true)? else {
            return Ok(Self::default());
        };
        let text = text.into_iter().map(memory_file::read).collect::<io::Result<Vec<_>>>();
        let this = Self::understand(&text.map_err(not_true)?.concat()).map_err(not_true)?;
        Ok(Self { predecessor: Some(predecessor), ..this })
    }

    /// The lines that [`understand`](Self::understand) reads, in a file.
    ///
    /// # Errors
    /// No memory; no descriptors left; the limit of file sizes.
    fn text(&self) -> io::Result<OwnedFd> {
        let own = [("ready", &self.ready), ("made", &self.made)];
        let own = own.into_iter().filter_map(|(word, fd)| Some((word, fd.as_ref()?)));
        let own = own.map(|(word, fd)| format!("{word} {}\n", fd.as_raw_fd()));
        let listeners = self.listeners.iter();
        let listeners = listeners.map(|(name, fd)| format!("listener {} {name}\n", fd.as_raw_fd()));
        let text: String = own.chain(listeners).collect();
        memory_file::with(TOLD, "what the new master is told", text.as_bytes())
    }

    /// # Errors
    /// It is not such a text; a descriptor is not open.
    fn understand(text: &[u8]) -> io::Result<Self> {
        let not_understood = || io::Error::from(io::ErrorKind::InvalidData);
        let text = str::from_utf8(text).map_err(|_| not_understood())?;
        let mut this = Self::default();
        for line in text.lines() {
            let (word, rest) = line.split_once(' ').ok_or_else(not_understood)?;
            let (number, name) = rest.split_once(' ').unwrap_or((rest, ""));
            let number: RawFd = number.parse().map_err(|_| not_understood())?;
            let taken = sys::take_descriptors(&[number])?.ok_or_else(not_understood)?;
            match word {
                "ready" => this.ready = taken.into_iter().next(),
                "made" => this.made = taken.into_iter().next(),
                "listener" => {
                    this.listeners.extend(taken.into_iter().map(|fd| (name.to_owned(), fd)));
                }
                _ => return Err(not_understood()),
            }
        }
        Ok(this)
    }

    /// Passes these sockets to the previous master, which keeps copies until this one is in charge.
    ///
    /// # Errors
    /// The same as for [`passing::pass`]. But it is not an error if the previous master is dead.
    pub(crate) fn has_made(&self, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
        let Some(made) = &self.made else { return Ok(()) };
        passing::pass(made, sockets).or_else(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Ok(()),
            _ => Err(error),
        })
    }

    /// Is there a master before this one, that is still in charge?
    pub(crate) fn is_waited_for(&self) -> bool {
        self.ready.is_some() || self.is_taken_back
    }

    /// This master's workers accept: the one before may go.
    pub(crate) fn ready(&mut self) {
        if let Some(ready) = self.ready.take() {
            self.reported = end_to_read(&ready).ok();
            // It may be gone by now, and then it has nothing to do any more.
            let _ = rustix::io::write(&ready, &[1]);
        }
    }

    /// Takes that report back, unless the one before has read it. That one then continues when this
    /// master ends. (Without /proc nothing is taken back.)
    pub(crate) fn take_back(&mut self) {
        let reported = self.reported.take();
        self.is_taken_back = reported.is_some_and(|end| sys::news(&end) == News::Accepts);
    }
}

/// The end of a pipe to which `end_to_write` belongs. It does not block.
///
/// # Errors
/// There is no /proc; no descriptors left.
fn end_to_read(end_to_write: &OwnedFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", end_to_write.as_raw_fd());
    let end = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    Ok(end.into())
}

/// Returns whether a master has started this process as its successor in an upgrade. The listening
/// sockets then come from that master. (A service manager passes its sockets only to the first
/// master.)
///
/// When the old master has ended, the result is `false`, unless this process has not called
/// [`Master::run`](crate::Master::run) yet.
#[must_use]
pub fn is_successor() -> bool {
    told().is_some()
}

/// The variable's text.
fn told_of(master: u32, text: RawFd) -> String {
    format!("from {master}\ntold {text}")
}

/// The old master, and the number of the file with the rest, if this process was started as a
/// successor.
fn told() -> Option<(Pid, RawFd)> {
    let text = env::var_os(SUCCEEDS)?.into_string().ok()?;
    let (from, told) = understand(&text)?;
    is_for_us(from, told, getppid()).then_some((from, told))
}

/// Is it for this process, whose parent is `parent`?
fn is_for_us(from: Pid, told: RawFd, parent: Option<Pid>) -> bool {
    parent == Some(from) || (memory_file::is(told, TOLD) && is_gone(from))
}

fn understand(text: &str) -> Option<(Pid, RawFd)> {
    let (from, told) = text.split_once('\n')?;
    let from: u32 = from.strip_prefix("from ")?.parse().ok()?;
    let from = Pid::from_raw(from.try_into().ok()?)?;
    Some((from, told.strip_prefix("told ")?.parse().ok()?))
}

/// Has the process ended? (Its own parent need not know yet.)
fn is_gone(process: Pid) -> bool {
    match pidfd_open(process, PidfdFlags::empty()) {
        Ok(pidfd) => {
            let mut fd = [PollFd::new(&pidfd, PollFlags::IN)];
            poll(&mut fd, Timespec::try_from(UNTIL_IT_HAS_ENDED).ok().as_ref()) == Ok(1)
        }
        Err(error) => error == Errno::SRCH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_child_of_who_is_named_believes_it_unless_that_is_dead() {
        let from = Pid::from_raw(7);
        assert_eq!(understand(&told_of(7, 3)), from.map(|from| (from, 3)));
        assert!(from.is_some_and(|from| is_for_us(from, -1, Some(from))));
        // No process has such a number.
        let (dead, this) = (Pid::from_raw(i32::MAX).unwrap(), rustix::process::getpid());
        let file = |name| memory_file::create(name).unwrap();
        for (name, from, is_believed) in
            [(TOLD, dead, true), (TOLD, this, false), ("other", dead, false)]
        {
            assert_eq!(is_for_us(from, file(name).as_raw_fd(), None), is_believed, "{name}");
        }
    }

    #[test]
    fn what_is_not_understood_is_not_believed() {
        for text in ["", "from 7", "from 7\ntold x", "from -7\ntold 3", "told 3\nfrom 7"] {
            assert_eq!(understand(text), None, "{text}");
        }
        for text in ["ready", "ready x", "listener 1000000 name", "other 1", "\n"] {
            assert!(Inheritance::understand(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_report_that_nobody_has_read_is_taken_back() {
        for is_read in [false, true] {
            let (ready, told) = sys::pipe_of_news().unwrap();
            let mut inheritance = Inheritance { ready: Some(told), ..Default::default() };
            inheritance.ready();
            assert!(!inheritance.is_waited_for());
            if is_read {
                assert_eq!(sys::news(&ready), News::Accepts);
            }
            inheritance.take_back();
            assert_eq!(inheritance.is_waited_for(), !is_read);
            assert_eq!(sys::news(&ready), News::End);
        }
    }

    /// The environment has no room for so much in one variable.
    #[test]
    fn a_successor_gets_more_sockets_than_an_environment_has_room_for() {
        let name = |number: usize| format!("unix:/{number} {}", "long ".repeat(200));
        let pass = |number| (name(number), memory_file::create("passed").unwrap());
        let passed = Inheritance { listeners: (0..200).map(pass).collect(), ..Default::default() };
        let text = memory_file::read(passed.text().unwrap()).unwrap();
        assert!(text.len() > 128 * 1024);
        let numbers = passed.listeners.iter().map(|(_, fd)| fd.as_raw_fd());
        let has_all = numbers.zip(str::from_utf8(&text).unwrap().lines()).enumerate();
        for (number, (fd, line)) in has_all {
            assert_eq!(line, format!("listener {fd} {}", name(number)));
        }
    }
}
