//! nginx with one worker and settings of its own: it knows its addresses from a file, which is
//! written when they are known.

use std::path::Path;

use crate::probe::{Probe, Source};

pub(super) const NGINX: &str = "nginx";

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

/// As it comes, but for connections, which it keeps however often they are used, and its log.
/// `http` stands in its `http` block, and may have `{addr}` in it. `scratch` is for its files.
pub(super) fn argv(program: &Path, scratch: &Path, http: &str) -> Vec<String> {
    let script = r#"mkdir -p "$1" && printf '%s' "$2" >"$1/nginx.conf" && exec "$0" -p "$1" -e stderr -c "$1/nginx.conf""#;
    let settings = format!("{SETTINGS}{http}}}\n");
    let (program, scratch) = (program.to_string_lossy(), scratch.to_string_lossy());
    ["sh", "-c", script, &program, &scratch, &settings].map(str::to_owned).to_vec()
}

const SETTINGS: &str = "\
daemon off; worker_processes 1; pid pid;
events { worker_connections 4096; }
http {
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path client_body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
";
