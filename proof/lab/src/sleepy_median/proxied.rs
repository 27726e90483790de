//! The chain over HTTP: a proxy with one worker in front of `wakeful serve http`, wakeful's own and
//! nginx with connections that it keeps.

use std::path::Path;

use wakeful_load::internals::bench::{BenchError, Load};
use wakeful_load::internals::servers::ServerSpec;
use wakeful_load::{Protocol, Requests, Template};

use super::chain::{BACKEND, Chain};
use super::contenders::{ADAPTIVE, PARKING};
use crate::contender::wakeful;
use crate::lab::{Lab, LabError};
use crate::probe::{Probe, Source};

pub(super) const NGINX: &str = "nginx";
/// Before the same backend as [`ADAPTIVE`].
pub(super) const NGINX_BEFORE_ADAPTIVE: &str = "nginx, before wakeful, adaptive";
/// Before the same backend as [`PARKING`].
pub(super) const NGINX_BEFORE_PARKING: &str = "nginx, before wakeful, parking";

/// For the lab to find. It is a server: nobody runs it as a probe.
pub(super) fn program(part: &'static str) -> Probe {
    Probe {
        name: NGINX.to_owned(),
        part,
        peer: Some(NGINX),
        program: NGINX,
        source: Source::Installed { package: "nginx-light" },
        ..Probe::default()
    }
}

/// The same as [`load`](super::loads::load), of 1 KiB answers.
pub(super) fn load(load: &Load) -> Result<Load, LabError> {
    let template = Template::http("GET", "localhost", "/bytes/1024");
    let requests = Requests::new(Protocol::Http1, &template).map_err(BenchError::from)?;
    let load = load.clone();
    Ok(Load { plan: load.plan.requests(requests).in_flight(None), ..load })
}

/// `scratch` is for nginx's settings.
pub(super) fn chains(lab: &Lab<'_>, scratch: &Path) -> Vec<Chain> {
    let program = lab.program.to_string_lossy().into_owned();
    let nginx = lab.probes.iter().find(|ready| ready.probe.program == NGINX);
    let of = |(name, idle, before): (&str, &str, &str)| {
        let backend = wakeful(&lab.program, name, "http", idle).server;
        let words =
            ["serve", "proxy", "--loops", "1", "--idle", idle, "--listen", "{addr}", "--to"];
        let words = std::iter::once(program.as_str()).chain(words).chain([BACKEND]);
        let frontend = words.map(str::to_owned).collect();
        let ours = Chain { name: name.to_owned(), backend: backend.clone(), frontend };
        let theirs = nginx.map(|nginx| nginx_before(&nginx.path, before, backend, scratch));
        std::iter::once(ours).chain(theirs)
    };
    let policies =
        [(ADAPTIVE, "adaptive", NGINX_BEFORE_ADAPTIVE), (PARKING, "park", NGINX_BEFORE_PARKING)];
    policies.into_iter().flat_map(of).collect()
}

/// nginx knows its addresses from a file, which is written when they are known.
fn nginx_before(program: &Path, name: &str, backend: ServerSpec, scratch: &Path) -> Chain {
    let script = r#"mkdir -p "$1" && printf '%s' "$2" >"$1/nginx.conf" && exec "$0" -p "$1" -e stderr -c "$1/nginx.conf""#;
    let words = [
        "sh".into(),
        "-c".into(),
        script.into(),
        program.to_string_lossy(),
        scratch.to_string_lossy(),
        SETTINGS.into(),
    ];
    let frontend = words.into_iter().map(std::borrow::Cow::into_owned).collect();
    Chain { name: name.to_owned(), backend, frontend }
}

/// As its documentation has it for backends whose connections are kept; otherwise as it comes.
const SETTINGS: &str = "\
daemon off; worker_processes 1; pid pid;
events { worker_connections 4096; }
http {
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path client_body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  upstream backend { server {backend}; keepalive 64; keepalive_requests 1000000000; }
  server {
    listen {addr};
    location / { proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection \"\"; }
  }
}
";
