//! Sockets: what is promised about readiness, ends, limits and ownership.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use wakeful::net::{TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream, resolve};
use wakeful::task::yield_now;
use wakeful::time::timeout;
use wakeful::{EventLoop, current_handle, spawn};

async fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

/// Long enough that only a lost event reaches it.
async fn soon<F: Future>(future: F) -> F::Output {
    timeout(Duration::from_secs(20), future).await.expect("an event was lost")
}

#[wakeful::test]
async fn half_close_in_both_directions() {
    let (mut client, mut server) = tcp_pair().await;
    client.write_all(b"request").await.unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut buf = [0; 64];
    assert_eq!(soon(server.read(&mut buf)).await.unwrap(), 7);
    assert_eq!(soon(server.read(&mut buf)).await.unwrap(), 0);
    assert_eq!(soon(server.read(&mut buf)).await.unwrap(), 0, "it stays ended");
    server.write_all(b"answer").await.unwrap();
    assert_eq!(soon(client.read(&mut buf)).await.unwrap(), 6);
    drop(server);
    assert_eq!(soon(client.read(&mut buf)).await.unwrap(), 0);
}

#[wakeful::test]
async fn an_end_that_came_with_the_data_is_seen_behind_a_short_read() {
    for _ in 0..200 {
        let (client, mut server) = tcp_pair().await;
        let mut client = client;
        client.write_all(b"bye").await.unwrap();
        drop(client);
        let mut buf = [0; 64];
        assert_eq!(soon(server.read(&mut buf)).await.unwrap(), 3);
        assert_eq!(soon(server.read(&mut buf)).await.unwrap(), 0);
    }
}

#[wakeful::test]
async fn a_reset_is_an_error_and_wakes_who_waits() {
    let (client, mut server) = tcp_pair().await;
    let reading = spawn(async move { server.read(&mut [0; 8]).await });
    yield_now().await;
    client.set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    let error = soon(reading).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[wakeful::test]
async fn writing_to_a_closed_peer_is_an_error_and_no_signal() {
    let (mut client, server) = tcp_pair().await;
    drop(server);
    let error = loop {
        match soon(client.write(&[0; 1024])).await {
            Ok(_) => yield_now().await,
            Err(error) => break error,
        }
    };
    assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
    client.shutdown(Shutdown::Both).unwrap();
}

#[wakeful::test]
async fn partial_writes_through_a_1_kib_send_buffer_lose_nothing() {
    const BYTES: usize = 1 << 20;
    let (mut client, mut server) = tcp_pair().await;
    client.set_send_buffer_size(1024).unwrap();
    assert!(client.send_buffer_size().unwrap() < 64 * 1024);
    let byte = |at: usize| (at * 7 + at / 256) as u8;
    let writer = spawn(async move {
        let bytes: Vec<_> = (0..BYTES).map(byte).collect();
        let (mut rest, mut partial) = (&bytes[..], 0);
        while !rest.is_empty() {
            let written = client.write(rest).await.unwrap();
            partial += usize::from(written < rest.len());
            rest = &rest[written..];
        }
        partial
    });
    let (mut at, mut buf) = (0, vec![0; 8192]);
    loop {
        let read = soon(server.read(&mut buf)).await.unwrap();
        if read == 0 {
            break;
        }
        assert!(buf[..read].iter().enumerate().all(|(i, b)| *b == byte(at + i)));
        at += read;
    }
    assert_eq!(at, BYTES);
    assert!(writer.await.unwrap() > 10, "the buffer was small enough to matter");
}

#[wakeful::test]
async fn more_slices_than_the_kernel_takes_at_once() {
    let (mut client, mut server) = tcp_pair().await;
    let pieces: Vec<[u8; 2]> = (0..3_000_u16).map(u16::to_be_bytes).collect();
    let writer = spawn(async move {
        let mut done = 0;
        while done < pieces.len() * 2 {
            // A write may end within a piece.
            let (whole, within) = (done / 2, done % 2);
            let mut slices: Vec<_> = pieces[whole..].iter().map(|p| IoSlice::new(p)).collect();
            slices[0] = IoSlice::new(&pieces[whole][within..]);
            done += client.write_vectored(&slices).await.unwrap();
        }
        assert_eq!(client.write_vectored(&[]).await.unwrap(), 0);
    });
    let mut bytes = Vec::new();
    let mut buf = [0; 1000];
    while bytes.len() < 6_000 {
        let read = soon(server.read(&mut buf)).await.unwrap();
        bytes.extend_from_slice(&buf[..read]);
    }
    writer.await.unwrap();
    assert!(bytes.chunks(2).zip(0..3_000_u16).all(|(chunk, n)| chunk == n.to_be_bytes()));
}

#[wakeful::test]
async fn peek_takes_nothing() {
    let (mut client, mut server) = tcp_pair().await;
    client.write_all(b"peek").await.unwrap();
    let mut buf = [0; 16];
    for _ in 0..3 {
        assert_eq!(soon(server.peek(&mut buf)).await.unwrap(), 4);
    }
    assert_eq!(server.read(&mut buf).await.unwrap(), 4);
    assert_eq!(server.read(&mut []).await.unwrap(), 0);
}

#[wakeful::test]
async fn halves_read_and_write_at_once_and_find_each_other_again() {
    let (client, mut server) = tcp_pair().await;
    let (mut read, mut write) = client.into_split();
    let echo = spawn(async move {
        let (mut read, mut write) = server.split();
        let mut buf = [0; 4096];
        loop {
            match read.read(&mut buf).await.unwrap() {
                0 => break,
                n => write.write_all(&buf[..n]).await.unwrap(),
            }
        }
    });
    let writing = spawn(async move {
        write.write_all(&[7; 300_000]).await.unwrap();
        write
    });
    let (mut got, mut buf) = (0, [0; 4096]);
    while got < 300_000 {
        got += soon(read.read(&mut buf)).await.unwrap();
    }
    let write = writing.await.unwrap();
    let (other_read, other_write) = tcp_pair().await.0.into_split();
    let wrong = read.reunite(other_write).unwrap_err();
    let whole = wrong.0.reunite(write).unwrap();
    drop((whole, other_read));
    soon(echo).await.unwrap();
}

#[wakeful::test]
async fn dropping_the_write_half_ends_the_stream() {
    let (client, mut server) = tcp_pair().await;
    let (read, write) = client.into_split();
    drop(write);
    assert_eq!(soon(server.read(&mut [0; 1])).await.unwrap(), 0);
    drop(read);
}

#[wakeful::test]
async fn a_thousand_connections_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            spawn(async move {
                let mut buf = [0; 64];
                while let Ok(n @ 1..) = stream.read(&mut buf).await {
                    stream.write_all(&buf[..n]).await.unwrap();
                }
            })
            .detach();
        }
    })
    .detach();
    let mut streams = Vec::new();
    for _ in 0..1_000 {
        streams.push(soon(TcpStream::connect(addr)).await.unwrap());
    }
    let tasks: Vec<_> = streams
        .into_iter()
        .enumerate()
        .map(|(number, mut stream)| {
            spawn(async move {
                for round in 0..3 {
                    let text = format!("{number} {round}");
                    stream.write_all(text.as_bytes()).await.unwrap();
                    let mut buf = [0; 64];
                    let n = stream.read(&mut buf).await.unwrap();
                    assert_eq!(&buf[..n], text.as_bytes());
                }
            })
        })
        .collect();
    for task in tasks {
        soon(task).await.unwrap();
    }
}

