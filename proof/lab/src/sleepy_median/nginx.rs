//! nginx with one worker and its own settings. It reads its addresses from a file, which is written
//! when they are known.

use std::path::Path;

use crate::probe::{Probe, Source};

pub(super) const NGINX: &str = "nginx";

/// Returns the program that the lab has to find. It is a server, so it is not run as a probe.
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

/// Returns the command for nginx with its default settings, except for its log and for connections,
/// which it keeps however often they are used. `http` is put into the `http` block, and may contain
/// `{addr}`. `scratch` is for nginx's files.
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
