use std::{env, io, time::Duration};

fn main() -> io::Result<()> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let app = key_value_store::router(32, Duration::from_secs(2));
    wakeful_http::Server::bind(addr)?.tokio().serve(app)
}
