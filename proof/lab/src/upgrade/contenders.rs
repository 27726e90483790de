//! The servers that `upgrade` measures, and how each is started: a master with two workers.

use std::path::{Path, PathBuf};

use wakeful_load::Protocol;
use wakeful_load::internals::servers::ServerSpec;

use super::clients::Client;
use super::master::{Act, Kind, Master};
use crate::lab::Lab;
use crate::probe::{Probe, Source};

pub(super) const WAKEFUL: &str = "wakeful";
pub(super) const EXECUTED: &str = "wakeful, executed workers";
pub(super) const SOCKETS: &str = "wakeful, a socket for each loop";
pub(super) const NGINX: &str = "nginx";
pub(super) const HAPROXY: &str = "HAProxy";

/// The servers about which something is claimed, each with its options.
pub(super) const OURS: [(&str, &[&str]); 3] =
    [(WAKEFUL, &[]), (EXECUTED, &["--exec"]), (SOCKETS, &["--accept", "reuse-port"])];

/// Returns the options of one of our servers.
pub(super) fn options(name: &str) -> &'static [&'static str] {
    OURS.into_iter().find(|(ours, _)| *ours == name).map_or(&[], |(_, options)| options)
}

/// Returns the programs that the lab has to find. They are servers, so none of them is run as a
/// probe.
pub(super) fn programs() -> Vec<Probe> {
    let installed = [(NGINX, "nginx", "nginx-light"), (HAPROXY, "haproxy", "haproxy")];
    let probe = |(name, program, package): (&str, &'static str, &'static str)| Probe {
        name: name.to_owned(),
        peer: Some(program),
        program,
        source: Source::Installed { package },
        ..Probe::default()
    };
    installed.map(probe).to_vec()
}

/// A server with a master.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: &'static str,
    kind: Kind,
    program: PathBuf,
    /// Additional options of wakeful.
    options: &'static [&'static str],
}

/// Returns all servers that are wanted and available, in the order of the tables.
pub(super) fn all(lab: &Lab<'_>) -> Vec<Server> {
    let ours = OURS.into_iter().map(|(name, options)| Server {
        name,
        kind: Kind::Wakeful,
        program: lab.program.clone(),
        options,
    });
    let theirs = lab.probes.iter().map(|ready| {
        let (name, kind) = match ready.probe.program {
            "nginx" => (NGINX, Kind::Nginx),
            _ => (HAPROXY, Kind::Haproxy),
        };
        Server { name, kind, program: ready.path.clone(), options: &[] }
    });
    ours.chain(theirs).collect()
}

impl Server {
    /// Whether the server's operator can do this act.
    pub(super) fn can(&self, act: Act) -> bool {
        match self.kind {
            Kind::Wakeful => true,
            Kind::Nginx => act != Act::Scaling,
            // If one of its workers is killed, the whole of HAProxy ends.
            Kind::Haproxy => matches!(act, Act::Upgrade | Act::Reload),
        }
    }

    pub(super) fn master(&self, scratch: &Path) -> Master {
        Master { kind: self.kind, pid_file: scratch.join("pid") }
    }

    /// Returns how the server is started. Its files go to `scratch`.
    pub(super) fn spec(&self, scratch: &Path, client: Client) -> ServerSpec {
        let (program, scratch) = (self.program.to_string_lossy(), scratch.to_string_lossy());
        let pid_file = format!("{scratch}/pid");
        let with_settings = |command: &str, settings: String| {
            let script = format!(r#"printf '%s' "$2" >"$1/settings" && {command}"#);
            ["sh", "-c", &script, &*program, &*scratch, &settings].map(str::to_owned).to_vec()
        };
        let argv = match self.kind {
            Kind::Wakeful => {
                let words = ["serve", "http", "--workers", "2", "--loops", "1", "--idle", "park"];
                let words = words.into_iter().chain(["--listen", "{addr}", "--pid-file"]);
                let words = words.chain([&*pid_file]).chain(self.options.iter().copied());
                let words = words.map(str::to_owned);
                std::iter::once(program.into_owned()).chain(words).collect()
            }
            Kind::Nginx => with_settings(AN_ORPHAN, nginx(client.protocol)),
            Kind::Haproxy => {
                with_settings(r#"exec "$0" -W -p "$1/pid" -f "$1/settings""#, haproxy())
            }
        };
        ServerSpec::Command { name: self.name.to_owned(), argv }
    }
}

/// nginx accepts no upgrade in a process that still has the parent that started it. A daemon has
/// another parent, but it also leaves the group that the lab ends.
const AN_ORPHAN: &str = r#"(
    "$0" -p "$1" -e stderr -c "$1/settings" &
    while [ ! -s "$1/pid" ]; do sleep 0.01; done
) & exec sleep 86400"#;

/// Returns nginx's default settings, except for its log and for connections, which it keeps however
/// often they are used.
fn nginx(protocol: Protocol) -> String {
    // Without TLS, a socket speaks only one of the protocols.
    let http2 = if protocol == Protocol::Http2 { " http2" } else { "" };
    format!(
        "daemon off; worker_processes 2; pid pid;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path client_body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  server {{ listen {{addr}}{http2}; location / {{ return 200 \"hello world\"; }} }}
}}
"
    )
}

/// Returns HAProxy's settings: one worker with two threads, because its master cannot have several
/// workers.
fn haproxy() -> String {
    "global
  nbthread 2
defaults
  mode http
  timeout client 10s
frontend all
  bind {addr}
  http-request return status 200 content-type text/plain string \"hello world\"
"
    .to_owned()
}
