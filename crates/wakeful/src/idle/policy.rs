use std::fmt;
use std::str::FromStr;

/// What a loop does when nothing is runnable. Set it with
/// [`EventLoopBuilder::idle`](crate::EventLoopBuilder::idle).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum IdlePolicy {
    /// Sleep in the kernel until something happens. Costs no CPU; the first event after a sleep pays for
    /// the thread's wake: tens of microseconds on a virtual machine.
    #[default]
    Park,
    /// Ask again and again without sleeping. The shortest latency, at 100 % of a CPU for ever. Only
    /// for a CPU that nothing else needs: against a busy neighbour on the same CPU, spinning is a
    /// thousand times slower than parking.
    Spin,
}

impl fmt::Display for IdlePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Park => "park",
            Self::Spin => "spin",
        })
    }
}

/// The name is none of the policies'.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no such idle policy: {0:?}; use park or spin")]
pub struct UnknownIdlePolicy(String);

impl FromStr for IdlePolicy {
    type Err = UnknownIdlePolicy;

    fn from_str(name: &str) -> Result<Self, UnknownIdlePolicy> {
        match name {
            "park" => Ok(Self::Park),
            "spin" => Ok(Self::Spin),
            other => Err(UnknownIdlePolicy(other.to_owned())),
        }
    }
}
