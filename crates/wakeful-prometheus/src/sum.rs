//! Several processes' texts as one.

use std::collections::HashMap;
use std::fmt;

/// A sum of the metrics of several processes. Add the text of each process, in the OpenMetrics
/// format as [`prometheus_client`] writes it. [`Display`](fmt::Display) writes the sum as one such
/// text.
///
/// Samples with the same name and labels are added up, including gauges: in the sum,
/// `wakeful_loop_active{loop="0"}` is the number of processes whose first loop is active. The only
/// exception is `wakeful_loop_longest_poll_seconds`: the sum has the largest value.
///
/// ```
/// let one = "# TYPE requests counter\nrequests_total 2\n# EOF\n";
/// let other = "# TYPE requests counter\nrequests_total 3\n# EOF\n";
/// let mut sum = wakeful_prometheus::TextSum::new();
/// sum.add(one);
/// sum.add(other);
/// assert_eq!(sum.to_string(), "# TYPE requests counter\nrequests_total 5\n# EOF\n");
/// assert_eq!(sum.total("requests_total"), 5.0);
/// ```
#[derive(Debug, Clone, Default)]
pub struct TextSum {
    families: Vec<Family>,
    /// The place of each family in `families`, by name.
    places: HashMap<String, usize>,
}

/// All samples of one metric.
#[derive(Debug, Clone, Default)]
struct Family {
    name: String,
    is_counted: bool,
    /// The help, type and unit lines, in the order in which they came first.
    about: Vec<String>,
    /// The samples with their labels, in the order in which they came first.
    samples: Vec<(String, Value)>,
    places: HashMap<String, usize>,
}

/// Whole numbers stay exact.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Value {
    Whole(u64),
    Real(f64),
}

/// For these gauges, the largest value says more than the sum.
const LARGEST: [&str; 1] = ["wakeful_loop_longest_poll_seconds"];

impl TextSum {
    /// Makes an empty sum.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the text of a running process. Lines that are not samples are ignored.
    pub fn add(&mut self, text: &str) {
        self.add_families(text, |_| true);
    }

    /// Adds the counters and histograms of a process that is gone, without its gauges.
    pub fn add_counters(&mut self, text: &str) {
        self.add_families(text, |family| family.is_counted);
    }

    /// Adds another sum.
    ///
    /// Use this if a process takes over the counts of earlier processes. First make one sum for
    /// each process, of its own counts and those that it has taken over. Then add these sums. In
    /// any other order the last digit of the total may differ, because the digits of a sum of
    /// fractions depend on the order of the additions. The total could then fall, which Prometheus
    /// treats as a restart.
    pub fn add_sum(&mut self, other: &Self) {
        for theirs in &other.families {
            let place = self.family(&theirs.name);
            let family = &mut self.families[place];
            family.is_counted |= theirs.is_counted;
            theirs.about.iter().for_each(|line| family.tell(line));
            theirs.samples.iter().for_each(|(name, value)| family.add(name, *value));
        }
    }

    /// Returns the sum of all samples with this name, whatever their labels, or 0.0 if there are
    /// none. The name of a counter's sample ends in `_total`.
    #[must_use]
    pub fn total(&self, sample: &str) -> f64 {
        let samples = self.families.iter().flat_map(|family| &family.samples);
        let named = samples.filter(|(name, _)| name_of(name) == sample);
        named.map(|(_, value)| value.to_real()).sum()
    }

    fn add_families(&mut self, text: &str, is_wanted: impl Fn(&Family) -> bool) {
        let mut current = None;
        for line in text.lines() {
            if let Some(about) = line.strip_prefix("# ") {
                current = self.describe(about, line).or(current);
            } else if let (Some(place), Some((name, value))) = (current, sample(line)) {
                let family: &mut Family = &mut self.families[place];
                if is_wanted(family) {
                    family.add(name, value);
                }
            }
        }
    }

    /// Returns the place of the family that this line is about, or `None` if it is about no family.
    fn describe(&mut self, about: &str, line: &str) -> Option<usize> {
        let (what, rest) = about.split_once(' ')?;
        let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        if !matches!(what, "HELP" | "TYPE" | "UNIT") {
            return None;
        }
        let place = self.family(name);
        let family = &mut self.families[place];
        family.is_counted |= what == "TYPE" && matches!(rest, "counter" | "histogram");
        family.tell(line);
        Some(place)
    }

