use std::{env, io};

use axum_server::tls_rustls::RustlsConfig;

#[tokio::main]
async fn main() -> io::Result<()> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let (certificate, key) = (env::var("CERTIFICATE").unwrap(), env::var("KEY").unwrap());
    let app = tls::router();
    rustls::crypto::ring::default_provider().install_default().expect("the first");
    let tls = RustlsConfig::from_pem_file(certificate, key).await?;
    let addr = addr.parse::<std::net::SocketAddr>().map_err(io::Error::other)?;
    axum_server::bind_rustls(addr, tls).serve(app.into_make_service()).await
}
