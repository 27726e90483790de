//! The public table: reads and writes of 1000 bytes in seven proportions, from as many connections
//! as the public case had client threads.
//!
//! The load is a closed loop, as in the public case: each connection has one request under way.
//! Keys are set before anything is measured, so that each read finds its value.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use wakeful_load::internals::bench::{BenchError, Companion, Load, Undisturbed};
use wakeful_load::internals::servers::Server;
use wakeful_load::internals::summary;
use wakeful_load::{
    InvalidTemplate, Measurement, Plan, Requests, Schedule, Target, Template, Validity,
};

use super::parts::Extent;
use crate::contender::Contender;
use crate::interleaved::{self, Measured};
use crate::lab::{Lab, LabError};

/// Reads, writes and client threads, in the order of the public table.
pub(super) const WORKLOADS: [(u32, u32, usize); 7] =
    [(0, 1, 15), (1, 0, 50), (1, 1, 30), (1, 3, 15), (1, 30, 15), (3, 1, 30), (30, 1, 50)];

pub(super) const READS: &str = "reads";
pub(super) const WRITES: &str = "writes";

const BYTES: usize = 1000;
const KEYS: u64 = 10_000;

const WARM_UP: Duration = Duration::from_millis(200);

/// This many keys are set before their answers are read.
const SET_AT_ONCE: u64 = 100;

/// Returns the key that the generator puts in the place of `key:{key}` in a command.
fn key(number: u64) -> String {
    format!("key:{number:012}")
}

/// What was measured under one of the [`WORKLOADS`].
pub(super) struct Workload {
    /// The requests per second, in the order of `kinds`.
    pub(super) rates: Measured<Vec<f64>>,
    /// The names of the requests.
    pub(super) kinds: Vec<&'static str>,
    /// All rounds of each contender, merged.
    pub(super) wholes: BTreeMap<String, Measurement>,
    /// The contenders whose figures are in doubt, and the reasons.
    pub(super) doubts: Vec<String>,
}

/// Returns the name of a workload.
pub(super) fn name((reads, writes, threads): (u32, u32, usize)) -> String {
    format!("{reads}:{writes}, {threads} clients")
}

/// Tells the user how long the measurement will take.
pub(super) fn expect(
    lab: &mut Lab<'_>,
    contenders: &[Contender],
    extent: &Extent,
) -> Result<(), LabError> {
    for workload in WORKLOADS {
        let each = lab.bench.expected_time(&load(workload, extent.block, lab.seed)?);
        lab.bench.progress.expect(extent.rounds * contenders.len(), each);
    }
    Ok(())
}

/// Measures all contenders under each workload, each in interleaved rounds.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    contenders: &[Contender],
    extent: &Extent,
) -> Result<Vec<Workload>, LabError> {
    // A contender that does not start is left out of all workloads, with one note.
    let mut able = Vec::new();
    for contender in contenders {
        match lab.bench.try_out(&contender.server) {
            Ok(()) => able.push(contender.clone()),
            Err(error) => lab.notes.push(format!("{} was left out: {error}", contender.name)),
        }
    }
    let names: Vec<String> = able.iter().map(|contender| contender.name.clone()).collect();
    let own_cpus = lab.bench.server_cpus.clone();
    let mut all = Vec::new();
    for workload in WORKLOADS {
        let load = load(workload, extent.block, lab.seed)?;
        let mut wholes: BTreeMap<String, Measurement> = BTreeMap::new();
        let mut round = 0;
        let rates = interleaved::measure(
            lab,
            &name(workload),
            &names,
            extent.rounds,
            |lab, one, label| {
                let contender = &able[one];
                let mut load = load.clone();
                let seed = lab.seed.wrapping_add((round / names.len()) as u64);
                load.plan = load.plan.seed(seed);
                round += 1;
                lab.bench.server_cpus = contender.cpus.of(&lab.bench);
                let block = lab.bench.block_beside(&contender.server, &load, label, &mut Preload);
                lab.bench.server_cpus.clone_from(&own_cpus);
                let mut block = block?;
                block.measurement.recording.forget_intervals();
                let kinds = summary::kinds(&block.measurement);
                match wholes.get_mut(&contender.name) {
                    Some(whole) => whole.add(&block.measurement),
                    None => drop(wholes.insert(contender.name.clone(), block.measurement)),
                }
                let value = kinds.iter().map(|kind| kind.throughput).collect();
                Ok(Undisturbed { value, repeated: block.repeated, spoilt: block.spoilt })
            },
        )?;
        let doubts = wholes.iter().filter_map(|(name, whole)| match whole.validity() {
            Validity::Valid => None,
            Validity::Invalid { reasons, .. } => Some(format!("{name}: {}", reasons.join("; "))),
        });
        let doubts = doubts.collect();
        all.push(Workload { rates, kinds: kinds(workload), wholes, doubts });
        if lab.bench.is_interrupted() {
            break;
        }
    }
    Ok(all)
}

