//! `wakeful serve kv`.

use clap::Args;
use wakeful_services::kv::{self, KvOptions};

use super::activity::ActivityArguments;
use super::common::CommonArguments;
use super::given::{given, unless_zero};
use super::lifecycle::{Scheme, serving, until_terminated};
use super::other_signals;
use super::size;
use super::stalls::StallArguments;
use super::start::Start;
use crate::numbers::count;

/// The words of a command are values too.
const SMALLEST_MAX_VALUE: usize = 64;
/// A command has a key, and the lengths of its words, beside the value.
const BESIDE_VALUE: usize = 1 << 10;
/// As in Redis.
const SMALLEST_QUERY_BUFFER: usize = 1 << 20;
const LARGEST_QUERY_BUFFER: usize = 1 << 30;

#[derive(Debug, Args)]
#[command(
    after_help = other_signals::HELP_WITHOUT_WORKERS,
    // `--help` does not list these options. They are still parsed, so that the error says why they
    // cannot be used.
    mut_args = |arg| if super::workers::OPTIONS.contains(&arg.get_id().as_str()) { arg.hide(true) } else { arg },
    mut_arg("config", |arg| arg.help("Read options from a TOML file, for example `grace = 20`. Options on the command line win")),
    mut_arg("placement", |arg| arg.help("With --accept dispatch: which loop gets the next connection: round-robin, random, least-loaded or power-of-two [default: power-of-two]")),
    mut_arg("loops", |arg| arg.help("The number of loops, each on a thread of its own. 0: one for each CPU that this process may use, or fewer under a CPU quota of its cgroup").long_help(None)),
    mut_arg("idle_timeout", |arg| arg.help("Close a connection that has had no request for this many seconds. 0: never. Redis: timeout [default: 0]")),
    mut_arg("keepalive", |arg| arg.help("Probe a peer that has been silent for this many seconds (TCP keepalive), at most 32767; without an answer for as long again, the connection closes. 0: never. Redis: tcp-keepalive [default: 300]"))
)]
pub(super) struct KvArguments {
    #[command(flatten)]
    pub(super) common: CommonArguments,

    /// Memory for keys, values and their tables, on all loops together; a write that needs more is
    /// refused. 0: no limit. Redis: maxmemory [default: 1GiB]
    #[arg(long, help_heading = "Limits", alias = "maxmemory", value_name = "SIZE", value_parser = size::parse)]
    max_memory: Option<usize>,

    /// The longest key or value, 64 bytes to 512MiB. Redis: proto-max-bulk-len [default: 16MiB]
    #[arg(long, help_heading = "Limits", alias = "proto-max-bulk-len", value_name = "SIZE", value_parser = max_value)]
    max_value: Option<usize>,

    /// The longest command, 1MiB to 1GiB, and at least 1KiB more than --max-value: the largest
    /// query buffer of a connection, which closes beyond it [default: 1MiB more than --max-value]
    #[arg(long, help_heading = "Limits", value_name = "SIZE", value_parser = query_buffer)]
    client_query_buffer_limit: Option<usize>,

    /// Memory for the buffers of all connections, beside --max-memory: unfinished commands, and
    /// answers that clients have not read. Beyond it a connection is closed with an error, or its
    /// answer is an error. 0: no limit. Redis: maxmemory-clients [default: a quarter of
    /// --max-memory, and at least 4 of the longest commands]
    #[arg(long, help_heading = "Limits", alias = "maxmemory-clients", value_name = "SIZE", value_parser = size::parse)]
    max_memory_clients: Option<usize>,

    /// The most open connections; further ones are closed with an error. If the limit of
    /// descriptors (`ulimit -Hn`) allows fewer, that many. 0: as many as it allows; further ones
    /// wait. Redis: maxclients [default: 10000]
    #[arg(long, help_heading = "Limits", alias = "maxclients", value_name = "N", value_parser = count::<usize>)]
    max_connections: Option<usize>,

    #[command(flatten)]
    stalls: StallArguments,
}

impl KvArguments {
    /// # Errors
    /// Options that have no meaning together.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.common.workers().are_given() {
            let reason = "--workers cannot be used with kv: its keys are in the memory of one process. Use --loops";
            return Err(reason.to_owned());
        }
        let longest = self.max_value.unwrap_or(kv::DEFAULT_MAX_VALUE);
        match self.client_query_buffer_limit {
            Some(limit) if limit < longest + BESIDE_VALUE => Err(format!(
                "--client-query-buffer-limit ({limit} bytes) is less than --max-value ({longest} bytes) and 1KiB for the \
                 rest of the command: a command with the longest value would not fit"
            )),
            _ => Ok(()),
        }
    }
}

/// # Errors
/// A line for the user.
pub(super) fn serve(arguments: &KvArguments, mut start: Start) -> Result<(), String> {
    // All loops have keys.
    let options = arguments.common.options(&ActivityArguments::default())?;
    let kv = given(KvOptions::new(), arguments.max_memory.map(unless_zero), KvOptions::max_memory);
    let kv = given(kv, arguments.max_value, KvOptions::max_value);
    let longest = arguments.client_query_buffer_limit;
    let kv = given(kv, longest, KvOptions::client_query_buffer_limit);
    let for_clients = arguments.max_memory_clients.map(unless_zero);
    let kv = given(kv, for_clients, KvOptions::max_memory_clients);
    let kv = given(kv, arguments.max_connections.map(unless_zero), KvOptions::max_connections);
    let kv = given(kv, arguments.stalls.idle_timeout(), KvOptions::idle_timeout);
    let kv = given(kv, arguments.stalls.stall_timeout(), KvOptions::stall_timeout);
    let kv = given(kv, arguments.stalls.keepalive(), KvOptions::keepalive);
    let options = start.watched(options);
    let listeners = start.listeners(&options)?;
    until_terminated(&arguments.common, Scheme::Plain, start, Vec::new(), || {
        kv::start(&options, kv, listeners).map(serving)
    })
}

fn query_buffer(text: &str) -> Result<usize, String> {
    let range = "at least 1MiB and at most 1GiB";
    size::within(text, SMALLEST_QUERY_BUFFER, LARGEST_QUERY_BUFFER, range)
}

fn max_value(text: &str) -> Result<usize, String> {
    size::within(text, SMALLEST_MAX_VALUE, kv::LARGEST_VALUE, "at least 64 and at most 512MiB")
}
