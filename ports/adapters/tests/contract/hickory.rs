//! hickory-resolver on a loop, against a DNS server on the same loop: answers over UDP and TCP,
//! servers that are silent, lookups that are given up, and other loops.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use hickory_resolver::Resolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::{DnsUdpSocket, RuntimeProvider};
use wakeful::net::{TcpSocket, TcpStream};
use wakeful::{LoopHandle, spawn};

use crate::backend::{Backend, localhost};
use crate::dns_server::{ADDRESS, DnsServer, Event};
use crate::hickory_runtime::Wakeful;
use crate::support::{is_pending, soon};

on_every_backend! {
    names_are_looked_up_over_udp,
    a_truncated_answer_is_fetched_over_tcp,
    a_server_that_never_answers_is_a_time_out,
    a_connection_attempt_has_a_limit,
    a_lookup_that_is_given_up_closes_its_socket,
    the_end_of_a_resolver_closes_its_connections,
    elsewhere_a_resolver_is_an_error_and_its_drop_goes_home,
    a_socket_or_an_attempt_that_goes_elsewhere_is_an_error,
}

/// Its limit is reached only by what is not answered.
const PATIENT: Duration = Duration::from_secs(30);

async fn server() -> DnsServer {
    DnsServer::start(localhost()).await.unwrap()
}

/// A resolver on this loop that asks once, for IPv4 addresses, and keeps nothing.
fn resolver(addr: SocketAddr, limit: Duration) -> Resolver<Wakeful> {
    let mut connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = addr.port();
    }
    let server = NameServerConfig::new(addr.ip(), true, connections.into());
    let config = ResolverConfig::from_name_servers(vec![server]);
    let provider = Wakeful(LoopHandle::current());
    let mut builder = Resolver::builder_with_config(config, provider);
    let options = builder.options_mut();
    options.attempts = 0;
    options.cache_size = 0;
    options.ip_strategy = LookupIpStrategy::Ipv4Only;
    options.timeout = limit;
    options.use_hosts_file = ResolveHosts::Never;
    builder.build().unwrap()
}

async fn finds(resolver: &Resolver<Wakeful>, name: &str) {
    let found: Vec<_> = soon(resolver.lookup_ip(name)).await.unwrap().iter().collect();
    assert_eq!(found, [ADDRESS], "{name}");
}

/// How many queries came over UDP (a slow machine sends one again), and what else was seen.
fn seen(server: &DnsServer) -> (usize, Vec<Event>) {
    let events = std::iter::from_fn(|| server.events.try_recv().ok());
    let (udp, others): (Vec<_>, Vec<_>) = events.partition(|event| matches!(event, Event::Udp(_)));
    (udp.len(), others)
}

fn names_are_looked_up_over_udp<B: Backend>() {
    B::block_on(async {
        let server = server().await;
        let resolver = resolver(server.addr, PATIENT);
        let tasks: Vec<_> = (0..8)
            .map(|number| {
                let resolver = resolver.clone();
                spawn(async move { finds(&resolver, &format!("name-{number}.test.")).await })
            })
            .collect();
        for task in tasks {
            soon(task).await.unwrap();
        }
        let (udp, tcp) = seen(&server);
        assert_eq!((udp >= 8, tcp), (true, vec![]), "{udp} datagrams");
    });
}

fn a_truncated_answer_is_fetched_over_tcp<B: Backend>() {
    B::block_on(async {
        let server = server().await;
        let resolver = resolver(server.addr, PATIENT);
        finds(&resolver, "large.test.").await;
        let (udp, tcp) = seen(&server);
        assert_eq!((udp > 0, tcp), (true, vec![Event::Connected, Event::Tcp]));
        // The connection is used again.
        finds(&resolver, "large-too.test.").await;
        let (udp, tcp) = seen(&server);
        assert_eq!((udp > 0, tcp), (true, vec![Event::Tcp]));
    });
}

fn a_server_that_never_answers_is_a_time_out<B: Backend>() {
    B::block_on(async {
        let server = server().await;
        let resolver = resolver(server.addr, Duration::from_millis(20));
        // Over UDP, and over TCP behind a truncated answer.
        for name in ["silent.test.", "large-silent.test."] {
            let error = soon(resolver.lookup_ip(name)).await.unwrap_err();
            assert!(matches!(error, NetError::Timeout), "{name}: {error:?}");
            assert!(seen(&server).0 > 0, "{name} was asked for");
        }
    });
}

