//! Options that leave a setting as it is where they are not given.

/// `settings` with what `set` makes of `value`, or unchanged without one.
pub(super) fn given<S, V>(settings: S, value: Option<V>, set: impl FnOnce(S, V) -> S) -> S {
    match value {
        Some(value) => set(settings, value),
        None => settings,
    }
}

/// A limit as it is given on the command line: 0 is none.
pub(super) fn unless_zero<N: PartialEq + Default>(limit: N) -> Option<N> {
    Some(limit).filter(|limit| *limit != N::default())
}
