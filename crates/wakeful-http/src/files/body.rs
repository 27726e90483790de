//! The body of an answer: bytes in memory, or pieces of a file, read ahead by one on the blocking
//! pool.
//!
//! It promises its exact length. If the file has become shorter or was rewritten meanwhile, the
//! body ends with an error, and the connection (or the HTTP/2 stream) is aborted. Nothing is
//! padded, so no client mistakes a part, or a mixture of two versions, for the whole. A slow client
//! occupies two chunks and a descriptor.

use std::fmt;
use std::fs::{File, Metadata};
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread, retry_on_intr};

use super::jobs::{Job, Jobs};
use super::open_files::OpenFile;
use super::version::Version;

/// The body of the responses of [`ServeDir`](super::ServeDir).
///
/// # Threads
/// `Send`. It may be polled on any thread.
///
/// # Errors
/// A poll returns an [`io::Error`] if the file could not be read, if it has become shorter or was
/// rewritten since the answer began, or if there is no memory for the next chunk.
pub struct FileBody {
    /// How many bytes are still to come, including `next`.
    left: u64,
    next: Option<Next>,
    /// What comes after `next`.
    rest: Option<Rest>,
}

enum Next {
    Ready(Bytes),
    Reading(Job<io::Result<Bytes>>),
}

struct Rest {
    file: Arc<OpenFile>,
    version: Version,
    jobs: Jobs,
    chunk: u64,
    /// The pieces, in reverse order.
    pieces: Vec<Piece>,
}

/// A part of the body.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    Text(Bytes),
    File(Range<u64>),
}

impl Piece {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::File(range) => range.end - range.start,
        }
    }
}

impl FileBody {
    pub(super) fn empty() -> Self {
        Self::of(Bytes::new())
    }

    pub(super) fn of(bytes: Bytes) -> Self {
        let next = (!bytes.is_empty()).then_some(bytes);
        Self {
            left: next.as_ref().map_or(0, Bytes::len) as u64,
            next: next.map(Next::Ready),
            rest: None,
        }
    }

    /// Makes a body of `pieces` of `file`, which had these `metadata` when the answer was decided
    /// on. This reads the first chunk, so it must be called on the pool.
    ///
    /// # Errors
    /// The first chunk cannot be read. Or it is all of the file that is sent, and the file [was
    /// rewritten](super::version::is_rewritten) since. (If more is sent, the next chunk's check
    /// finds that.)
    pub(super) fn read(
        file: &Arc<OpenFile>,
        metadata: &Metadata,
        mut pieces: Vec<Piece>,
        chunk: u64,
        jobs: &Jobs,
    ) -> io::Result<Self> {
        let left = pieces.iter().map(Piece::len).sum();
        pieces.reverse();
        let version = Version::of(metadata);
        let mut rest = Rest { file: file.clone(), version, jobs: jobs.clone(), chunk, pieces };
        let first = match rest.step() {
            Some(Piece::Text(text)) => Some(text),
            Some(Piece::File(range)) => {
                let chunk = read_chunk(&file.file, range)?;
                if rest.pieces.is_empty() {
                    version.check(&file.file)?;
                }
                Some(chunk)
            }
            None => None,
        };
        let rest = (!rest.pieces.is_empty()).then_some(rest);
        Ok(Self { left, next: first.map(Next::Ready), rest })
    }

    /// Starts to read what comes next.
    fn advance(&mut self) {
        let Some(rest) = &mut self.rest else { return };
        self.next = rest.step().map(|piece| match piece {
            Piece::Text(text) => Next::Ready(text),
            Piece::File(range) => {
                let (file, version) = (rest.file.clone(), rest.version);
                Next::Reading(rest.jobs.run(move || {
                    let chunk = read_chunk(&file.file, range)?;
                    // After the read, so that the check covers this chunk, too.
                    version.check(&file.file)?;
                    Ok(chunk)
                }))
            }
        });
        if rest.pieces.is_empty() {
            self.rest = None;
        }
    }
}

impl Rest {
    /// Takes the next piece, of at most a chunk.
    fn step(&mut self) -> Option<Piece> {
        let piece = self.pieces.pop()?;
        match piece {
            Piece::File(range) if range.end - range.start > self.chunk => {
                let end = range.start + self.chunk;
                self.pieces.push(Piece::File(end..range.end));
                Some(Piece::File(range.start..end))
            }
            piece => Some(piece),
        }
    }
}

