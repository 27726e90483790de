//! The same service on wakeful's `ConnectionServer`, with the same number of loops.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result};
use peer_common::{Listen, cli};
use wakeful::accept::{Connection, ConnectionServer, SharedListener};
use wakeful::net::ListenAddr;
use wakeful::{EventLoop, LoopGroup};

use crate::counts::Counts;
use crate::exchange::{self, LONGEST_REQUEST};

/// Serves until it is killed. `idle` is an idle policy.
pub fn run(path: &Path, loops: usize, idle: &str) -> Result<()> {
    let listener = SharedListener::bind(&ListenAddr::Unix(path.to_owned()))
        .with_context(|| format!("cannot listen on unix:{}", path.display()))?;
    let event_loop = EventLoop::builder().idle(idle.parse()?);
    let group = LoopGroup::builder().loops(loops).event_loop(event_loop);
    let counts: Arc<Vec<Counts>> = Arc::new((0..loops).map(|_| Counts::default()).collect());
    let next = AtomicUsize::new(0);
    let make = move || {
        let (counts, index) = (counts.clone(), next.fetch_add(1, Ordering::Relaxed));
        move |connection| {
            let counts = counts.clone();
            counts[index].accepted();
            async move {
                // An error on a connection is for its client to notice.
                let _ = serve(connection, &counts).await;
            }
        }
    };
    // Dropping it would end the service.
    let _serving = ConnectionServer::new(vec![listener]).group(group).start(make)?;
    cli::announce(&Listen::Unix(path.to_owned()));
    loop {
        thread::park();
    }
}

async fn serve(mut connection: Connection, counts: &[Counts]) -> io::Result<()> {
    let stream = &mut connection.stream;
    let mut request = [0; LONGEST_REQUEST];
    let mut length = 0;
    while !exchange::is_complete(&request[..length]) {
        match stream.read(&mut request[length..]).await? {
            // The end, or too long.
            0 => return Ok(()),
            more => length += more,
        }
    }
    stream.write_all(&exchange::answer(&request[..length], counts)).await
}
