//! The chain over HTTP: a proxy with one worker in front of `wakeful serve http`. The proxy is
//! wakeful's own, or nginx with kept connections.

use std::path::Path;

use wakeful_load::internals::servers::ServerSpec;

use super::chain::{BACKEND, Chain};
use super::contenders::{ADAPTIVE, PARKING};
use super::nginx::{self, NGINX};
use crate::contender::wakeful;
use crate::lab::Lab;

/// nginx in front of the same backend as [`ADAPTIVE`].
pub(super) const NGINX_BEFORE_ADAPTIVE: &str = "nginx, before wakeful, adaptive";
/// nginx in front of the same backend as [`PARKING`].
pub(super) const NGINX_BEFORE_PARKING: &str = "nginx, before wakeful, parking";

/// Returns the chains. `scratch` is for nginx's settings.
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

fn nginx_before(program: &Path, name: &str, backend: ServerSpec, scratch: &Path) -> Chain {
    let frontend = nginx::argv(program, scratch, SETTINGS);
    Chain { name: name.to_owned(), backend, frontend }
}

/// nginx's settings as its documentation has them for backends with kept connections.
const SETTINGS: &str = "\
  upstream backend { server {backend}; keepalive 64; keepalive_requests 1000000000; }
  server {
    listen {addr};
    location / { proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection \"\"; }
  }
";
