//! The data that the connection carries. The code is the same on every runtime.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use quinn::{Connection, Runtime};

use crate::block::Failure;

/// How many streams the load `requests` has open at once.
const CONCURRENT: usize = 32;
const REQUEST: [u8; 128] = [b'q'; 128];
static CHUNK: [u8; 64 * 1024] = [b'b'; 64 * 1024];

#[derive(Clone, Copy)]
pub(crate) enum Load {
    /// One stream from the client to the server.
    Bulk,
    /// Requests and answers of 128 bytes. Each has its own stream, and 32 are open at once.
    Requests,
}

/// How much the server has received, in the load's unit, and whether the block is over.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) done: AtomicU64,
    pub(crate) is_over: AtomicBool,
}

impl Load {
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Bulk => "MiB/s",
            Self::Requests => "requests/s",
        }
    }

    /// Returns how many counted items make one unit.
    pub(crate) fn per_unit(self) -> f64 {
        match self {
            Self::Bulk => f64::from(1 << 20),
            Self::Requests => 1.0,
        }
    }

    /// Serves until the connection ends.
    pub(crate) async fn serve(
        self,
        runtime: &dyn Runtime,
        connection: Connection,
        progress: Arc<Progress>,
    ) {
        match self {
            Self::Bulk => {
                while let Ok(mut stream) = connection.accept_uni().await {
                    while let Ok(Some(chunk)) = stream.read_chunk(usize::MAX, true).await {
                        progress.done.fetch_add(chunk.bytes.len() as u64, Relaxed);
                    }
                }
            }
            Self::Requests => {
                while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                    let progress = progress.clone();
                    runtime.spawn(Box::pin(async move {
                        // The block may end in the middle of a request.
                        let Ok(request) = receive.read_to_end(REQUEST.len()).await else { return };
                        if send.write_all(&request).await.is_ok() && send.finish().is_ok() {
                            progress.done.fetch_add(1, Relaxed);
                        }
                    }));
                }
            }
        }
    }

    /// Sends until the block is over.
    pub(crate) async fn send(
        self,
        runtime: &dyn Runtime,
        connection: &Connection,
        progress: Arc<Progress>,
    ) -> Result<(), Failure> {
        match self {
            Self::Bulk => {
                let mut stream = connection.open_uni().await?;
                while !progress.is_over.load(Relaxed) {
                    stream.write_all(&CHUNK).await?;
                }
                Ok(())
            }
            Self::Requests => {
                let (ended, all_ended) = async_channel::bounded(CONCURRENT);
                for _ in 0..CONCURRENT {
                    let (connection, progress, ended) =
                        (connection.clone(), progress.clone(), ended.clone());
                    runtime.spawn(Box::pin(async move {
                        let _ = ended.send(ask(&connection, &progress).await).await;
                    }));
                }
                for _ in 0..CONCURRENT {
                    all_ended.recv().await??;
                }
                Ok(())
            }
        }
    }
}

async fn ask(connection: &Connection, progress: &Progress) -> Result<(), Failure> {
    while !progress.is_over.load(Relaxed) {
        let (mut send, mut receive) = connection.open_bi().await?;
        send.write_all(&REQUEST).await?;
        send.finish()?;
        let answer = receive.read_to_end(REQUEST.len()).await?;
        if answer != REQUEST {
            return Err("an answer is not the request".into());
        }
    }
    Ok(())
}

impl FromStr for Load {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "bulk" => Ok(Self::Bulk),
            "requests" => Ok(Self::Requests),
            _ => Err(()),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bulk => "bulk (one stream)",
            Self::Requests => "requests (32 streams at once)",
        })
    }
}
