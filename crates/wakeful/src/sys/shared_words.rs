//! Memory that several processes share: words, each of which is read and written atomically.
//!
//! It is a file in memory (`memfd_create(2)`), so that a forked child gets it by the mapping, and
//! an executed program by the descriptor. The size of the file is sealed, because otherwise another
//! process could make it shorter, and a read beyond its end would raise SIGBUS.
//!
//! Another process may write anything. Its words are used as numbers here, and never as addresses.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::limits::explain_call;
use super::sync::AtomicUsize;

/// The mapped words. They are unmapped when this is dropped. See the [module](self).
#[derive(Debug)]
pub(crate) struct SharedWords {
    first: NonNull<AtomicUsize>,
    words: usize,
    file: OwnedFd,
}

// SAFETY: the mapping belongs to no thread, and all that is reached by it is atomic.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Makes this many words, all of them 0.
    pub(crate) fn new(words: usize) -> io::Result<Self> {
        let file = new_file()?;
        let size = words.checked_mul(size_of::<AtomicUsize>()).filter(|size| *size > 0);
        let size = size.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        rustix::fs::ftruncate(&file, size as u64).map_err(explain_call("ftruncate"))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(explain_call("fcntl"))?;
        Self::map(file, size)
    }

    /// Maps the words of another process, from their [descriptor](AsFd).
    ///
    /// # Errors
    /// The descriptor is not that of such memory.
    pub(crate) fn of(file: OwnedFd) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        let size = usize::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        let is_whole = size > 0 && size.is_multiple_of(size_of::<AtomicUsize>());
        if !is_whole || !seals.contains(SealFlags::SHRINK) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Self::map(file, size)
    }

    fn map(file: OwnedFd, size: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a mapping of its own, where the kernel finds room.
        let mapped = unsafe {
            rustix::mm::mmap(ptr::null_mut(), size, protection, MapFlags::SHARED, &file, 0)?
        };
        let first = NonNull::new(mapped.cast()).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { first, words: size / size_of::<AtomicUsize>(), file })
    }
}

fn new_file() -> io::Result<OwnedFd> {
    const NAME: &str = "wakeful-shared";
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Some systems require the flag (`vm.memfd_noexec`). Kernels before Linux 6.3 refuse it.
    match rustix::fs::memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(NAME, flags),
        made => made,
    }
    .map_err(explain_call("memfd_create"))
}

impl Deref for SharedWords {
    type Target = [AtomicUsize];

    fn deref(&self) -> &[AtomicUsize] {
        // SAFETY: `words` words are mapped as long as this lives, and the file keeps its size. They
        // begin at a page, so they are aligned. Every bit pattern is a word. In each process that
        // has them, only atomics access them.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.words) }
    }
}

impl AsFd for SharedWords {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        let size = self.words * size_of::<AtomicUsize>();
        // SAFETY: mapped by `map` at this size, and nobody borrows it any more.
        let _ = unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), size) };
    }
}

/// A fixed number of these words, which are found without a check against the total number.
#[derive(Debug)]
pub(crate) struct SharedLine<const WORDS: usize> {
    line: NonNull<[AtomicUsize; WORDS]>,
    _words: Arc<SharedWords>,
}

// SAFETY: as for the words, which it keeps.
unsafe impl<const WORDS: usize> Send for SharedLine<WORDS> {}
// SAFETY: as above.
unsafe impl<const WORDS: usize> Sync for SharedLine<WORDS> {}

impl<const WORDS: usize> SharedLine<WORDS> {
    /// Takes the words from `first` on.
    ///
    /// # Panics
    /// There are fewer words.
    pub(crate) fn new(words: &Arc<SharedWords>, first: usize) -> Self {
        let line: &[AtomicUsize; WORDS] = words[first..].first_chunk().expect("within the words");
        Self { line: NonNull::from(line), _words: words.clone() }
    }
}

impl<const WORDS: usize> Deref for SharedLine<WORDS> {
    type Target = [AtomicUsize; WORDS];

    #[inline]
    fn deref(&self) -> &[AtomicUsize; WORDS] {
        // SAFETY: it was made of a reference into words that this keeps, where they are.
        unsafe { self.line.as_ref() }
    }
}

#[cfg(all(test, not(miri), not(wakeful_loom)))]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn what_one_mapping_writes_another_reads() {
        let words = SharedWords::new(1_000).unwrap();
        assert!(words.iter().all(|word| word.load(Relaxed) == 0));
        let other = SharedWords::of(words.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(other.len(), 1_000);
        words[999].store(7, Relaxed);
        assert_eq!(other[999].load(Relaxed), 7);
        let kept = SharedLine::<2>::new(&Arc::new(other), 998);
        drop(words);
        assert_eq!(kept[1].load(Relaxed), 7);
    }

    #[test]
    fn nobody_can_take_the_memory_away() {
        let words = SharedWords::new(8).unwrap();
        assert_eq!(rustix::fs::ftruncate(&words, 0), Err(Errno::PERM));
    }

    #[test]
    fn a_descriptor_of_something_else_is_refused() {
        let open = || rustix::fs::memfd_create("not sealed", MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(SharedWords::of(open()).is_err(), "empty");
        let unsealed = open();
        rustix::fs::ftruncate(&unsealed, 64).unwrap();
        assert!(SharedWords::of(unsealed).is_err(), "its size may change");
        assert!(SharedWords::of(std::fs::File::open("/dev/null").unwrap().into()).is_err());
    }

    #[test]
    fn no_words_and_too_many_are_an_error() {
        assert!(SharedWords::new(0).is_err() && SharedWords::new(usize::MAX).is_err());
    }
}
