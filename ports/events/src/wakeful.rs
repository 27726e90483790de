use std::{env, io};

fn main() -> io::Result<()> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let app = events::router();
    wakeful_http::Server::bind(addr)?.tokio().serve(app)
}
