use std::{env, io};

use wakeful_http::tls::ServerTls;

fn main() -> io::Result<()> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let (certificate, key) = (env::var("CERTIFICATE").unwrap(), env::var("KEY").unwrap());
    let app = tls::router();
    let tls = ServerTls::from_files(certificate, key)?;
    wakeful_http::Server::bind_tls(addr, tls)?.tokio().serve(app)
}
