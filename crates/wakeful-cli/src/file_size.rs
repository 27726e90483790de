//! A limit of file sizes (`ulimit -f`, RLIMIT_FSIZE).

use std::sync::Arc;

use signal_hook::consts::SIGXFSZ;

/// Makes a write beyond the limit fail from now on. By default SIGXFSZ ends the process.
///
/// `wakeful awake` must not call this, because its command should have the signal's original
/// action.
pub(crate) fn survive_limits() {
    if let Err(error) = signal_hook::flag::register(SIGXFSZ, Arc::default()) {
        tracing::warn!(%error, "cannot catch SIGXFSZ: a file that reaches its size limit ends the process");
    }
}
