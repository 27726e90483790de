use std::{env, error::Error};

use greeter::{Greeter, GreeterServer};
use wakeful_http::grpc::GrpcService;

fn main() -> Result<(), Box<dyn Error>> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let greeter = GreeterServer::new(Greeter::new(addr.clone())?);
    wakeful_http::Server::bind(addr)?.tokio().serve(GrpcService::new(greeter))?;
    Ok(())
}
