//! Clients that send requests at random times while the operator acts.

use std::time::Duration;

use wakeful_load::internals::bench::{BenchError, Load};
use wakeful_load::{ConnectionUse, Plan, Protocol, Requests, Target, Template};

const CONNECTIONS: usize = 32;
/// The path, which is answered with 11 bytes. Other servers give that answer on all paths.
const PATH: &str = "/bytes/11";

/// How clients use their connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Client {
    pub(super) name: &'static str,
    pub(super) protocol: Protocol,
    connections: ConnectionUse,
}

/// The kinds of clients in the order of the tables.
pub(super) const CLIENTS: [Client; 3] = [
    Client {
        name: "HTTP/1.1, kept connections",
        protocol: Protocol::Http1,
        connections: ConnectionUse::Kept,
    },
    Client {
        name: "HTTP/1.1, a connection for each request",
        protocol: Protocol::Http1,
        connections: ConnectionUse::PerRequest,
    },
    Client { name: "HTTP/2", protocol: Protocol::Http2, connections: ConnectionUse::Kept },
];

impl Client {
    pub(super) fn load(self, rate: u32, seed: u64, duration: Duration) -> Result<Load, BenchError> {
        // Each block replaces the target by its server's address.
        let nowhere = Target::Unix("/".into());
        let template = Template::http("GET", "localhost", PATH);
        let plan = Plan::new(nowhere)
            .requests(Requests::new(self.protocol, &template)?)
            .use_of_connections(self.connections)
            .rate(f64::from(rate))
            .connections(CONNECTIONS)
            .seed(seed)
            .duration(duration);
        Ok(Load { plan, slow_clients: 0 })
    }
}
