//! docs/tls.md

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use wakeful_http::Server;
use wakeful_http::tls::{ClientAuth, PeerCertificates, ServerTls};

#[wakeful::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let tls = ServerTls::builder()
        .certificate("cert.pem", "key.pem")
        .client_ca(ClientAuth::Require, "clients.pem")
        .build()?;
    wakeful::spawn(tls.clone().reload_on_change(Duration::from_secs(60))).detach();
    Server::bind_tls("0.0.0.0:8443", tls)?.run(Router::new().route("/", get(who))).await?;
    Ok(())
}

async fn who(certificates: PeerCertificates) -> String {
    format!("a certificate of {} bytes\n", certificates.leaf().len())
}