fn read_chunk(file: &File, range: Range<u64>) -> io::Result<Bytes> {
    let wanted = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    // Under a limit (RLIMIT_AS, a cgroup) there may be no memory. Then only this answer fails, and
    // not the process.
    bytes.try_reserve_exact(wanted).map_err(|_| Errno::NOMEM)?;
    while bytes.len() < wanted {
        let offset = range.start + bytes.len() as u64;
        if retry_on_intr(|| pread(file, spare_capacity(&mut bytes), offset))? == 0 {
            let text = "the file has become shorter while it was sent";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
    }
    // An allocator may have given more memory than was asked for.
    bytes.truncate(wanted);
    Ok(bytes.into())
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let read = match self.next.take() {
            None => return Poll::Ready(None),
            Some(Next::Ready(bytes)) => Ok(bytes),
            Some(Next::Reading(mut job)) => match Pin::new(&mut job).poll(cx) {
                Poll::Ready(read) => read.unwrap_or_else(|error| Err(io::Error::other(error))),
                Poll::Pending => {
                    self.next = Some(Next::Reading(job));
                    return Poll::Pending;
                }
            },
        };
        match &read {
            Ok(bytes) => {
                self.left -= bytes.len() as u64;
                self.advance();
            }
            Err(_) => self.rest = None,
        }
        Poll::Ready(Some(read.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl fmt::Debug for FileBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileBody").field("left", &self.left).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;
    use std::path::Path;
    use std::time::SystemTime;

    use http_body_util::BodyExt;

    use super::*;
    use crate::files::open_files::OpenFiles;

    /// More than any machine has.
    const TOO_MUCH: u64 = u64::MAX - 1;

    fn open(path: &Path) -> Arc<OpenFile> {
        let place = OpenFiles::default().try_enter().unwrap();
        Arc::new(OpenFile { file: File::open(path).unwrap(), _place: place })
    }

    fn file() -> Arc<OpenFile> {
        open(Path::new("/dev/null"))
    }

    #[test]
    fn without_memory_for_the_first_chunk_there_is_no_answer() {
        let pieces = vec![Piece::File(0..TOO_MUCH)];
        let (file, jobs) = (file(), Jobs::new(1));
        let metadata = file.file.metadata().unwrap();
        let error = FileBody::read(&file, &metadata, pieces, TOO_MUCH, &jobs).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NOMEM), "{error}");
    }

    #[test]
    fn without_memory_for_a_later_chunk_the_body_ends_with_an_error() {
        let pieces = vec![Piece::Text(Bytes::from("a")), Piece::File(0..TOO_MUCH)];
        let read = async move {
            let (file, jobs) = (file(), Jobs::new(1));
            let metadata = file.file.metadata().unwrap();
            let mut body = FileBody::read(&file, &metadata, pieces, TOO_MUCH, &jobs).unwrap();
            let first = body.frame().await.unwrap().unwrap();
            let error = body.frame().await.unwrap().unwrap_err();
            (first.into_data().unwrap(), error, body.frame().await.is_none())
        };
        let (first, error, is_over) = wakeful::EventLoop::new().unwrap().block_on(read).unwrap();
        assert_eq!(first, "a");
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NOMEM), "{error}");
        assert!(is_over);
    }

    /// What comes of a file of three chunks that `change` changes when the first one was read.
    fn changed(change: impl FnOnce(&Path)) -> io::Result<Bytes> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "old, old, old").unwrap();
        let file = open(&path);
        // Long ago, so that the time of the change is another one.
        file.file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let metadata = file.file.metadata().unwrap();
        let pieces = vec![Piece::File(0..metadata.len())];
        let read = async move {
            let body = FileBody::read(&file, &metadata, pieces, 5, &Jobs::new(1)).unwrap();
            change(&path);
            body.collect().await.map(http_body_util::Collected::to_bytes)
        };
        wakeful::EventLoop::new().unwrap().block_on(read).unwrap()
    }

    fn write_at_once(path: &Path, how: &mut OpenOptions, text: &str) {
        how.open(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn a_file_that_is_rewritten_in_place_is_not_sent_as_a_whole_one() {
        let error = |change: fn(&Path)| changed(change).unwrap_err().to_string();
        let text = "the file was rewritten while it was sent";
        assert_eq!(error(|path| fs::write(path, "new, new, new").unwrap()), text);
        let overwritten = error(|path| write_at_once(path, OpenOptions::new().write(true), "new"));
        assert_eq!(overwritten, text);
    }

    #[test]
    fn a_file_that_has_grown_or_was_replaced_is_sent_as_it_was() {
        let grown = changed(|path| write_at_once(path, OpenOptions::new().append(true), "more"));
        assert_eq!(grown.unwrap(), "old, old, old");
        let replaced = changed(|path| {
            fs::write(path.with_extension("new"), "new").unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
        });
        assert_eq!(replaced.unwrap(), "old, old, old");
        assert_eq!(changed(|path| fs::remove_file(path).unwrap()).unwrap(), "old, old, old");
    }
}
