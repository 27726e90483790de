//! docs/metrics.md is the list of what `/metrics` has: each metric of each service is there, with
//! its type, labels and unit, and no other.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use common::{GUARD, PROGRAM, Service, get};

const PAGE: &str = "docs/metrics.md";

/// A metric, as the page and the output have it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Metric {
    kind: String,
    labels: BTreeSet<String>,
    /// `seconds` and `bytes`, which the output says. Other units are only on the page.
    unit: Option<String>,
}

type Metrics = BTreeMap<String, Metric>;

fn text_of_the_page() -> String {
    std::fs::read_to_string(doc_pages::root().join(PAGE)).unwrap()
}

/// The first code of a cell.
fn code(cell: &str) -> Option<&str> {
    cell.trim().strip_prefix('`')?.split('`').next()
}

/// The rows of its tables that are about a metric.
fn on_the_page(text: &str) -> Metrics {
    let mut metrics = Metrics::new();
    for line in text.lines() {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, unit, _] = cells[..] else { continue };
        let Some(name) = code(name).filter(|name| name.starts_with("wakeful_")) else { continue };
        let labels = labels.split(',').filter_map(code).map(str::to_owned).collect();
        let unit = Some(unit).filter(|unit| ["seconds", "bytes"].contains(unit));
        let metric = Metric { kind: kind.to_owned(), labels, unit: unit.map(str::to_owned) };
        assert_eq!(metrics.insert(name.to_owned(), metric), None, "{name} is there twice");
    }
    metrics
}

/// The metrics of an answer. A counter's name is that of its samples.
fn of_an_answer(text: &str) -> Metrics {
    let mut metrics = Metrics::new();
    let (mut name, mut family) = (String::new(), String::new());
    for line in text.lines() {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "TYPE", of, kind] => {
                of.clone_into(&mut family);
                name = if kind == "counter" { format!("{of}_total") } else { of.to_owned() };
                metrics.entry(name.clone()).or_default().kind = kind.to_owned();
            }
            ["#", "UNIT", of, unit] => {
                assert_eq!(of, family);
                metrics.get_mut(&name).unwrap().unit = Some(unit.to_owned());
            }
            _ if !name.is_empty() && line.starts_with(&name) => {
                let labels = line.split_once('{').map_or("", |(_, rest)| rest);
                // No value has a comma or an equals sign.
                let labels = labels.split('}').next().unwrap_or_default().split(',');
                let labels = labels.filter_map(|label| label.split_once("=\""));
                let labels = labels.map(|(label, _)| label).filter(|label| *label != "le");
                metrics.get_mut(&name).unwrap().labels.extend(labels.map(str::to_owned));
            }
            _ => {}
        }
    }
    metrics
}

fn write_certificate(folder: &Path) -> [String; 2] {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let path = |name| folder.join(name).to_str().unwrap().to_owned();
    let [certificate, key] = [path("site.pem"), path("site.key")];
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    [certificate, key]
}

/// While workers start they may answer 503.
fn metrics_at(addr: &str) -> String {
    let begun = Instant::now();
    loop {
        let answer = get(addr, "/metrics");
        if answer.starts_with("HTTP/1.1 200") {
            return answer;
        }
        assert!(begun.elapsed() < GUARD, "{answer}");
    }
}

/// What each of the services that have the page answers.
fn answers() -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = write_certificate(folder.path());
    let log = folder.path().join("access.log");
    let mut backend = Service::start(&[
        "http",
        "--listen",
        "127.0.0.1:0",
        "--access-log",
        "json",
        "--access-log-file",
        log.to_str().unwrap(),
    ]);
    let to = backend.behind("listening on ");
    let to_name = format!("dns:{}", to.replace("127.0.0.1", "localhost"));
    // Its own page, without `--admin`.
    let mut answers = vec![metrics_at(&to)];
    let tls = ["--tls-cert", &certificate, "--tls-key", &key];
    let backends = ["--to", &to, "--to", &to_name];
    for arguments in [
        ["http"].as_slice(),
        &["rpc"],
        &[["proxy"].as_slice(), &backends].concat(),
        &[["http"].as_slice(), &tls].concat(),
        &["http", "--workers", "2"],
        &[["proxy", "--workers", "2"].as_slice(), &backends].concat(),
    ] {
        let addresses = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let mut service = Service::start(&[arguments, &addresses].concat());
        let admin = service.behind("admin on ");
        answers.push(metrics_at(&admin));
        service.signal("-TERM");
        service.child.wait().unwrap();
    }
    answers
}

