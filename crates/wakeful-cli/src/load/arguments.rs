//! The flags of `wakeful load`, and how they combine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use wakeful_load::internals::bench::Load;
use wakeful_load::internals::find_max::Promise;
use wakeful_load::internals::servers::ServerSpec;
use wakeful_load::{ConnectionUse, Plan, Rate, Requests, Schedule, Target, read_trace};

use super::input_files::read_text;
use super::request::Request;
use crate::numbers::{count, positive_count, share_of_cpu, time_in, whole};
use crate::usage::Refusal;

/// The default number of pairs in a comparison.
const PAIRS: u16 = 10;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Option<Command>,

    /// The server: HOST:PORT, unix:PATH, unix:@NAME, or http://HOST:PORT/PATH.
    #[arg(value_name = "ADDR", required_unless_present_any = ["server", "compare"])]
    addr: Option<String>,

    /// Start this server for each block, and stop it afterwards: a command in which {addr} stands
    /// for a free address ({host} and {port} too). Or the address of a server that runs:
    /// `NAME=HOST:PORT`. May be repeated.
    #[arg(long, value_name = "[NAME=]COMMAND", conflicts_with = "addr")]
    server: Vec<ServerSpec>,

    /// Compare two servers in interleaved A B B A blocks, after A against A; each as for --server.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["addr", "server", "find_max"])]
    pub(super) compare: Option<Vec<ServerSpec>>,

    /// Pairs of A and B for --compare; fewer than 7 can show no difference.
    #[arg(long, value_name = "N", default_value_t = PAIRS, value_parser = whole(1..=1000_u16))]
    pub(super) pairs: u16,

    /// Find the highest rate at which a promise holds, for example p99<1ms; the time is 1us to 1h.
    #[arg(long, value_name = "PROMISE", conflicts_with_all = ["rate", "closed", "trace"])]
    pub(super) find_max: Option<Promise>,

    #[command(flatten, next_help_heading = "Requests")]
    request: Request,

    #[command(flatten, next_help_heading = "Schedule")]
    when: When,

    #[command(flatten, next_help_heading = "Connections")]
    connections: Connections,

    #[command(flatten, next_help_heading = "The machine")]
    pub(super) machine: Machine,

    #[command(flatten, next_help_heading = "Output")]
    pub(super) output: Output,
}

const EXAMPLES: &str = "\
Examples:
  wakeful load 127.0.0.1:8080 --rate 10k
  wakeful load http://127.0.0.1:8080/echo --method POST --body hello \\
      --rate 1k,10k,50k --report out.html
  wakeful load --server 'wakeful serve echo --listen {addr}' --protocol frames --closed
  wakeful load 127.0.0.1:6379 --protocol resp --command 'SET key' --size 100 \\
      --find-max 'p99<1ms'
  wakeful load 127.0.0.1:6379 --protocol resp --keys 10000 --closed \\
      --command 'GET {key}' --command 'SET {key}' --mix 3:1 --size 0,1000
  wakeful load --protocol frames --rate 10k \\
      --compare 'spin=wakeful serve echo --idle spin --listen {addr}' \\
                'park=wakeful serve echo --idle park --listen {addr}'

Exit codes: 0 measured; 1 an error, for example of a file or a server; 2 wrong usage;
4 measured, but some of it is INVALID; 130 ended by Ctrl-C, TERM or HUP.";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Add HdrHistogram logs of several runs or machines, and print the percentiles.
    Merge {
        /// The logs, as --log writes them, of at most 64 MiB each.
        #[arg(required = true)]
        logs: Vec<PathBuf>,
        /// Also write the sum as a log.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Answer frames after known delays: a server to test load generators with. It spins.
    NullServer {
        /// Where to listen: IP:PORT.
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7070")]
        listen: String,
        /// How long to hold back each answer.
        #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time_or_none)]
        delay: Duration,
        /// Draw the delays from an exponential distribution with the mean --delay.
        #[arg(long)]
        exponential: bool,
        /// Stop answering for this long, once every --stall-every.
        #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time_or_none)]
        stall: Duration,
        /// The time from the start of one stall to the next.
        #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
        stall_every: Duration,
    },
}

#[derive(Debug, Args)]
struct When {
    /// Requests a second, for example 250, 10k or 1.5M; several rates are measured one after
    /// another.
    #[arg(long, value_delimiter = ',', value_name = "RATE,…", default_value = "1k", conflicts_with_all = ["closed", "trace"])]
    rate: Vec<Rate>,

    /// Leave the same gap between all requests, instead of a Poisson process.
    #[arg(long, conflicts_with_all = ["closed", "trace"])]
    constant: bool,

