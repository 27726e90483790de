//! The answers to operators. A process that serves alone answers for itself, and one of several
//! workers answers for all.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fmt::Write;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::future::zip;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use wakeful::LoopHandle;
use wakeful::time::timeout;
use wakeful_prometheus::TextSum;
use wakeful_workers::{LoopInfo, Report, Reports, Said, WorkerInfo, WorkerLoops};

use crate::log;
use crate::shared_answer::SharedAnswer;

/// How long to wait for the other workers. A worker that has not answered by then is stuck, and its
/// last answer counts.
const LIMIT: Duration = Duration::from_secs(1);

/// The state of the handlers that answer operators. Each has a clone.
#[derive(Debug, Clone)]
pub(crate) struct Scrape {
    registry: Arc<Registry>,
    workers: Option<Workers>,
}

#[derive(Debug, Clone)]
struct Workers {
    reports: Reports,
    /// The counters of earlier workers in this place.
    earlier: Arc<str>,
    answers: SharedAnswer<Arc<[Report]>>,
}

impl Scrape {
    /// `reports` is set if this process is one of several.
    ///
    /// # Errors
    /// The counters of earlier workers cannot be read.
    pub(crate) fn new(registry: Registry, reports: Option<Reports>) -> io::Result<Self> {
        let workers = reports.map(|reports| {
            let left = reports.left_by_predecessor()?;
            let mut earlier = TextSum::new();
            earlier.add_counters(&left.earlier);
            earlier.add_counters(&left.own);
            let earlier = earlier.to_string().into();
            io::Result::Ok(Workers { reports, earlier, answers: SharedAnswer::default() })
        });
        Ok(Self { registry: Arc::new(registry), workers: workers.transpose()? })
    }

    /// The reports of the workers of which this process is one.
    pub(crate) fn reports(&self) -> Option<&Reports> {
        self.workers.as_ref().map(|workers| &workers.reports)
    }

    /// The answer to `/metrics`.
    ///
    /// # Errors
    /// No descriptors or no memory left.
    pub(crate) async fn metrics(&self) -> io::Result<String> {
        if self.workers.is_none() {
            return Ok(self.own());
        }
        let mut sum = TextSum::new();
        let all = self.collect().await?;
        let workers = all.iter().filter(|report| report.worker.is_some());
        let present = workers.flat_map(|report| samples(&report.said.own)).collect();
        for report in all.iter() {
            // Its counters are added up separately first. When the next worker adds the ones that
            // this worker has left, the result is the same number, even for fractions.
            let mut place = TextSum::new();
            place.add_counters(&of_present(&report.said.earlier, &present));
            match report.worker {
                Some(_) => place.add(&report.said.own),
                None => place.add_counters(&of_present(&report.said.own, &present)),
            }
            sum.add_sum(&place);
        }
        Ok(sum.to_string())
    }

    /// The answer to `/workers`: a JSON array, with a line for each worker.
    ///
    /// # Errors
    /// No descriptors or no memory left.
    pub(crate) async fn workers(&self) -> io::Result<String> {
        let Some(reports) = self.reports().cloned() else { return Ok("[]\n".to_owned()) };
        let loops = wakeful::on_this_loop(async move { reports.loops(LIMIT).await });
        let (all, loops) = zip(self.collect(), loops).await;
        let (all, loops) = (all?, loops?);
        let mut all: Vec<_> = all.iter().collect();
        let order = |one: &WorkerInfo| (one.number, Reverse(one.age()));
        all.sort_by_cached_key(|report| report.worker.as_ref().map(order));
        let lines: Vec<_> = all.into_iter().filter_map(|report| line(report, &loops)).collect();
        Ok(format!("[\n{}\n]\n", lines.join(",\n")))
    }

    /// The answers of all workers to a question that begins after this call.
    async fn collect(&self) -> io::Result<Arc<[Report]>> {
        let Some(Workers { reports, answers, .. }) = self.workers.clone() else {
            return Ok(Arc::new([]));
        };
        let ask = wakeful::on_this_loop(async move {
            // Before that, the workers of another master serve, and count.
            match timeout(LIMIT, reports.until_in_charge()).await {
                Ok(is) => is?,
                Err(_) => return Err(io::Error::other("an upgrade is under way: ask again")),
            }
            Ok(reports.collect(LIMIT).await?.into())
        });
        // A question takes at most two limits, if its loop is not blocked.
        answers.get(2 * LIMIT, ask).await
    }

