//! Errors of the program's code on their way through hyper.
//!
//! hyper asks such an error for its sources, to find out how to reset the HTTP/2 stream, and then
//! drops it. Both run user code. A panic in the first and then in the second would abort the
//! process, and a panic in the task of a connection would end other requests.

use std::error::Error;
use std::fmt;

use crate::error::BoxError;
use crate::foreign_code::{Contained, contain};

/// Contains a panic in the drop of its error. If asking for the sources has panicked once, it has
/// no source.
struct ForeignError {
    /// `None`: the conversion of the error panicked.
    error: Option<Contained<BoxError>>,
    has_sound_sources: bool,
}

/// `error` for hyper. A panic in its conversion is contained, too.
#[cold]
pub(crate) fn guard(error: impl Into<BoxError>) -> BoxError {
    let (mut made, mut has_sound_sources) = (None, false);
    contain(|| made = Some(Contained::new(error.into())));
    if let Some(made) = &made {
        contain(|| {
            let mut source = made.source();
            while let Some(error) = source {
                source = error.source();
            }
            has_sound_sources = true;
        });
    }
    Box::new(ForeignError { error: made, has_sound_sources })
}

impl Error for ForeignError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let error = self.error.as_ref().filter(|_| self.has_sound_sources)?;
        let error: &(dyn Error + 'static) = &***error;
        Some(error)
    }
}

impl fmt::Display for ForeignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            Some(error) => fmt::Display::fmt(&**error, f),
            None => f.write_str("an error that panicked as it was made"),
        }
    }
}

impl fmt::Debug for ForeignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            Some(error) => fmt::Debug::fmt(&**error, f),
            None => fmt::Display::fmt(self, f),
        }
    }
}
