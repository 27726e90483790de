//! How the start of a server ends early when the process is told to end.
//!
//! The thread that starts a server waits for the server's set-ups, perhaps for ever: for a database
//! that does not answer, for example. That thread sees no signal meanwhile. So the code that
//! catches the signals calls the start [`within`] a listener, and the start [`listen`]s there.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::rc::Rc;

/// Called at most once, on another thread.
pub(crate) type Tell = Box<dyn FnOnce() + Send>;

/// Dropped to stop listening.
pub(crate) type Listening = async_channel::Sender<Infallible>;

type Listen = dyn Fn(Tell) -> Listening;

thread_local! {
    static LISTEN: RefCell<Option<Rc<Listen>>> = const { RefCell::new(None) };
}

/// The error of a start that was told to end.
#[derive(Debug, thiserror::Error)]
#[error("told to end before the server had started")]
struct ToldToEnd;

/// Returns the error of a start that was told to end.
pub(crate) fn error() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, ToldToEnd)
}

pub(crate) fn is_told_to_end(error: &io::Error) -> bool {
    let Some(error) = error.get_ref() else { return false };
    error.is::<ToldToEnd>()
}

/// Calls `start`. Code that it runs on this thread listens by `with`, which also reports an end
/// that came earlier.
pub(crate) fn within<T>(
    with: impl Fn(Tell) -> Listening + 'static,
    start: impl FnOnce() -> T,
) -> T {
    struct Restore(Option<Rc<Listen>>);

    impl Drop for Restore {
        fn drop(&mut self) {
            LISTEN.set(self.0.take());
        }
    }

    let _restore = Restore(LISTEN.replace(Some(Rc::new(with))));
    start()
}

/// Arranges that `tell` is called when the process is told to end. `None`: on this thread nothing
/// listens for that.
pub(crate) fn listen(tell: Tell) -> Option<Listening> {
    // In the destructor of a thread-local, `LISTEN` may be gone.
    let listen = LISTEN.try_with(|listen| listen.borrow().clone()).ok().flatten()?;
    Some(listen(tell))
}
