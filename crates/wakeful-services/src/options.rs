//! What a service is started with.

use std::time::Duration;

use wakeful::accept::{AcceptStrategy, ConnectionServer, Moves, SharedListener};
use wakeful::group::Targets;
use wakeful::log::LossyWriter;
use wakeful::net::ListenAddr;
use wakeful::{EventLoop, IdlePolicy, LoopGroup, LoopGroupBuilder};
use wakeful_http::tls::ServerTls;
use wakeful_http::{DrainPlan, Limits, Server};

/// Settings that all services have.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Where to listen.
    pub listen: Vec<ListenAddr>,
    /// TLS on all these addresses, if the service speaks HTTP.
    pub tls: Option<ServerTls>,
    /// What is bounded, if the service speaks HTTP.
    pub limits: Limits,
    /// How many loops; 0 is one for each CPU that the process may use.
    pub loops: usize,
    /// Where the loops' threads run.
    pub pinning: Pinning,
    /// How connections reach the loops.
    pub accept: AcceptStrategy,
    /// How busy loops may be before connections go to more of them; `None`: all loops always have
    /// some.
    pub concentrate: Option<Targets>,
    /// When open connections go on to other loops, if the service lets them: http (HTTP/1.1) and
    /// echo do.
    pub moves: Option<Moves>,
    /// What a loop does when it has nothing to do.
    pub idle: IdlePolicy,
    /// How long connections may finish after the service was told to end.
    pub grace: Duration,
    /// The writer of the process's log: `/metrics` counts its lines.
    pub log: Option<LossyWriter>,
}

/// Where the loops' threads run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinning {
    /// Where the kernel puts them.
    Free,
    /// Each on a CPU, in turn.
    Pinned,
}

impl Default for ServeOptions {
    /// As `wakeful serve` without an option, but that it listens nowhere.
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            loops: 0,
            pinning: Pinning::Free,
            accept: AcceptStrategy::default(),
            concentrate: Some(Targets::default()),
            moves: Some(Moves::default()),
            idle: IdlePolicy::ADAPTIVE,
            grace: Duration::from_secs(10),
            tls: None,
            limits: Limits::default(),
            log: None,
        }
    }
}

impl ServeOptions {
    /// Listens everywhere that was asked for.
    ///
    /// # Errors
    /// A text that names the address and says what is wrong with it.
    pub fn bind(&self) -> Result<Vec<SharedListener>, String> {
        bind(&self.listen)
    }

    pub(crate) fn server(&self, listeners: Vec<SharedListener>) -> ConnectionServer {
        ConnectionServer::new(listeners).group(self.group()).strategy(self.accept).moves(self.moves)
    }

    pub(crate) fn http_server(&self, listeners: Vec<SharedListener>) -> Server {
        let server = Server::from_listeners(listeners)
            .group(self.group())
            .strategy(self.accept)
            .moves(self.moves)
            .limits(self.limits.clone())
            .drain_plan(DrainPlan { grace: self.grace, ..DrainPlan::default() });
        match &self.tls {
            Some(tls) => server.tls(tls.clone()),
            None => server,
        }
    }

    pub(crate) fn group(&self) -> LoopGroupBuilder {
        let event_loop = EventLoop::builder().idle(self.idle);
        let group = LoopGroup::builder().loops(self.loops).event_loop(event_loop);
        let group = match self.concentrate {
            Some(targets) => group.concentrate(targets),
            None => group.spread(),
        };
        match self.pinning {
            Pinning::Free => group,
            Pinning::Pinned => group.pin(),
        }
    }
}

/// Listens on all of `addrs`.
///
/// # Errors
/// A text that names the address and says what is wrong with it.
pub fn bind(addrs: &[ListenAddr]) -> Result<Vec<SharedListener>, String> {
    let bind = |(place, addr)| {
        SharedListener::bind(addr).map_err(|error| describe(addr, &addrs[..place], &error))
    };
    addrs.iter().enumerate().map(bind).collect()
}

/// Is `addr` among what is listened on at `before`? `0.0.0.0` and `[::]` are all addresses with the
/// port.
fn includes(before: &ListenAddr, addr: &ListenAddr) -> bool {
    match (before, addr) {
        (ListenAddr::Tcp(before), ListenAddr::Tcp(addr)) => {
            let is_any = before.ip().is_unspecified() || addr.ip().is_unspecified();
            before == addr || (is_any && before.port() == addr.port())
        }
        _ => before == addr,
    }
}

/// The same on every Linux.
const EACCES: i32 = 13;

fn describe(addr: &ListenAddr, before: &[ListenAddr], error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    let ours = before.iter().find(|before| includes(before, addr));
    if let (ErrorKind::AddrInUse, Some(ours)) = (error.kind(), ours) {
        return format!("cannot listen on {addr}: this server already listens on {ours}");
    }
    // EPERM is of the same kind: a call that is refused, which its text names.
    let is_denied = error.raw_os_error() == Some(EACCES);
    let what = match (error.kind(), addr) {
        (ErrorKind::AddrInUse, ListenAddr::Tcp(_) | ListenAddr::Abstract(_)) => {
            "the address is in use: is another server running there?".to_owned()
        }
        (ErrorKind::AddrInUse, ListenAddr::Unix(_)) => {
            "the file exists: another server listens on it, or it is no socket".to_owned()
        }
        (ErrorKind::AddrNotAvailable, _) => "the address is not one of this machine's".to_owned(),
        (ErrorKind::PermissionDenied, ListenAddr::Tcp(addr))
            if is_denied && (1..1024).contains(&addr.port()) =>
        {
            "permission denied: a port below 1024 needs root or CAP_NET_BIND_SERVICE".to_owned()
        }
        (ErrorKind::PermissionDenied, ListenAddr::Unix(_)) if is_denied => {
            "permission denied: may this user write to the directory?".to_owned()
        }
        (ErrorKind::NotFound, ListenAddr::Unix(_)) => "the directory does not exist".to_owned(),
        _ => error.to_string(),
    };
    format!("cannot listen on {addr}: {what}")
}
