//! The flags of `wakeful load`, and what they say together.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use wakeful_load::internals::bench::Load;
use wakeful_load::internals::find_max::Promise;
use wakeful_load::internals::servers::ServerSpec;
use wakeful_load::{
    ConnectionUse, Plan, Protocol, Rate, Requests, Schedule, Target, Template, read_trace,
};

use crate::numbers::{count, positive_count, share_of_cpu, time_in, whole};

/// Of a comparison, by default.
const PAIRS: u16 = 10;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Option<Command>,

    /// The server: HOST:PORT, unix:PATH, or http://HOST:PORT/PATH.
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
  wakeful load http://127.0.0.1:8080/echo --method POST --body hello --rate 1k,10k,50k --report out.html
  wakeful load --server 'wakeful serve echo --listen {addr}' --protocol frames --closed
  wakeful load 127.0.0.1:6379 --protocol resp --command 'SET key' --size 100 --find-max 'p99<1ms'
  wakeful load 127.0.0.1:6379 --protocol resp --keys 10000 --closed \\
      --command 'GET {key}' --command 'SET {key}' --mix 3:1 --size 0,1000
  wakeful load --protocol frames --rate 10k \\
      --compare 'spin=wakeful serve echo --idle spin --listen {addr}' 'park=wakeful serve echo --idle park --listen {addr}'

Exit codes: 0 measured; 1 an error; 2 wrong usage; 4 measured, but some of it is INVALID; 130 ended by Ctrl-C, TERM or HUP.";

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
struct Request {
    /// The protocol. h2: HTTP/2 with prior knowledge. grpc: unary calls over it, of the method
    /// --path (/package.Service/Method), with the encoded message --body or --body-file. frames: 4
    /// bytes of length, big-endian, then a payload, as `wakeful serve echo` answers.
    #[arg(long, value_enum, default_value = "http1")]
    protocol: ProtocolName,

    /// HTTP: the method.
    #[arg(long, default_value = "GET")]
    method: String,

    /// HTTP: path and query [default: the path of ADDR, or /].
    #[arg(long)]
    path: Option<String>,

    /// HTTP: a header. May be repeated.
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,

    /// HTTP: the request's body.
    #[arg(long, conflicts_with = "body_file")]
    body: Option<String>,

    /// HTTP: a regular file with the request's body, of at most 256 MiB.
    #[arg(long, value_name = "FILE")]
    body_file: Option<PathBuf>,

    /// RESP: the command and its first arguments; the last argument is a payload of --size bytes.
    /// {key} stands for a key below --keys, in 12 digits. May be repeated: then --mix draws one of
    /// them for each request, and the report also has each by itself.
    #[arg(long = "command", value_name = "COMMAND", default_value = "ECHO")]
    resp_commands: Vec<String>,

    /// RESP: how frequent each --command is, for example 3:1 [default: all the same].
    #[arg(long, value_name = "N:N…", value_delimiter = ':', value_parser = whole(0..=1_000_000_u32))]
    mix: Vec<u32>,

    /// RESP: how many keys {key} stands for.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = keys)]
    keys: u64,

    /// Frames and RESP: bytes of payload. One number for each --command, or one for all; 0 for
    /// commands without a payload, as `GET {key}`.
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', default_value = "1024", value_parser = whole::<u32>(0..=16 << 20))]
    size: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProtocolName {
    Http1,
    H2,
    Grpc,
    Frames,
    Resp,
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
    /// 100 for h2 and grpc, 64 for frames and RESP; 1 with --closed].
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

    /// Write the response times as an HdrHistogram interval log, in nanoseconds.
    #[arg(long, value_name = "FILE")]
    pub(super) log: Option<PathBuf>,
}

/// What is to be measured.
pub(super) struct Task {
    /// One or more; two for a comparison.
    pub(super) servers: Vec<ServerSpec>,
    /// One for each rate.
    pub(super) loads: Vec<Load>,
    /// Bytes of a request's payload, for the floor.
    pub(super) bytes: usize,
}

impl Arguments {
    /// Whether it would measure, as far as that can be known from the words.
    ///
    /// # Errors
    /// A line for the user.
    #[cfg(test)]
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.command.is_some() { Ok(()) } else { self.task().map(|_| ()) }
    }

