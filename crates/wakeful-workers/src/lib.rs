//! A server as processes: a master that holds the listening sockets, and workers that it forks.
//!
//! The master has one thread and serves nobody, so nothing that a request does can harm it. Each
//! worker is a group of loops in a process of its own, and accepts from the master's sockets: a
//! connection wakes one loop of one worker. From that come:
//!
//! * **A crash costs one worker.** What it had in flight is lost, and nothing else: the others
//!   accept meanwhile what waits, and the master starts another one.
//! * **A connection wakes one worker at most.** With little to do few workers wait for connections,
//!   and further ones as the load grows: see [`Siblings`](wakeful::accept::Siblings).
//! * **A worker that hangs is killed.** Its loops say in [shared memory](wakeful::heartbeat) when
//!   they begin a turn. One that has been in a turn for longer than the [time-out](Master::timeout)
//!   ends its worker, by SIGKILL, and the log says what it ran. One that sleeps is never woken.
//! * **A reload loses nothing.** At HUP the master replaces the workers, one after the other: each
//!   new one accepts before its predecessor begins to drain. One that cannot start leaves the old
//!   ones as they are.
//! * **An upgrade loses nothing.** At USR2 the master starts the program again, from the file that
//!   it was started from, and passes the sockets on. When all of the new master's workers accept,
//!   the old ones drain, and the old master ends. If the new one fails, nothing has happened.
//!
//! ```no_run
//! use std::process::ExitCode;
//! use std::time::Duration;
//! use wakeful::LoopGroup;
//! use wakeful::accept::{ConnectionServer, Serving};
//! use wakeful_workers::{Master, Role};
//!
//! fn main() -> std::io::Result<ExitCode> {
//!     let group = LoopGroup::builder().loops(1);
//!     let master = Master::new(group.clone())
//!         .listen(["127.0.0.1:8080".parse().expect("an address")])
//!         .workers(4);
//!     // In the master this returns at its end, and in each worker at its start.
//!     let mut worker = match master.run()? {
//!         Role::Worker(worker) => worker,
//!         Role::Ended(code) => return Ok(code),
//!     };
//!     let group = group.heartbeats(worker.heartbeats()).sibling(worker.sibling());
//!     let server = ConnectionServer::new(worker.listeners()?).group(group);
//!     worker.serve(
//!         || server.start(|| async |_connection| ()),
//!         Serving::failure,
//!         |serving| serving.shutdown(Duration::from_secs(10)),
//!     )?;
//!     Ok(ExitCode::SUCCESS)
//! }
//! ```
//!
//! # Signals of the master
//!
//! | signal | effect |
//! |---|---|
//! | TERM, INT, QUIT, PWR | the workers drain, then the master ends; with a second one all end at once |
//! | HUP | replaces the workers one after the other |
//! | USR1 | the workers get a HUP: they reopen logs and read certificates anew, if your program does that at HUP |
//! | USR2 | upgrade: see above. Refused as process 1 of a container: the container would end |
//! | TTIN, TTOU | a worker more, a worker fewer (at least one) |
//! | WINCH | all workers drain, and the master stays; HUP or TTIN starts them again |
//!
//! TTIN, TTOU and WINCH have no effect if a terminal sends them. TERM sent to a worker's own
//! process drains that worker, and the master replaces it.
//!
//! # What a fork means for you
//! What the process has before [`Master::run`] each worker has too, as a copy that costs nothing
//! until it is changed: load what is large before. But start no thread before: a fork copies one
//! thread only, so `run` refuses a process with several.

mod crew;
mod listeners;
mod pid_file;
mod run;
mod running;
mod settings;
mod signals;
mod successor;
#[allow(unsafe_code)]
mod sys;
mod systemd;
mod worker;

pub use self::run::Role;
pub use self::settings::Master;
pub use self::successor::{SUCCEEDS, is_successor};
pub use self::systemd::KEPT;
pub use self::worker::{Orphans, Worker};
