//! No descriptors left: errors name the limit, the connection stays in the backlog, and a server
//! recovers. In a process of its own, because the limit is the process's, and one test at a time.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata};
use wakeful::accept::{ConnectionServer, GivesWay, SharedListener, Standing, is_shortage};
use wakeful::net::{
    ListenAddr, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixSeqpacket,
    UnixSeqpacketListener, UnixStream,
};
use wakeful::readiness::{AsyncFd, Interest};
use wakeful::time::{sleep, timeout};
use wakeful::{LoopHandle, Priority};

#[macro_use]
#[path = "contract/backend.rs"]
mod backend;

use backend::Backend;
use backend::driven::has_guest;

on_every_backend! {
    no_descriptors_left,
    what_loops_keep_open_leaves_room_for_the_connections_that_are_let_in,
}

/// Held by the test that has taken all remaining descriptors.
static TURN: Mutex<()> = Mutex::new(());

/// Counts the errors that are logged.
struct CountErrors(AtomicUsize);

static ERRORS: CountErrors = CountErrors(AtomicUsize::new(0));

impl tracing::Subscriber for &'static CountErrors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn event(&self, _event: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _attributes: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}

/// Takes every descriptor that is left.
fn take_all() -> Vec<File> {
    let mut taken = Vec::new();
    loop {
        match File::open("/dev/null") {
            Ok(file) => taken.push(file),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
                return taken;
            }
        }
    }
}

fn names_the_limit<T: std::fmt::Debug>(result: io::Result<T>) {
    let error = result.unwrap_err();
    assert!(error.to_string().contains("RLIMIT_NOFILE"), "{error}");
    assert!(is_shortage(&error));
}

async fn a_shortage_is_an_error_that_passes<B: Backend>() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let mut client = std::net::TcpStream::connect(addr).unwrap();
    client.write_all(b"early").unwrap();
    let mut taken = take_all();
    for _ in 0..3 {
        names_the_limit(listener.accept().await);
    }
    names_the_limit(TcpStream::connect(addr).await);
    names_the_limit(TcpListener::bind("127.0.0.1:0").await);
    names_the_limit(UdpSocket::bind("127.0.0.1:0").await);
    names_the_limit(UnixStream::pair());
    names_the_limit(UnixListener::bind("/nonexistent/socket"));
    names_the_limit(UnixDatagram::unbound());
    names_the_limit(UnixDatagram::pair());
    names_the_limit(UnixSeqpacket::pair());
    names_the_limit(UnixSeqpacketListener::autobind());
    names_the_limit(B::builder().build());
    taken.pop();
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut buf = [0; 8];
    assert_eq!(stream.read(&mut buf).await.unwrap(), 5, "it was in the backlog all the time");
}

fn a_server_backs_off_and_recovers<B: Backend>() {
    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let running = ConnectionServer::new(vec![listener])
        .group(B::group().loops(1))
        .start(|| {
            async |mut connection| {
                let mut buf = [0; 8];
                let read = connection.stream.read(&mut buf).await.unwrap();
                connection.stream.write_all(&buf[..read]).await.unwrap();
            }
        })
        .unwrap();
    let ListenAddr::Tcp(addr) = running.local_addrs()[0] else { panic!("it is TCP") };
    let logged = ERRORS.0.load(Ordering::Relaxed);
    let mut taken = take_all();
    // The last descriptor is the client's.
    taken.pop();
    let mut client = std::net::TcpStream::connect(addr).unwrap();
    let (counts, handle) = (running.counts(), running.handles()[0].clone());
    while counts.failed() < 2 {
        thread::yield_now();
    }
    let (waits, failed) = (handle.metrics().waits, counts.failed());
    while counts.failed() < failed + 2 {
        thread::yield_now();
    }
    let waits = handle.metrics().waits - waits;
    assert!(waits < 20, "{waits} waits for two tries: it must not spin");
    assert_eq!(ERRORS.0.load(Ordering::Relaxed) - logged, 1, "the log says it once");
    drop(taken);
    client.write_all(b"late").unwrap();
    let mut answer = [0; 4];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"late");
    running.shutdown(std::time::Duration::from_secs(20)).unwrap();
}

/// The first high socket of a loop takes a descriptor, which this loop has not.
fn a_detached_stream_that_finds_no_descriptor_comes_back<B: Backend>() {
    let (mut peer, detached) = B::block_on(async {
        let (peer, stream) = UnixStream::pair().unwrap();
        stream.set_priority(Priority::High).unwrap();
        (peer.into_std(), stream.detach().with_unread(*b"kept"))
    });
    B::block_on(async {
        let taken = take_all();
        let error = detached.attach().unwrap_err();
        assert!(error.to_string().contains("RLIMIT_NOFILE"), "{error}");
        assert!(is_shortage(error.error()));
        drop(taken);
        let mut attached = error.into_inner().attach().unwrap();
        assert_eq!(attached.unread, b"kept");
        peer.write_all(b"more").unwrap();
        assert_eq!(attached.stream.read(&mut [0; 8]).await.unwrap(), 4);
    });
}

