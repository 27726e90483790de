//! The keeper's status: which client holds which CPUs, in lines of text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::client::Client;
use super::holders::{ClientId, Holders};
use super::worth::Worth;
use crate::keeper_protocol::format_cpus;

pub(super) fn text(
    clients: &BTreeMap<ClientId, Client>,
    holders: &Holders,
    worth: &Worth,
    now: Instant,
) -> String {
    let cpus: BTreeSet<usize> =
        holders.holds().flat_map(|(_, held)| held.cpus.iter().copied()).collect();
    let cpus: Vec<usize> = cpus.into_iter().collect();
    let held = if cpus.is_empty() { "none".to_owned() } else { format_cpus(&cpus) };
    let mut text = format!("held      {held}\nclients   {}\n", clients.len());
    // A string takes everything.
    let _ = match worth {
        Worth::Unmeasured => writeln!(text, "worth it  not measured"),
        Worth::NotYet => writeln!(text, "worth it  measured at the first hold"),
        Worth::Gains(gain) => writeln!(
            text,
            "worth it  yes: a wake takes {:.1?}, with its CPU held {:.1?}",
            gain.unheld, gain.held
        ),
        Worth::Useless { reason, .. } => writeln!(text, "worth it  no: {reason}"),
    };
    for (id, held) in holders.holds() {
        let Some(client) = clients.get(&id) else { continue };
        let _ = writeln!(
            text,
            "hold      {} within {:?}, for {:.0?}, by {client}",
            format_cpus(&held.cpus),
            Duration::from_micros(held.microseconds.into()),
            now.saturating_duration_since(held.since),
        );
    }
    text
}
