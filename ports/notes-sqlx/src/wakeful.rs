use std::{env, error::Error};

#[wakeful::main(tokio)]
async fn main() -> Result<(), Box<dyn Error>> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let pool = notes_sqlx::pool(&env::var("DATABASE_URL")?).await?;
    let app = notes_sqlx::router(pool);
    wakeful_http::Server::bind(addr)?.tokio().run(app).await?;
    Ok(())
}
