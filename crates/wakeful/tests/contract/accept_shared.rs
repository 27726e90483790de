//! Listeners and socket files that somebody else has too: another process, a successor, the user's
//! own code. (Forked children are in the suite `fork`.)

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use socket2::{Domain, SockAddr, Socket, Type};
use wakeful::accept::{AcceptStrategy, ConnectionServer, Placement, Serving, SharedListener};
use wakeful::net::ListenAddr;

use crate::backend::Backend;
use crate::backend::driven::Driven;
use crate::background::LONG;
use crate::support::STRATEGIES;

on_every_backend! {
    a_socket_with_another_descriptor_takes_connections_while_its_server_drains_and_after,
    a_socket_with_another_shared_listener_takes_connections_while_its_server_drains_and_after,
    what_a_server_has_no_room_for_in_its_drain_is_left_to_who_shares_its_socket,
    a_server_that_shares_a_socket_into_which_nobody_is_let_serves_all_that_wait,
    a_unix_socket_into_which_nobody_is_let_refuses_and_serves_all_that_wait,
    a_unix_socket_goes_to_a_successor_with_its_file,
    a_socket_file_that_is_not_there_or_somebody_else_s_is_told_and_left_alone,
    a_unix_socket_with_a_full_backlog_goes_to_a_successor_with_its_file,
    a_listener_that_lets_nobody_in_keeps_who_has_come_and_refuses_at_its_end,
    a_server_that_failed_says_so_and_serves_its_connections,
    a_server_whose_loops_have_ended_says_so,
    a_socket_of_a_master_that_was_shut_down_costs_the_other_listeners_nothing,
    the_end_of_a_listener_leaves_a_successor_s_socket_file,
    a_server_removes_its_socket_file_before_it_drains_and_leaves_its_successor_s,
    a_live_server_whose_backlog_is_full_is_not_taken_for_gone,
    an_abstract_name_is_listened_on_and_free_again_at_the_end,
    a_busy_loop_takes_several_connections_at_once_and_an_idle_one_takes_one,
}

fn localhost() -> SharedListener {
    SharedListener::bind(&crate::backend::localhost().into()).unwrap()
}

/// A server with one loop. Each connection echoes a byte at a time, and says `!` when it is told of
/// the drain.
fn start<B: Backend>(strategy: AcceptStrategy, listener: SharedListener) -> Serving {
    let server = ConnectionServer::new(vec![listener]).group(B::group().loops(1));
    let handler = async |mut connection: wakeful::accept::Connection| {
        let draining = connection.draining.clone();
        let mut buf = [0; 1];
        let told = async {
            draining.started().await;
            None
        };
        let read = async { Some(connection.stream.read(&mut buf).await) };
        if futures_lite::future::or(read, told).await.is_some() {
            let _ = connection.stream.write_all(&buf).await;
            connection.draining.started().await;
        }
        let _ = connection.stream.write_all(b"!").await;
        // Until its client has gone.
        let _ = connection.stream.read(&mut buf).await;
    };
    server.strategy(strategy).start(move || handler).unwrap()
}

/// A connection that keeps the drain from ending until it is dropped.
struct Client(TcpStream);

impl Client {
    fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&addr, LONG).expect("somebody listens");
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut client = Self(stream);
        client.0.write_all(b"?").unwrap();
        client.expect(b'?');
        client
    }

    fn expect(&mut self, byte: u8) {
        let mut buf = [0];
        self.0.read_exact(&mut buf).unwrap();
        assert_eq!(buf[0], byte);
    }
}

/// The next connection of `listener` is one to `addr` that is made now. The listener is
/// non-blocking, like the server's.
fn takes_connections(listener: &TcpListener, addr: SocketAddr) {
    let client = TcpStream::connect_timeout(&addr, LONG).expect("the socket is not deaf");
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&LONG.try_into().unwrap())).unwrap();
    let (_, peer) = listener.accept().unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
}

fn drains_beside<B: Backend>(
    strategy: AcceptStrategy,
    listener: SharedListener,
    other: &TcpListener,
) {
    let addr = other.local_addr().unwrap();
    let serving = start::<B>(strategy, listener);
    let mut open = Client::connect(addr);
    let drained = thread::spawn(move || serving.shutdown(LONG).unwrap());
    open.expect(b'!');
    takes_connections(other, addr);
    drop(open);
    assert_eq!(drained.join().unwrap(), 0, "{strategy}");
    takes_connections(other, addr);
}

