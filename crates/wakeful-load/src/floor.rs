//! Measures the time that the generator and the kernel themselves take: the same load against a
//! server that spins and only answers.

use std::time::Duration;

use crate::bench::{Bench, BenchError, Load};
use crate::gaps;
use crate::generator::Plan;
use crate::null_server::{NullServerThread, Slowness};
use crate::protocol::{Protocol, Requests, Template};
use crate::results::Floor;
use crate::series::Series;
use crate::servers::ServerSpec;

/// The time in which 50k/s give p99.9 enough samples.
const DURATION: Duration = Duration::from_secs(2);

/// The longest warm-up.
const WARM_UP: Duration = Duration::from_secs(1);

/// A closed loop has no rate at which to measure the floor. This rate is known to be far from
/// saturation.
const INSTEAD_OF_CLOSED: f64 = 10_000.0;

/// Tells the user how long [`measure`] will take.
pub fn expect(bench: &mut Bench<'_>, load: &Load) {
    let plan = &load.plan;
    bench.progress.expect(1, plan.warm_up.min(WARM_UP) + plan.duration.min(DURATION));
}

/// Measures with frames of `bytes` bytes each way over TCP, whatever the plan's protocol. The
/// number of connections and the rate are those of `load`.
///
/// # Errors
/// The null server cannot start or accept, `bytes` is more than a frame may have, or the block
/// fails.
pub fn measure(bench: &mut Bench<'_>, load: &Load, bytes: usize) -> Result<Floor, BenchError> {
    let kernel = |error| BenchError::Kernel { doing: "cannot start the null server", error };
    let mut server = NullServerThread::start(bench.server_cpus.as_deref(), Slowness::default())
        .map_err(kernel)?;
    let rate = load.plan.schedule.rate().unwrap_or(INSTEAD_OF_CLOSED);
    let template = Template::of_size(bytes);
    let plan = Plan::new(server.target().clone())
        .requests(Requests::new(Protocol::Frames, &template)?)
        .connections(load.plan.connections)
        .seed(load.plan.seed)
        .rate(rate)
        .duration(DURATION.min(load.plan.duration))
        .warm_up(WARM_UP.min(load.plan.warm_up));
    let target = server.target().to_string();
    let spec = ServerSpec::Running { name: "null server".to_owned(), target };
    let load = Load { plan, slow_clients: 0 };
    let block =
        bench.block(&spec, &load, "the generator's own floor (a busy machine is waited for)");
    let block = block.map_err(|error| match server.end() {
        // The null server's error explains why the block failed.
        Err(error) => BenchError::Kernel { doing: "the null server cannot accept", error },
        Ok(()) => error,
    })?;
    let run = Series::new(spec.name(), &block).run();
    let gaps = gaps::on_cpu(bench.cpu).ok();
    Ok(Floor { rate, response: run.response, send_lag: run.send_lag, gaps, validity: run.validity })
}