#[wakeful::test]
async fn several_tasks_accept_from_one_listener() {
    let listener = Rc::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
    let addr = listener.local_addr().unwrap();
    let acceptors: Vec<_> = (0..5)
        .map(|_| {
            let listener = listener.clone();
            spawn(async move { listener.accept().await.map(|_| ()) })
        })
        .collect();
    yield_now().await;
    acceptors[0].abort();
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(TcpStream::connect(addr).await.unwrap());
    }
    let mut accepted = 0;
    for acceptor in acceptors {
        accepted += usize::from(soon(acceptor).await.is_ok());
    }
    assert_eq!(accepted, 4);
}

#[wakeful::test]
async fn connect_tries_every_address_and_reports_the_last_failure() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let open = listener.local_addr().unwrap();
    let stream = soon(TcpStream::connect(&[closed, open][..])).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), open);
    let error = soon(TcpStream::connect(closed)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let none: &[std::net::SocketAddr] = &[];
    assert_eq!(TcpStream::connect(none).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(TcpListener::bind(open).await.is_err(), "in use");
}

#[wakeful::test]
async fn names_are_resolved() {
    let addrs = soon(resolve(("localhost", 80))).await.unwrap();
    assert!(addrs.iter().all(|addr| addr.ip().is_loopback() && addr.port() == 80));
    assert!(!addrs.is_empty());
    assert_eq!(resolve("127.0.0.1:7").await.unwrap().len(), 1);
    assert!(soon(resolve("no port here")).await.is_err());
}

#[wakeful::test]
async fn options_are_the_kernel_s() {
    let (client, _server) = tcp_pair().await;
    client.set_nodelay(true).unwrap();
    assert!(client.nodelay().unwrap());
    client.set_linger(Some(Duration::from_secs(1))).unwrap();
    assert_eq!(client.linger().unwrap(), Some(Duration::from_secs(1)));
    client.set_linger(None).unwrap();
    client.set_keepalive(Duration::from_secs(60), Duration::from_secs(10), 3).unwrap();
    assert!(client.keepalive().unwrap());
    client.unset_keepalive().unwrap();
    assert!(!client.keepalive().unwrap());
}

#[wakeful::test]
async fn after_a_drop_no_event_comes_also_for_a_number_that_is_used_again() {
    for _ in 0..100 {
        let (client, mut server) = tcp_pair().await;
        let woken = Rc::new(Cell::new(0));
        let count = woken.clone();
        let reading = spawn(async move {
            let mut buf = [0; 1];
            let mut read = Box::pin(server.read(&mut buf));
            poll_fn(|cx| {
                count.set(count.get() + 1);
                read.as_mut().poll(cx)
            })
            .await
        });
        yield_now().await;
        assert_eq!(woken.get(), 1);
        // An event for it, and in the same turn its end and a new socket on its number.
        let mut client = client;
        client.write_all(b"x").await.unwrap();
        reading.abort();
        assert!(reading.await.unwrap_err().is_cancelled());
        // The kernel gives the lowest free number out: often the one that was just closed.
        let (_one, mut other) = UnixStream::pair().unwrap();
        let silent = timeout(Duration::from_micros(200), other.read(&mut [0; 1])).await;
        assert!(silent.is_err(), "nobody wrote to it");
        assert_eq!(woken.get(), 1);
    }
}

#[wakeful::test]
async fn a_duplicate_that_outlives_ours_does_not_make_the_loop_spin() {
    let (mut client, server) = tcp_pair().await;
    let duplicate = rustix::io::dup(&server).unwrap();
    drop(server);
    client.write_all(b"to the duplicate").await.unwrap();
    let handle = current_handle();
    wakeful::time::sleep(Duration::from_millis(1)).await;
    let before = handle.metrics();
    for _ in 0..5 {
        wakeful::time::sleep(Duration::from_millis(1)).await;
    }
    let after = handle.metrics();
    assert_eq!(after.events, before.events);
    drop(duplicate);
}

#[wakeful::test]
async fn bytes_behind_urgent_data_are_not_left_lying() {
    for _ in 0..50 {
        let (client, mut server) = tcp_pair().await;
        client.set_nodelay(true).unwrap();
        rustix::net::send(&client, b"abc!", SendFlags::OOB).unwrap();
        rustix::net::send(&client, b"def", SendFlags::empty()).unwrap();
        let mut bytes = Vec::new();
        let mut buf = [0; 64];
        while bytes.len() < 6 {
            let read = soon(server.read(&mut buf)).await.unwrap();
            bytes.extend_from_slice(&buf[..read]);
        }
        assert_eq!(bytes, b"abcdef");
    }
}

#[wakeful::test]
async fn bytes_behind_attached_descriptors_are_not_left_lying() {
    for _ in 0..50 {
        let (sender, mut receiver) = UnixStream::pair().unwrap();
        let attached = std::fs::File::open("/dev/null").unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [attached.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let flags = SendFlags::empty();
        rustix::net::sendmsg(&sender, &[IoSlice::new(b"abc")], &mut control, flags).unwrap();
        rustix::net::send(&sender, b"def", flags).unwrap();
        let mut bytes = Vec::new();
        let mut buf = [0; 64];
        while bytes.len() < 6 {
            let read = soon(receiver.read(&mut buf)).await.unwrap();
            bytes.extend_from_slice(&buf[..read]);
        }
        assert_eq!(bytes, b"abcdef");
    }
}

#[wakeful::test]
async fn unix_sockets_listen_connect_and_wait_for_room_in_the_backlog() {
    let directory = std::env::temp_dir().join(format!("wakeful-net-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("socket");
    let std_listener = {
        let fd = rustix::net::socket(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            None,
        )
        .unwrap();
        rustix::net::bind(&fd, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&fd, 1).unwrap();
        std::os::unix::net::UnixListener::from(fd)
    };
    let listener = UnixListener::from_std(std_listener).unwrap();
    // More than the backlog takes: the rest waits for room.
    let clients: Vec<_> = (0..20)
        .map(|number: u8| {
            let path = path.clone();
            spawn(async move {
                let mut stream = UnixStream::connect(&path).await.unwrap();
                stream.write_all(&[number]).await.unwrap();
            })
        })
        .collect();
    for _ in 0..4 {
        yield_now().await;
    }
    let mut seen = Vec::new();
    for _ in 0..20 {
        let mut stream = soon(listener.accept()).await.unwrap();
        let mut buf = [0; 1];
        soon(stream.read(&mut buf)).await.unwrap();
        seen.push(buf[0]);
    }
    for client in clients {
        soon(client).await.unwrap();
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..20));
    assert_eq!(UnixListener::bind(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[wakeful::test]
async fn a_datagram_wakes_a_receiver_and_several_may_wait() {
    let receiver = Rc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let sender = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (to, from) = (receiver.local_addr().unwrap(), sender.local_addr().unwrap());
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let receiver = receiver.clone();
            spawn(async move {
                let mut buf = [0; 4];
                let (length, from) = receiver.recv_from(&mut buf).await.unwrap();
                (buf[..length].to_vec(), from)
            })
        })
        .collect();
    yield_now().await;
    for text in ["one", "two", "cut off"] {
        sender.send_to(text.as_bytes(), to).await.unwrap();
    }
    let mut got = Vec::new();
    for task in waiting {
        let (bytes, sent_by) = soon(task).await.unwrap();
        assert_eq!(sent_by, from);
        got.push(bytes);
    }
    got.sort();
    assert_eq!(got, [&b"cut "[..], b"one", b"two"]);
    sender.connect(to).await.unwrap();
    sender.send(b"peek").await.unwrap();
    let mut buf = [0; 8];
    assert_eq!(soon(receiver.peek_from(&mut buf)).await.unwrap().0, 4);
    assert_eq!(receiver.recv(&mut buf).await.unwrap(), 4);
}

#[wakeful::test]
async fn streams_go_to_std_and_back() {
    let (client, mut server) = tcp_pair().await;
    let mut std_client = client.into_std();
    std_client.set_nonblocking(false).unwrap();
    std_client.write_all(b"std").unwrap();
    let mut buf = [0; 8];
    assert_eq!(soon(server.read(&mut buf)).await.unwrap(), 3);
    let mut client = TcpStream::from_std(std_client).unwrap();
    server.write_all(b"back").await.unwrap();
    assert_eq!(soon(client.read(&mut buf)).await.unwrap(), 4);
    let mut std_server = server.into_std();
    std_server.set_nonblocking(false).unwrap();
    client.write_all(b"!").await.unwrap();
    std_server.read_exact(&mut buf[..1]).unwrap();
    let mut slices = [IoSliceMut::new(&mut [])];
    assert_eq!(std_server.read_vectored(&mut slices).unwrap(), 0);
}

#[test]
fn a_socket_made_without_a_loop_is_a_clear_error() {
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let error = UnixStream::from_std(one).unwrap_err();
    assert!(error.to_string().contains("no event loop"), "{error}");
}

#[test]
fn futures_io_traits_work_on_streams() {
    use futures_lite::io::{AsyncReadExt, AsyncWriteExt};
    let mut event_loop = EventLoop::new().unwrap();
    event_loop
        .block_on(async {
            let (mut client, server) = tcp_pair().await;
            let (mut read, mut write) = server.into_split();
            let copy = spawn(async move {
                let copied = futures_lite::io::copy(Pin::new(&mut read), &mut write).await;
                AsyncWriteExt::close(&mut write).await.unwrap();
                copied
            });
            AsyncWriteExt::write_all(&mut client, &[9; 100_000]).await.unwrap();
            AsyncWriteExt::close(&mut client).await.unwrap();
            let mut all = Vec::new();
            soon(client.read_to_end(&mut all)).await.unwrap();
            assert_eq!(all, vec![9; 100_000]);
            assert_eq!(copy.await.unwrap().unwrap(), 100_000);
        })
        .unwrap();
}

#[wakeful::test]
async fn the_first_event_of_a_batch_may_end_who_the_others_are_for() {
    type Tasks = Rc<RefCell<Vec<wakeful::JoinHandle<()>>>>;
    for _ in 0..20 {
        let (tasks, finished) = (Tasks::default(), Rc::new(Cell::new(0)));
        let mut peers = Vec::new();
        for _ in 0..10 {
            let (peer, mut stream) = UnixStream::pair().unwrap();
            peers.push(peer);
            let (all, finished) = (tasks.clone(), finished.clone());
            let task = spawn(async move {
                stream.read(&mut [0; 1]).await.unwrap();
                finished.set(finished.get() + 1);
                all.borrow().iter().for_each(wakeful::JoinHandle::abort);
            });
            tasks.borrow_mut().push(task);
        }
        yield_now().await;
        for peer in &mut peers {
            peer.write_all(b"x").await.unwrap();
        }
        while !tasks.borrow().iter().all(wakeful::JoinHandle::is_finished) {
            yield_now().await;
        }
        assert!(finished.get() >= 1);
    }
}
