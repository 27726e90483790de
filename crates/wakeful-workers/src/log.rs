//! A log subscriber is the program's code: a panic in it ends neither the master nor a worker.

/// Logs at a level of `tracing`, and contains a panic in the subscriber.
macro_rules! log {
    ($level:ident, $($event:tt)+) => {
        ::wakeful::log::contained(|| ::tracing::$level!($($event)+))
    };
}
