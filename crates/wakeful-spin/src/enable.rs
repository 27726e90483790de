//! How spinning is switched on: by the program, or by its environment.

use std::env;
use std::io::{self, Write};

use wakeful::idle::{Adaptive, Spinner};

use crate::settings;

/// Makes the threads of this process spin for a while before they sleep in `epoll_wait` or `poll`,
/// as long as that is worth its cost. A second call has no effect, even with other settings. A
/// forked child also spins.
///
/// # Errors
/// No memory is left for handlers that detect a fork. The program then does not spin.
pub fn enable() -> io::Result<()> {
    enable_with(Adaptive::new())
}

/// Like [`enable()`], with other settings. The settings apply to each thread. If spinning is
/// already enabled, the call has no effect.
///
/// ```
/// use wakeful_spin::Adaptive;
///
/// # fn main() -> std::io::Result<()> {
/// wakeful_spin::enable_with(Adaptive::new().max_cpu(0.3))?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The same as for [`enable()`].
pub fn enable_with(settings: Adaptive) -> io::Result<()> {
    // Registers the handlers here, where memory may be allocated: a wait may be in a signal
    // handler.
    Spinner::of_this_thread(settings)?;
    settings::set(settings);
    Ok(())
}

/// Reads the settings from the environment.
pub(crate) fn read_environment() {
    if env::var_os("WAKEFUL_SPIN").is_none_or(|value| value != "1") {
        return;
    }
    let settings = match env::var("WAKEFUL_SPIN_MAX_CPU") {
        Err(env::VarError::NotPresent) => Ok(Adaptive::new()),
        Err(env::VarError::NotUnicode(text)) => Err(text.to_string_lossy().into_owned()),
        Ok(text) => share(&text).map(|share| Adaptive::new().max_cpu(share)).ok_or(text),
    };
    let said = match settings {
        Ok(settings) => enable_with(settings).map_err(|error| error.to_string()),
        Err(text) => Err(format!("WAKEFUL_SPIN_MAX_CPU={text:?}: expected a number from 0 to 1")),
    };
    if let Err(said) = said {
        // The program may have no standard error.
        let _ = writeln!(io::stderr(), "wakeful-spin: nothing spins: {said}");
    }
}

fn share(text: &str) -> Option<f64> {
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_from_0_to_1() {
        assert_eq!(share("0.5"), Some(0.5));
        for wrong in ["", "-0.1", "1.1", "nan", "half"] {
            assert_eq!(share(wrong), None, "{wrong}");
        }
    }
}
