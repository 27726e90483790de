//! Forks while another thread holds the lock of an HTTP/2 connection. The child does not have that
//! thread, so for the child the lock stays locked.
//!
//! h2 logs with its lock held. This process's only subscriber of `tracing` keeps a thread there
//! until the process forks.

#![allow(unsafe_code)] // `fork`, and how a child ends.

mod common;

use std::cell::Cell;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use http::{Request, Response};
use http_body_util::BodyExt;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata};
use wakeful::LoopGroup;
use wakeful_http::{RequestBody, Running, Server, service_fn};

use common::GUARD;
use common::frames::{Client, DATA, END_HEADERS, HEADERS, head};

/// The process begins to fork.
static FORKS: AtomicBool = AtomicBool::new(false);

/// How long the lock is still held when the fork has begun.
const A_WHILE: Duration = Duration::from_millis(100);

thread_local! {
    /// The next time that this thread holds the lock, it says so, and keeps the lock.
    static KEEPS: Cell<Option<mpsc::Sender<()>>> = const { Cell::new(None) };
}

/// Keeps the lock of h2.
struct Keeper;

impl tracing::Subscriber for Keeper {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    /// The functions of these modules are called with the lock held. (Those of `streams::streams`
    /// take it.)
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        metadata.is_event()
            && target.starts_with("h2::proto::streams::")
            && target != "h2::proto::streams::streams"
    }

    fn event(&self, _: &Event<'_>) {
        let Some(told) = KEEPS.take() else { return };
        told.send(()).unwrap();
        let start = Instant::now();
        while !FORKS.load(Ordering::SeqCst) && start.elapsed() < GUARD {
            thread::yield_now();
        }
        thread::sleep(A_WHILE);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

extern "C" fn fork_begins() {
    FORKS.store(true, Ordering::SeqCst);
}

/// A server with one loop, and what its handlers have received.
struct Served {
    running: Running,
    bodies: mpsc::Receiver<RequestBody>,
    is_kept: mpsc::Receiver<()>,
    /// Makes the handler of `/fork` fork.
    go: async_channel::Sender<()>,
    waits: mpsc::Receiver<()>,
    children: mpsc::Receiver<libc::pid_t>,
    _one: MutexGuard<'static, ()>,
}

/// `loop_keeps`: the loop keeps the lock when it takes it after the first request.
fn serve(loop_keeps: bool) -> (Served, mpsc::Sender<()>) {
    static ONE: Mutex<()> = Mutex::new(());
    static SUBSCRIBE: Once = Once::new();

    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    SUBSCRIBE.call_once(|| tracing::subscriber::set_global_default(Keeper).unwrap());
    let (give, bodies) = mpsc::channel();
    let (keeps, is_kept) = mpsc::channel();
    let (go, goes) = async_channel::bounded(1);
    let (wait, waits) = mpsc::channel();
    let (bear, children) = mpsc::channel();
    let kept_by_loop = loop_keeps.then(|| keeps.clone());
    let server = Server::bind("127.0.0.1:0").unwrap().group(LoopGroup::builder().loops(1));
    let running = server
        .start_with(move || {
            let (give, goes, wait, bear) = (give.clone(), goes.clone(), wait.clone(), bear.clone());
            let kept_by_loop = kept_by_loop.clone();
            service_fn(move |request: Request<RequestBody>| {
                let (give, goes) = (give.clone(), goes.clone());
                let (wait, bear) = (wait.clone(), bear.clone());
                let kept_by_loop = kept_by_loop.clone();
                async move {
                    if request.uri().path() == "/fork" {
                        drop(request);
                        wait.send(()).unwrap();
                        goes.recv().await.unwrap();
                        match fork() {
                            0 => {}
                            child => bear.send(child).unwrap(),
                        }
                    } else {
                        give.send(request.into_body()).unwrap();
                        KEEPS.set(kept_by_loop);
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, Infallible>(Response::new(String::new()))
                }
            })
        })
        .unwrap();
    // SAFETY: the handler writes to a static. It runs before those of the server, which were
    // registered earlier.
    assert_eq!(unsafe { libc::pthread_atfork(Some(fork_begins), None, None) }, 0);
    FORKS.store(false, Ordering::SeqCst);
    (Served { running, bodies, is_kept, go, waits, children, _one }, keeps)
}

/// Forks. A child that hangs is killed by SIGALRM.
fn fork() -> libc::pid_t {
    // SAFETY: the child calls code that is made for it, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(10);
        }
        child
    }
}

/// How the child has ended.
fn status_of(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: our own child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

#[test]
fn a_child_of_a_handler_ends_although_a_body_was_in_use_elsewhere() {
    let (served, keeps) = serve(false);
    let mut client = Client::new(&served.running);
    client.send(HEADERS, END_HEADERS, 1, &head("POST", "/give"));
    client.send(DATA, 0, 1, b"data");
    let body = served.bodies.recv_timeout(GUARD).unwrap();
    client.get(3, "/fork");
    served.waits.recv_timeout(GUARD).unwrap();
    let elsewhere = thread::spawn(move || {
        KEEPS.set(Some(keeps));
        drop(body);
    });
    served.is_kept.recv_timeout(GUARD).expect("h2 logs with its lock held");
    served.go.send_blocking(()).unwrap();
    let child = served.children.recv_timeout(GUARD).unwrap();
    assert_eq!(status_of(child), 0, "the child waits for the lock of the connection");
    elsewhere.join().unwrap();
    let answer = client.wait_for(HEADERS);
    assert_eq!((answer.stream, answer.status().as_str()), (3, "200"));
}

#[test]
fn a_body_in_a_child_of_another_thread_than_the_loop_s_waits_for_no_lock() {
    let (served, _keeps) = serve(true);
    let mut client = Client::new(&served.running);
    client.send(HEADERS, END_HEADERS, 1, &head("POST", "/give"));
    let body = served.bodies.recv_timeout(GUARD).unwrap();
    client.send(DATA, 0, 1, b"data");
    served.is_kept.recv_timeout(GUARD).expect("h2 logs with its lock held");
    let child = fork();
    if child == 0 {
        let mut body = body;
        let refused = futures_lite::future::block_on(body.frame());
        let is_refused = refused.is_some_and(|frame| frame.is_err());
        drop(body);
        // SAFETY: the child ends here, without running what its parent has registered.
        unsafe { libc::_exit(i32::from(!is_refused)) };
    }
    assert_eq!(status_of(child), 0, "the child waits for the lock of the connection");
    let frame = futures_lite::future::block_on(Box::pin(body).frame());
    assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "data");
}