fn a_connection_attempt_has_a_limit<B: Backend>() {
    B::block_on(async {
        let socket = match localhost() {
            SocketAddr::V4(_) => TcpSocket::new_v4().unwrap(),
            SocketAddr::V6(_) => TcpSocket::new_v6().unwrap(),
        };
        socket.bind(localhost()).unwrap();
        let listener = socket.listen(0).unwrap();
        let addr = listener.local_addr().unwrap();
        // The kernel answers no further one.
        let _waits = soon(TcpStream::connect(addr)).await.unwrap();
        let provider = Wakeful(LoopHandle::current());
        let limit = Some(Duration::from_millis(5));
        let refused = soon(provider.connect_tcp(addr, None, limit)).await.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::TimedOut, "{refused:?}");
    });
}

fn a_lookup_that_is_given_up_closes_its_socket<B: Backend>() {
    B::block_on(async {
        let server = server().await;
        let resolver = resolver(server.addr, PATIENT);
        let mut lookup = Box::pin(resolver.lookup_ip("silent.test."));
        assert!(is_pending(&mut lookup).await);
        let Event::Udp(from) = soon(server.events.recv()).await.unwrap() else { panic!("no UDP") };
        let bind = || UdpSocket::bind((localhost().ip(), from.port()));
        assert_eq!(bind().unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(lookup);
        bind().expect("its socket is closed");

        let mut lookup = Box::pin(resolver.lookup_ip("large-silent.test."));
        assert!(is_pending(&mut lookup).await);
        while soon(server.events.recv()).await.unwrap() != Event::Tcp {}
        drop(lookup);
        // The resolver, and its connection, are as good as before.
        server.answer_all();
        finds(&resolver, "silent.test.").await;
        finds(&resolver, "large-silent.test.").await;
        assert_eq!(seen(&server).1, [Event::Tcp]);
    });
}

fn the_end_of_a_resolver_closes_its_connections<B: Backend>() {
    B::block_on(async {
        let server = server().await;
        let resolver = resolver(server.addr, PATIENT);
        finds(&resolver, "large.test.").await;
        drop(resolver);
        while soon(server.events.recv()).await.unwrap() != Event::Closed {}
    });
}

fn elsewhere_a_resolver_is_an_error_and_its_drop_goes_home<B: Backend>() {
    B::block_on(async {
        let server = server().await;
        let resolver = resolver(server.addr, PATIENT);
        finds(&resolver, "large.test.").await;
        let (addr, theirs) = (server.addr, resolver.clone());
        let (done, is_done) = async_channel::bounded(1);
        let provider = Wakeful(LoopHandle::current());
        thread::spawn(move || {
            B::block_on(async {
                let error = soon(theirs.lookup_ip("small.test.")).await.unwrap_err();
                assert!(matches!(error, NetError::NoConnections), "{error:?}");
                let refused = soon(provider.connect_tcp(addr, None, None)).await.err().unwrap();
                assert!(refused.to_string().contains("another event loop"), "{refused}");
                let refused = soon(provider.bind_udp(localhost(), addr)).await.err().unwrap();
                assert!(refused.to_string().contains("another event loop"), "{refused}");
            });
            done.try_send(theirs).unwrap();
        });
        let theirs = soon(is_done.recv()).await.expect("the thread did not panic");
        // Nothing of that stays.
        finds(&resolver, "small.test.").await;
        finds(&resolver, "large.test.").await;
        drop(resolver);
        let thread = thread::spawn(move || drop(theirs));
        while soon(server.events.recv()).await.unwrap() != Event::Closed {}
        thread.join().unwrap();
    });
}

fn a_socket_or_an_attempt_that_goes_elsewhere_is_an_error<B: Backend>() {
    B::block_on(async {
        let addr = server().await.addr;
        let provider = Wakeful(LoopHandle::current());
        let udp = soon(provider.bind_udp(localhost(), addr)).await.unwrap();
        let mut attempt = provider.connect_tcp(addr, None, None);
        let (done, is_done) = async_channel::bounded(1);
        thread::spawn(move || {
            // Both are dropped in it, while their loop is there to take them back.
            B::block_on(async move {
                let sent = soon(udp.send_to(b"x", addr)).await.unwrap_err();
                let received = soon(udp.recv_from(&mut [0; 8])).await.unwrap_err();
                let connected = soon(&mut attempt).await.err().unwrap();
                for error in [sent, received, connected] {
                    assert!(error.to_string().contains("another event loop"), "{error}");
                }
            });
            done.try_send(()).unwrap();
        });
        soon(is_done.recv()).await.expect("the thread did not panic");
    });
}
