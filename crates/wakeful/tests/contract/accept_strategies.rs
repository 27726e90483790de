//! How a server's connections reach its loops: what every strategy promises, and what each promises
//! alone.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use futures_lite::future::or;
use wakeful::LoopHandle;
use wakeful::accept::{
    AcceptStrategy, Connection, ConnectionServer, Placement, Serving, SharedListener,
};
use wakeful::net::ListenAddr;

use crate::backend::Backend;
use crate::background::{LONG, wait_until};

on_every_backend! {
    every_strategy_serves_every_connection_once,
    the_limit_holds_and_no_loop_keeps_a_permit_that_it_does_not_use,
    what_is_in_the_backlog_when_the_server_drains_is_served,
    what_is_over_the_limit_when_the_server_drains_is_served_as_others_close,
    what_is_over_the_limit_to_the_end_of_the_grace_counts_as_aborted,
    a_blocked_dispatcher_keeps_no_other_loop_s_connections_from_the_drain,
    listeners_of_each_loop_s_own_serve_on_several_loops,
    sockets_that_somebody_else_opened_for_each_loop_are_each_served_by_one,
    sockets_for_each_loop_need_as_many_loops_and_the_strategy_for_them,
    a_unix_socket_for_each_loop_is_a_clear_error,
    round_robin_gives_each_loop_its_turn_and_the_dispatcher_too,
    the_least_loaded_loop_gets_the_next_connection,
    a_dispatcher_serves_a_unix_socket,
    a_connection_for_a_loop_that_has_ended_goes_to_another_one,
    what_a_loop_has_not_begun_when_it_ends_goes_to_another_one,
    what_no_loop_takes_is_closed_and_counted,
    a_handler_that_panics_before_it_returns_its_future_closes_its_connection_and_no_other,
}

const LOOPS: usize = 3;

fn strategies() -> [AcceptStrategy; 6] {
    [
        AcceptStrategy::Exclusive,
        AcceptStrategy::ReusePort,
        AcceptStrategy::Dispatch(Placement::RoundRobin),
        AcceptStrategy::Dispatch(Placement::Random),
        AcceptStrategy::Dispatch(Placement::LeastLoaded),
        AcceptStrategy::Dispatch(Placement::PowerOfTwoChoices),
    ]
}

fn localhost() -> SharedListener {
    SharedListener::bind(&crate::backend::localhost().into()).unwrap()
}

fn server<B: Backend>(strategy: AcceptStrategy) -> ConnectionServer {
    ConnectionServer::new(vec![localhost()])
        .group(B::group().loops(LOOPS).spread())
        .strategy(strategy)
}

/// Answers each byte with itself, until the client ends.
async fn echo(mut connection: Connection) {
    let mut buf = [0; 16];
    while let Ok(read @ 1..) = connection.stream.read(&mut buf).await {
        if connection.stream.write_all(&buf[..read]).await.is_err() {
            return;
        }
    }
}

