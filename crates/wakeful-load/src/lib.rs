//! Generates open-loop load, and measures latency honestly, for any server on Linux.
//!
//! A [`Plan`] says which [`Requests`] are sent to which [`Target`], and on which [`Schedule`]. The
//! schedule is fixed before the first request is sent, and the server cannot change it: a request
//! is sent late rather than skipped, and its response time counts from when it was due. So if a
//! server stalls for a second, the stall counts for every request that was due meanwhile, and not
//! only for the one that was in flight (the *coordinated omission* of closed loops).
//!
//! [`Plan::run`] loads the server from the calling thread, which spins, and returns a
//! [`Measurement`]. Its [`percentiles`](Measurement::percentiles) omit quantiles with too few
//! requests. Its [`validity`](Measurement::validity) says whether the figures are valid at all.
//! They are not if the server did not keep up, or if the generator itself was late.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use wakeful_load::{Plan, Protocol, Requests, Template, Validity};
//!
//! # use std::io::{Read, Write};
//! # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! # let server = listener.local_addr()?.to_string();
//! # std::thread::spawn(move || {
//! #     for mut stream in listener.incoming().map_while(Result::ok) {
//! #         std::thread::spawn(move || {
//! #             let mut request = [0; 4096];
//! #             while stream.read(&mut request).is_ok_and(|bytes| bytes > 0) {
//! #                 stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok();
//! #             }
//! #         });
//! #     }
//! # });
//! // `server` is the address of an HTTP server, such as "127.0.0.1:8080".
//! let template = Template::http("GET", "localhost", "/orders/7").header("accept", "*/*");
//! let measurement = Plan::new(server.parse()?)
//!     .requests(Requests::new(Protocol::Http1, &template)?)
//!     .rate(2_000.0)
//!     .connections(4)
//!     .warm_up(Duration::from_millis(50))
//!     .duration(Duration::from_millis(250))
//!     .run()?;
//!
//! // In nanoseconds; `None` where fewer than 100 requests are beyond the percentile.
//! println!("p50: {:?}", measurement.percentiles().p50);
//! if let Validity::Invalid { reasons, .. } = measurement.validity() {
//!     println!("not to be believed: {reasons:?}");
//! }
//! # assert!(measurement.recording.answered > 0);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! `examples/measure-a-server.rs` shows more: it starts a server, ends the run with a [`Watch`],
//! and writes the results as JSON.
//!
//! # Advice
//!
//! * Give the calling thread its own CPU, with `taskset` or `sched_setaffinity`. A generator that
//!   shares its CPU with the server is late, and reports this.
//! * Measure two servers in turns (A B B A) to compare them. But first compare one of them with
//!   itself: any difference that you see there is noise.
//! * If one CPU cannot generate enough load, use several generators. Percentiles cannot be
//!   averaged, so add the histograms instead ([`Measurement::add`]).
//!
//! The program `wakeful load` adds what an experiment needs: it waits for a quiet machine, starts a
//! fresh server for each block, measures its CPU time, compares servers, and writes reports.

mod affinity;
mod bench;
mod compare;
mod find_max;
mod floor;
mod format;
mod gaps;
mod generator;
#[doc(hidden)]
pub mod internals;
mod intervals;
mod machine;
mod null_server;
mod procfs;
mod program;
mod progress;
mod protocol;
mod quiet;
mod recorder;
mod report;
mod results;
mod schedule;
mod series;
mod servers;
mod shortage;
mod slow;
mod statistics;
mod summary;
mod table;
mod target;
mod threads;
mod validity;

pub use generator::{Check, ConnectionUse, LoadError, Measurement, Plan, Watch};
/// The crate that has the type of [`Recording`]'s histograms.
pub use hdrhistogram;
pub use protocol::{InvalidTemplate, Protocol, Requests, Template};
pub use recorder::Recording;
pub use results::{Cpu, Interval, KindOfRequest, Percentiles, Run, Validity};
pub use schedule::{Arrivals, Rate, Schedule, read_trace};
pub use target::{InvalidTarget, Target};
