//! Streams: ends, halves, partial transfers, errors, and other crates' traits on them.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::pin::Pin;
use std::time::Duration;

use rustix::io::Errno;
use wakeful::net::{TcpStream, UnixStream};
use wakeful::spawn;
use wakeful::task::yield_now;

use crate::backend::Backend;
use crate::support::{destroy, soon, tcp_pair};

on_every_backend! {
    half_close_in_both_directions,
    a_reset_is_an_error_and_wakes_who_waits,
    writing_to_a_closed_peer_is_an_error_and_no_signal,
    partial_writes_through_a_1_kib_send_buffer_lose_nothing,
    more_slices_than_the_kernel_takes_at_once,
    slices_of_few_bytes_arrive_in_order,
    peek_takes_nothing,
    a_connection_that_is_destroyed_is_no_clean_end_for_who_peeks,
    halves_read_and_write_at_once_and_find_each_other_again,
    dropping_the_write_half_ends_the_stream,
    options_are_the_kernel_s,
    streams_go_to_std_and_back,
    a_socket_made_without_a_loop_is_a_clear_error,
    futures_io_traits_work_on_streams,
}

fn half_close_in_both_directions<B: Backend>() {
    B::block_on(async {
        let (mut client, mut server) = tcp_pair().await;
        client.write_all(b"request").await.unwrap();
        client.shutdown_side(Shutdown::Write).unwrap();
        let mut buf = [0; 64];
        assert_eq!(soon(server.read(&mut buf)).await.unwrap(), 7);
        assert_eq!(soon(server.read(&mut buf)).await.unwrap(), 0);
        assert_eq!(soon(server.read(&mut buf)).await.unwrap(), 0, "it stays ended");
        server.write_all(b"answer").await.unwrap();
        assert_eq!(soon(client.read(&mut buf)).await.unwrap(), 6);
        drop(server);
        assert_eq!(soon(client.read(&mut buf)).await.unwrap(), 0);
    });
}

fn a_reset_is_an_error_and_wakes_who_waits<B: Backend>() {
    B::block_on(async {
        let (client, mut server) = tcp_pair().await;
        let reading = spawn(async move { server.read(&mut [0; 8]).await });
        yield_now().await;
        client.set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        let error = soon(reading).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

fn writing_to_a_closed_peer_is_an_error_and_no_signal<B: Backend>() {
    B::block_on(async {
        let (mut client, server) = tcp_pair().await;
        drop(server);
        let error = loop {
            match soon(client.write(&[0; 1024])).await {
                Ok(_) => yield_now().await,
                Err(error) => break error,
            }
        };
        assert!(
            matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset),
            "{error}"
        );
        client.shutdown_side(Shutdown::Both).unwrap();
    });
}

fn partial_writes_through_a_1_kib_send_buffer_lose_nothing<B: Backend>() {
    B::block_on(async {
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
    });
}

fn more_slices_than_the_kernel_takes_at_once<B: Backend>() {
    B::block_on(async {
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
    });
}

/// Few are copied into one write; more are not.
fn slices_of_few_bytes_arrive_in_order<B: Backend>() {
    B::block_on(async {
        let (mut client, mut server) = tcp_pair().await;
        for length in [1_usize, 2, 1_023, 1_024, 1_025, 2_000] {
            let bytes: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            let (start, end) = bytes.split_at(length / 3);
            let slices = [IoSlice::new(start), IoSlice::new(&[]), IoSlice::new(end)];
            assert_eq!(soon(client.write_vectored(&slices)).await.unwrap(), length);
            let mut read = vec![0; length];
            let mut there = 0;
            while there < length {
                there += soon(server.read(&mut read[there..])).await.unwrap();
            }
            assert!(read == bytes, "{length}");
        }
    });
}

fn peek_takes_nothing<B: Backend>() {
    B::block_on(async {
        let (mut client, mut server) = tcp_pair().await;
        client.write_all(b"peek").await.unwrap();
        let mut buf = [0; 16];
        for _ in 0..3 {
            assert_eq!(soon(server.peek(&mut buf)).await.unwrap(), 4);
        }
        assert_eq!(server.read(&mut buf).await.unwrap(), 4);
        assert_eq!(server.read(&mut []).await.unwrap(), 0);
    });
}

fn a_connection_that_is_destroyed_is_no_clean_end_for_who_peeks<B: Backend>() {
    B::block_on(async {
        let (_client, server) = tcp_pair().await;
        let (local, peer) = (server.local_addr().unwrap(), server.peer_addr().unwrap());
        if destroy("--tcp", local, peer).is_err() || server.peer_addr().is_ok() {
            return eprintln!("skipped: no ss, or it may not end a socket here");
        }
        let error = soon(server.peek(&mut [0; 8])).await.unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::CONNABORTED));
    });
}

fn halves_read_and_write_at_once_and_find_each_other_again<B: Backend>() {
    B::block_on(async {
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
    });
}

fn dropping_the_write_half_ends_the_stream<B: Backend>() {
    B::block_on(async {
        let (client, mut server) = tcp_pair().await;
        let (read, write) = client.into_split();
        drop(write);
        assert_eq!(soon(server.read(&mut [0; 1])).await.unwrap(), 0);
        drop(read);
    });
}

fn options_are_the_kernel_s<B: Backend>() {
    B::block_on(async {
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
    });
}

fn streams_go_to_std_and_back<B: Backend>() {
    B::block_on(async {
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
    });
}

fn a_socket_made_without_a_loop_is_a_clear_error<B: Backend>() {
    let _not_running = B::event_loop();
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let error = UnixStream::from_std(one).unwrap_err();
    assert!(error.to_string().contains("no event loop"), "{error}");
}

fn futures_io_traits_work_on_streams<B: Backend>() {
    use futures_lite::io::{AsyncReadExt, AsyncWriteExt};
    let mut event_loop = B::event_loop();
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
