use std::{env, error::Error};

use greeter::{Greeter, GreeterServer};
use tonic::transport::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let greeter = GreeterServer::new(Greeter::new(addr.clone())?);
    Server::builder().add_service(greeter).serve(addr.parse()?).await?;
    Ok(())
}