    /// Returns the place of a family. If there is none of this name, makes one.
    fn family(&mut self, name: &str) -> usize {
        *self.places.entry(name.to_owned()).or_insert_with(|| {
            self.families.push(Family { name: name.to_owned(), ..Family::default() });
            self.families.len() - 1
        })
    }
}

impl Family {
    fn tell(&mut self, line: &str) {
        if !self.about.iter().any(|known| known == line) {
            self.about.push(line.to_owned());
        }
    }

    fn add(&mut self, name: &str, value: Value) {
        let Some(place) = self.places.get(name) else {
            self.places.insert(name.to_owned(), self.samples.len());
            self.samples.push((name.to_owned(), value));
            return;
        };
        let sum = &mut self.samples[*place].1;
        let is_largest = LARGEST.contains(&self.name.as_str());
        *sum = if is_largest { sum.largest(value) } else { sum.plus(value) };
    }
}

impl fmt::Display for TextSum {
    /// Writes the sum. Families without a sample are omitted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for family in self.families.iter().filter(|family| !family.samples.is_empty()) {
            for line in &family.about {
                writeln!(f, "{line}")?;
            }
            for (name, value) in &family.samples {
                writeln!(f, "{name} {value}")?;
            }
        }
        f.write_str("# EOF\n")
    }
}

impl Value {
    fn to_real(self) -> f64 {
        match self {
            Self::Whole(whole) => whole as f64,
            Self::Real(real) => real,
        }
    }

    fn plus(self, other: Self) -> Self {
        if let (Self::Whole(one), Self::Whole(other)) = (self, other)
            && let Some(sum) = one.checked_add(other)
        {
            return Self::Whole(sum);
        }
        Self::Real(self.to_real() + other.to_real())
    }

    fn largest(self, other: Self) -> Self {
        if other.to_real() > self.to_real() { other } else { self }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(whole) => write!(f, "{whole}"),
            // The debug format keeps the point, as in 1.0.
            Self::Real(real) => write!(f, "{real:?}"),
        }
    }
}

/// A name with its labels, and a value.
fn sample(line: &str) -> Option<(&str, Value)> {
    let (name, value) = line.split_at_checked(end_of_name(line)?)?;
    // A time or an exemplar may follow the value.
    let value = value.strip_prefix(' ')?.split(' ').next()?;
    let whole = value.parse().map(Value::Whole);
    Some((name, whole.or_else(|_| value.parse().map(Value::Real)).ok()?))
}