fn kinds((reads, writes, _): (u32, u32, usize)) -> Vec<&'static str> {
    let kinds = [(READS, reads), (WRITES, writes)];
    kinds.into_iter().filter(|(_, weight)| *weight > 0).map(|(name, _)| name).collect()
}

fn requests((reads, writes, _): (u32, u32, usize)) -> Result<Requests, InvalidTemplate> {
    let commands = [
        (READS, reads, Template::command("GET key:{key}")),
        (WRITES, writes, Template::command("SET key:{key}").body_of_size(BYTES)),
    ];
    Requests::mix(commands.into_iter().filter(|(_, weight, _)| *weight > 0))
}

fn load(workload: (u32, u32, usize), block: Duration, seed: u64) -> Result<Load, BenchError> {
    let (_, _, threads) = workload;
    // Each block replaces the target by its server's address.
    let plan = Plan::new(Target::Unix("/".into()))
        .requests(requests(workload)?)
        .keys(KEYS)
        .schedule(Schedule::Closed)
        .in_flight(1)
        .connections(threads)
        .seed(seed)
        .warm_up(WARM_UP)
        .duration(block);
    Ok(Load { plan, slow_clients: 0 })
}

/// Sets every key before the load begins.
struct Preload;

impl Companion for Preload {
    fn server_started(&mut self, server: &Server) -> io::Result<()> {
        let stream = TcpStream::connect(server.addr())?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let (mut out, mut input) = (stream.try_clone()?, BufReader::new(stream));
        let value = String::from_utf8_lossy(Template::of_size(BYTES).get_body()).into_owned();
        for first in (0..KEYS).step_by(SET_AT_ONCE as usize) {
            let mut batch = String::new();
            for number in first..first + SET_AT_ONCE {
                let key = key(number);
                let (key_length, length) = (key.len(), value.len());
                batch.push_str(&format!(
                    "*3\r\n$3\r\nSET\r\n${key_length}\r\n{key}\r\n${length}\r\n{value}\r\n"
                ));
            }
            out.write_all(batch.as_bytes())?;
            for _ in 0..SET_AT_ONCE {
                let mut answer = [0; 5];
                input.read_exact(&mut answer)?;
                if &answer != b"+OK\r\n" {
                    let answer = String::from_utf8_lossy(&answer).into_owned();
                    return Err(io::Error::other(format!("SET is answered with {answer:?}")));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use wakeful_load::internals::protocol::{Conversation, Draw};

    use super::*;

    #[test]
    fn what_is_asked_for_are_the_keys_that_were_set() {
        for workload in WORKLOADS {
            let plan = load(workload, WARM_UP, 1).unwrap().plan;
            assert_eq!(plan.get_connections(), workload.2);
            for (kind, name) in kinds(workload).into_iter().enumerate() {
                let mut out = Vec::new();
                let draw = Draw { kind, key: KEYS - 1 };
                requests(workload).unwrap().conversation().request_drawn(draw, &mut out);
                let said = String::from_utf8(out).unwrap();
                assert!(said.contains(&key(KEYS - 1)), "{said}");
                let command = if name == READS { "GET" } else { "SET" };
                assert!(said.contains(command), "{said}");
            }
        }
    }
}