    /// # Errors
    /// A line for the user.
    pub(super) fn task(&self) -> Result<Task, String> {
        self.request.check()?;
        if let Some(pid) = self.machine.pid
            && !Path::new(&format!("/proc/{pid}")).exists()
        {
            return Err(format!("--pid {pid}: there is no such process"));
        }
        // clap requires nothing that the address rules out.
        if self.compare.is_none() && self.pairs != PAIRS {
            return Err("--pairs needs --compare".to_owned());
        }
        let (servers, url_path) = self.servers()?;
        let template = self.template(url_path, &self.authority(&servers))?;
        let requests = match self.request.mix()? {
            Some(mix) => mix,
            None => Requests::new(self.request.protocol.protocol(), &template)
                .map_err(|error| error.to_string())?,
        };
        let in_flight = match self.connections.in_flight {
            Some(limit) => Some(limit as usize),
            None => self.when.closed.then_some(1),
        };
        let use_of_connections = match self.connections.connect_per_request {
            true => ConnectionUse::PerRequest,
            false => ConnectionUse::Kept,
        };
        // Each block replaces the target by its server's.
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
                // All of it: what the trace does at its beginning is part of it.
                let last = Duration::from_nanos(times.last().copied().unwrap_or(0));
                let duration = self.when.duration.min(last + Duration::from_millis(1));
                plan = plan.warm_up(Duration::ZERO).duration(duration);
            }
            Load { plan: plan.schedule(schedule), slow_clients }
        });
        Ok(Task { servers, loads: loads.collect(), bytes: template.get_body().len() })
    }

    fn servers(&self) -> Result<(Vec<ServerSpec>, Option<String>), String> {
        if let Some(both) = &self.compare {
            return Ok((both.clone(), None));
        }
        let Some(addr) = &self.addr else { return Ok((self.server.clone(), None)) };
        let (addr, path) = match addr.strip_prefix("http://") {
            None if addr.contains("://") => {
                return Err(format!("`{addr}`: only http:// can be measured; TLS cannot"));
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
        // Only so that what is wrong with it is said before anything begins.
        addr.parse::<Target>().map_err(|error| error.to_string())?;
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

    fn template(&self, url_path: Option<String>, authority: &str) -> Result<Template, String> {
        let request = &self.request;
        Ok(match request.protocol {
            ProtocolName::Frames => Template::of_size(request.sizes(1)?[0]),
            ProtocolName::Resp => {
                // The first of them; `mix` has the others.
                let size = request.sizes(request.resp_commands.len())?[0];
                Template::command(&request.resp_commands[0]).body_of_size(size)
            }
            ProtocolName::Http1 | ProtocolName::H2 => {
                let path = request.path.clone().or(url_path).unwrap_or_else(|| "/".to_owned());
                let template = Template::http(&request.method, authority, &path);
                request.with_headers(template.body(request.body()?))
            }
            ProtocolName::Grpc => {
                let path = request.path.clone().or(url_path);
                let path = path.ok_or("grpc needs --path /package.Service/Method")?;
                request.with_headers(Template::grpc(authority, &path, &request.body()?))
            }
        })
    }

    fn schedules(&self) -> Result<Vec<Schedule>, String> {
        let when = &self.when;
        if when.closed {
            return Ok(vec![Schedule::Closed]);
        }
        if let Some(file) = &when.trace {
            let times = read_text(file).and_then(|text| read_trace(&text));
            let times = times.map_err(|error| format!("{}: {error}", file.display()))?;
            return Ok(vec![Schedule::Trace(times)]);
        }
        let schedule = if when.constant { Schedule::Constant } else { Schedule::Poisson };
        Ok(when.rate.iter().map(|rate| schedule(rate.0)).collect())
    }
}

/// In bytes. What is read is kept in memory.
const LARGEST: u64 = 256 << 20;

fn read_body(path: &Path) -> Result<Vec<u8>, String> {
    // Before it is opened: a FIFO would wait for its writer.
    let known = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !known.is_file() {
        return Err("it is not a regular file, so it may have no end".to_owned());
    }
    read_at_most(path, known.len(), "a body")
}

/// A trace. It may also come by a pipe, from a program that unpacks it.
fn read_text(path: &Path) -> Result<String, String> {
    let known = std::fs::metadata(path).map_err(|error| error.to_string())?;
    let text = read_at_most(path, known.len(), "a trace: split it, and replay its parts")?;
    String::from_utf8(text).map_err(|_| "it is not valid UTF-8".to_owned())
}

fn read_at_most(path: &Path, known: u64, what: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    if known <= LARGEST {
        let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
        // It may grow, or be a device.
        let read = file.take(LARGEST + 1).read_to_end(&mut bytes);
        read.map_err(|error| error.to_string())?;
    }
    if known > LARGEST || bytes.len() as u64 > LARGEST {
        return Err(format!("it has more than {} MiB, the most for {what}", LARGEST >> 20));
    }
    Ok(bytes)
}

impl Request {
    fn body(&self) -> Result<Vec<u8>, String> {
        match (&self.body, &self.body_file) {
            (Some(text), _) => Ok(text.clone().into_bytes()),
            (None, Some(file)) => {
                read_body(file).map_err(|problem| format!("{}: {problem}", file.display()))
            }
            (None, None) => Ok(Vec::new()),
        }
    }

    /// The payload of each of so many commands.
    fn sizes(&self, commands: usize) -> Result<Vec<usize>, String> {
        match self.size[..] {
            [size] => Ok(vec![size as usize; commands]),
            _ if self.size.len() == commands => {
                Ok(self.size.iter().map(|size| *size as usize).collect())
            }
            _ => Err(format!(
                "--size has {} sizes for {commands} requests: one for each, or one for all",
                self.size.len()
            )),
        }
    }

    fn with_headers(&self, template: Template) -> Template {
        self.headers.iter().fold(template, |template, (name, value)| template.header(name, value))
    }

    /// # Errors
    /// Names an option that no request of this protocol uses.
    fn check(&self) -> Result<(), String> {
        let is_resp = self.protocol == ProtocolName::Resp;
        let is_http = !is_resp && self.protocol != ProtocolName::Frames;
        let unused = [
            ("--command", !is_resp && self.resp_commands != ["ECHO"], "resp"),
            ("--keys", !is_resp && self.keys != 1, "resp"),
            ("--size", is_http && self.size != [1024], "frames or resp"),
            ("--path", !is_http && self.path.is_some(), "http1, h2 or grpc"),
            ("--header", !is_http && !self.headers.is_empty(), "http1, h2 or grpc"),
            ("--body", !is_http && self.body.is_some(), "http1, h2 or grpc"),
            ("--body-file", !is_http && self.body_file.is_some(), "http1, h2 or grpc"),
        ];
        match unused.into_iter().find(|(_, is_unused, _)| *is_unused) {
            Some((option, _, protocols)) => Err(format!("{option} needs --protocol {protocols}")),
            None => Ok(()),
        }
    }

    /// Several commands, if there are several.
    fn mix(&self) -> Result<Option<Requests>, String> {
        let commands = &self.resp_commands;
        if self.protocol != ProtocolName::Resp || commands.len() == 1 {
            return match self.mix[..] {
                [] => Ok(None),
                _ => Err("--mix needs --protocol resp and several --command".to_owned()),
            };
        }
        let weights = if self.mix.is_empty() { vec![1; commands.len()] } else { self.mix.clone() };
        if weights.len() != commands.len() || weights.iter().all(|weight| *weight == 0) {
            return Err(format!(
                "--mix needs a number for each of the {} commands, and one above 0",
                commands.len()
            ));
        }
        let sizes = self.sizes(commands.len())?;
        let commands = commands.iter().zip(weights).zip(sizes).map(|((command, weight), size)| {
            (command, weight, Template::command(command).body_of_size(size))
        });
        Requests::mix(commands).map(Some).map_err(|error| error.to_string())
    }
}

impl ProtocolName {
    fn protocol(self) -> Protocol {
        match self {
            Self::Http1 => Protocol::Http1,
            Self::H2 | Self::Grpc => Protocol::Http2,
            Self::Frames => Protocol::Frames,
            Self::Resp => Protocol::Resp,
        }
    }
}

fn keys(text: &str) -> Result<u64, String> {
    let keys = text.parse().ok().filter(|keys| (1..=1_000_000_000_000).contains(keys));
    keys.ok_or_else(|| "expected a whole number from 1 to 1000000000000".to_owned())
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// More is a slip of the finger.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

fn time_or_none(text: &str) -> Result<Duration, String> {
    time_in(text, &(Duration::ZERO..=LONGEST), "0s to 24h")
}

fn time(text: &str) -> Result<Duration, String> {
    time_in(text, &(Duration::from_millis(10)..=LONGEST), "10ms to 24h")
}
