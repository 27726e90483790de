//! Options that leave a setting unchanged if they are not given.

/// Returns `settings` with `set` applied to `value`, or unchanged without a value.
pub(super) fn given<S, V>(settings: S, value: Option<V>, set: impl FnOnce(S, V) -> S) -> S {
    match value {
        Some(value) => set(settings, value),
        None => settings,
    }
}

/// A limit from the command line, where 0 means no limit.
pub(super) fn unless_zero<N: PartialEq + Default>(limit: N) -> Option<N> {
    Some(limit).filter(|limit| *limit != N::default())
}
