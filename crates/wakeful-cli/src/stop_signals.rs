//! Signals that end a program which waits in the kernel.

use std::io;
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use signal_hook::low_level::pipe;

use crate::registration::without_signals;

/// Becomes readable with the first of these signals.
///
/// # Errors
/// A line for the user: no descriptor is left, or the signal cannot be caught.
pub(crate) fn stop_signals(signals: &[i32]) -> Result<UnixStream, String> {
    caught(signals).map_err(|error| {
        let is_short = error.raw_os_error() == Some(Errno::MFILE.raw_os_error());
        let how = if is_short { ": raise RLIMIT_NOFILE (ulimit -n)" } else { "" };
        format!("signals: {error}{how}")
    })
}

fn caught(signals: &[i32]) -> io::Result<UnixStream> {
    let (stop, stopper) = UnixStream::pair()?;
    without_signals(signals, || {
        signals
            .iter()
            .try_for_each(|signal| pipe::register(*signal, stopper.try_clone()?).map(drop))
    })?;
    // The parent process may have blocked the signals.
    wakeful::signal::unblock(signals)?;
    Ok(stop)
}
