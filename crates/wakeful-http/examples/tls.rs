//! An axum service by TLS. Its files are read again when they change.
//!
//! ```console
//! $ openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
//!     -keyout key.pem -out cert.pem -subj /CN=localhost -addext subjectAltName=DNS:localhost
//! $ cargo run --release -p wakeful-http --example tls -- cert.pem key.pem
//! $ curl --cacert cert.pem https://localhost:8443/
//! ```

use std::io;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use wakeful_http::tls::ServerTls;
use wakeful_http::{Running, Server};

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(certificate), Some(key)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: tls CERTIFICATE KEY");
        std::process::exit(2);
    };
    let tls = ServerTls::from_files(certificate, key)?;
    let server = Server::bind_tls("127.0.0.1:8443", tls.clone())?;
    let drained = wakeful::signal::run_until_terminated_or_failed(
        || {
            wakeful::spawn(tls.reload_on_change(Duration::from_secs(10))).detach();
            server.start(Router::new().route("/", get(|| async { "hello\n" })))
        },
        Running::failure,
        |running| running.shutdown(Duration::from_secs(10)),
    )?;
    // `None`: a second signal came, and nothing was waited for.
    drained.map_or(Ok(()), |drained| drained.map(|_aborted| ()))
}
