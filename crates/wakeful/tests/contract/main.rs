//! The contract, as a suite: what every backend of the driver has to keep, by topic.
//! `docs/contract.md` says which promise is kept by which test.
//!
//! Each test is a function that is generic over the [`Backend`](backend::Backend);
//! `on_every_backend!` at the head of each file makes it a test of each of them. So two backends
//! cannot drift apart, and a test that is not listed is dead code, which the compiler reports.

#[macro_use]
mod backend;
mod background;
#[path = "../../examples/calloop/source.rs"]
mod calloop_source;
mod support;

mod accept;
mod accept_shared;
mod accept_siblings;
mod accept_start;
mod accept_strategies;
mod accept_trouble;
mod async_fd;
mod bounded_turns;
mod budget;
mod callbacks;
mod churn;
mod close;
mod deadlines;
mod destruction;
mod detached;
mod embedding;
mod event_loop;
mod files;
mod foreign_loops;
mod foreign_wakers;
mod group;
mod handles;
mod high_sockets;
mod idle;
mod io_events;
mod ipv6;
mod join_set;
mod late_wake;
mod late_wake_places;
mod lifetime;
mod listeners;
mod metrics;
mod metrics_of_turns;
mod misuse;
mod net;
mod notification_queue;
mod on_this_loop;
mod ownership;
mod panics;
mod passing;
#[cfg(feature = "test-util")]
mod paused_clock;
mod per_loop;
mod pipes;
mod priority;
mod process;
mod readiness;
mod ready_sockets;
mod scope;
mod shutdown;
mod shutdown_of_a_loop;
mod sockets;
mod starvation;
mod stdin;
mod streams;
mod task_handles;
mod task_locals;
mod tasks;
mod tcp_socket;
mod threads;
mod timer_handlers;
mod timers;
mod udp;
#[cfg(feature = "quinn-udp")]
mod udp_batches;
mod unix_sockets;
