//! A limit of file sizes (`ulimit -f`, RLIMIT_FSIZE).

use std::sync::Arc;

use signal_hook::consts::SIGXFSZ;

/// From now on a write beyond the limit fails. By default it ends the process, by SIGXFSZ.
///
/// Not for `wakeful awake`, whose command is to have the signal as this program had it.
pub(crate) fn survive_limits() {
    if let Err(error) = signal_hook::flag::register(SIGXFSZ, Arc::default()) {
        tracing::warn!(%error, "cannot catch SIGXFSZ: a file that reaches its size limit ends the process");
    }
}
