//! A group whose loops have guests, and one with a runtime beside it.

use std::thread;
use std::time::Duration;

use wakeful::accept::{Connection, ConnectionServer, SharedListener};
use wakeful::{EventLoop, LoopGroup};

use crate::background::LONG;

#[test]
fn each_loop_of_a_group_has_a_guest_on_its_own_thread() {
    let settings = EventLoop::builder().io_batch(8);
    let builders = [
        LoopGroup::builder().loops(3).tokio(),
        // In whichever order it is said.
        LoopGroup::builder().loops(3).tokio().event_loop(settings.clone()),
        LoopGroup::builder().loops(3).event_loop(settings.tokio()),
    ];
    for builder in builders {
        let group = builder.build().unwrap();
        for handle in group.handles() {
            let task = handle.spawn(|| async {
                let here = thread::current().id();
                tokio::time::sleep(Duration::from_millis(1)).await;
                (here, tokio::spawn(async { thread::current().id() }).await.unwrap())
            });
            let (here, there) = wakeful::block_on(task.unwrap()).unwrap();
            assert_eq!(here, there);
        }
        group.shutdown(LONG).unwrap();
    }
}

#[test]
fn a_runtime_beside_the_loops_serves_their_tasks() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let group =
        LoopGroup::builder().loops(2).tokio_handle(runtime.handle().clone()).build().unwrap();
    for handle in group.handles() {
        let task = handle.spawn(|| async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let here = thread::current().id();
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let accepted = tokio::spawn(async move { listener.accept().await.map(drop) });
            tokio::net::TcpStream::connect(addr).await.unwrap();
            accepted.await.unwrap().unwrap();
            assert_ne!(tokio::spawn(async { thread::current().id() }).await.unwrap(), here);
            assert_eq!(thread::current().id(), here);
        });
        wakeful::block_on(task.unwrap()).unwrap();
    }
    group.shutdown(LONG).unwrap();
}

#[test]
fn a_server_on_loops_with_guests_serves_by_each_strategy_also_the_default_one() {
    use wakeful::accept::{AcceptStrategy, Placement};
    let strategies = [
        None,
        Some(AcceptStrategy::Exclusive),
        Some(AcceptStrategy::ReusePort),
        Some(AcceptStrategy::Dispatch(Placement::default())),
    ];
    for strategy in strategies {
        let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listener.socket_addr().unwrap();
        let server = ConnectionServer::new(vec![listener])
            .group(LoopGroup::builder().loops(2).spread().tokio());
        let server = strategy.into_iter().fold(server, ConnectionServer::strategy);
        let serving = server
            .start(|| {
                async |mut connection: Connection| {
                    let mut buf = [0; 8];
                    while let Ok(read @ 1..) = connection.stream.read(&mut buf).await {
                        tokio::time::sleep(Duration::from_micros(1)).await;
                        if connection.stream.write_all(&buf[..read]).await.is_err() {
                            break;
                        }
                    }
                }
            })
            .unwrap();
        let clients: Vec<_> = (0..8)
            .map(|_| {
                thread::spawn(move || {
                    let mut stream = std::net::TcpStream::connect(addr).unwrap();
                    stream.set_read_timeout(Some(LONG)).unwrap();
                    for byte in 0..20 {
                        std::io::Write::write_all(&mut stream, &[byte]).unwrap();
                        let mut buf = [0];
                        std::io::Read::read_exact(&mut stream, &mut buf).unwrap();
                        assert_eq!(buf[0], byte);
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        if strategy.is_none() {
            // The first loop hands them out in turn.
            let counts = serving.counts();
            let per_loop: Vec<_> =
                counts.loops().map(wakeful::accept::LoopCounts::accepted).collect();
            assert_eq!(per_loop, [4, 4]);
        }
        serving.shutdown(LONG).unwrap();
    }
}

/// A handler, or a task of Tokio's, that does not come back.
#[test]
fn while_the_first_loop_is_blocked_by_either_kind_of_task_another_one_accepts() {
    use std::io::{Read, Write};
    use std::sync::mpsc::channel;

    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.socket_addr().unwrap();
    let serving = ConnectionServer::new(vec![listener])
        .group(LoopGroup::builder().loops(2).tokio())
        .start(|| {
            async |mut connection: Connection| {
                let _ = connection.stream.write_all(b"x").await;
            }
        })
        .unwrap();
    for is_of_tokio in [false, true, false, true] {
        let (began, begins) = channel();
        let (go_on, goes_on) = channel::<()>();
        let blocks = move || {
            began.send(()).unwrap();
            let _ = goes_on.recv();
        };
        let start = move || {
            if is_of_tokio {
                tokio::spawn(async move { blocks() });
            } else {
                wakeful::spawn(async move { blocks() }).detach();
            }
        };
        serving.handles()[0].post(start).unwrap();
        begins.recv_timeout(LONG).unwrap();
        for _ in 0..20 {
            let mut stream = std::net::TcpStream::connect(addr).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            stream.write_all(b"?").unwrap();
            let mut answer = [0];
            stream.read_exact(&mut answer).expect("it is served while the first loop is blocked");
        }
        drop(go_on);
    }
    serving.shutdown(LONG).unwrap();
}
