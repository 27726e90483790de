//! quinn on a loop: a library that was written for other runtimes and wants a socket that is `Send`
//! and `Sync`.

use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, ClientConfig, Connection, Endpoint, Runtime, ServerConfig};
use rustix::net::SendFlags;
use wakeful::net::{BatchUdpSocket, UdpSocket};
use wakeful::readiness::Interest;
use wakeful::task::yield_now;
use wakeful::{LoopBound, LoopHandle, spawn};

use crate::backend::Backend;
use crate::quinn_runtime::{Socket, Wakeful};
use crate::support::{is_pending, soon};

on_every_backend! {
    quinn_echoes_on_a_loop,
    quinn_s_handles_work_on_other_threads,
    quinn_s_connections_all_wait_for_room,
    elsewhere_its_socket_is_an_error_and_its_drop_goes_home,
}

/// Settings for a server that its clients trust.
fn settings() -> (ServerConfig, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let server = ServerConfig::with_single_cert(vec![certificate], key.into()).unwrap();
    (server, ClientConfig::with_root_certificates(Arc::new(roots)).unwrap())
}

fn endpoint(server: Option<ServerConfig>) -> Endpoint {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let runtime = Arc::new(Wakeful(LoopHandle::current()));
    Endpoint::new(Default::default(), server, socket, runtime).unwrap()
}

/// A server that sends back what each stream brings, and a client's endpoint with its settings.
fn echo() -> (Endpoint, Endpoint) {
    let (server, client) = settings();
    let server = endpoint(Some(server));
    let accepting = server.clone();
    spawn(async move {
        while let Some(incoming) = accepting.accept().await {
            let connection = incoming.await.unwrap();
            spawn(async move {
                while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                    while let Some(chunk) = receive.read_chunk(usize::MAX, true).await.unwrap() {
                        send.write_chunk(chunk.bytes).await.unwrap();
                    }
                    send.finish().unwrap();
                }
            })
            .detach();
        }
    })
    .detach();
    let mut endpoint = endpoint(None);
    endpoint.set_default_client_config(client);
    (server, endpoint)
}

/// Sends `bytes` through a stream of its own, and compares.
async fn asks(connection: &Connection, bytes: Vec<u8>) {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let sends = async {
        send.write_all(&bytes).await.unwrap();
        send.finish().unwrap();
    };
    let answer = async { receive.read_to_end(bytes.len()).await.unwrap() };
    let ((), answer) = futures_util::future::join(sends, answer).await;
    assert!(answer == bytes, "{} bytes of {} came back", answer.len(), bytes.len());
}

fn quinn_echoes_on_a_loop<B: Backend>() {
    B::block_on(async {
        let (server, client) = echo();
        let addr = server.local_addr().unwrap();
        let tasks: Vec<_> = (0..4_u8)
            .map(|number| {
                let connecting = client.connect(addr, "localhost").unwrap();
                spawn(async move {
                    let connection = connecting.await.unwrap();
                    for length in [1, 100_000, 0] {
                        asks(&connection, vec![number; length]).await;
                    }
                    connection.close(0_u8.into(), b"");
                })
            })
            .collect();
        for task in tasks {
            soon(task).await.unwrap();
        }
        soon(client.wait_idle()).await;
        server.close(0_u8.into(), b"");
        soon(server.wait_idle()).await;
    });
}

fn quinn_s_handles_work_on_other_threads<B: Backend>() {
    B::block_on(async {
        let (server, client) = echo();
        let addr = server.local_addr().unwrap();
        let threads: Vec<_> = (0..3_u8)
            .map(|number| {
                let client = client.clone();
                let (send, receive) = async_channel::bounded(1);
                thread::spawn(move || {
                    futures_lite::future::block_on(async {
                        let connecting = client.connect(addr, "localhost").unwrap();
                        let connection = connecting.await.unwrap();
                        asks(&connection, vec![number; 30_000]).await;
                        assert!(client.local_addr().is_ok());
                        send.send(()).await.unwrap();
                    });
                });
                receive
            })
            .collect();
        for done in threads {
            soon(done.recv()).await.expect("the thread did not panic");
        }
    });
}

