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
use crate::target::{CONNECT_LIMIT, Target};

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
    /// [`io::ErrorKind::Interrupted`] if `interrupted` is set.
    pub(crate) fn start(
        count: usize,
        target: &Target,
        requests: &Requests,
        interrupted: &AtomicBool,
    ) -> io::Result<Self> {
        let mut bytes = Vec::new();
        let mut conversation = requests.conversation();
        conversation.open(&mut bytes);
        let start_of_request = bytes.len();
        conversation.request(&mut bytes);
        let mut go_on = || !interrupted.load(Ordering::Relaxed);
        let open = || Ok::<_, io::Error>((target.connect(CONNECT_LIMIT, &mut go_on)?, 0));
        let mut clients =
            std::iter::repeat_with(open).take(count).collect::<io::Result<Vec<_>>>()?;
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
                    if stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    // An ended connection is replaced by one that the kernel still opens, so that
                    // no client waits for another one's. If that is not possible now, it is tried
                    // again in the next pass.
                    let is_done = *at == bytes.len();
                    match (is_done, again) {
                        (true, Some(start)) => *at = start,
                        (true, None) => match target.begin_connect() {
                            Ok(fresh) => (*fd, *at) = (fresh, 0),
                            Err(_) => continue,
                        },
                        (false, _) => {}
                    }
                    match dribble(fd, bytes[*at]) {
                        Ok(sent) => *at += usize::from(sent),
                        // The server has ended the connection, which it may do.
                        Err(_) => {
                            if let Ok(fresh) = target.begin_connect() {
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

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;
    use crate::protocol::{Protocol, Template};

    #[test]
    fn a_client_keeps_its_connection_from_one_request_to_the_next() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::Tcp(listener.local_addr().unwrap());
        let requests = Requests::new(Protocol::Frames, &Template::of_size(1)).unwrap();
        let interrupted = AtomicBool::new(false);
        let clients = SlowClients::start(1, &target, &requests, &interrupted).unwrap();
        let (mut client, _) = listener.accept().unwrap();
        // A frame has five bytes, so this is one, and the first byte of the next.
        client.read_exact(&mut [0; 6]).unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(clients);
    }

    #[test]
    fn nothing_is_opened_for_a_user_who_has_ended_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::Tcp(listener.local_addr().unwrap());
        let requests = Requests::new(Protocol::Frames, &Template::of_size(1)).unwrap();
        let started = SlowClients::start(1, &target, &requests, &AtomicBool::new(true));
        assert_eq!(started.unwrap_err().kind(), io::ErrorKind::Interrupted);
    }
}