fn start(server: ConnectionServer) -> (Serving, SocketAddr) {
    let serving = server.start(|| echo).unwrap();
    let ListenAddr::Tcp(addr) = serving.local_addrs()[0] else { panic!("it is TCP") };
    (serving, addr)
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// A client that has its answer, so that a loop serves it.
fn client(addr: SocketAddr) -> TcpStream {
    let mut stream = connect(addr);
    stream.write_all(b"?").unwrap();
    answered(&mut stream);
    stream
}

fn answered(stream: &mut TcpStream) {
    let mut answer = [0; 1];
    stream.read_exact(&mut answer).expect("it is served");
    assert_eq!(&answer, b"?");
}

/// Accepted, by each loop.
fn accepted(serving: &Serving) -> Vec<u64> {
    serving.counts().loops().map(wakeful::accept::LoopCounts::accepted).collect()
}

/// Holds a loop in the middle of a turn until this is dropped.
struct Blocked(Option<mpsc::Sender<()>>);

impl Blocked {
    fn new(handle: &LoopHandle) -> Self {
        let (held, is_held) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        handle
            .post(move || {
                held.send(()).unwrap();
                let _ = released.recv();
            })
            .unwrap();
        is_held.recv().unwrap();
        Self(Some(release))
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

fn every_strategy_serves_every_connection_once<B: Backend>() {
    const CLIENTS: u64 = 4;
    const EACH: u64 = 50;
    for strategy in strategies() {
        let (serving, addr) = start(server::<B>(strategy));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| thread::spawn(move || (0..EACH).for_each(|_| drop(client(addr)))))
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        let counts = serving.counts();
        assert_eq!(counts.accepted(), CLIENTS * EACH, "{strategy}");
        let others = (counts.failed(), counts.passed_on(), counts.turned_away());
        assert_eq!(others, (0, 0, 0), "{strategy}");
        assert_eq!(serving.shutdown(LONG).unwrap(), 0);
        assert_eq!(counts.open(), 0);
    }
}

fn the_limit_holds_and_no_loop_keeps_a_permit_that_it_does_not_use<B: Backend>() {
    for strategy in strategies() {
        let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let greatest = most.clone();
        let serving = server::<B>(strategy)
            .max_connections(1)
            .start(move || {
                let (open, most) = (open.clone(), most.clone());
                move |connection| {
                    let (open, most) = (open.clone(), most.clone());
                    async move {
                        most.fetch_max(open.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                        echo(connection).await;
                        open.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            })
            .unwrap();
        let ListenAddr::Tcp(addr) = serving.local_addrs()[0] else { panic!("it is TCP") };
        // Enough for each listener of `ReusePort` to have some. All at once.
        let clients: Vec<_> = (0..30).map(|_| thread::spawn(move || drop(client(addr)))).collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        assert_eq!(serving.counts().accepted(), 30, "{strategy}");
        assert_eq!(greatest.load(Ordering::Relaxed), 1, "{strategy}");
        assert_eq!(serving.shutdown(LONG).unwrap(), 0);
    }
}

/// Every loop is held, so what connects now stays in the backlog; then the server is told to end,
/// and the loops continue only when they know that.
fn drain_with_a_backlog(serving: Serving, clients: impl FnOnce() -> Vec<TcpStream>) -> Drained {
    let blocked: Vec<_> = serving.handles().iter().map(Blocked::new).collect();
    let clients = clients();
    let handles = serving.handles().to_vec();
    let counts = serving.counts();
    let shutdown = thread::spawn(move || serving.shutdown(LONG).unwrap());
    for handle in &handles {
        // The news that the server ends is what is in its queue.
        wait_until("the loop is told", || format!("{handle:?}").contains("empty: false"));
    }
    assert_eq!(counts.accepted(), 0);
    drop(blocked);
    Drained { clients, shutdown }
}

struct Drained {
    clients: Vec<TcpStream>,
    shutdown: thread::JoinHandle<usize>,
}

fn what_is_in_the_backlog_when_the_server_drains_is_served<B: Backend>() {
    for strategy in strategies() {
        let (serving, addr) = start(server::<B>(strategy));
        let counts = serving.counts();
        let connect_all = || (0..100).map(|_| connect(addr)).collect();
        let Drained { clients, shutdown } = drain_with_a_backlog(serving, connect_all);
        for mut client in clients {
            client.write_all(b"?").unwrap();
            answered(&mut client);
        }
        assert_eq!(shutdown.join().unwrap(), 0, "{strategy}: none is aborted");
        assert_eq!(counts.accepted(), 100, "{strategy}");
        assert!(TcpStream::connect(addr).is_err(), "{strategy}: nobody listens any more");
    }
}

fn what_is_over_the_limit_when_the_server_drains_is_served_as_others_close<B: Backend>() {
    for strategy in strategies() {
        let (serving, addr) = start(server::<B>(strategy).max_connections(2));
        let counts = serving.counts();
        let connect_all = || (0..20).map(|_| connect(addr)).collect();
        let Drained { clients, shutdown } = drain_with_a_backlog(serving, connect_all);
        let serve = |mut client: TcpStream| {
            thread::spawn(move || {
                client.write_all(b"?").unwrap();
                answered(&mut client);
            })
        };
        // Side by side: it is not said which are served first.
        let clients: Vec<_> = clients.into_iter().map(serve).collect();
        for client in clients {
            client.join().unwrap();
        }
        assert_eq!(shutdown.join().unwrap(), 0, "{strategy}: none is aborted");
        assert_eq!(counts.accepted(), 20, "{strategy}");
    }
}

fn what_is_over_the_limit_to_the_end_of_the_grace_counts_as_aborted<B: Backend>() {
    for strategy in [
        AcceptStrategy::Exclusive,
        AcceptStrategy::ReusePort,
        AcceptStrategy::Dispatch(Placement::RoundRobin),
    ] {
        let (serving, addr) = start(server::<B>(strategy).max_connections(2));
        let counts = serving.counts();
        let _open = [(); 2].map(|()| client(addr));
        let _waiting: Vec<_> = (0..18).map(|_| connect(addr)).collect();
        assert_eq!(serving.shutdown(std::time::Duration::from_secs(1)).unwrap(), 20, "{strategy}");
        assert_eq!((counts.accepted(), counts.turned_away()), (2, 18), "{strategy}");
    }
}

fn a_blocked_dispatcher_keeps_no_other_loop_s_connections_from_the_drain<B: Backend>() {
    let handler = async |connection: Connection| {
        let draining = connection.draining.clone();
        or(echo(connection), draining.started()).await;
    };
    let server = server::<B>(AcceptStrategy::Dispatch(Placement::RoundRobin));
    let serving = server.start(move || handler).unwrap();
    let ListenAddr::Tcp(addr) = serving.local_addrs()[0] else { panic!("it is TCP") };
    let counts = serving.counts();
    let _idle = [(); LOOPS].map(|()| client(addr));
    assert_eq!(accepted(&serving), [1; LOOPS]);
    let handles = serving.handles().to_vec();
    let mut blocked: Vec<_> = handles.iter().map(Blocked::new).collect();
    let waiting: Vec<_> = (0..3 * LOOPS).map(|_| connect(addr)).collect();
    waiting.iter().for_each(|mut client| client.write_all(b"?").unwrap());
    // The grace period does not end before the test gives up.
    let shutdown = thread::spawn(move || serving.shutdown(4 * LONG).unwrap());
    for handle in &handles {
        wait_until("the loop is told", || format!("{handle:?}").contains("empty: false"));
    }
    let dispatcher = blocked.remove(0);
    drop(blocked);
    for of_loop in counts.loops().skip(1) {
        wait_until("its connections have heard of the drain", || of_loop.open() == 0);
    }
    // What it accepts when it is back is served, also by the loops that have told theirs.
    drop(dispatcher);
    waiting.into_iter().for_each(|mut client| answered(&mut client));
    assert_eq!(shutdown.join().unwrap(), 0, "none is aborted");
    assert_eq!((counts.accepted(), counts.turned_away()), (4 * LOOPS as u64, 0));
}

fn listeners_of_each_loop_s_own_serve_on_several_loops<B: Backend>() {
    let (serving, addr) = start(server::<B>(AcceptStrategy::ReusePort));
    // All on one loop: a chance of one in 3^199.
    let clients: Vec<_> = (0..200).map(|_| client(addr)).collect();
    let accepted = accepted(&serving);
    assert!(accepted.iter().filter(|accepted| **accepted > 0).count() > 1, "{accepted:?}");
    assert_eq!(serving.counts().wakes_in_vain(), 0, "each was woken for its own");
    drop(clients);
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
}

/// Makes the sockets that a master makes for a server in another process.
fn sockets_for(loops: usize) -> Vec<SharedListener> {
    let first = SharedListener::bind_first(&crate::backend::localhost().into(), []).unwrap();
    let others: Vec<_> = (1..loops).map(|_| first.bind_again().unwrap()).collect();
    [first].into_iter().chain(others).collect()
}

fn duplicates(sockets: &[SharedListener]) -> Vec<OwnedFd> {
    sockets.iter().map(|socket| socket.as_fd().try_clone_to_owned().unwrap()).collect()
}

fn sockets_that_somebody_else_opened_for_each_loop_are_each_served_by_one<B: Backend>() {
    let sockets = sockets_for(LOOPS);
    let server = || {
        let listener = SharedListener::from_sockets(duplicates(&sockets)).unwrap();
        // The strategy is the one that the listener needs.
        ConnectionServer::new(vec![listener]).group(B::group().loops(LOOPS).spread())
    };
    let (serving, addr) = start(server());
    let clients: Vec<_> = (0..200).map(|_| client(addr)).collect();
    // None on one of the loops: a chance of three in 1.5^200.
    assert!(accepted(&serving).iter().all(|accepted| *accepted > 0));
    drop(clients);
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
    // Whoever opened them keeps them open, and no filter is left behind.
    let waiting: Vec<_> = (0..20).map(|_| connect(addr)).collect();
    let (serving, _) = start(server());
    for mut waiting in waiting {
        waiting.write_all(b"x").unwrap();
        waiting.read_exact(&mut [0]).unwrap();
    }
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
}

fn sockets_for_each_loop_need_as_many_loops_and_the_strategy_for_them<B: Backend>() {
    let sockets = sockets_for(2);
    let refused = |strategy, loops| {
        let listener = SharedListener::from_sockets(duplicates(&sockets)).unwrap();
        let server = ConnectionServer::new(vec![listener]).group(B::group().loops(loops));
        let error = server.strategy(strategy).start(|| echo).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error.to_string()
    };
    let text = refused(AcceptStrategy::ReusePort, 3);
    assert!(text.contains("for 2 loops, and the group has 3"), "{text}");
    for strategy in [AcceptStrategy::Exclusive, AcceptStrategy::Dispatch(Placement::default())] {
        let text = refused(strategy, 2);
        assert!(text.ends_with("use reuse-port"), "{text}");
    }
    let two = [sockets_for(1), sockets_for(1)];
    let text = SharedListener::from_sockets(two.iter().flat_map(|one| duplicates(one)))
        .unwrap_err()
        .to_string();
    assert!(text.contains("different addresses"), "{text}");
    assert!(SharedListener::from_sockets([]).is_err());
}

fn unix_listener(name: &str) -> (SharedListener, std::path::PathBuf) {
    let name = format!("wakeful-strategies-{}-{name}.sock", std::process::id());
    let path = std::env::temp_dir().join(name);
    (SharedListener::bind(&ListenAddr::Unix(path.clone())).unwrap(), path)
}

fn a_unix_socket_for_each_loop_is_a_clear_error<B: Backend>() {
    let (listener, path) = unix_listener("own");
    let server =
        ConnectionServer::new(vec![localhost(), listener]).group(B::group().loops(LOOPS).spread());
    let error = server.strategy(AcceptStrategy::ReusePort).start(|| echo).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let text = error.to_string();
    assert!(text.contains("SO_REUSEPORT") && text.contains(path.to_str().unwrap()), "{text}");
}

fn round_robin_gives_each_loop_its_turn_and_the_dispatcher_too<B: Backend>() {
    let (serving, addr) = start(server::<B>(AcceptStrategy::Dispatch(Placement::RoundRobin)));
    (0..10 * LOOPS).for_each(|_| drop(client(addr)));
    assert_eq!(accepted(&serving), [10; LOOPS]);
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
}

fn the_least_loaded_loop_gets_the_next_connection<B: Backend>() {
    let (serving, addr) = start(server::<B>(AcceptStrategy::Dispatch(Placement::LeastLoaded)));
    let counts = serving.counts();
    let open = || counts.loops().map(wakeful::accept::LoopCounts::open).collect::<Vec<_>>();
    let mut clients: Vec<_> = (0..4 * LOOPS).map(|_| client(addr)).collect();
    assert_eq!(open(), [4; LOOPS]);
    // Some go, wherever they are; as many come, and fill the gaps.
    clients.truncate(2 * LOOPS + 1);
    wait_until("they have closed", || counts.open() == 2 * LOOPS + 1);
    clients.extend((0..2 * LOOPS - 1).map(|_| client(addr)));
    assert_eq!(open(), [4; LOOPS]);
    drop(clients);
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
}

fn a_dispatcher_serves_a_unix_socket<B: Backend>() {
    let (listener, path) = unix_listener("dispatched");
    let serving = ConnectionServer::new(vec![listener])
        .group(B::group().loops(LOOPS).spread())
        .strategy(AcceptStrategy::Dispatch(Placement::RoundRobin))
        .start(|| echo)
        .unwrap();
    for _ in 0..2 * LOOPS {
        let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(b"?").unwrap();
        stream.read_exact(&mut [0; 1]).unwrap();
    }
    assert_eq!(accepted(&serving), [2; LOOPS]);
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
}

/// More work than a loop does in the one turn that it takes after it was told to stop. What is sent
/// to it after this stays undone.
fn keep_busy_to_the_end(handle: &LoopHandle) {
    (0..200).for_each(|_| handle.post(|| ()).unwrap());
}

fn end(handle: &LoopHandle) {
    handle.stop();
    wait_until("the loop has ended", || handle.post(|| ()).is_err());
}

fn a_connection_for_a_loop_that_has_ended_goes_to_another_one<B: Backend>() {
    for placement in [
        Placement::RoundRobin,
        Placement::Random,
        Placement::LeastLoaded,
        Placement::PowerOfTwoChoices,
    ] {
        let (serving, addr) = start(server::<B>(AcceptStrategy::Dispatch(placement)));
        end(&serving.handles()[1]);
        let counts = serving.counts();
        let clients: Vec<_> = (0..30).map(|_| client(addr)).collect();
        assert_eq!((counts.accepted(), counts.turned_away()), (30, 0), "{placement}");
        assert_eq!(accepted(&serving)[1], 0, "{placement}");
        match placement {
            Placement::RoundRobin => assert_eq!(counts.passed_on(), 10),
            Placement::Random => {}
            // A placement that reads the loads sees that the loop has ended.
            _ => assert_eq!(counts.passed_on(), 0, "{placement}"),
        }
        drop(clients);
        assert_eq!(serving.shutdown(LONG).unwrap(), 0);
    }
}

fn what_a_loop_has_not_begun_when_it_ends_goes_to_another_one<B: Backend>() {
    let (serving, addr) = start(server::<B>(AcceptStrategy::Dispatch(Placement::RoundRobin)));
    let counts = serving.counts();
    let blocked = Blocked::new(&serving.handles()[1]);
    keep_busy_to_the_end(&serving.handles()[1]);
    let mut clients: Vec<_> = (0..10 * LOOPS).map(|_| connect(addr)).collect();
    for client in &mut clients {
        client.write_all(b"?").unwrap();
    }
    wait_until("the others have theirs", || counts.accepted() == 20);
    let of_blocked = || counts.loops().nth(1).unwrap();
    assert_eq!((of_blocked().open(), of_blocked().accepted()), (10, 0), "they are on their way");
    serving.handles()[1].stop();
    drop(blocked);
    clients.iter_mut().for_each(answered);
    assert_eq!((counts.accepted(), counts.turned_away()), (30, 0));
    assert_eq!((of_blocked().accepted(), of_blocked().passed_on()), (0, 10));
    drop(clients);
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
}

fn what_no_loop_takes_is_closed_and_counted<B: Backend>() {
    let (serving, addr) = start(server::<B>(AcceptStrategy::Dispatch(Placement::RoundRobin)));
    let counts = serving.counts();
    // The dispatcher places one on itself first, and the others are held.
    let blocked = [Blocked::new(&serving.handles()[1]), Blocked::new(&serving.handles()[2])];
    serving.handles()[1..].iter().for_each(keep_busy_to_the_end);
    let mut clients: Vec<_> = (0..LOOPS).map(|_| connect(addr)).collect();
    wait_until("all were placed", || counts.open() == LOOPS);
    wait_until("the dispatcher serves its own", || counts.accepted() == 1);
    end(&serving.handles()[0]);
    serving.handles()[1..].iter().for_each(LoopHandle::stop);
    drop(blocked);
    for client in &mut clients {
        assert!(matches!(client.read(&mut [0; 1]), Ok(0) | Err(_)), "it is closed");
    }
    wait_until("nothing is open", || counts.open() == 0);
    assert_eq!((counts.accepted(), counts.turned_away()), (1, 2));
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
}

fn a_handler_that_panics_before_it_returns_its_future_closes_its_connection_and_no_other<
    B: Backend,
>() {
    const PANICS: usize = 2 * LOOPS;
    for strategy in strategies() {
        let calls = Arc::new(AtomicUsize::new(0));
        let called = calls.clone();
        let running = ConnectionServer::new(vec![localhost()])
            .group(B::group().loops(LOOPS).spread())
            .strategy(strategy)
            .start(move || {
                let called = called.clone();
                move |mut connection: Connection| {
                    let call = called.fetch_add(1, Ordering::Relaxed);
                    assert!(call >= PANICS, "on purpose, {strategy}");
                    async move {
                        let mut buf = [0; 1];
                        connection.stream.read(&mut buf).await.unwrap();
                        connection.stream.write_all(&buf).await.unwrap();
                    }
                }
            })
            .unwrap();
        let ListenAddr::Tcp(addr) = running.local_addrs()[0] else { panic!("it is TCP") };
        for number in 0..PANICS + 2 * LOOPS {
            let mut stream = TcpStream::connect(addr).expect("it accepts");
            stream.set_read_timeout(Some(LONG)).unwrap();
            let _ = stream.write_all(b"x");
            let answered = matches!(stream.read(&mut [0; 1]), Ok(1));
            assert_eq!(answered, number >= PANICS, "{strategy}, connection {number}");
        }
        let counts = running.counts();
        wait_until("all are closed", || counts.open() == 0);
        assert_eq!(
            (counts.accepted(), counts.turned_away()),
            (calls.load(Ordering::Relaxed) as u64, 0)
        );
        assert_eq!(running.shutdown(LONG).unwrap(), 0);
    }
}
