use std::{env, error::Error};

use routeguide::{Guide, GuideServer};
use wakeful_http::grpc::GrpcService;

fn main() -> Result<(), Box<dyn Error>> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let guide = GuideServer::new(Guide::default());
    wakeful_http::Server::bind(addr)?.tokio().serve(GrpcService::new(guide))?;
    Ok(())
}
