//! Reading into uninitialised memory.
//!
//! The buffers of hyper and tokio lend such memory, and must be told, by an unsafe call, how much
//! of it was written. Only this module does so, next to the system call that has written.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::slice;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags};

/// A buffer that a read may fill.
pub(crate) trait ReadBuffer {
    /// How many bytes fit.
    fn room(&self) -> usize;

    /// The memory that a read may fill.
    ///
    /// # Safety
    /// The caller writes no uninitialised bytes to it.
    unsafe fn memory(&mut self) -> &mut [MaybeUninit<u8>];

    /// Notes that the first `count` bytes of the memory are written.
    ///
    /// # Safety
    /// These bytes are initialised.
    unsafe fn written(&mut self, count: usize);
}

/// Which system call reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadCall {
    /// `recv`, which does less than `read`.
    Plain,
    /// `recv` that does not block, whatever the descriptor's flags are.
    DontWait,
    /// `recvmsg`, for Unix sockets. A peer may attach descriptors to its bytes, and then a read
    /// stops after that message (unix(7)). Because there is no room for descriptors, the kernel
    /// closes them and reports that.
    Message,
    /// `read`, for descriptors that are not sockets.
    Any,
}

/// The result of a read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Read {
    pub(crate) count: usize,
    /// Whether the count says nothing about whether there is more.
    pub(crate) cut: bool,
}

/// Reads once.
#[inline]
pub(crate) fn read<B: ReadBuffer + ?Sized>(
    fd: BorrowedFd<'_>,
    call: ReadCall,
    buf: &mut B,
) -> Result<Read, Errno> {
    // SAFETY: the memory goes to the kernel, which writes bytes.
    let memory = unsafe { buf.memory() };
    #[cfg(feature = "faults")]
    let memory = {
        crate::sys::faults::perhaps_reset(fd);
        let length = crate::sys::faults::shorten(memory.len());
        &mut memory[..length]
    };
    let room = memory.len();
    let read = match call {
        ReadCall::Plain | ReadCall::DontWait => {
            let is_plain = call == ReadCall::Plain;
            let flags = if is_plain { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            let ((written, _), _) = rustix::net::recv(fd, memory, flags)?;
            Read { count: written.len(), cut: false }
        }
        ReadCall::Message => receive(fd, memory)?,
        ReadCall::Any => {
            let (written, _) = rustix::io::read(fd, memory)?;
            Read { count: written.len(), cut: false }
        }
    };
    assert!(read.count <= room, "a read wrote beyond its buffer");
    // SAFETY: the kernel's count of what it wrote.
    unsafe { buf.written(read.count) };
    Ok(read)
}

fn receive(fd: BorrowedFd<'_>, memory: &mut [MaybeUninit<u8>]) -> Result<Read, Errno> {
    // SAFETY: same layout. The slice is made for `recvmsg`, which hands it to the kernel and does
    // not read it; no reference to it is left afterwards.
    let memory =
        unsafe { slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<u8>(), memory.len()) };
    let message = rustix::net::recvmsg(
        fd,
        &mut [IoSliceMut::new(memory)],
        &mut RecvAncillaryBuffer::default(),
        RecvFlags::CMSG_CLOEXEC,
    )?;
    Ok(Read { count: message.bytes, cut: message.flags.contains(ReturnFlags::CTRUNC) })
}

impl ReadBuffer for [u8] {
    fn room(&self) -> usize {
        self.len()
    }

    unsafe fn memory(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: same layout; the caller writes nothing uninitialised.
        unsafe { slice::from_raw_parts_mut(self.as_mut_ptr().cast(), self.len()) }
    }

    unsafe fn written(&mut self, _: usize) {}
}

#[cfg(feature = "hyper")]
impl ReadBuffer for hyper::rt::ReadBufCursor<'_> {
    fn room(&self) -> usize {
        self.remaining()
    }

    unsafe fn memory(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: hyper asks what this method asks of its caller.
        unsafe { self.as_mut() }
    }

    unsafe fn written(&mut self, count: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.advance(count) };
    }
}

#[cfg(feature = "tokio-io")]
impl ReadBuffer for tokio::io::ReadBuf<'_> {
    fn room(&self) -> usize {
        self.remaining()
    }

    unsafe fn memory(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: tokio asks what this method asks of its caller.
        unsafe { self.unfilled_mut() }
    }

    unsafe fn written(&mut self, count: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.assume_init(count) };
        self.advance(count);
    }
}

/// Copies as much of `bytes` into `buf` as fits. Returns how much that is.
pub(crate) fn fill<B: ReadBuffer + ?Sized>(buf: &mut B, bytes: &[u8]) -> usize {
    // SAFETY: only initialised bytes are written.
    let memory = unsafe { buf.memory() };
    let count = memory.len().min(bytes.len());
    for (to, from) in memory.iter_mut().zip(bytes) {
        to.write(*from);
    }
    // SAFETY: `count` bytes were just written.
    unsafe { buf.written(count) };
    count
}
