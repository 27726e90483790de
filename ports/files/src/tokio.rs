use std::{env, io, path::PathBuf};

#[tokio::main]
async fn main() -> io::Result<()> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let root = env::var_os("ROOT").map_or(PathBuf::from("."), PathBuf::from);
    let app = files::router(&root);
    let listener = tokio::net::TcpListener::bind(addr).await?;
    axum::serve(listener, app).await
}