    /// Makes this process answer the questions of the other workers, on this loop.
    ///
    /// # Errors
    /// The loop has ended; no descriptors left.
    pub(crate) fn answer_others(&self, on: &LoopHandle) -> io::Result<()> {
        let Some(reports) = self.reports().cloned() else { return Ok(()) };
        let this = self.clone();
        let answering = on.post_and_wait(move || {
            let answering = reports.answer(move || this.said())?;
            wakeful::spawn(answering).detach();
            io::Result::Ok(())
        });
        answering.map_err(io::Error::other)?
    }

    /// Leaves the last counts, which stay when this process is gone.
    pub(crate) fn leave(&self) {
        if let Some(reports) = self.reports()
            && let Err(error) = reports.publish(|| self.last_said())
        {
            log::log!(warn, %error, "cannot write this worker's last counts: /metrics may lack them");
        }
    }

    fn said(&self) -> Said {
        let earlier = self.workers.as_ref().map(|workers| workers.earlier.as_ref().to_owned());
        Said { own: self.own(), earlier: earlier.unwrap_or_default() }
    }

    /// The counts that the next worker adds to its own. Backends that are gone are left out,
    /// because otherwise their counts would be carried on for ever.
    fn last_said(&self) -> Said {
        let Said { own, earlier } = self.said();
        let earlier = of_present(&earlier, &samples(&own).collect());
        Said { own, earlier }
    }

    fn own(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a String takes all that is written");
        text
    }
}

/// The samples of `text`: their names with labels.
fn samples(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(sample)
}

fn sample(line: &str) -> &str {
    line.rsplit_once(' ').map_or("", |(sample, _)| sample)
}

/// The counts in `left`, without backends of a proxy that no worker has any more, because the
/// addresses of names change.
fn of_present(left: &str, present: &HashSet<&str>) -> String {
    let is_present = |line: &&str| !line.contains("{backend=\"") || present.contains(sample(line));
    left.lines().filter(is_present).flat_map(|line| [line, "\n"]).collect()
}

fn line(report: &Report, loops: &[WorkerLoops]) -> Option<String> {
    let worker = report.worker.as_ref()?;
    let mut own = TextSum::new();
    own.add(&report.said.own);
    let mut line = format!(
        r#"{{"number": {}, "pid": {}, "state": "{}", "age_seconds": {}, "answers": {}"#,
        worker.number,
        worker.pid,
        worker.state.as_str(),
        worker.age().as_secs(),
        report.is_current,
    );
    let counts = [
        ("connections", "wakeful_connections"),
        ("connections_accepted", "wakeful_accepts_total"),
        ("requests_in_flight", "wakeful_http_requests_in_flight"),
        ("requests", "wakeful_http_requests_total"),
    ];
    for (name, sample) in counts {
        // Writing to a string does not fail.
        let _ = write!(line, r#", "{name}": {}"#, own.total(sample));
    }
    if let Some(its) = loops.iter().find(|its| its.pid == worker.pid) {
        let its: Vec<_> = its.loops.iter().map(loop_text).collect();
        let _ = write!(line, r#", "loops": [{}]"#, its.join(", "));
    }
    line.push('}');
    Some(line)
}

fn loop_text(one: &LoopInfo) -> String {
    let state = if one.is_awake { "awake" } else { "asleep" };
    let mut text = format!(r#"{{"state": "{state}""#);
    if one.is_awake {
        let _ = write!(text, r#", "in_turn_for_seconds": {:.3}"#, one.in_turn_for.as_secs_f64());
    }
    if let Some(running) = &one.running {
        let _ = write!(text, r#", "task": {}"#, serde_json::Value::from(running.as_str()));
    }
    if let Some(work) = &one.work {
        let _ = write!(text, r#", "work": {}"#, serde_json::Value::from(work.as_str()));
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_that_are_gone_are_left_out_of_what_earlier_workers_counted() {
        let earlier =
            "# TYPE a counter\na_total 5\na_total{backend=\"x:1\"} 6\na_total{backend=\"y:1\"} 7\n";
        let own = "# TYPE a counter\na_total{backend=\"y:1\"} 0\n# EOF\n";
        let kept = "# TYPE a counter\na_total 5\na_total{backend=\"y:1\"} 7\n";
        assert_eq!(of_present(earlier, &samples(own).collect()), kept);
    }
}
