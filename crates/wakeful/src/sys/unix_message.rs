//! One message of a Unix socket, with the descriptors that came with it and the name of its sender.
//!
//! rustix has this call, too, but with rustix there are three problems: a peer may be in another
//! pid namespace (rustix has no credentials without a pid), or be bound to a path of 108 bytes
//! (rustix panics), and a pidfd that comes with a message would stay open.

use std::ffi::OsStr;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;

use rustix::io::Errno;

/// `SCM_MAX_FD`: the most descriptors that one message can carry.
pub(crate) const MOST_DESCRIPTORS: usize = 253;

/// The size of the control buffer. It has room for this many descriptors, and for what else the
/// owner of the socket may have enabled (`SO_PASSCRED`, `SO_PASSSEC`, `SO_PASSPIDFD`,
/// `SO_TIMESTAMP`), which comes first.
const CONTROL: usize = 2048;

/// See unix(7). libc has the constant for some targets only.
const SCM_PIDFD: libc::c_int = 4;

/// What [`receive`] leaves in the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Nothing: the message is taken.
    Nothing,
    /// The message stays in the socket.
    Message,
}

/// What was received, besides the bytes and the descriptors.
pub(crate) struct Message {
    /// How many bytes of the buffer were written.
    pub(crate) count: usize,
    /// Whether not all descriptors could be opened.
    pub(crate) is_cut: bool,
    name: Name,
    name_length: usize,
}

/// A `sockaddr_storage`. The kernel's longest name of a Unix socket has 111 bytes.
#[repr(C, align(8))]
struct Name([u8; size_of::<libc::sockaddr_storage>()]);

#[repr(C, align(8))]
struct Control(mem::MaybeUninit<[u8; CONTROL]>);

/// Receives a message, or the bytes of a stream up to the next descriptors. The descriptors are
/// added to `descriptors`, and are close-on-exec. With `None` the kernel closes them.
///
/// # Errors
/// Kernel errors. Nothing was added then.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    buf: &mut [u8],
    descriptors: Option<&mut Vec<OwnedFd>>,
    leave: Leave,
) -> Result<Message, Errno> {
    let mut name = Name([0; size_of::<libc::sockaddr_storage>()]);
    let mut control = Control(mem::MaybeUninit::uninit());
    let mut slice = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    // SAFETY: integers and pointers; of zeros it is one that names no memory.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = size_of::<Name>() as _;
    header.msg_iov = &raw mut slice;
    header.msg_iovlen = 1;
    if descriptors.is_some() {
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = size_of::<Control>() as _;
    }
    let flags = libc::MSG_CMSG_CLOEXEC
        | match leave {
            Leave::Nothing => 0,
            Leave::Message => libc::MSG_PEEK,
        };
    // SAFETY: the header names `name`, `buf` and `control` with their lengths; all of them outlive
    // the call, and any bytes are valid in them.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    let Ok(count) = usize::try_from(count) else {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    };
    if let Some(descriptors) = descriptors {
        // SAFETY: the kernel has just filled it in, and nobody has taken a descriptor from it.
        unsafe { take_descriptors(&header, descriptors) };
    }
    let is_cut = header.msg_flags & libc::MSG_CTRUNC != 0;
    Ok(Message { count, is_cut, name, name_length: header.msg_namelen as usize })
}

/// # Safety
/// The kernel has filled in the header's control messages, and the descriptors in them are nobody's
/// yet.
unsafe fn take_descriptors(header: &libc::msghdr, descriptors: &mut Vec<OwnedFd>) {
    // SAFETY: the header's control messages are the kernel's.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: as above; what is not null is a whole header within them.
    while let Some(message) = unsafe { next.as_ref() } {
        // SAFETY: it computes a length, and a place within the same control message.
        let (head, data) = unsafe { (libc::CMSG_LEN(0) as usize, libc::CMSG_DATA(message)) };
        let is_of_socket = message.cmsg_level == libc::SOL_SOCKET;
        let is_rights = is_of_socket && message.cmsg_type == libc::SCM_RIGHTS;
        if is_rights || (is_of_socket && message.cmsg_type == SCM_PIDFD) {
            #[allow(clippy::unnecessary_cast, reason = "musl has a u32")]
            let length = (message.cmsg_len as usize).saturating_sub(head);
            for index in 0..length / size_of::<RawFd>() {
                // SAFETY: within the data; unaligned, as far as we know.
                let number = unsafe { data.cast::<RawFd>().add(index).read_unaligned() };
                if number < 0 {
                    // This is a pidfd that the kernel could not open.
                    continue;
                }
                // SAFETY: the kernel has opened it for this message, and each is looked at once.
                let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
                if is_rights {
                    descriptors.push(descriptor);
                }
            }
        }
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(header, message) };
    }
}

impl Message {
    /// The sender's name. A path of 108 bytes, which the standard library's address cannot hold,
    /// counts as none.
    pub(crate) fn sender(&self) -> SocketAddr {
        const FAMILY: usize = size_of::<libc::sa_family_t>();
        let addr = match self.name.0.get(FAMILY..self.name_length).unwrap_or_default() {
            [0, name @ ..] => SocketAddr::from_abstract_name(name),
            path => {
                let path = path.strip_suffix(&[0]).unwrap_or(path);
                SocketAddr::from_pathname(OsStr::from_bytes(path))
            }
        };
        addr.unwrap_or_else(|_| unnamed())
    }
}

/// The address of a socket without a name.
pub(crate) fn unnamed() -> SocketAddr {
    SocketAddr::from_pathname("").expect("to the standard library, it is the unnamed address")
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;

    /// linux/socket.h
    const SO_PASSPIDFD: libc::c_int = 76;

    fn pidfds() -> usize {
        let open = std::fs::read_dir("/proc/self/fd").expect("/proc is there").flatten();
        let targets = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        targets.filter(|target| target.to_string_lossy().contains("pidfd")).count()
    }

    #[test]
    fn a_pidfd_that_comes_along_is_closed() {
        let (ours, theirs) = UnixDatagram::pair().expect("a pair");
        let on: libc::c_int = 1;
        // SAFETY: the kernel reads an int.
        let refused = unsafe {
            let (value, length) = ((&raw const on).cast(), size_of_val(&on) as libc::socklen_t);
            let socket = theirs.as_raw_fd();
            libc::setsockopt(socket, libc::SOL_SOCKET, SO_PASSPIDFD, value, length)
        } != 0;
        if refused {
            eprintln!("skipped: this kernel has no SO_PASSPIDFD (Linux 6.5)");
            return;
        }
        let mut room = [mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        let fds = [ours.as_fd(), theirs.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let slices = [io::IoSlice::new(b"hello")];
        sendmsg(&ours, &slices, &mut control, SendFlags::empty()).expect("sent");

        let mut descriptors = Vec::new();
        for leave in [Leave::Message, Leave::Nothing] {
            let (buf, list) = (&mut [0; 8], Some(&mut descriptors));
            let message = receive(theirs.as_fd(), buf, list, leave).expect("there is one");
            assert!(message.count == 5 && !message.is_cut && message.sender().is_unnamed());
        }
        assert_eq!((descriptors.len(), pidfds()), (4, 0));
    }
}
