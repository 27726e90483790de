use std::{env, io};

fn main() -> io::Result<()> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let app = proxy::router(env::var("UPSTREAM").unwrap_or("127.0.0.1:3001".into()));
    wakeful_http::Server::bind(addr)?.tokio().serve(app)
}
