//! One measurement. Its server, its client and their connection exist only for it.

use std::error::Error;
use std::fs;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::future::or;
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{ClientConfig, Endpoint, EndpointConfig, Runtime, ServerConfig};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

use crate::contender::Contender;
use crate::load::{Load, Progress};

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// The time before the measurement, for the handshake and until congestion control has settled.
const WARM_UP: Duration = Duration::from_millis(300);

pub(crate) struct Measured {
    /// The rate, in the load's unit.
    pub(crate) rate: f64,
    /// The server's share of one CPU.
    pub(crate) server_cpu: f64,
    pub(crate) client_cpu: f64,
}

impl Measured {
    /// Returns what a second of CPU time of both sides together carries. It depends less than
    /// `rate` on what else runs on the machine.
    pub(crate) fn per_cpu_time(&self) -> f64 {
        self.rate / (self.server_cpu + self.client_cpu)
    }
}

pub(crate) fn measure(
    contender: Contender,
    load: Load,
    duration: Duration,
) -> io::Result<Measured> {
    let (server_config, client_config) = settings().map_err(io::Error::other)?;
    let progress = Arc::new(Progress::default());
    let [server_cpu, client_cpu] = two_cpus()?;
    let (send_addr, addr) = mpsc::channel();
    let (end, ended) = async_channel::bounded::<()>(1);
    let server = {
        let progress = progress.clone();
        Side::start(server_cpu, contender, move |runtime| async move {
            let endpoint = endpoint(Some(server_config), &runtime)?;
            send_addr.send(endpoint.local_addr()?)?;
            let connection = endpoint.accept().await.ok_or("nobody connects")?.await?;
            // The client's last message may be lost, like any datagram.
            let told = async { ended.recv().await.unwrap_or_default() };
            or(load.serve(&*runtime, connection, progress), told).await;
            Ok(())
        })
    }?;
    let client = {
        let progress = progress.clone();
        let addr = addr.recv().map_err(io::Error::other)?;
        Side::start(client_cpu, contender, move |runtime| async move {
            let endpoint = endpoint(None, &runtime)?;
            let connection = endpoint.connect_with(client_config, addr, "localhost")?.await?;
            load.send(&*runtime, &connection, progress).await
        })
    }?;
    let look = || io::Result::Ok((server.cpu_time()?, client.cpu_time()?));
    thread::sleep(WARM_UP);
    let (start, done, (of_server, of_client)) =
        (Instant::now(), progress.done.load(Relaxed), look()?);
    thread::sleep(duration);
    let (seconds, done_then) = (start.elapsed().as_secs_f64(), progress.done.load(Relaxed));
    let (of_server_then, of_client_then) = look()?;
    progress.is_over.store(true, Relaxed);
    client.end()?;
    drop(end);
    server.end()?;
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let rate = (done_then - done) as f64 / load.per_unit() / seconds;
    let server_cpu = of_server_then.saturating_sub(of_server).as_secs_f64() / seconds;
    let client_cpu = of_client_then.saturating_sub(of_client).as_secs_f64() / seconds;
    Ok(Measured { rate, server_cpu, client_cpu })
}

/// The server or the client: a thread on its own CPU.
struct Side {
    thread: thread::JoinHandle<Result<(), Failure>>,
    id: Pid,
}

impl Side {
    fn start<F: Future<Output = Result<(), Failure>>>(
        cpu: usize,
        contender: Contender,
        main: impl FnOnce(Arc<dyn Runtime>) -> F + Send + 'static,
    ) -> io::Result<Self> {
        let (send_id, id) = mpsc::channel();
        let thread = thread::spawn(move || {
            send_id.send(gettid())?;
            let mut cpus = CpuSet::new();
            cpus.set(cpu);
            sched_setaffinity(None, &cpus)?;
            contender.block_on(main)?
        });
        Ok(Self { thread, id: id.recv().map_err(io::Error::other)? })
    }

    /// Returns the CPU time that the thread has used so far.
    fn cpu_time(&self) -> io::Result<Duration> {
        let path = format!("/proc/self/task/{}/schedstat", self.id.as_raw_nonzero());
        let read = fs::read_to_string(path)?;
        let nanos = read.split(' ').next().unwrap_or_default().parse().map_err(io::Error::other)?;
        Ok(Duration::from_nanos(nanos))
    }

    fn end(self) -> io::Result<()> {
        self.thread.join().expect("neither side panics").map_err(io::Error::other)
    }
}

/// Returns the first two CPUs that this process may use.
fn two_cpus() -> io::Result<[usize; 2]> {
    let allowed = sched_getaffinity(None)?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    match (cpus.next(), cpus.next()) {
        (Some(one), Some(other)) => Ok([one, other]),
        _ => Err(io::Error::other("it takes two CPUs")),
    }
}

fn endpoint(server: Option<ServerConfig>, runtime: &Arc<dyn Runtime>) -> io::Result<Endpoint> {
    let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    Endpoint::new(EndpointConfig::default(), server, socket, runtime.clone())
}

fn settings() -> Result<(ServerConfig, ClientConfig), Failure> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone())?;
    let server = ServerConfig::with_single_cert(vec![certificate], key.into())?;
    Ok((server, ClientConfig::with_root_certificates(Arc::new(roots))?))
}
