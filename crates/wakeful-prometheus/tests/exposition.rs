//! The text of `/metrics`, read as strictly as a scraper may: each rule of the exposition format
//! that a reader relies on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use wakeful::accept::Counts;
use wakeful::{IdlePolicy, LoopGroup, LoopHandle};
use wakeful_prometheus::register_loops;

type Labels = BTreeMap<String, String>;

/// What the text says of one family.
#[derive(Debug, Default)]
struct Family {
    help: Option<String>,
    kind: Option<String>,
    unit: Option<String>,
    /// By the sample's name and labels.
    samples: Vec<(String, Labels, f64)>,
}

/// Panics at whatever breaks a rule.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families = BTreeMap::<String, Family>::new();
    let mut current = String::new();
    let lines = text.strip_suffix("# EOF\n").expect("it ends with # EOF and a line's end");
    for line in lines.lines() {
        if let Some(described) = line.strip_prefix("# ") {
            let [keyword, name, value] = described
                .splitn(3, ' ')
                .collect::<Vec<_>>()
                .try_into()
                .unwrap_or_else(|_| panic!("three words: {line}"));
            if name != current {
                assert!(!families.contains_key(name), "its lines are together: {line}");
                name.clone_into(&mut current);
            }
            let family = families.entry(current.clone()).or_default();
            assert!(family.samples.is_empty(), "what describes a family precedes it: {line}");
            let place = match keyword {
                "HELP" => &mut family.help,
                "TYPE" => &mut family.kind,
                "UNIT" => &mut family.unit,
                _ => panic!("an unknown keyword: {line}"),
            };
            assert!(!value.is_empty() && !value.contains('\\'), "{line}");
            assert_eq!(place.replace(value.to_owned()), None, "said twice: {line}");
        } else {
            let (name, labels, value) = sample(line);
            assert!(name.starts_with(&current), "of the family above: {line}");
            let family = families.get_mut(&current).expect("described before");
            let twice = family.samples.iter().any(|(n, l, _)| (n, l) == (&name, &labels));
            assert!(!twice, "the same series twice: {line}");
            family.samples.push((name, labels, value));
        }
    }
    families
}

/// `name{label="value",...} number`
fn sample(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).expect("a name ends");
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").expect("a label has a value");
            assert!(is_name(label) && !label.contains(':'), "{line}");
            let end = after.find('"').expect("a value ends");
            let value = &after[..end];
            assert!(!value.contains('\\'), "nothing here needs escapes: {line}");
            assert_eq!(labels.insert(label.to_owned(), value.to_owned()), None, "{line}");
            rest = &after[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').expect("labels end");
    }
    let value = rest.strip_prefix(' ').expect("one space before the value");
    (name.to_owned(), labels, value.parse().expect("a number"))
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

/// The rules of each type.
fn check(name: &str, family: &Family) {
    assert!(family.help.is_some(), "{name} has no HELP");
    if let Some(unit) = &family.unit {
        assert!(name.ends_with(&format!("_{unit}")), "{name} is in {unit}");
    }
    for (sample, _, value) in &family.samples {
        assert!(value.is_finite(), "{sample} {value}");
    }
    match family.kind.as_deref() {
        Some("gauge") => {
            assert!(family.samples.iter().all(|(sample, ..)| sample == name), "{name}");
        }
        Some("counter") => {
            for (sample, _, value) in &family.samples {
                assert_eq!(sample, &format!("{name}_total"));
                assert!(*value >= 0.0, "{sample} {value}");
            }
        }
        Some("histogram") => check_histogram(name, family),
        kind => panic!("{name}: {kind:?}"),
    }
}

fn check_histogram(name: &str, family: &Family) {
    let mut series = BTreeMap::<Labels, (Vec<(f64, f64)>, Option<f64>, Option<f64>)>::new();
    for (sample, labels, value) in &family.samples {
        let mut labels = labels.clone();
        let bound = labels.remove("le");
        let (buckets, sum, count) = series.entry(labels).or_default();
        match (sample.strip_prefix(name).unwrap(), bound) {
            ("_bucket", Some(bound)) => buckets.push((bound.parse().unwrap(), *value)),
            ("_sum", None) => *sum = Some(*value),
            ("_count", None) => *count = Some(*value),
            _ => panic!("{sample}"),
        }
    }
    for (labels, (buckets, sum, count)) in series {
        let (sum, count) = (sum.expect("a sum"), count.expect("a count"));
        let ascending = buckets.windows(2).all(|two| two[0].0 < two[1].0);
        let cumulative = buckets.windows(2).all(|two| two[0].1 <= two[1].1);
        assert!(ascending && cumulative, "{name} {labels:?} {buckets:?}");
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, count)), "{name} {labels:?}");
        // The sum is what the buckets say, within their bounds.
        let mut least = 0.0;
        let (mut below, mut seen) = (0.0, 0.0);
        for (bound, up_to) in &buckets {
            least += (up_to - seen) * below;
            (below, seen) = (*bound / 2.0, *up_to);
        }
        assert!(sum >= least * 0.99, "{name} {labels:?}: {sum} {buckets:?}");
    }
}

