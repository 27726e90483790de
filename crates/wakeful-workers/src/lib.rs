//! A server as processes: a master that holds the listening sockets, and workers that it forks, or
//! that [execute the program again](StartMethod::Exec).
//!
//! The master has one thread and serves no clients, so a request cannot harm it. Each worker is a
//! separate process with a group of loops, and accepts from the master's sockets: a connection
//! wakes one loop of one worker. This gives the following properties:
//!
//! * **A crash costs one worker.** Only its requests in flight are lost. The other workers accept
//!   the waiting connections, and the master starts another worker.
//! * **A connection wakes at most one worker.** Under light load few workers wait for connections,
//!   and more do as the load grows: see [`Siblings`](wakeful::accept::Siblings).
//! * **A worker that hangs is killed.** Its loops record in [shared memory](wakeful::heartbeat)
//!   when they begin a turn. If a loop has been in one turn for longer than the
//!   [timeout](Master::timeout), the master kills its worker with SIGKILL, and logs what the loop
//!   was running. A sleeping loop is never woken for this.
//! * **A reload refuses no connection**, and loses no request that ends while its worker drains. At
//!   SIGHUP the master replaces the workers, one after the other: each new worker accepts before
//!   the old one begins to drain. If a new worker cannot start, the old ones stay.
//! * **An upgrade refuses no connection either.** At SIGUSR2 the master starts the program again,
//!   from the same path, and passes the sockets to the new process. When all workers of the new
//!   master accept, the old ones drain, and the old master ends. If the new master fails, the old
//!   one continues.
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
//!     // This returns in the master when it ends, and in each worker when it starts.
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
//! | TERM, INT, QUIT, PWR, XCPU | the workers drain, then the master ends; after a second signal the workers and the master end at once |
//! | HUP | the master replaces the workers one after the other |
//! | USR1 | the workers get SIGHUP: they reopen logs and reload certificates, if your program does that |
//! | USR2 | upgrade: see above. Until its first workers accept, a master refuses. So does a master whose container would end with it: process 1, and the program of its init (`docker run --init`) |
//! | TTIN, TTOU | one worker more, one worker fewer (at least one stays) |
//! | WINCH | all workers drain, and the master stays; HUP or TTIN starts them again, and until then TTOU has no effect |
//!
//! TTIN, TTOU and WINCH have no effect if a terminal sends them. Nor has WINCH from outside of a
//! container: `docker run` passes on that of its terminal. SIGTERM to a worker's own process
//! drains that worker, and the master replaces it when it has ended. QUIT and PWR do nothing in a
//! worker, unless your program catches them: they are often sent to all processes, and are meant
//! for the master. For a core dump of a worker, send it ABRT.
//!
//! The master hears its signals even if its parent has blocked them. A worker inherits the block,
//! and then never hears SIGTERM. So if the parent may block it, call
//! [`unblock`](wakeful::signal::unblock) first in `main`.
//!
//! # Before the fork
//! Each worker has a copy of all data that is in memory before [`Master::run`]. The copy costs
//! nothing until it is changed, so load large data before `run`. But do not start a thread before
//! `run`: a fork copies only one thread, so `run` fails in a process with several threads.
//!
//! With [`StartMethod::Exec`] a worker executes the program again instead. It has none of the
//! master's memory.

#[macro_use]
mod log;

mod container;
mod crew;
mod exec;
mod listen_again;
mod listeners;
mod memory_file;
mod passing;
mod pid_file;
mod port_groups;
mod reports;
mod run;
mod running;
mod settings;
mod signals;
mod steering;
mod successor;
#[allow(unsafe_code)]
mod sys;
mod systemd;
mod unix_backlog;
mod worker;

pub use self::exec::{StartMethod, is_executed_worker};
pub use self::reports::{LoopInfo, Report, Reports, Said, WorkerInfo, WorkerLoops, WorkerState};
pub use self::run::Role;
pub use self::settings::Master;
pub use self::successor::{SUCCEEDS, is_successor};
pub use self::systemd::{KEPT, close_kept};
pub use self::worker::{MasterIsGone, Orphans, Worker};
