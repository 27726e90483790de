use std::{env, error::Error};

fn main() -> Result<(), Box<dyn Error>> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let app = relay_reqwest::router(env::var("UPSTREAM")?)?;
    wakeful_http::Server::bind(addr)?.tokio().serve(app)?;
    Ok(())
}