/// Two loops, of which one has done something of each kind.
fn work(handles: &[LoopHandle]) {
    let task = handles[0].spawn(|| async {
        for _ in 0..10 {
            wakeful::time::sleep(Duration::from_micros(100)).await;
            wakeful::task::yield_now().await;
        }
    });
    while !task.as_ref().unwrap().is_finished() {
        handles[1].post_and_wait(|| ()).unwrap();
    }
    handles[0].post_and_wait(|| std::thread::sleep(Duration::from_millis(2))).unwrap();
    handles[0].post_and_wait(|| ()).unwrap();
}

fn text(group: &LoopGroup) -> String {
    let mut text = String::new();
    let handles = group.handles();
    let mut registry = Registry::default();
    let counts = Arc::new(Counts::new(handles.len()));
    register_loops(&mut registry, handles, counts, group.loads());
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}

#[test]
fn the_text_keeps_the_rules_of_the_format() {
    let loops = wakeful::EventLoop::builder().idle(IdlePolicy::Park);
    let group = LoopGroup::builder().event_loop(loops).loops(2).build().unwrap();
    let idle = parse(&text(&group));
    work(group.handles());
    let text = text(&group);
    let families = parse(&text);
    let names = |families: &BTreeMap<String, Family>| families.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&idle), names(&families), "families neither come nor go");
    for (name, family) in idle.iter().chain(&families) {
        check(name, family);
        let loops: BTreeSet<_> =
            family.samples.iter().filter_map(|(_, labels, _)| labels.get("loop")).collect();
        // Of the longest poll there is one as soon as there was a poll.
        if name != "wakeful_loop_longest_poll_seconds" {
            assert_eq!(loops.into_iter().collect::<Vec<_>>(), ["0", "1"], "{name}");
        }
    }
    for family in [
        "connections",
        "connections_moved",
        "accepts",
        "accept_wakes_in_vain",
        "accept_turned_away",
        "loop_utilisation",
    ] {
        assert!(families.contains_key(&format!("wakeful_{family}")), "{family}");
    }
    let active: Vec<_> = families["wakeful_loop_active"].samples.iter().map(|s| s.2).collect();
    assert!(active == [1.0, 0.0] || active == [1.0, 1.0], "the first one always is: {active:?}");
    for family in [
        "turn_duration_seconds",
        "poll_duration_seconds",
        "remote_latency_seconds",
        "timer_lateness_seconds",
        "events_per_wait",
        "queue_depth",
    ] {
        let family = &families[&format!("wakeful_loop_{family}")];
        assert_eq!(family.kind.as_deref(), Some("histogram"));
    }
}

#[test]
fn times_are_in_seconds_and_counts_are_those_of_the_loop() {
    let group = LoopGroup::builder().loops(2).build().unwrap();
    work(group.handles());
    let before = group.handles()[0].metrics();
    let families = parse(&text(&group));
    let after = group.handles()[0].metrics();
    let value = |family: &str, sample: &str| {
        let of_first = |labels: &Labels| {
            labels.get("loop").is_some_and(|n| n == "0") && !labels.contains_key("le")
        };
        let samples = &families[family].samples;
        let found = samples.iter().find(|(name, labels, _)| name == sample && of_first(labels));
        found.unwrap_or_else(|| panic!("{sample}: {samples:?}")).2
    };
    let between = |value: f64, from: f64, to: f64| assert!((from..=to).contains(&value), "{value}");
    let polls = value("wakeful_loop_polls", "wakeful_loop_polls_total");
    between(polls, before.polls as f64, after.polls as f64);
    let timers =
        value("wakeful_loop_timer_lateness_seconds", "wakeful_loop_timer_lateness_seconds_count");
    between(timers, before.timers as f64, after.timers as f64);
    let seconds = |histogram: wakeful::metrics::Histogram| histogram.sum() as f64 / 1e9;
    let busy =
        value("wakeful_loop_poll_duration_seconds", "wakeful_loop_poll_duration_seconds_sum");
    between(busy, seconds(before.poll_time), seconds(after.poll_time));
    let longest = value("wakeful_loop_longest_poll_seconds", "wakeful_loop_longest_poll_seconds");
    assert_eq!(longest, before.longest_poll.unwrap().duration.as_secs_f64());
    assert!(longest >= 0.0019, "one of 2 ms: {longest}");
    let (_, labels, _) = &families["wakeful_loop_longest_poll_seconds"].samples[0];
    assert!(labels["spawned_at"].contains(file!()), "{labels:?}");
}
