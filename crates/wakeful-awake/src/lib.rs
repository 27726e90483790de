#![doc = include_str!("../README.md")]

mod back_off;
mod cpu_list;
mod cpuidle;
#[cfg(feature = "watch")]
mod enable;
#[cfg(feature = "watch")]
mod fork_gate;
#[cfg(feature = "watch")]
mod hold;
mod idle_count;
#[cfg(feature = "keeper")]
mod keeper;
mod keeper_client;
pub mod keeper_protocol;
#[cfg(feature = "watch")]
mod kept_hold;
pub mod latency_device;
mod machine;
mod probe;
#[cfg(feature = "watch")]
mod switches;
#[cfg(feature = "watch")]
mod traffic;
mod wake_cost;
#[cfg(feature = "watch")]
mod watcher;

pub use back_off::{BackOff, Reluctance};
pub use cpuidle::{IdleDriver, IdleState};
#[cfg(feature = "watch")]
pub use enable::{enable, enabled};
#[cfg(feature = "watch")]
pub use hold::{HoldError, HoldSettings};
#[cfg(feature = "keeper")]
pub use keeper::{Keeper, KeeperLine, KeeperSettings, KeeperStartError};
pub use keeper_client::{KeeperClient, KeeperError};
pub use machine::{LargeMachine, check_share};
pub use probe::Probe;
#[cfg(feature = "watch")]
pub use switches::{CountError, Target};
pub use wake_cost::{Gain, wake_cost};
#[doc(hidden)]
pub use wake_cost::{StartThread, wake_cost_with};
#[cfg(feature = "watch")]
pub use watcher::{Done, Ended, WatchError, Watcher};