/// Whoever waits longer than a shortage may last is told, and not left waiting.
fn a_long_shortage_closes_what_waits<B: Backend>() {
    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let running = ConnectionServer::new(vec![listener])
        .group(B::group().loops(1))
        .start(|| {
            async |mut connection| {
                let mut buf = [0; 8];
                let read = connection.stream.read(&mut buf).await.unwrap();
                connection.stream.write_all(&buf[..read]).await.unwrap();
            }
        })
        .unwrap();
    let ListenAddr::Tcp(addr) = running.local_addrs()[0] else { panic!("it is TCP") };
    // Before there is none left: one that is freed for them may be the server's.
    let sockets: Vec<_> = (0..3)
        .map(|_| socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap())
        .collect();
    let taken = take_all();
    let connect = |socket: socket2::Socket| {
        socket.connect(&addr.into()).unwrap();
        std::net::TcpStream::from(socket)
    };
    let mut clients: Vec<_> = sockets.into_iter().map(connect).collect();
    for client in &mut clients {
        client.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0, "closed, in order");
    }
    let counts = running.counts();
    assert_eq!((counts.accepted(), counts.turned_away()), (0, 3));
    let failed = counts.failed();
    assert!(failed >= 60, "it waited for 60 tries: {failed}");
    drop(clients);
    // The loop may still look for more to close, and would take the next client for one that waits.
    running.handles()[0].post_and_wait(|| ()).unwrap();
    // Nobody waits now, and nobody is tried for.
    drop(taken);
    let mut client = std::net::TcpStream::connect(addr).unwrap();
    client.write_all(b"later").unwrap();
    let mut answer = [0; 5];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"later");
    running.shutdown(std::time::Duration::from_secs(20)).unwrap();
}

/// Descriptors are short: none are left, or too few.
async fn descriptors_that_find_no_room_stay_with_their_message() {
    macro_rules! stay {
        ($pair:expr) => {
            let (ours, theirs) = $pair.unwrap();
            let (reader, writer) = std::io::pipe().unwrap();
            ours.send_with_fds(b"five", &[writer.as_fd(); 5]).await.unwrap();
            ours.send_with_fds(b"one", &[writer.as_fd()]).await.unwrap();
            drop(writer);
            let mut taken = take_all();
            let (mut buf, mut fds) = ([0; 4], Vec::new());
            for _ in 0..5 {
                names_the_limit(theirs.recv_with_fds(&mut buf, &mut fds).await);
                names_the_limit(theirs.try_recv_with_fds(&mut buf, &mut fds));
                assert!(fds.is_empty());
                taken.pop();
                // What there is room for was closed again.
                let room = take_all();
                assert!(fds.is_empty() && !room.is_empty());
                drop(room);
            }
            assert_eq!(theirs.recv_with_fds(&mut buf, &mut fds).await.unwrap(), 4);
            assert_eq!((&buf, fds.len()), (b"five", 5));
            names_the_limit(theirs.recv_with_fds(&mut buf, &mut fds).await);
            assert_eq!(fds.len(), 5, "those of before are still there");
            fds.clear();
            assert_eq!(theirs.recv_with_fds(&mut buf, &mut fds).await.unwrap(), 3);
            assert_eq!((&buf[..3], fds.len()), (&b"one"[..], 1));
            drop((fds, taken));
            let mut reader = reader;
            assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0, "no copy is left");
        };
    }
    stay!(UnixStream::pair());
    stay!(UnixDatagram::pair());
    stay!(UnixSeqpacket::pair());
}

/// Whichever descriptor is missing, and within another runtime, where the drop of a whole one would
/// panic.
#[cfg(feature = "tokio")]
fn a_loop_with_a_guest_is_an_error_until_there_are_enough<B: Backend>() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut taken = take_all();
        while let Err(error) = B::builder().tokio().build() {
            names_the_limit(Err::<(), _>(error));
            taken.pop().expect("it needs a few");
        }
    });
}

/// With a limit of 0 the kernel refuses each poll(2).
async fn an_error_that_passes_leaves_no_descriptor_ready_for_ever() {
    async fn passes(interest: Interest) {
        let limit = getrlimit(Resource::Nofile);
        let gone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(gone).unwrap();
        let socket = AsyncFd::nonblocking(socket).unwrap();
        socket.get_ref().send(b"to nobody").unwrap();
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
        let receive = |socket: &std::net::UdpSocket| socket.recv(&mut [0; 16]);
        let error = socket.async_io(interest, receive).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let waits = || LoopHandle::current().metrics().waits;
        let before = waits();
        let nothing = timeout(Duration::from_millis(50), socket.async_io(interest, receive));
        assert!(nothing.await.is_err());
        assert!(waits() - before < 20, "{}", waits() - before);
        setrlimit(Resource::Nofile, limit).unwrap();
        // What comes then is seen.
        let peer = std::net::UdpSocket::bind(gone).unwrap();
        peer.send_to(b"hello", socket.get_ref().local_addr().unwrap()).unwrap();
        let received = timeout(Duration::from_secs(30), socket.async_io(interest, receive));
        assert_eq!(received.await.unwrap().unwrap(), 5);
    }
    for interest in [Interest::WRITABLE, Interest::PRIORITY] {
        passes(Interest::READABLE | interest).await;
    }
}

