use std::{env, io};

#[tokio::main]
async fn main() -> io::Result<()> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let app = proxy::router(env::var("UPSTREAM").unwrap_or("127.0.0.1:3001".into()));
    let listener = tokio::net::TcpListener::bind(addr).await?;
    axum::serve(listener, app).await
}