/// Of what quinn may hold elsewhere.
fn wrapped() -> (Arc<dyn AsyncUdpSocket>, SocketAddr) {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap();
    (Wakeful(LoopHandle::current()).wrap_udp_socket(socket).unwrap(), addr)
}

fn quinn_s_connections_all_wait_for_room<B: Backend>() {
    B::block_on(async {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let addr = socket.local_addr().unwrap();
        let socket = LoopBound::new(BatchUdpSocket::new(socket).unwrap());
        let socket = Arc::new(Socket { socket, addr });
        let here = || socket.socket.get().unwrap();
        soon(here().writable()).await.unwrap();
        let wait = || {
            let mut poller = socket.clone().create_io_poller();
            spawn(async move {
                // It may be used again.
                for _ in 0..2 {
                    poll_fn(|cx| poller.as_mut().poll_writable(cx)).await.unwrap();
                }
            })
        };
        soon(wait()).await.unwrap();

        let full = || io::Result::<()>::Err(ErrorKind::WouldBlock.into());
        assert!(here().try_io(Interest::WRITABLE, full).is_err());
        let mut given_up = socket.clone().create_io_poller();
        assert!(is_pending(poll_fn(|cx| given_up.as_mut().poll_writable(cx))).await);
        let waiting: Vec<_> = (0..5).map(|_| wait()).collect();
        yield_now().await;
        assert!(waiting.iter().all(|task| !task.is_finished()));
        drop(given_up);
        // What the loop does not see: the kernel says that there is room again.
        rustix::net::sendto(here(), b"x", SendFlags::empty(), &addr).unwrap();
        for task in waiting {
            soon(task).await.unwrap();
        }
    });
}

fn elsewhere_its_socket_is_an_error_and_its_drop_goes_home<B: Backend>() {
    B::block_on(async {
        let (socket, addr) = wrapped();
        let runtime = Wakeful(LoopHandle::current());
        let home = LoopHandle::current();
        let (done, is_done) = async_channel::bounded(1);
        thread::spawn(move || {
            let mut cx = Context::from_waker(Waker::noop());
            let (destination, contents) = (addr, &b"x"[..]);
            let transmit =
                Transmit { destination, ecn: None, contents, segment_size: None, src_ip: None };
            let refused = socket.try_send(&transmit).unwrap_err();
            assert!(refused.to_string().contains("event loop"), "{refused}");
            let (mut buf, mut meta) = ([0; 8], [RecvMeta::default()]);
            let received = socket.poll_recv(&mut cx, &mut [IoSliceMut::new(&mut buf)], &mut meta);
            assert!(matches!(received, Poll::Ready(Err(_))));
            let mut poller = socket.clone().create_io_poller();
            assert!(matches!(poller.as_mut().poll_writable(&mut cx), Poll::Ready(Err(_))));
            assert_eq!(socket.local_addr().unwrap(), addr);
            assert_eq!((socket.max_transmit_segments(), socket.max_receive_segments()), (1, 1));
            let another = || std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            assert!(runtime.wrap_udp_socket(another()).is_err(), "no loop runs here");
            B::block_on(async {
                assert!(runtime.wrap_udp_socket(another()).is_err(), "another loop");
            });
            assert!(!format!("{socket:?} {poller:?} {runtime:?}").is_empty());
            drop((socket, poller));
            done.try_send(()).unwrap();
        });
        soon(is_done.recv()).await.expect("the thread did not panic");
        // Behind the message that brings it home.
        let (sent, is_sent) = async_channel::bounded(1);
        home.post(move || sent.try_send(()).unwrap()).unwrap();
        soon(is_sent.recv()).await.unwrap();
        std::net::UdpSocket::bind(addr).expect("it is closed");
    });
}
