//! How spinning is switched on: by the program, or by its environment.

use std::env;
use std::io::{self, Write};

use wakeful::idle::{Adaptive, Spinner};

use crate::settings;

/// From now on the threads of this process spin for a while before they sleep in `epoll_wait` or
/// `poll`, while that pays. A second call does nothing. A forked child goes on with it.
///
/// # Errors
/// There is no memory for handlers that notice a fork. Nothing has changed then.
pub fn enable() -> io::Result<()> {
    enable_with(Adaptive::new())
}

/// As [`enable()`], with other settings than the default ones. They are for each thread.
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
/// As for [`enable()`].
pub fn enable_with(settings: Adaptive) -> io::Result<()> {
    // Registers the handlers here, where memory may be allocated: a wait may be in a signal
    // handler.
    Spinner::of_this_thread(settings)?;
    settings::set(settings);
    Ok(())
}

/// As the environment says.
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
        // There may be no standard error.
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
