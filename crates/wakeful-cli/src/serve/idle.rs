//! `serve --idle` and what belongs to it.

use std::time::Duration;

use clap::Args;
use wakeful::IdlePolicy;
use wakeful::idle::{Adaptive, LONGEST_WINDOW};

use crate::numbers::number;

#[derive(Debug, Args)]
pub(super) struct IdleArguments {
    /// What a loop does when it has no work:
    /// - adaptive: spin while there is traffic, else sleep; beside a keeper, hold the CPU instead
    /// - hold: sleep; with traffic the kernel keeps CPUs from halting (`wakeful awake --probe`)
    /// - park: sleep at once
    /// - spin: never sleep: a whole CPU for each loop, all the time
    /// - busy-poll: sleep while the kernel polls the network card (Linux 6.9; not on loopback)
    /// - keep-warm: sleep while a thread of the lowest priority keeps the CPU from halting
    #[arg(long, verbatim_doc_comment, value_name = "adaptive|hold|park|spin|busy-poll|keep-warm", default_value_t = IdlePolicy::ADAPTIVE)]
    idle: IdlePolicy,

    /// adaptive: the share of a CPU that each loop may spend on spinning, 0 to 1. A CPU quota
    /// lowers it [default: 1].
    #[arg(long, value_name = "SHARE", value_parser = share)]
    max_cpu: Option<f64>,

    /// adaptive: the share of events that should arrive during a spin, 0.05 to 0.9999 [default:
    /// 0.999].
    #[arg(long, value_name = "SHARE", value_parser = hit_rate)]
    hit_rate: Option<f64>,

    /// adaptive: the longest spin, for example 500us or 3ms; at most 16.7ms [default: 25 times what
    /// a wake takes on this machine, 200us to 2ms].
    #[arg(long, value_name = "TIME", value_parser = window)]
    max_window: Option<Duration>,

    /// adaptive: spin even where the machine's keeper (wakeful keeper) would hold the CPU instead.
    #[arg(long)]
    never_hold: bool,

    /// hold: the price of a held microsecond, as a share of that of a spun one, 0 to 1. The higher
    /// it is, the more events a second a loop needs before CPUs are held for it, and the shorter
    /// they are held after an event. If a wake takes 20us, that is: with 0.01 about 10 a second and
    /// 50 ms, with 0.1 100 and 10 ms, with 1 1000 and 4 ms. 0: always for 50 ms [default: 0].
    #[arg(long, value_name = "SHARE", value_parser = share)]
    hold_cost: Option<f64>,
}

impl IdleArguments {
    /// # Errors
    /// A line for the user.
    pub(super) fn policy(&self) -> Result<IdlePolicy, String> {
        let given = [
            ("--max-cpu", "adaptive", self.max_cpu.is_some()),
            ("--hit-rate", "adaptive", self.hit_rate.is_some()),
            ("--max-window", "adaptive", self.max_window.is_some()),
            ("--never-hold", "adaptive", self.never_hold),
            ("--hold-cost", "hold", self.hold_cost.is_some()),
        ];
        let name = self.idle.to_string();
        let misplaced = given.iter().find(|(_, policy, given)| *given && name != *policy);
        if let Some((flag, policy, _)) = misplaced {
            return Err(format!("{flag} is for --idle {policy}, not {name}"));
        }
        let mut adaptive = match self.idle {
            IdlePolicy::Adaptive(adaptive) => adaptive,
            IdlePolicy::Hold(hold) => {
                let hold = self.hold_cost.map_or(hold, |share| hold.hold_cost(share));
                return Ok(IdlePolicy::Hold(hold));
            }
            other => return Ok(other),
        };
        adaptive = self.max_cpu.map_or(adaptive, |share| adaptive.max_cpu(share));
        adaptive = self.hit_rate.map_or(adaptive, |share| adaptive.hit_rate(share));
        adaptive =
            self.max_window.map_or(adaptive, |window| Adaptive::max_window(adaptive, window));
        Ok(IdlePolicy::Adaptive(if self.never_hold { adaptive.never_hold() } else { adaptive }))
    }
}

fn share(text: &str) -> Result<f64, String> {
    number(text, 0.0, 1.0)
}

fn hit_rate(text: &str) -> Result<f64, String> {
    number(text, 0.05, 0.9999)
}

fn window(text: &str) -> Result<Duration, String> {
    let window = humantime::parse_duration(text).ok();
    let window = window.filter(|window| window.as_nanos() <= u128::from(LONGEST_WINDOW));
    window.ok_or_else(|| {
        "expected a time of at most 16.7ms, as 500us or 3ms: a number and its unit".to_owned()
    })
}
