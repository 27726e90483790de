use std::{env, io};

#[wakeful::main(tokio)]
async fn main() -> io::Result<()> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let app = measured::router();
    wakeful_http::Server::bind(addr)?.tokio().run(app).await
}
