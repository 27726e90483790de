//! A server beside the tortured loops. Some of its handlers panic: before they return their future,
//! or while it runs.
//!
//! A visitor sends some bytes and gets them back, unless its own handler panicked. A handler that
//! panics records that first. So a visitor that is refused, closed or left waiting without such a
//! record is a fault. The drain has to end without any connection left.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use wakeful::LoopGroup;
use wakeful::accept::{
    AcceptStrategy, Connection, ConnectionServer, Placement, Serving, SharedListener,
};
use wakeful::net::{ListenAddr, PeerAddr, Stream};

use super::limits::Since;
use super::panics::panic_on_purpose;
use crate::ledger::{Ledger, lock};

/// An answer that takes longer than this never comes.
const PATIENCE: Duration = Duration::from_secs(20);
const LENGTH: usize = 32;

type Panicked = Arc<Mutex<HashSet<SocketAddr>>>;

pub(crate) struct Hostile(Serving);

/// Where visitors go, and which handlers panicked.
#[derive(Debug)]
pub(crate) struct Visitor {
    addr: SocketAddr,
    panicked: Panicked,
}

impl Hostile {
    pub(crate) fn start(random: &mut Rng) -> io::Result<(Self, Visitor)> {
        let listener = SharedListener::bind(&"127.0.0.1:0".parse().expect("an address"))?;
        let ListenAddr::Tcp(addr) = listener.local_addr().clone() else {
            return Err(io::Error::other("it is TCP"));
        };
        let strategy = match random.u8(..3) {
            0 => AcceptStrategy::Exclusive,
            1 => AcceptStrategy::ReusePort,
            _ => AcceptStrategy::Dispatch(Placement::default()),
        };
        let group = LoopGroup::builder().loops(1 + random.usize(..3)).name("hostile");
        let group = if random.bool() { group.spread() } else { group };
        let panicked = Panicked::default();
        let (noted, seeds) = (panicked.clone(), AtomicU64::new(random.u64(..)));
        let seeds = Arc::new(seeds);
        let server = ConnectionServer::new(vec![listener]).group(group).strategy(strategy);
        let serving = server.start(move || {
            let (noted, seeds) = (noted.clone(), seeds.clone());
            move |connection: Connection| {
                let mut random = Rng::with_seed(seeds.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed));
                let peer = match connection.peer {
                    PeerAddr::Tcp(addr) => Some(addr),
                    _ => None,
                };
                let note = || lock(&noted).extend(peer);
                let (payload_panics, choice) = (random.bool(), random.u8(..16));
                if choice == 0 {
                    note();
                    panic_on_purpose(payload_panics);
                }
                if choice == 1 {
                    note();
                }
                answer(connection.stream, choice == 1, payload_panics)
            }
        })?;
        Ok((Self(serving), Visitor { addr, panicked }))
    }

    pub(crate) fn end(self, ledger: &Ledger) {
        match self.0.shutdown(PATIENCE) {
            Ok(0) => {}
            Ok(left) => ledger.fault(format!("a drain left {left} connections")),
            Err(error) => ledger.fault(format!("a drain: {error}")),
        }
    }
}

impl Visitor {
    /// Visits until `over` is set.
    pub(crate) fn visit(&self, ledger: &Ledger, over: &AtomicBool) {
        while !over.load(Relaxed) {
            let since = Since::now();
            ledger.totals.visits.fetch_add(1, Relaxed);
            // This process has no descriptors left.
            let Ok(mut stream) = TcpStream::connect_timeout(&self.addr, PATIENCE) else {
                if !since.were_short() {
                    return ledger.fault("a server refuses connections".to_owned());
                }
                thread::sleep(Duration::from_millis(1));
                continue;
            };
            let Ok(local) = stream.local_addr() else { continue };
            let result = talk(&mut stream);
            drop(stream);
            let was_on_purpose = lock(&self.panicked).remove(&local);
            if let Err(error) = result
                && !was_on_purpose
                && !since.were_short()
            {
                return ledger.fault(format!(
                    "a visitor has no answer, and its handler did not panic: {error}"
                ));
            }
            thread::sleep(Duration::from_micros(200));
        }
    }
}

async fn answer(mut stream: Stream, panics: bool, payload_panics: bool) {
    let mut buf = [0; LENGTH];
    let Ok(count) = stream.read(&mut buf).await else { return };
    if panics {
        panic_on_purpose(payload_panics);
    }
    let _ = stream.write_all(&buf[..count]).await;
    // The visitor closes first.
    while let Ok(1..) = stream.read(&mut buf).await {}
}

fn talk(stream: &mut TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&[7; LENGTH])?;
    let mut buf = [0; LENGTH];
    stream.read_exact(&mut buf)?;
    if buf == [7; LENGTH] { Ok(()) } else { Err(io::Error::other("other bytes came back")) }
}
