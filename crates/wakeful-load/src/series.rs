//! Blocks of the same server under the same load: the figures of each block, and one result for
//! all.
//!
//! The distributions are merged and judged together; [`Figures`] keeps those of each block.

use hdrhistogram::Histogram;

use crate::bench::Block;
use crate::generator::Measurement;
use crate::recorder::Recording;
use crate::results::{Cpu, Interval, Run, Validity};
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

/// What a series keeps of the slices of its blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Slices {
    /// Their figures. So a further block takes little memory.
    #[default]
    Figures,
    /// Their figures, and their histograms for a log: a block has up to 60, of 270 KB each.
    Histograms,
}

/// Blocks of one server under one load.
#[derive(Debug, Clone)]
pub struct Series {
    server: String,
    whole: Measurement,
    figures: Vec<Figures>,
    kept: Slices,
    /// How many slices all blocks have, and the figures of those that are not empty.
    slices: usize,
    timeline: Vec<Interval>,
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
    pub fn new(server: &str, block: Block, kept: Slices) -> Self {
        let mut series = Self {
            server: server.to_owned(),
            figures: vec![Figures::of(&block)],
            kept,
            slices: 0,
            timeline: Vec::new(),
            cpu: block.cpu,
            changed: 0,
            steal: block.steal,
            repeated: block.repeated,
            spoilt: 0,
            most_outside: 0.0,
            whole: block.measurement,
        };
        series.look_at(block.processes_changed, block.spoilt.then_some(block.outside));
        let slices = std::mem::take(&mut series.whole.recording.intervals);
        series.add_slices(slices);
        series
    }

    /// Adds another block.
    pub fn add(&mut self, mut block: Block) {
        self.figures.push(Figures::of(&block));
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
        self.look_at(block.processes_changed, block.spoilt.then_some(block.outside));
        self.add_slices(std::mem::take(&mut block.measurement.recording.intervals));
        self.whole.add(&block.measurement);
    }

    /// `spoilt_by` is how much of a CPU other programs used, if that spoilt the block.
    fn look_at(&mut self, processes_changed: bool, spoilt_by: Option<f64>) {
        self.changed += usize::from(processes_changed);
        if let Some(outside) = spoilt_by {
            self.spoilt += 1;
            self.most_outside = self.most_outside.max(outside);
        }
    }

    fn add_slices(&mut self, slices: Vec<Histogram<u64>>) {
        let recording = &mut self.whole.recording;
        self.timeline.extend(summary::timeline(&slices, recording.interval, self.slices));
        self.slices += slices.len();
        if self.kept == Slices::Histograms {
            recording.intervals.extend(slices);
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

    /// Returns the merged distributions of all blocks. Those of slices are there if they were kept.
    #[must_use]
    pub fn into_recording(self) -> Recording {
        self.whole.recording
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
        let mut run = summary::run(&self.server, &self.whole, self.timeline.clone(), around);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Request;

    const SLICES: usize = 60;
    const SECOND: u64 = 1_000_000_000;

    /// A block with a request in each slice but the first. Its response time is `index` µs.
    fn block(index: u64) -> Block {
        let window = 0..SLICES as u64 * SECOND;
        let mut recording = Recording::new(window.clone(), 0);
        for intended in window.step_by(SECOND as usize).skip(1) {
            let request = Request { intended, sent: intended, kind: 0 };
            recording.answered(request, intended + index * 1000);
        }
        Block {
            measurement: Measurement::of(recording),
            cpu: None,
            processes_changed: false,
            steal: 0.0,
            outside: 0.0,
            repeated: 0,
            spoilt: false,
        }
    }

    fn series(blocks: u64, kept: Slices) -> Series {
        let mut series = Series::new("a", block(1), kept);
        (2..=blocks).for_each(|index| series.add(block(index)));
        series
    }

    fn histograms(series: Series) -> usize {
        let recording = series.into_recording();
        3 + recording.by_kind.len() + recording.intervals.len()
    }

    #[test]
    fn further_blocks_take_no_further_histograms_unless_a_log_needs_them() {
        let [few, many] = [10, 100].map(|blocks| histograms(series(blocks, Slices::Figures)));
        assert_eq!(few, many);
        assert_eq!(histograms(series(2, Slices::Histograms)), 3 + 2 * SLICES);
    }

    #[test]
    fn the_figures_of_all_slices_are_there_whatever_else_is_kept() {
        for kept in [Slices::Figures, Slices::Histograms] {
            let run = series(3, kept).run();
            assert_eq!((run.blocks, run.response.count), (3, 3 * (SLICES as u64 - 1)));
            let slices = run.timeline.iter().map(|slice| (slice.start, slice.max / 1000));
            let expected = (0..3 * SLICES).filter(|index| index % SLICES > 0);
            let expected = expected.map(|index| (index as f64, (index / SLICES + 1) as u64));
            assert!(slices.eq(expected), "{:?}", run.timeline);
        }
    }
}
