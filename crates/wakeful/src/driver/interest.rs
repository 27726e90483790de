//! The readiness that code asks for, and the readiness that a descriptor has.

use std::fmt;
use std::ops::BitOr;

/// The kinds of readiness to wait for.
///
/// ```
/// use wakeful::readiness::Interest;
///
/// let both = Interest::READABLE | Interest::WRITABLE;
/// assert!(both.is_readable() && both.is_writable() && !both.is_priority());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interest(u8);

const READ: u8 = 1;
const WRITE: u8 = 2;
const PRIORITY: u8 = 4;

impl Interest {
    /// A read would return at once: with data, with the end of the stream, or with an error.
    pub const READABLE: Self = Self(READ);
    /// A write would return at once: it would accept some bytes, or fail.
    pub const WRITABLE: Self = Self(WRITE);
    /// There is an exceptional condition (`EPOLLPRI`): urgent TCP data, or a changed value of a
    /// sysfs file. The end of the stream also counts.
    pub const PRIORITY: Self = Self(PRIORITY);

    /// Returns whether the interest includes reads.
    #[must_use]
    pub const fn is_readable(self) -> bool {
        self.0 & READ != 0
    }

    /// Returns whether the interest includes writes.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        self.0 & WRITE != 0
    }

    /// Returns whether the interest includes exceptional conditions.
    #[must_use]
    pub const fn is_priority(self) -> bool {
        self.0 & PRIORITY != 0
    }

    pub(super) fn of(read: bool, write: bool, priority: bool) -> Self {
        let of = |is_asked, bit| if is_asked { bit } else { 0 };
        Self(of(read, READ) | of(write, WRITE) | of(priority, PRIORITY))
    }

    /// Returns the union of both interests. It can be used in a constant.
    #[must_use]
    pub const fn add(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for Interest {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.add(other)
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        names(
            f,
            [
                (self.is_readable(), "READABLE"),
                (self.is_writable(), "WRITABLE"),
                (self.is_priority(), "PRIORITY"),
            ],
        )
    }
}

/// The readiness that the kernel has reported.
///
/// A direction that is closed, or that has an error, also counts as ready, because an operation
/// returns at once.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Ready {
    pub(super) readable: bool,
    pub(super) writable: bool,
    pub(super) priority: bool,
    pub(super) read_closed: bool,
    pub(super) write_closed: bool,
}

impl Ready {
    /// Returns whether nothing is ready.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Returns whether a read would return at once.
    #[must_use]
    pub fn is_readable(self) -> bool {
        self.readable
    }

    /// Returns whether a write would return at once.
    #[must_use]
    pub fn is_writable(self) -> bool {
        self.writable
    }

    /// Returns whether there is an exceptional condition. See [`Interest::PRIORITY`].
    #[must_use]
    pub fn is_priority(self) -> bool {
        self.priority
    }

    /// Returns whether the peer has ended its side, or there is an error. Bytes that the peer sent
    /// before can still be read.
    #[must_use]
    pub fn is_read_closed(self) -> bool {
        self.read_closed
    }

    /// Returns whether written bytes can no longer be delivered: there is an error, or both sides
    /// have ended.
    #[must_use]
    pub fn is_write_closed(self) -> bool {
        self.write_closed
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        names(
            f,
            [
                (self.readable, "READABLE"),
                (self.writable, "WRITABLE"),
                (self.priority, "PRIORITY"),
                (self.read_closed, "READ_CLOSED"),
                (self.write_closed, "WRITE_CLOSED"),
            ],
        )
    }
}

fn names<const N: usize>(
    f: &mut fmt::Formatter<'_>,
    flags: [(bool, &'static str); N],
) -> fmt::Result {
    let mut set = flags.into_iter().filter_map(|(set, name)| set.then_some(name));
    f.write_str(set.next().unwrap_or("(nothing)"))?;
    set.try_for_each(|name| write!(f, " | {name}"))
}
