use std::{env, error::Error};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let pool = realworld::pool(&env::var("DATABASE_URL")?).await?;
    let app = realworld::router(pool, &env::var("SECRET")?);
    wakeful_http::Server::bind(addr)?.tokio().serve(app)?;
    Ok(())
}
