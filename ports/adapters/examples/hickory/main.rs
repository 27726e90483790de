//! hickory-resolver on a wakeful loop: it looks names up at a DNS server of this program's own.
//! `runtime.rs` is what it takes.

mod dns_server;
mod runtime;

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};

use hickory_resolver::Resolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use wakeful::LoopHandle;

use self::dns_server::DnsServer;
use self::runtime::Wakeful;

#[wakeful::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = DnsServer::start((Ipv4Addr::LOCALHOST, 0).into()).await?;
    let config = ResolverConfig::from_name_servers(vec![at(server.addr)]);
    let provider = Wakeful(LoopHandle::current());
    let resolver = Resolver::builder_with_config(config, provider).build()?;
    // The answer to the second is too large for a datagram: it comes over TCP.
    for name in ["small.test.", "large.test."] {
        for address in resolver.lookup_ip(name).await?.iter() {
            println!("{name} has address {address}");
        }
        while let Ok(event) = server.events.try_recv() {
            println!("  the server: {event:?}");
        }
    }
    Ok(())
}

/// The server at `addr`, over UDP and TCP.
fn at(addr: SocketAddr) -> NameServerConfig {
    let mut connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = addr.port();
    }
    NameServerConfig::new(addr.ip(), true, connections.into())
}
