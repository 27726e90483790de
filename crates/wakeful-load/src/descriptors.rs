//! Errors of sockets that name the limit of descriptors.

use std::io;

use rustix::io::Errno;

/// If no descriptor is left, adds to the error which limit to raise.
pub(crate) fn explain(error: io::Error) -> io::Error {
    let how = match Errno::from_io_error(&error) {
        Some(Errno::MFILE) => "each connection takes one: raise RLIMIT_NOFILE (ulimit -n)",
        Some(Errno::NFILE) => "raise fs.file-max",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {how}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_descriptors_is_explained() {
        let text = |errno: Errno| explain(errno.into()).to_string();
        assert!(text(Errno::MFILE).contains("ulimit -n"));
        assert!(text(Errno::NFILE).contains("fs.file-max"));
        let refused = explain(Errno::CONNREFUSED.into());
        assert_eq!(refused.raw_os_error(), Some(Errno::CONNREFUSED.raw_os_error()));
    }
}