fn a_socket_with_another_descriptor_takes_connections_while_its_server_drains_and_after<
    B: Backend,
>() {
    for strategy in STRATEGIES {
        let listener = localhost();
        let other = TcpListener::from(rustix::io::fcntl_dupfd_cloexec(&listener, 0).unwrap());
        drains_beside::<B>(strategy, listener, &other);
    }
}

fn a_socket_with_another_shared_listener_takes_connections_while_its_server_drains_and_after<
    B: Backend,
>() {
    for strategy in STRATEGIES {
        let listener = localhost();
        let kept = listener.clone();
        let addr = listener.socket_addr().unwrap();
        let serving = start::<B>(strategy, listener);
        let mut open = Client::connect(addr);
        let drained = thread::spawn(move || serving.shutdown(LONG).unwrap());
        open.expect(b'!');
        // Its successor in the same process.
        let successor = start::<B>(strategy, kept);
        let mut next = Client::connect(addr);
        drop(open);
        assert_eq!(drained.join().unwrap(), 0, "{strategy}");
        drop(Client::connect(addr));
        let drained = thread::spawn(move || successor.shutdown(LONG).unwrap());
        next.expect(b'!');
        drop(next);
        assert_eq!(drained.join().unwrap(), 0, "{strategy}");
    }
}

fn a_server_that_failed_says_so_and_serves_its_connections<B: Backend>() {
    for strategy in STRATEGIES {
        let listener = localhost();
        let addr = listener.socket_addr().unwrap();
        let other = rustix::io::fcntl_dupfd_cloexec(&listener, 0).unwrap();
        let serving = start::<B>(strategy, listener);
        let mut open = Client::connect(addr);
        let (failed, is_failed) = mpsc::channel();
        let failure = serving.failure();
        thread::spawn(move || failed.send(futures_lite::future::block_on(failure)).unwrap());
        assert!(is_failed.try_recv().is_err(), "it listens");
        rustix::net::shutdown(&other, rustix::net::Shutdown::Both).unwrap();
        let error = is_failed.recv_timeout(LONG).expect("it is told").to_string();
        assert!(error.starts_with("the last listener failed: Invalid argument"), "{error}");
        let drained = thread::spawn(move || serving.shutdown(LONG).unwrap());
        open.expect(b'!');
        drop(open);
        assert_eq!(drained.join().unwrap(), 0, "{strategy}: none is aborted");
    }
}

fn a_server_whose_loops_have_ended_says_so<B: Backend>() {
    for strategy in STRATEGIES {
        let server = ConnectionServer::new(vec![localhost()]).group(B::group().loops(2));
        let serving = server.strategy(strategy).start(|| async |_| ()).unwrap();
        let (failed, is_failed) = mpsc::channel();
        let failure = serving.failure();
        thread::spawn(move || failed.send(futures_lite::future::block_on(failure)).unwrap());
        serving.handles().iter().for_each(wakeful::LoopHandle::stop);
        let error = is_failed.recv_timeout(LONG).expect("it is told").to_string();
        assert!(error.contains("loops"), "{strategy}: {error}");
        assert_eq!(serving.shutdown(LONG).unwrap(), 0);
    }
}

/// A directory with a socket file.
struct Directory(PathBuf);

