use std::{env, error::Error};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let number = env::var("NUMBER").unwrap_or("0".into()).parse()?;
    routeguide::client::run(&addr, number).await
}
