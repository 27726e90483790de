//! Measures the time that the generator and the kernel themselves take: the same load against a
//! server that spins and only answers.

use std::time::Duration;

use crate::bench::{Bench, BenchError, Load};
use crate::gaps;
use crate::generator::Plan;
use crate::null_server::{NullServerThread, Slowness};
use crate::protocol::{InvalidTemplate, LARGEST_FRAME, Protocol, Requests, Template};
use crate::results::Floor;
use crate::series::{Series, Slices};
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

/// Tells the user if [`measure`] takes smaller requests than the load.
#[must_use]
pub fn note(bytes: usize) -> Option<String> {
    (bytes > LARGEST_FRAME).then(|| {
        format!(
            "The floor was measured with {LARGEST_FRAME} bytes, not {bytes}: a frame has no room \
             for more."
        )
    })
}

/// Measures with frames of `bytes` bytes each way over TCP, or with the largest frames if `bytes`
/// is more, whatever the plan's protocol. The rate, the number of connections, and the requests in
/// flight are those of `load`.
///
/// # Errors
/// The null server cannot start or accept, or the block fails.
pub fn measure(bench: &mut Bench<'_>, load: &Load, bytes: usize) -> Result<Floor, BenchError> {
    let kernel = |error| BenchError::Kernel { doing: "cannot start the null server", error };
    let mut server = NullServerThread::start(bench.server_cpus.as_deref(), Slowness::default())
        .map_err(kernel)?;
    let rate = load.plan.schedule.rate().unwrap_or(INSTEAD_OF_CLOSED);
    let plan = plan(load, bytes)?.rate(rate).target(server.target().clone());
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
    let run = Series::new(spec.name(), block, Slices::Figures).run();
    let gaps = gaps::on_cpu(bench.cpu).ok();
    Ok(Floor { rate, response: run.response, send_lag: run.send_lag, gaps, validity: run.validity })
}

/// The load, with frames of about the same size.
fn plan(load: &Load, bytes: usize) -> Result<Plan, InvalidTemplate> {
    let template = Template::of_size(bytes.min(LARGEST_FRAME));
    Ok(Plan::new(load.plan.target.clone())
        .requests(Requests::new(Protocol::Frames, &template)?)
        .connections(load.plan.connections)
        .in_flight(load.plan.limit_in_flight())
        .seed(load.plan.seed)
        .duration(DURATION.min(load.plan.duration))
        .warm_up(WARM_UP.min(load.plan.warm_up)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> Load {
        Load { plan: Plan::new("127.0.0.1:80".parse().unwrap()), slow_clients: 0 }
    }

    #[test]
    fn a_floor_has_as_many_requests_in_flight_as_its_load() {
        let mut load = load();
        assert_eq!(plan(&load, 1).unwrap().limit_in_flight(), 1);
        load.plan = load.plan.in_flight(3);
        assert_eq!(plan(&load, 1).unwrap().limit_in_flight(), 3);
    }

    #[test]
    fn a_request_that_no_frame_has_room_for_has_a_floor_and_a_note() {
        for (bytes, has_note) in [(LARGEST_FRAME, false), (LARGEST_FRAME + 1, true)] {
            assert!(plan(&load(), bytes).is_ok());
            assert_eq!(note(bytes).is_some(), has_note);
        }
    }
}