    /// Closed loop: each connection keeps --in-flight requests under way. This measures saturation,
    /// and hides stalls.
    #[arg(long, conflicts_with = "trace")]
    closed: bool,

    /// Replay arrivals from a file: a line for each request, in seconds since the start. The file
    /// may have 256 MiB. Its times are kept in memory, with 8 bytes for each request.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// The same seed makes the same schedule.
    #[arg(long, default_value_t = 1, value_parser = count::<u64>)]
    seed: u64,

    /// How long to measure: 10s, 500ms, 2m.
    #[arg(long, short, value_name = "TIME", default_value = "10s", value_parser = time)]
    duration: Duration,

    /// How long to load the server before it is measured.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time_or_none)]
    warm_up: Duration,

    /// How long to wait for the last answers; those that are still missing count as failed.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time_or_none)]
    timeout: Duration,
}

#[derive(Debug, Args)]
struct Connections {
    /// The number of connections.
    #[arg(long, short, default_value_t = 32, value_parser = whole(1..=1_000_000_u32))]
    connections: u32,

    /// Requests under way on one connection at a time [default: 1 for http1 (more is pipelining),
    /// 100 for h2 and grpc, 64 for frames and RESP; 1 with --closed]. A connection with more than 1
    /// MiB still to send takes no further one.
    #[arg(long, value_name = "N", value_parser = whole(1..=100_000_u32))]
    in_flight: Option<u32>,

    /// Open a connection for each request, and close it after the answer; the time includes the
    /// connect.
    #[arg(long)]
    connect_per_request: bool,

    /// Add N slow clients. Each sends one byte of its request every 20 ms. Their requests are not
    /// measured.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0..=100_000_u32))]
    slow: u32,
}

#[derive(Debug, Args)]
pub(super) struct Machine {
    /// The CPU on which the generator spins [default: the last one that this process may use].
    #[arg(long, value_name = "CPU", value_parser = count::<usize>)]
    pub(super) cpu: Option<usize>,

    /// The CPUs of servers that are started here, for example 0-3,6 [default: all but the
    /// generator's].
    #[arg(long, value_name = "CPUS", value_parser = wakeful_load::internals::affinity::parse_cpus)]
    pub(super) server_cpus: Option<Cpus>,

    /// The process of a server that runs already, to measure its CPU time.
    #[arg(long, value_name = "PID", value_parser = positive_count::<u32>, conflicts_with_all = ["server", "compare"])]
    pub(super) pid: Option<u32>,

    /// Measure a block again if other programs used more than this share of a CPU during it.
    #[arg(long, value_name = "SHARE", default_value = "0.05", value_parser = share_of_cpu)]
    pub(super) quiet_share: f64,

    /// How long to wait for a quiet machine before each block.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = time_or_none)]
    pub(super) quiet_patience: Duration,

    /// How often to measure a disturbed block again, at most.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole(0..=1000_u16))]
    pub(super) repeats: u16,

    /// Do not measure the floor: what the generator and the kernel take by themselves.
    #[arg(long)]
    pub(super) no_floor: bool,
}

/// A set of CPUs; an alias, so that clap takes it for one value.
pub(super) type Cpus = Vec<usize>;

#[derive(Debug, Args)]
pub(super) struct Output {
    /// Print JSON (schema 1, see docs/load.md) instead of tables.
    #[arg(long)]
    pub(super) json: bool,

    /// Print the tables as Markdown.
    #[arg(long, conflicts_with = "json")]
    pub(super) markdown: bool,

    /// Write a report: one HTML file with plots, which needs neither network nor scripts.
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,

    /// Write the response times as an HdrHistogram interval log, in nanoseconds. Until the end, it
    /// needs up to 16 MB of memory for each block.
    #[arg(long, value_name = "FILE")]
    pub(super) log: Option<PathBuf>,
}

/// The measurement to make.
pub(super) struct Task {
    /// One or more; two for a comparison.
    pub(super) servers: Vec<ServerSpec>,
    /// One for each rate.
    pub(super) loads: Vec<Load>,
    /// Bytes of a request's payload, for the floor.
    pub(super) bytes: usize,
}

