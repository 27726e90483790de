//! What each loop does before any accepts, services that each loop makes, and servers as futures.

mod common;

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{pending, ready};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use common::{GUARD, Gate, http1_client, http2_client, is_served, request, router, server};
use http::{Request, Response};
use http_body_util::BodyExt;
use wakeful::PerLoop;
use wakeful::net::ListenAddr;
use wakeful::time::{sleep, timeout};
use wakeful_http::{DrainPlan, RequestBody, Server};

fn on_a_loop<T>(test: impl Future<Output = T>) -> T {
    wakeful::block_on(timeout(GUARD, test)).expect("a hang is a failure")
}

fn tcp(server: &Server) -> std::net::SocketAddr {
    match server.local_addrs().next() {
        Some(&ListenAddr::Tcp(addr)) => addr,
        _ => unreachable!("bound to TCP"),
    }
}

#[test]
fn each_loop_is_set_up_before_any_accepts() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let ready_loops: PerLoop<Cell<bool>> = PerLoop::new(Cell::default);
    let (first, second, of_loops) = (order.clone(), order.clone(), ready_loops.clone());
    let answer = move || ready(ready_loops.with(Cell::get).to_string());
    let running = server()
        .on_each_loop(move || {
            first.lock().unwrap().push((1, thread::current().id()));
            let of_loops = of_loops.clone();
            async move {
                // A connection that came meanwhile would not be answered by this loop yet.
                sleep(Duration::from_millis(20)).await;
                of_loops.with(|is_ready| is_ready.set(true));
                Ok(())
            }
        })
        .on_each_loop(move || {
            second.lock().unwrap().push((2, thread::current().id()));
            ready(Ok(()))
        })
        .start(Router::new().route("/", get(answer)))
        .unwrap();
    let order = order.lock().unwrap().clone();
    assert_eq!(order.len(), 4, "both, on two loops");
    for (number, at) in &order {
        let of_loop: Vec<_> = order.iter().filter(|(_, thread)| thread == at).collect();
        assert_eq!(
            of_loop.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
            [1, 2],
            "{number}"
        );
    }
    on_a_loop(async {
        let mut client = http1_client(common::addr(&running)).await;
        let answer = client.send_request(request("GET", "/", "")).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "true");
    });
}

#[test]
fn a_set_up_that_fails_or_panics_is_the_start_s_error() {
    let failing = server().on_each_loop(|| ready(Err(io::Error::other("no database"))));
    let error = failing.start(router()).expect_err("it does not start");
    assert_eq!(error.to_string(), "no database");
    let panicking = server().on_each_loop(|| async { panic!("on purpose") });
    let error = panicking.start(router()).expect_err("it does not start");
    assert!(error.to_string().contains("panicked"), "{error}");
}

#[test]
fn each_loop_makes_a_tower_service_that_need_not_be_send() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let make = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let requests = Rc::new(Cell::new(0));
        tower::service_fn(move |_: Request<RequestBody>| {
            requests.set(requests.get() + 1);
            ready(Ok::<_, Infallible>(Response::new(requests.get().to_string())))
        })
    };
    let running = server().start_each(make).unwrap();
    assert_eq!(made.load(Ordering::Relaxed), 2);
    on_a_loop(async {
        let mut client = http2_client(common::addr(&running)).await;
        for number in 1..=3 {
            let answer = client.send_request(request("GET", "/", "")).await.unwrap();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, number.to_string());
        }
    });
}

#[test]
fn a_server_that_is_awaited_drains_when_it_is_told_to_stop() {
    let (gate, app) = Gate::on(router());
    on_a_loop(async {
        let server = server();
        let addr = tcp(&server);
        let (stop, stopped) = async_channel::bounded::<()>(1);
        let serving = server.run_until(app, async move {
            let _ = stopped.recv().await;
        });
        let serving = wakeful::spawn(serving);
        let mut client = http1_client(addr).await;
        let gated = wakeful::spawn(client.send_request(request("GET", "/gated", "")));
        gate.one_entered().await;
        stop.close();
        assert!(!serving.is_finished(), "a request is on its way");
        gate.open();
        let answer = gated.await.unwrap().unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "released");
        serving.await.unwrap().unwrap();
        let refused = wakeful::net::TcpStream::connect(addr).await;
        assert_eq!(refused.expect_err("nobody listens").kind(), io::ErrorKind::ConnectionRefused);
    });
}

