use std::{env, io, path::PathBuf};

fn main() -> io::Result<()> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let root = env::var_os("ROOT").map_or(PathBuf::from("."), PathBuf::from);
    let app = files::router(&root);
    wakeful_http::Server::bind(addr)?.tokio().serve(app)
}
