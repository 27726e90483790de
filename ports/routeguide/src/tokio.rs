use std::{env, error::Error};

use routeguide::{Guide, GuideServer};
use tonic::transport::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let guide = GuideServer::new(Guide::default());
    Server::builder().add_service(guide).serve(addr.parse()?).await?;
    Ok(())
}