impl Directory {
    fn new<B: Backend>(test: &str) -> Self {
        let name =
            format!("wakeful-shared-{}-{}-{test}", std::process::id(), std::any::type_name::<B>());
        let directory = std::env::temp_dir().join(name.replace(':', "-"));
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    fn path(&self) -> PathBuf {
        self.0.join("socket")
    }

    fn addr(&self) -> ListenAddr {
        ListenAddr::Unix(self.path())
    }

    /// A listener in the place of the one that is there.
    fn successor_by_removal(&self) -> UnixListener {
        std::fs::remove_file(self.path()).unwrap();
        UnixListener::bind(self.path()).unwrap()
    }

    fn successor_by_rename(&self) -> UnixListener {
        let new = self.0.join("new");
        let listener = UnixListener::bind(&new).unwrap();
        std::fs::rename(new, self.path()).unwrap();
        listener
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn the_end_of_a_listener_leaves_a_successor_s_socket_file<B: Backend>() {
    let directory = Directory::new::<B>("file");
    for successor in [Directory::successor_by_removal, Directory::successor_by_rename] {
        let listener = SharedListener::bind(&directory.addr()).unwrap();
        let successor = successor(&directory);
        drop(listener);
        UnixStream::connect(directory.path()).expect("the successor is found");
        drop(successor);

        let server = ConnectionServer::new(vec![SharedListener::bind(&directory.addr()).unwrap()]);
        let serving = server.group(B::group().loops(1)).start(|| async |_| ()).unwrap();
        let successor = directory.successor_by_rename();
        drop(serving);
        UnixStream::connect(directory.path()).expect("the successor is found");
        drop(successor);
    }
    // And without one nothing is left.
    drop(SharedListener::bind(&directory.addr()).unwrap());
    assert!(!directory.path().exists());
    // Somebody may have tidied up.
    let listener = SharedListener::bind(&directory.addr()).unwrap();
    std::fs::remove_file(directory.path()).unwrap();
    std::fs::write(directory.path(), "not a socket").unwrap();
    drop(listener);
    assert_eq!(std::fs::read_to_string(directory.path()).unwrap(), "not a socket");
}

fn a_socket_of_a_master_that_was_shut_down_costs_the_other_listeners_nothing<B: Backend>() {
    let masters = || {
        let listener = TcpListener::bind(crate::backend::localhost()).unwrap();
        (listener.local_addr().unwrap(), listener)
    };
    let strategies = [AcceptStrategy::Exclusive, AcceptStrategy::Dispatch(Placement::RoundRobin)];
    for strategy in strategies {
        let ((_, stopped), (addr, listens)) = (masters(), masters());
        rustix::net::shutdown(&stopped, rustix::net::Shutdown::Both).unwrap();
        let refused = SharedListener::from_socket(stopped.try_clone().unwrap().into());
        assert!(refused.unwrap_err().to_string().contains("does not listen"));
        let both = [stopped, listens].map(|one| SharedListener::from_master(one.into()).unwrap());
        let server = ConnectionServer::new(both.into()).group(B::group().loops(2));
        let serving = server
            .strategy(strategy)
            .start(|| {
                async |mut connection: wakeful::accept::Connection| {
                    let _ = connection.stream.write_all(b"!").await;
                }
            })
            .unwrap();
        connect(addr).read_exact(&mut [0]).expect("the other one is served");
        serving.shutdown(LONG).unwrap();
    }
}

fn a_server_removes_its_socket_file_before_it_drains_and_leaves_its_successor_s<B: Backend>() {
    let directory = Directory::new::<B>("drain");
    let serving =
        start::<B>(AcceptStrategy::Exclusive, SharedListener::bind(&directory.addr()).unwrap());
    let mut open = UnixStream::connect(directory.path()).unwrap();
    open.set_read_timeout(Some(LONG)).unwrap();
    open.write_all(b"?").unwrap();
    open.read_exact(&mut [0]).unwrap();
    let drained = thread::spawn(move || serving.shutdown(LONG).unwrap());
    open.read_exact(&mut [0]).expect("it is told of the drain");
    let error = UnixStream::connect(directory.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "nobody new comes in");
    let _successor = SharedListener::bind(&directory.addr()).expect("its place is free");
    drop(open);
    assert_eq!(drained.join().unwrap(), 0);
    UnixStream::connect(directory.path()).expect("the successor is found");
}

/// A server for one connection at a time, which ends it when its client does.
fn greets_one_at_a_time<B: Backend>(shared: SharedListener) -> Serving {
    let server = ConnectionServer::new(vec![shared]).group(B::group().loops(1)).max_connections(1);
    server
        .start(|| {
            async |mut connection: wakeful::accept::Connection| {
                let _ = connection.stream.write_all(b"!").await;
                let _ = connection.stream.read(&mut [0]).await;
            }
        })
        .unwrap()
}

fn connect(addr: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(addr).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client
}

fn what_a_server_has_no_room_for_in_its_drain_is_left_to_who_shares_its_socket<B: Backend>() {
    let other = TcpListener::bind(crate::backend::localhost()).unwrap();
    let addr = other.local_addr().unwrap();
    let shared = SharedListener::from_socket(other.try_clone().unwrap().into()).unwrap();
    // It made the descriptors that both have non-blocking.
    other.set_nonblocking(false).unwrap();
    let serving = greets_one_at_a_time::<B>(shared);
    let mut served = connect(addr);
    served.read_exact(&mut [0]).unwrap();
    let mut waiting = connect(addr);
    assert_eq!(serving.shutdown(Duration::from_millis(10)).unwrap(), 1);
    let (mut accepted, _) = other.accept().unwrap();
    accepted.write_all(b"?").unwrap();
    waiting.read_exact(&mut [0]).expect("it was left in the backlog");
}

fn a_server_that_shares_a_socket_into_which_nobody_is_let_serves_all_that_wait<B: Backend>() {
    let other = TcpListener::bind(crate::backend::localhost()).unwrap();
    let addr = other.local_addr().unwrap();
    let shared = SharedListener::from_socket(other.try_clone().unwrap().into()).unwrap();
    let last = shared.clone();
    let serving = greets_one_at_a_time::<B>(shared);
    let clients: Vec<_> = (0..4).map(|_| connect(addr)).collect();
    last.let_nobody_in().unwrap();
    let drained = thread::spawn(move || serving.shutdown(LONG).unwrap());
    for mut client in clients {
        client.read_exact(&mut [0]).expect("it waited for one before it");
    }
    assert_eq!(drained.join().unwrap(), 0);
}

fn a_unix_socket_into_which_nobody_is_let_refuses_and_serves_all_that_wait<B: Backend>() {
    let directory = Directory::new::<B>("ends");
    let other = UnixListener::bind(directory.path()).unwrap();
    let shared = SharedListener::from_socket(other.try_clone().unwrap().into()).unwrap();
    let last = shared.clone();
    let serving = greets_one_at_a_time::<B>(shared);
    let connect = || UnixStream::connect(directory.path());
    let clients: Vec<_> = (0..4).map(|_| connect().unwrap()).collect();
    last.let_nobody_in().unwrap();
    assert_eq!(connect().unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let drained = thread::spawn(move || serving.shutdown(LONG).unwrap());
    for mut client in clients {
        client.set_read_timeout(Some(LONG)).unwrap();
        client.read_exact(&mut [0]).expect("it waited for one before it");
    }
    assert_eq!(drained.join().unwrap(), 0);
}

fn a_unix_socket_goes_to_a_successor_with_its_file<B: Backend>() {
    let directory = Directory::new::<B>("handed");
    let first = SharedListener::bind(&directory.addr()).unwrap();
    let passed = first.as_fd().try_clone_to_owned().unwrap();
    let second = SharedListener::from_predecessor(passed.try_clone().unwrap()).unwrap();
    drop(second);
    UnixStream::connect(directory.path()).expect("one that has not taken it over leaves it");
    let second = SharedListener::from_predecessor(passed).unwrap();
    first.leave_file();
    second.take_file();
    drop(first);
    UnixStream::connect(directory.path()).expect("the file is still there");
    drop(second);
    assert!(!directory.path().exists(), "it went with its new owner");
}

/// A socket whose backlog has room for nobody more, and who fills it.
fn full_listener(path: &Path) -> (Socket, Vec<Socket>) {
    let socket = || Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    let addr = SockAddr::unix(path).unwrap();
    let listener = socket();
    listener.bind(&addr).unwrap();
    listener.listen(0).unwrap();
    let mut clients = Vec::new();
    loop {
        let client = socket();
        client.set_nonblocking(true).unwrap();
        match client.connect(&addr) {
            Ok(()) => clients.push(client),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return (listener, clients);
            }
        }
    }
}

fn a_unix_socket_with_a_full_backlog_goes_to_a_successor_with_its_file<B: Backend>() {
    let directory = Directory::new::<B>("full");
    let (listener, _clients) = full_listener(&directory.path());
    let second = SharedListener::from_predecessor(listener.into()).unwrap();
    second.check_file().expect("it is there");
    second.take_file();
    drop(second);
    assert!(!directory.path().exists(), "it went with its owner");
}

fn a_socket_file_that_is_not_there_or_somebody_else_s_is_told_and_left_alone<B: Backend>() {
    let directory = Directory::new::<B>("lost");
    let first = SharedListener::bind(&directory.addr()).unwrap();
    let successor = || {
        let passed = first.as_fd().try_clone_to_owned().unwrap();
        let second = SharedListener::from_predecessor(passed).unwrap();
        second.take_file();
        second
    };
    let second = successor();
    let both_say = |second: &SharedListener, kind: ErrorKind, part: &str| {
        for listener in [&first, second] {
            let error = listener.check_file().unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            let text = error.to_string();
            assert!(text.contains(part) && text.contains("/socket"), "{text}");
        }
    };
    for listener in [&first, &second] {
        listener.check_file().expect("it is there");
    }
    std::fs::remove_file(directory.path()).unwrap();
    for second in [second, successor()] {
        both_say(&second, ErrorKind::NotFound, "is gone");
    }
    // Of a server that has ended.
    drop(UnixListener::bind(directory.path()).unwrap());
    both_say(&successor(), ErrorKind::AddrInUse, "not this server's");
    // Of one that accepts nobody, and has no room left, while nobody waits for this one.
    std::fs::remove_file(directory.path()).unwrap();
    let own = UnixListener::from(first.as_fd().try_clone_to_owned().unwrap());
    while own.accept().is_ok() {}
    let (_busy, _clients) = full_listener(&directory.path());
    both_say(&successor(), ErrorKind::AddrInUse, "not this server's");
    assert!(directory.path().exists(), "it is not the successor's to remove");
    drop(first);
    assert!(directory.path().exists(), "nor the first one's");
    localhost().check_file().expect("it has no file");
}

fn a_listener_that_lets_nobody_in_keeps_who_has_come_and_refuses_at_its_end<B: Backend>() {
    let listener = localhost();
    let addr = listener.socket_addr().unwrap();
    let another = TcpListener::from(listener.as_fd().try_clone_to_owned().unwrap());
    let mut early = connect(addr);
    listener.let_nobody_in().unwrap();
    let late = TcpStream::connect_timeout(&addr, Duration::from_millis(50));
    assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut, "nobody answers");
    let (mut accepted, _) = another.accept().expect("who was there before is still there");
    accepted.write_all(b"!").unwrap();
    early.read_exact(&mut [0]).unwrap();
    drop((listener, another));
    let refused = TcpStream::connect(addr).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

fn a_live_server_whose_backlog_is_full_is_not_taken_for_gone<B: Backend>() {
    let directory = Directory::new::<B>("busy");
    let (_live, _clients) = full_listener(&directory.path());
    let (bound, is_bound) = mpsc::channel();
    let addr = directory.addr();
    thread::spawn(move || bound.send(SharedListener::bind(&addr).map(|_| ())).unwrap());
    let error = is_bound.recv_timeout(LONG).expect("it does not wait for room").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(directory.path().exists());
}

fn an_abstract_name_is_listened_on_and_free_again_at_the_end<B: Backend>() {
    let name =
        format!("wakeful-{}-{}", std::process::id(), std::any::type_name::<B>()).replace(':', "-");
    let addr: ListenAddr = format!("unix:@{name}").parse().unwrap();
    let listener = SharedListener::bind(&addr).unwrap();
    assert_eq!(SharedListener::bind(&addr).unwrap_err().kind(), ErrorKind::AddrInUse);
    let serving = start::<B>(AcceptStrategy::Exclusive, listener);
    assert_eq!(serving.local_addrs()[0].to_string(), format!("unix:@{name}"));
    let to = UnixAddr::from_abstract_name(&name).unwrap();
    let mut client = UnixStream::connect_addr(&to).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client.write_all(b"?").unwrap();
    client.read_exact(&mut [0]).expect("it is served");
    drop(client);
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
    drop(SharedListener::bind(&addr).expect("nothing is left of it"));
}

/// Otherwise whoever comes to a loop with hundreds of ready tasks waits for one round of all of
/// them, and so does everybody in front of them.
fn a_busy_loop_takes_several_connections_at_once_and_an_idle_one_takes_one<B: Backend>() {
    for (busy, at_once) in [(0, 1), (16, 4), (200, 16)] {
        let mut event_loop = B::builder().task_budget(1_000).turn_budget(LONG).build().unwrap();
        for _ in 0..busy {
            event_loop
                .spawn(async {
                    loop {
                        wakeful::task::yield_now().await;
                    }
                })
                .detach();
        }
        let listener = localhost();
        let addr = listener.socket_addr().unwrap();
        let accepted = Rc::new(Cell::new(0));
        let count = accepted.clone();
        let accepts = async move {
            let listener = listener.attach().unwrap();
            loop {
                listener.accept().await.unwrap();
                count.set(count.get() + 1);
            }
        };
        event_loop.spawn(accepts).detach();
        let clients: Vec<_> = (0..40).map(|_| TcpStream::connect(addr)).collect();
        assert!(clients.iter().all(Result::is_ok));
        let mut most = 0;
        for _ in 0..100 {
            let before = accepted.get();
            event_loop.take_turn(Some(Duration::ZERO)).unwrap();
            most = most.max(accepted.get() - before);
        }
        assert_eq!((accepted.get(), most), (clients.len(), at_once), "beside {busy} ready tasks");
    }
}