impl Arguments {
    /// Checks whether it would measure, as far as that can be known from the command line.
    ///
    /// # Errors
    /// A line for the user.
    #[cfg(test)]
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.command.is_some() {
            return Ok(());
        }
        self.task().map(|_| ()).map_err(Refusal::line)
    }

    /// # Errors
    /// A line for the user.
    pub(super) fn task(&self) -> Result<Task, Refusal> {
        self.request.check().map_err(Refusal::WrongUsage)?;
        if let Some(pid) = self.machine.pid
            && !Path::new(&format!("/proc/{pid}")).exists()
        {
            return Err(Refusal::Error(format!("--pid {pid}: there is no such process")));
        }
        // clap does not check this, because the address excludes it.
        if self.compare.is_none() && self.pairs != PAIRS {
            return Err(Refusal::WrongUsage("--pairs needs --compare".to_owned()));
        }
        let (servers, url_path) = self.servers()?;
        let template = self.request.template(url_path, &self.authority(&servers))?;
        let requests = match self.request.mix().map_err(Refusal::WrongUsage)? {
            Some(mix) => mix,
            None => Requests::new(self.request.protocol(), &template)
                .map_err(|error| Refusal::WrongUsage(error.to_string()))?,
        };
        let in_flight = match self.connections.in_flight {
            Some(limit) => Some(limit as usize),
            None => self.when.closed.then_some(1),
        };
        let use_of_connections = match self.connections.connect_per_request {
            true => ConnectionUse::PerRequest,
            false => ConnectionUse::Kept,
        };
        // Each block replaces this target by its server's.
        let nowhere = Target::Unix(PathBuf::from("/"));
        let plan = Plan::new(nowhere)
            .requests(requests)
            .keys(self.request.keys)
            .connections(self.connections.connections as usize)
            .in_flight(in_flight)
            .use_of_connections(use_of_connections)
            .seed(self.when.seed)
            .duration(self.when.duration)
            .warm_up(self.when.warm_up)
            .patience(self.when.timeout);
        let slow_clients = self.connections.slow as usize;
        let loads = self.schedules()?.into_iter().map(|schedule| {
            let mut plan = plan.clone();
            if let Schedule::Trace(times) = &schedule {
                // The whole trace is measured, because its beginning is a part of it.
                let last = Duration::from_nanos(times.last().copied().unwrap_or(0));
                let duration = self.when.duration.min(last + Duration::from_millis(1));
                plan = plan.warm_up(Duration::ZERO).duration(duration);
            }
            Load { plan: plan.schedule(schedule), slow_clients }
        });
        Ok(Task { servers, loads: loads.collect(), bytes: template.get_body().len() })
    }

    fn servers(&self) -> Result<(Vec<ServerSpec>, Option<String>), Refusal> {
        if let Some(both) = &self.compare {
            return Ok((both.clone(), None));
        }
        let Some(addr) = &self.addr else { return Ok((self.server.clone(), None)) };
        let (addr, path) = match addr.strip_prefix("http://") {
            None if addr.contains("://") => {
                return Err(Refusal::WrongUsage(format!(
                    "`{addr}`: only http:// URLs can be measured, without TLS"
                )));
            }
            None => (addr.clone(), None),
            Some(rest) => {
                let (authority, path) =
                    rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path));
                let has_port =
                    authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
                let addr = if has_port { authority.to_owned() } else { format!("{authority}:80") };
                (addr, Some(format!("/{path}")))
            }
        };
        // The address is parsed only to report an error before anything begins.
        addr.parse::<Target>().map_err(|error| match is_host_and_port(&addr) {
            // The name was looked up.
            true => Refusal::Error(error.to_string()),
            false => Refusal::WrongUsage(error.to_string()),
        })?;
        Ok((vec![ServerSpec::Running { name: addr.clone(), target: addr }], path))
    }

    fn authority(&self, servers: &[ServerSpec]) -> String {
        match servers.first() {
            Some(ServerSpec::Running { target, .. }) if !target.starts_with("unix:") => {
                target.clone()
            }
            _ => "localhost".to_owned(),
        }
    }

    fn schedules(&self) -> Result<Vec<Schedule>, Refusal> {
        let when = &self.when;
        if when.closed {
            return Ok(vec![Schedule::Closed]);
        }
        if let Some(file) = &when.trace {
            let times = read_text(file).and_then(|text| read_trace(&text));
            let times =
                times.map_err(|error| Refusal::Error(format!("{}: {error}", file.display())))?;
            return Ok(vec![Schedule::Trace(times)]);
        }
        let schedule = if when.constant { Schedule::Constant } else { Schedule::Poisson };
        Ok(when.rate.iter().map(|rate| schedule(rate.0)).collect())
    }
}

fn is_host_and_port(addr: &str) -> bool {
    let parts = addr.rsplit_once(':').filter(|(host, _)| !host.is_empty() && *host != "unix");
    parts.is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

/// A longer time is probably a typing error.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

fn time_or_none(text: &str) -> Result<Duration, String> {
    time_in(text, &(Duration::ZERO..=LONGEST), "0s to 24h, as 500ms or 2s")
}

fn time(text: &str) -> Result<Duration, String> {
    time_in(text, &(Duration::from_millis(10)..=LONGEST), "10ms to 24h, as 500ms or 2s")
}
