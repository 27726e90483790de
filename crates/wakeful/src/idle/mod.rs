//! What a loop does when it has nothing to do: the settings of [`IdlePolicy`].

use std::cell::RefCell;

// `policy` is what the user chooses. `governor` decides how long to spin, and knows nothing of this
// machine. `spinner` applies the governor to this machine: it knows what else wants the CPU
// (`cpus`, `quota`), and what a sleep costs here (`survey`). `holder` keeps CPUs from halting, by
// `holder/device` or `holder/keeper`, if `hold_gain` says that it pays, and `reluctance` that the
// machine can afford it. `holder/price` and `governor/hold_governor` say how long a hold is worth
// its price.
mod cpus;
// `internals` makes it public for a simulator.
#[cfg_attr(not(feature = "internals"), allow(unreachable_pub, dead_code))]
mod governor;
mod hold_gain;
mod holder;
mod keep_warm;
mod once;
mod policy;
// `internals` makes these public for `wakeful-spin`.
#[cfg_attr(not(feature = "internals"), allow(unreachable_pub))]
mod quota;
mod reluctance;
#[cfg_attr(not(feature = "internals"), allow(unreachable_pub))]
mod spinner;
mod survey;

pub use crate::driver::busy_poll::BusyPoll;
pub use governor::LONGEST_WINDOW;
pub use policy::{Adaptive, Hold, IdlePolicy, UnknownIdlePolicy};

#[cfg(all(feature = "internals", not(wakeful_loom)))]
pub use governor::{Governor, GovernorLimits, HoldGovernor};
pub(crate) use holder::Holder;
pub(crate) use keep_warm::KeepWarm;
#[cfg(all(feature = "internals", not(wakeful_loom)))]
#[doc(hidden)]
pub use quota::Quota;
#[cfg(not(all(feature = "internals", not(wakeful_loom))))]
pub(crate) use spinner::{Next, Spinner};
#[cfg(all(feature = "internals", not(wakeful_loom)))]
#[doc(hidden)]
pub use spinner::{Next, Spinner};

/// What a loop with nothing to do does: its policy at work.
pub(crate) enum Idle {
    Adapt(Box<RefCell<Spinner>>),
    /// Sleeps at once. With `Some`, CPUs are kept warm meanwhile.
    Park(#[allow(dead_code, reason = "it works by being there")] Option<KeepWarm>),
    Spin,
    /// Sleeps at once, and keeps CPUs from halting while events come.
    Hold(Box<RefCell<Holder>>),
}
