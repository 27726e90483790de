//! Blocks of the same server under the same load: the figures of each block, and one result for
//! all.
//!
//! The distributions are merged and judged together; [`Figures`] keeps those of each block.

use crate::bench::Block;
use crate::generator::Measurement;
use crate::recorder::Recording;
use crate::results::{Cpu, Run, Validity};
use crate::summary::{self, Surroundings};
use crate::validity;

/// The figures of one block. Times are in nanoseconds. A quantile with fewer than 100 samples
/// beyond it is absent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Median response time.
    pub p50: Option<f64>,
    /// 90 %.
    pub p90: Option<f64>,
    /// 99 %.
    pub p99: Option<f64>,
    /// 99.9 %.
    pub p999: Option<f64>,
    /// The longest response time. 0 if there was no answer.
    pub max: f64,
    /// The server's CPU seconds for each answer, if its process is known.
    pub cpu_per_request: Option<f64>,
    /// The server's CPU time divided by the elapsed time, if its process is known. 1 is a whole
    /// CPU.
    pub cpu_share: Option<f64>,
    /// Successful answers per second of the measured time.
    pub throughput: f64,
}

impl Figures {
    /// Returns the figures of a block.
    #[must_use]
    pub fn of(block: &Block) -> Self {
        let (measurement, recording) = (&block.measurement, &block.measurement.recording);
        let at = |quantile: f64| {
            validity::has_enough_beyond(&recording.response, quantile)
                .then(|| recording.response.value_at_quantile(quantile) as f64)
        };
        Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: recording.response.max() as f64,
            cpu_per_request: block
                .cpu
                .map(|cpu| (cpu.user + cpu.system) / recording.answered.max(1) as f64),
            cpu_share: block.cpu.map(|cpu| cpu.share),
            throughput: recording.answers as f64 / measurement.seconds.max(1e-9),
        }
    }
}

/// Blocks of one server under one load.
#[derive(Debug, Clone)]
pub struct Series {
    server: String,
    whole: Measurement,
    figures: Vec<Figures>,
    cpu: Option<Cpu>,
    /// In how many blocks the server's processes changed while they were measured.
    changed: usize,
    steal: f64,
    repeated: usize,
    /// How many blocks other programs spoilt, and how much of a CPU they used at most.
    spoilt: usize,
    most_outside: f64,
}

impl Series {
    /// Makes a series of one block.
    #[must_use]
    pub fn new(server: &str, block: &Block) -> Self {
        let mut series = Self {
            server: server.to_owned(),
            figures: vec![Figures::of(block)],
            cpu: block.cpu,
            changed: 0,
            steal: block.steal,
            repeated: block.repeated,
            spoilt: 0,
            most_outside: 0.0,
            whole: block.measurement.clone(),
        };
        series.look_at(block);
        series
    }

    /// Adds another block.
    pub fn add(&mut self, block: &Block) {
        self.figures.push(Figures::of(block));
        self.cpu = self.cpu.zip(block.cpu).map(|(sum, cpu)| Cpu {
            user: sum.user + cpu.user,
            system: sum.system + cpu.system,
            run_queue_wait: sum.run_queue_wait + cpu.run_queue_wait,
            voluntary_switches: sum.voluntary_switches + cpu.voluntary_switches,
            involuntary_switches: sum.involuntary_switches + cpu.involuntary_switches,
            share: sum.share + cpu.share,
        });
        self.steal += block.steal;
        self.repeated += block.repeated;
        self.whole.add(&block.measurement);
        self.look_at(block);
    }

    fn look_at(&mut self, block: &Block) {
        self.changed += usize::from(block.processes_changed);
        if block.spoilt {
            self.spoilt += 1;
            self.most_outside = self.most_outside.max(block.outside);
        }
    }

    /// Returns the figures of each block, in the order in which they were added.
    #[must_use]
    pub fn figures(&self) -> &[Figures] {
        &self.figures
    }

    /// Returns the server's name.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the merged distributions of all blocks.
    #[must_use]
    pub fn recording(&self) -> &Recording {
        &self.whole.recording
    }

    /// Returns a sentence for the reader if the CPU time is left out because the server's processes
    /// changed.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        (self.changed > 0).then(|| {
            format!(
                "{}: its CPU time is left out, because some of its processes started or ended \
                 while they were measured.",
                self.server
            )
        })
    }

    /// Returns one line of the results.
    #[must_use]
    pub fn run(&self) -> Run {
        let blocks = self.figures.len() as f64;
        let around = Surroundings {
            cpu: self.cpu.map(|sum| Cpu { share: sum.share / blocks, ..sum }),
            steal: self.steal / blocks,
            blocks: self.figures.len(),
            repeated: self.repeated,
        };
        let mut run = summary::run(&self.server, &self.whole, around);
        run.spoilt = self.spoilt;
        if self.spoilt > 0 {
            let mut all = match run.validity {
                Validity::Invalid { reasons, .. } => reasons,
                Validity::Valid => Vec::new(),
            };
            all.push(format!(
                "other programs used up to {:.1} % of a CPU during {} of {} blocks, and the repeats were used up",
                self.most_outside * 100.0,
                self.spoilt,
                self.figures.len()
            ));
            run.validity = Validity::Invalid { reasons: all, up_to: None };
        }
        run
    }
}
