//! The line of `/proc/PID/stat`.

/// What is needed of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stat {
    pub(super) state: char,
    pub(super) parent: u32,
    /// Ticks in user mode, of threads that have ended too.
    pub(super) user: u64,
    /// Ticks in the kernel.
    pub(super) system: u64,
    /// Ticks from boot to its start: tells it from an earlier process of the same number.
    pub(super) started: u64,
}

impl Stat {
    pub(super) fn parse(text: &str) -> Option<Self> {
        // The name may have spaces and parentheses itself; nothing after it has.
        let (_, after_name) = text.rsplit_once(')')?;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            user: fields.get(11)?.parse().ok()?,
            system: fields.get(12)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }

    /// Whether nobody has waited for it yet, which is all that is left of it.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}
