//! Slow clients: each sends its request one byte at a time, and reads the answer. A server must not
//! let them hold up others.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::protocol::{AnyConversation, Conversation, Requests};
use crate::target::Target;

/// The pause between two bytes of one client.
const PAUSE: Duration = Duration::from_millis(20);

/// Slow clients that run until this is dropped. They share one thread, which sleeps between bytes.
#[derive(Debug)]
pub(crate) struct SlowClients {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SlowClients {
    /// Opens `count` connections and begins to send.
    ///
    /// # Errors
    /// A connection cannot be opened, or the thread cannot be started.
    pub(crate) fn start(count: usize, target: &Target, requests: &Requests) -> io::Result<Self> {
        let mut bytes = Vec::new();
        let mut conversation = requests.conversation();
        conversation.open(&mut bytes);
        let start_of_request = bytes.len();
        conversation.request(&mut bytes);
        let open = || Ok::<_, io::Error>((target.connect()?, 0));
        let mut clients = (0..count).map(|_| open()).collect::<io::Result<Vec<_>>>()?;
        // The clients repeat one request. HTTP/2 may not repeat a stream, so there each request
        // gets a new connection.
        let again = match conversation {
            AnyConversation::Http2(_) => None,
            _ => Some(start_of_request),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let target = target.clone();
        let thread = thread::Builder::new().name("slow clients".to_owned()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                for (fd, at) in &mut clients {
                    if *at == bytes.len() {
                        match (again, target.connect()) {
                            (Some(start), _) => *at = start,
                            (None, Ok(fresh)) => (*fd, *at) = (fresh, 0),
                            (None, Err(_)) => continue,
                        }
                    }
                    match dribble(fd, bytes[*at]) {
                        Ok(sent) => *at += usize::from(sent),
                        // The server has ended the connection, which it may do. The client opens a
                        // new one.
                        Err(_) => {
                            if let Ok(fresh) = target.connect() {
                                (*fd, *at) = (fresh, 0);
                            }
                        }
                    }
                }
                thread::sleep(PAUSE);
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for SlowClients {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread returns nothing, and cannot panic.
            let _ = thread.join();
        }
    }
}

/// Sends one byte, if there is room, and drops what has arrived. Returns whether the byte was sent.
fn dribble(fd: &OwnedFd, byte: u8) -> io::Result<bool> {
    use rustix::io::Errno;
    let mut rubbish = [0; 4096];
    loop {
        match recv(fd, &mut rubbish[..], RecvFlags::empty()) {
            Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, count)) if count == rubbish.len() => {}
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => break,
            Err(error) => return Err(error.into()),
        }
    }
    match send(fd, &[byte], SendFlags::NOSIGNAL) {
        Ok(sent) => Ok(sent == 1),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
