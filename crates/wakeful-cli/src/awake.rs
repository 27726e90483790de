//! `wakeful awake`: what it takes to keep CPUs from halting here.

use std::io::Write;
use std::process::ExitCode;

use wakeful_awake::Probe;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A CPU with nothing to do halts, and the next wake waits until it is back. The kernel can keep CPUs from \
halting (/dev/cpu_dma_latency), which `wakeful serve … --idle hold` asks for while there is traffic. The bill: \
power, hyper-thread siblings, CPU credits; `top` shows such a CPU as idle.

  $ wakeful awake --probe
  $ wakeful awake --probe && wakeful serve echo --idle hold")]
pub(crate) struct Arguments {
    /// Say how idle CPUs sleep here, what a wake costs with CPUs that halt and with CPUs that are
    /// held, whether this process may hold them, and else what permits it. Takes some 60 ms.
    /// Exits with 1 if it is not permitted, or not worth it.
    #[arg(long, required = true)]
    probe: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    debug_assert!(arguments.probe, "it is required");
    let probe = Probe::run();
    let written = write!(std::io::stdout(), "{probe}");
    written.map_err(|error| format!("stdout: {error}"))?;
    Ok(if probe.is_worth_it() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
