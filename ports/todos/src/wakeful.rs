use std::{env, io, time::Duration};

fn main() -> io::Result<()> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let app = todos::router(Duration::from_secs(1));
    wakeful_http::Server::bind(addr)?.tokio().serve(app)
}
