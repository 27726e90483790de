//! Signals that end a program which waits in the kernel.

use std::io;
use std::os::unix::net::UnixStream;

use signal_hook::low_level::pipe;

/// Becomes readable with the first of these signals.
///
/// # Errors
/// No descriptor is left, or the signal cannot be caught.
pub(crate) fn stop_signals(signals: &[i32]) -> io::Result<UnixStream> {
    let (stop, stopper) = UnixStream::pair()?;
    for &signal in signals {
        pipe::register(signal, stopper.try_clone()?)?;
    }
    // The parent process may have blocked them.
    wakeful::signal::unblock(signals)?;
    Ok(stop)
}
