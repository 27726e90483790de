use std::{env, error::Error};

#[wakeful::main(tokio)]
async fn main() -> Result<(), Box<dyn Error>> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let app = catalogue::router(catalogue::items().await?, catalogue::cache().await?)?;
    wakeful_http::Server::bind(addr)?.tokio().run(app).await?;
    Ok(())
}