/// Returns where the name ends, with its labels. A label's value may have spaces and braces.
fn end_of_name(line: &str) -> Option<usize> {
    let end = line.find([' ', '{']).filter(|end| *end > 0)?;
    if line[end..].starts_with(' ') {
        return Some(end);
    }
    let (mut is_text, mut is_escaped) = (false, false);
    for (at, byte) in line.bytes().enumerate().skip(end) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'}' if !is_text => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn name_of(sample: &str) -> &str {
    sample.split('{').next().unwrap_or(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(texts: &[&str]) -> String {
        let mut sum = TextSum::new();
        texts.iter().for_each(|text| sum.add(text));
        sum.to_string()
    }

    const ONE: &str = "\
# HELP requests Requests.
# TYPE requests counter
requests_total{loop=\"0\"} 1
requests_total{loop=\"1\"} 2
# HELP open Open.
# TYPE open gauge
open 3
# HELP time_seconds How long.
# TYPE time_seconds histogram
# UNIT time_seconds seconds
time_seconds_sum 0.5
time_seconds_count 2
time_seconds_bucket{le=\"1.0\"} 1
time_seconds_bucket{le=\"+Inf\"} 2
# EOF
";

    #[test]
    fn one_text_is_itself() {
        assert_eq!(sum(&[ONE]), ONE);
        assert_eq!(sum(&[]), "# EOF\n");
    }

    #[test]
    fn samples_with_the_same_labels_are_added_up() {
        let other = "# HELP requests Requests.\n# TYPE requests counter\n\
            requests_total{loop=\"1\"} 40\nrequests_total{loop=\"2\"} 7\n# EOF\n";
        let both = sum(&[ONE, other]);
        let requests: Vec<_> =
            both.lines().filter(|line| line.starts_with("requests_total")).collect();
        let expected = [
            "requests_total{loop=\"0\"} 1",
            "requests_total{loop=\"1\"} 42",
            "requests_total{loop=\"2\"} 7",
        ];
        assert_eq!(requests, expected);
        assert_eq!(both.matches("# TYPE requests").count(), 1);
        assert!(sum(&[ONE, ONE]).contains("time_seconds_sum 1.0\ntime_seconds_count 4\n"));
    }

    #[test]
    fn gauges_of_the_gone_are_left_out() {
        let mut sum = TextSum::new();
        sum.add(ONE);
        sum.add_counters(ONE);
        let text = sum.to_string();
        assert!(text.contains("open 3\n") && text.contains("requests_total{loop=\"0\"} 2\n"));
        assert!(text.contains("time_seconds_bucket{le=\"+Inf\"} 4\n"));
        let mut gone = TextSum::new();
        gone.add_counters(ONE);
        assert!(!gone.to_string().contains("open"));
    }

    #[test]
    fn the_largest_of_the_longest_polls_is_taken() {
        let of = |seconds| {
            let name = "wakeful_loop_longest_poll_seconds";
            format!("# TYPE {name} gauge\n{name}{{loop=\"0\"}} {seconds}\n# EOF\n")
        };
        assert_eq!(sum(&[&of("0.5"), &of("0.25"), &of("0.75")]), of("0.75"));
    }

    #[test]
    fn labels_may_have_spaces_quotes_and_braces() {
        let text = "# TYPE a gauge\na{at=\"src/a b.rs:1 \\\" } \\\\\",b=\"{\"} 2\n# EOF\n";
        assert_eq!(sum(&[text, text]), text.replace(" 2\n", " 4\n"));
    }

    #[test]
    fn totals_are_over_all_labels() {
        let mut sum = TextSum::new();
        sum.add(ONE);
        assert_eq!(sum.total("requests_total"), 3.0);
        assert_eq!(sum.total("requests"), 0.0);
        assert_eq!(sum.total("open"), 3.0);
    }

    #[test]
    fn what_is_no_sample_is_left_out() {
        let broken =
            "a 1\n# TYPE a counter\na_total\na_total{b=\"c} 1\na_total x\n{} 1\n\n# \n#\n# HELP\n";
        assert_eq!(sum(&[broken]), "# EOF\n");
    }

    #[test]
    fn exemplars_and_times_are_left_out() {
        let text = "# TYPE a counter\na_total{b=\"c\"} 2 # {trace=\"x\"} 1\na_total 3 1700000000\n";
        let expected = "# TYPE a counter\na_total{b=\"c\"} 2\na_total 3\n# EOF\n";
        assert_eq!(sum(&[text]), expected);
    }

    /// Three numbers whose sum depends on the order.
    #[test]
    fn a_total_of_sums_does_not_fall_when_a_worker_is_replaced() {
        let of = |seconds: f64| format!("# TYPE a counter\na_total {seconds:?}\n# EOF\n");
        let place = |earlier: f64, own: f64| {
            let mut sum = TextSum::new();
            sum.add(&of(earlier));
            sum.add(&of(own));
            sum
        };
        let total = |second: &TextSum| {
            let mut total = TextSum::new();
            total.add_sum(&place(0.0, 0.3));
            total.add_sum(second);
            total.total("a_total")
        };
        let before = place(0.1, 0.2);
        let after = place(before.total("a_total"), 0.0);
        assert_eq!(total(&before), total(&after));
    }

    #[test]
    fn large_counts_stay_exact_and_do_not_overflow() {
        let of = |count: u64| format!("# TYPE a counter\na_total {count}\n# EOF\n");
        let exact = (1 << 53) + 1;
        assert_eq!(sum(&[&of(exact), &of(1)]), of(exact + 1));
        assert!(sum(&[&of(u64::MAX), &of(1)]).contains("a_total 1.8446744073709552e19\n"));
    }
}