/// If the grace period is too short, a connection is aborted, and code that awaits the server
/// learns this only from the log.
#[test]
fn what_a_server_that_is_awaited_aborts_is_logged() {
    let (gate, app) = Gate::on(router());
    let lines = Arc::new(Mutex::new(Vec::new()));
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || LinesTo(writer.clone()))
        .with_ansi(false)
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    on_a_loop(async {
        let plan = DrainPlan::new().grace(Duration::ZERO);
        let server = server().drain_plan(plan);
        let addr = tcp(&server);
        let (stop, stopped) = async_channel::bounded::<()>(1);
        let app = app.into_make_service_with_connect_info::<std::net::SocketAddr>();
        let serving = wakeful::spawn(server.run_make_service_until(app, async move {
            let _ = stopped.recv().await;
        }));
        let mut client = http1_client(addr).await;
        let gated = wakeful::spawn(client.send_request(request("GET", "/gated", "")));
        gate.one_entered().await;
        stop.close();
        serving.await.unwrap().unwrap();
        assert!(gated.await.unwrap().is_err());
    });
    let lines = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
    assert!(lines.contains("connections were aborted aborted=1"), "{lines}");
}

struct LinesTo(Arc<Mutex<Vec<u8>>>);

impl io::Write for LinesTo {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_server_that_is_no_longer_awaited_ends() {
    on_a_loop(async {
        let server = server();
        let addr = tcp(&server);
        let serving = wakeful::spawn(server.run_until(router(), std::future::pending()));
        let mut client = http1_client(addr).await;
        client.send_request(request("GET", "/", "")).await.unwrap();
        serving.abort();
        assert!(serving.await.is_err_and(|error| error.is_cancelled()));
        let refused = wakeful::net::TcpStream::connect(addr).await;
        assert_eq!(refused.expect_err("nobody listens").kind(), io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_drain_may_be_awaited() {
    let running = server().start(router()).unwrap();
    is_served(&running);
    let plan = DrainPlan::new().grace(GUARD);
    assert_eq!(on_a_loop(running.drained(plan)).unwrap(), 0);
}

/// An executor on no loop, whose waker polls its task at once.
struct PollsAtOnce {
    drained: Mutex<Pin<Box<dyn Future<Output = io::Result<usize>> + Send>>>,
    tell: mpsc::Sender<io::Result<usize>>,
}

impl Wake for PollsAtOnce {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(self.clone());
        let polled = self.drained.lock().unwrap().as_mut().poll(&mut Context::from_waker(&waker));
        if let Poll::Ready(drained) = polled {
            let _ = self.tell.send(drained);
        }
    }
}

#[test]
fn a_waker_that_polls_at_once_as_a_drain_ends_does_not_block_it() {
    let running = server().start(router()).unwrap();
    let (tell, told) = mpsc::channel();
    let drained = Mutex::new(Box::pin(running.drained(DrainPlan::new().grace(GUARD))) as _);
    Waker::from(Arc::new(PollsAtOnce { drained, tell })).wake();
    let drained = told.recv_timeout(GUARD).expect("the waker waits for a lock of the channel");
    assert_eq!(drained.unwrap(), 0);
}

struct Panics(mpsc::Sender<()>);

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
        panic!("a waker that panics, on purpose");
    }
}

#[test]
fn a_drain_whose_waker_panics_may_be_awaited_again() {
    let running = server().start(router()).unwrap();
    let (tell, told) = mpsc::channel();
    let mut drained = Box::pin(running.drained(DrainPlan::new().grace(GUARD)));
    let waker = Waker::from(Arc::new(Panics(tell)));
    // The drain may end within the first poll, on its thread.
    let polled = drained.as_mut().poll(&mut Context::from_waker(&waker));
    let drained = match polled {
        Poll::Ready(drained) => drained,
        Poll::Pending => {
            told.recv_timeout(GUARD).expect("woken");
            futures_lite::future::block_on(drained)
        }
    };
    assert_eq!(drained.unwrap(), 0);
}

#[test]
fn a_set_up_that_panics_is_told_although_another_loop_s_has_not_ended() {
    let first = AtomicBool::new(true);
    let server = server().on_each_loop(move || {
        let panics = first.swap(false, Ordering::Relaxed);
        async move {
            assert!(!panics, "on purpose");
            pending().await
        }
    });
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(server.start(router()).map(drop)));
    let started = told.recv_timeout(GUARD).expect("it waits for the other loop's set-up");
    let error = started.expect_err("it does not start");
    assert!(error.to_string().contains("panicked"), "{error}");
}

#[test]
fn nobody_waits_for_a_server_that_does_not_come_to_run() {
    type Fate = fn(Server);
    let is_dropped: Fate = drop;
    let fails: Fate = |server| {
        let server = server.on_each_loop(|| ready(Err(io::Error::other("no database"))));
        server.start(router()).unwrap_err();
    };
    let is_never_polled: Fate = |server| drop(server.run(router()));
    for fate in [is_dropped, fails, is_never_polled] {
        let server = server();
        let readiness = server.readiness();
        assert!(readiness.is_ready() && !readiness.is_draining());
        fate(server);
        on_a_loop(readiness.until_draining());
        assert!(!readiness.is_ready());
    }
}