/// Also of a guest, in whose epoll a timer has to be.
async fn the_first_timer_of_a_loop_takes_no_descriptor() {
    let taken = take_all();
    sleep(Duration::from_millis(1)).await;
    drop(taken);
}

/// After a first look for work, which makes what it needs.
fn nor_does_that_of_a_loop_that_another_one_drives<B: Backend>() {
    let mut event_loop = B::event_loop();
    assert!(event_loop.prepare_to_park().unwrap());
    let taken = take_all();
    let task = event_loop.spawn(sleep(Duration::from_millis(1)));
    while !task.is_finished() {
        if event_loop.prepare_to_park().unwrap() {
            poll(&mut [PollFd::new(&event_loop, PollFlags::IN)], None).unwrap();
        }
        event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
    drop(taken);
}

fn no_descriptors_left<B: Backend>() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = tracing::subscriber::set_global_default(&ERRORS);
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(64);
    setrlimit(Resource::Nofile, limit).unwrap();
    B::block_on(the_first_timer_of_a_loop_takes_no_descriptor());
    if !has_guest() {
        nor_does_that_of_a_loop_that_another_one_drives::<B>();
    }
    B::block_on(a_shortage_is_an_error_that_passes::<B>());
    B::block_on(descriptors_that_find_no_room_stay_with_their_message());
    B::block_on(an_error_that_passes_leaves_no_descriptor_ready_for_ever());
    a_detached_stream_that_finds_no_descriptor_comes_back::<B>();
    #[cfg(feature = "tokio")]
    a_loop_with_a_guest_is_an_error_until_there_are_enough::<B>();
    a_server_backs_off_and_recovers::<B>();
    a_long_shortage_closes_what_waits::<B>();
}

/// Set in a process that serves.
const SERVES: &str = "WAKEFUL_TEST_SERVES";

/// Each loop needs descriptors of its own, and there are many loops.
fn what_loops_keep_open_leaves_room_for_the_connections_that_are_let_in<B: Backend>() {
    const CLIENTS: usize = 300;
    const NAME: &str =
        "epoll::what_loops_keep_open_leaves_room_for_the_connections_that_are_let_in";
    if std::env::var_os(SERVES).is_some() {
        return serves_on_many_loops::<B>();
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(SERVES, "1")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
    let addr = lines.find_map(|line| line.parse::<SocketAddr>().ok()).expect("it serves");
    let told = thread::spawn(move || lines.collect::<Vec<_>>());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let mut client = std::net::TcpStream::connect(addr).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            client.write_all(b"?").unwrap();
            let mut answer = [0; 1];
            client.read_exact(&mut answer).map(|()| client).map_err(|error| (number, error))
        })
        .collect();
    // Its input ends.
    drop(server.stdin.take());
    let status = server.wait().unwrap();
    assert!(status.success(), "{:#?}", told.join().unwrap());
    let refused: Vec<_> = clients.into_iter().filter_map(Result::err).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

/// Until the input ends.
fn serves_on_many_loops<B: Backend>() {
    struct Idle(Instant);

    impl GivesWay for Idle {
        fn standing(&self) -> Standing {
            Standing::Idle(self.0)
        }
    }

    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(512), ..limit }).unwrap();
    // Those of Tokio are in addition.
    let loops = if has_guest() { 40 } else { 80 };
    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let handler = async |connection: wakeful::accept::Connection| {
        let wakeful::accept::Connection { mut stream, draining, .. } = connection;
        let mut buf = [0; 1];
        stream.read(&mut buf).await.unwrap();
        stream.write_all(&buf).await.unwrap();
        let client_ends = async { drop(stream.read(&mut buf).await) };
        let is_asked = draining.started_or_asked(Rc::new(Idle(Instant::now())));
        futures_lite::future::or(client_ends, is_asked).await;
    };
    let serving = ConnectionServer::new(vec![listener])
        .group(B::group().loops(loops))
        .start(move || handler)
        .unwrap();
    eprintln!("{}", serving.local_addrs()[0]);
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let counts = serving.counts();
    assert_eq!((counts.failed(), counts.turned_away()), (0, 0));
    serving.shutdown(Duration::ZERO).unwrap();
}