fn names(metrics: &Metrics) -> BTreeSet<&String> {
    metrics.keys().collect()
}

#[test]
fn the_page_has_the_metrics_of_all_services_and_no_others() {
    let text = text_of_the_page();
    let listed = on_the_page(&text);
    let mut found = Metrics::new();
    let mut reasons = BTreeSet::new();
    for answer in answers() {
        for (name, metric) in of_an_answer(&answer) {
            let known = found.entry(name.clone()).or_default();
            known.labels.extend(metric.labels);
            (known.kind, known.unit) = (metric.kind, metric.unit);
        }
        let of_a_reason = "wakeful_http_refused_total{reason=\"";
        let lines = answer.lines().filter_map(|line| line.strip_prefix(of_a_reason));
        reasons.extend(lines.map(|line| line.split('"').next().unwrap().to_owned()));
    }
    let (on_page, in_output) = (names(&listed), names(&found));
    let missing: Vec<_> = in_output.difference(&on_page).collect();
    assert!(missing.is_empty(), "{PAGE} has no row of {missing:?}");
    let unknown: Vec<_> = on_page.difference(&in_output).collect();
    assert!(unknown.is_empty(), "no service has {unknown:?} of {PAGE}");
    for (name, metric) in &found {
        assert_eq!(&listed[name], metric, "the row of {name}: left is the page");
    }
    assert!(reasons.len() > 20, "{reasons:?}");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let first_cells: String = rows.filter_map(|line| line.split('|').nth(1)).collect();
    let missing: Vec<_> =
        reasons.iter().filter(|reason| !first_cells.contains(&format!("`{reason}`"))).collect();
    assert!(missing.is_empty(), "{PAGE} has no row of the reasons {missing:?}");
}

/// The words of a text that look like a metric's name. The crates' paths (`wakeful_http::`) and
/// what C calls do not.
fn names_in(text: &str) -> Vec<&str> {
    const BEGINNINGS: [&str; 7] =
        ["loop_", "http_", "tls_", "accept", "access_log_", "log_", "proxy_"];
    let words = text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
    let is_metric = |word: &&str| {
        let rest = word.strip_prefix("wakeful_").unwrap_or_default();
        BEGINNINGS.iter().any(|beginning| rest.starts_with(beginning))
            || rest.starts_with("connections")
    };
    words.filter(is_metric).collect()
}

#[test]
fn no_page_names_a_metric_that_there_is_not() {
    let listed = on_the_page(&text_of_the_page());
    let is_there = |name: &str| {
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
            listed.get(name.strip_suffix(end)?).filter(|metric| metric.kind == "histogram")
        });
        listed.contains_key(name) || of_histogram.is_some()
    };
    let mut count = 0;
    for page in doc_pages::pages().iter().filter(|page| page.file.starts_with("docs/")) {
        let spans = page.spans().into_iter().map(|(place, span)| (place.to_string(), span));
        let blocks = page.blocks().into_iter().map(|block| (block.place.to_string(), block.text));
        for (place, text) in spans.chain(blocks) {
            for name in names_in(&text) {
                count += 1;
                assert!(is_there(name), "{place}: {name} is not in {PAGE}");
            }
        }
    }
    assert!(count > 100, "only {count} found");
}

/// So the page says.
#[test]
fn services_without_http_have_no_page_for_operators() {
    for service in ["echo", "kv"] {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", service, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        let ended = loop {
            match child.try_wait().unwrap() {
                None if begun.elapsed() < GUARD => std::thread::yield_now(),
                ended => break ended,
            }
        };
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!(ended.and_then(|status| status.code()), Some(2), "{service}");
    }
}
