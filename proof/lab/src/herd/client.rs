//! Clients that block. Each thread connects, sends, reads to the end and closes, again and again.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// An answer that takes longer counts as missing.
const PATIENCE: Duration = Duration::from_secs(10);

/// The work of the clients.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work<'a> {
    pub(super) socket: &'a Path,
    /// The path in the request.
    pub(super) path: &'a str,
    /// The length of the answer's body.
    pub(super) body: usize,
    pub(super) clients: usize,
    /// The number of connections of all clients together.
    pub(super) connections: usize,
    /// The pause between the end of one connection and the next.
    pub(super) pause: Duration,
}

/// Does the work, and returns how long it took. Returns `None` if the user ended it.
///
/// # Errors
/// A connection failed, or an answer is wrong.
pub(super) fn run(work: &Work<'_>, interrupted: &AtomicBool) -> io::Result<Option<Duration>> {
    let request = request(work.path);
    let left = AtomicUsize::new(work.connections);
    let failed = AtomicBool::new(false);
    let take =
        || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    let client = || {
        while take().is_ok() && !failed.load(Ordering::Relaxed) {
            if interrupted.load(Ordering::Relaxed) {
                break;
            }
            let outcome = call(work.socket, &request).and_then(|answer| check(&answer, work.body));
            if let Err(error) = outcome {
                failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
            if !work.pause.is_zero() {
                thread::sleep(work.pause);
            }
        }
        Ok(())
    };
    let start = Instant::now();
    thread::scope(|scope| {
        // The scope's own `spawn` panics when no more threads can be started.
        let start = |_| thread::Builder::new().spawn_scoped(scope, client);
        let clients = (0..work.clients).map(start).collect::<io::Result<Vec<_>>>();
        let clients = clients.inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
        let outcomes = clients
            .into_iter()
            .map(|client| client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        outcomes.collect::<io::Result<()>>()
    })?;
    Ok((!interrupted.load(Ordering::Relaxed)).then(|| start.elapsed()))
}

/// Sends one request on its own connection, and returns all that comes back.
pub(super) fn get(socket: &Path, path: &str) -> io::Result<Vec<u8>> {
    call(socket, &request(path))
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: herd\r\nConnection: close\r\n\r\n")
}

fn call(socket: &Path, request: &str) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::with_capacity(512);
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

fn check(answer: &[u8], length: usize) -> io::Result<()> {
    let is_ok = answer.starts_with(b"HTTP/1.1 200 ");
    if is_ok && body(answer).is_some_and(|body| body.len() == length) {
        return Ok(());
    }
    let start: String = String::from_utf8_lossy(answer).chars().take(80).collect();
    Err(io::Error::new(
        ErrorKind::InvalidData,
        format!("not the answer that was asked for: {start:?}"),
    ))
}

/// Returns the body of an answer, which follows its head.
pub(super) fn body(answer: &[u8]) -> Option<&[u8]> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some(&answer[end + 4..])
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Answers each connection with `answer` while the test runs. The test has to remove the file.
    fn serve(name: &str, answer: &'static str) -> std::path::PathBuf {
        let file = format!("wakeful-herd-client-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(file);
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    request.push(byte[0]);
                }
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        path
    }

    fn calls(socket: &Path, interrupted: bool) -> io::Result<Option<Duration>> {
        let pause = Duration::ZERO;
        let work = Work { socket, path: "/", body: 11, clients: 3, connections: 20, pause };
        run(&work, &AtomicBool::new(interrupted))
    }

    #[test]
    fn as_many_connections_are_made_as_asked_for_and_each_answer_is_checked() {
        let good = serve("good", "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world");
        assert!(calls(&good, false).unwrap().is_some());
        assert_eq!(calls(&good, true).unwrap(), None, "the user ended it");
        let _ = std::fs::remove_file(good);
        for (name, answer) in [
            ("status", "HTTP/1.1 404 No\r\nContent-Length: 11\r\n\r\nhello world"),
            ("body", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhell"),
        ] {
            let socket = serve(name, answer);
            assert_eq!(calls(&socket, false).unwrap_err().kind(), ErrorKind::InvalidData, "{name}");
            let _ = std::fs::remove_file(socket);
        }
        assert!(calls(Path::new("/no/such/socket"), false).is_err());
    }
}
