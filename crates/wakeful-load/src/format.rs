//! Formats figures for people: three significant digits, a unit, and "-" for unknown values.

use crate::results::{Cell, Unit};

/// Stands for an unknown figure.
pub const ABSENT: &str = "-";

/// Explains [`ABSENT`] in a column of percentiles.
pub const ABSENT_NOTE: &str =
    "- means that fewer than 100 samples lie beyond the percentile: too few to report it.";

/// Explains the word `saturated` after a run.
pub const SATURATED_NOTE: &str = "saturated: the load exceeded what the server can do, to find its maximum; response times grow for as long as the run lasts.";

/// Rounds to three significant digits. Also returns how many decimals to show.
fn significant(value: f64) -> (f64, usize) {
    if value == 0.0 || !value.is_finite() {
        return (value, 0);
    }
    let magnitude = value.abs().log10().floor() as i32;
    let scale = 10f64.powi(2 - magnitude);
    let rounded = (value * scale).round() / scale;
    // 9.996 rounds to 10.0, which has a digit more before the point.
    let magnitude = rounded.abs().log10().floor() as i32;
    (rounded, usize::try_from(2 - magnitude).unwrap_or(0))
}

/// Formats a number with three significant digits.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return ABSENT.to_owned();
    }
    let (rounded, decimals) = significant(value);
    format!("{rounded:.decimals$}")
}

/// Formats nanoseconds as µs, ms or s.
pub fn time(nanoseconds: f64) -> String {
    if !nanoseconds.is_finite() {
        return ABSENT.to_owned();
    }
    let (rounded, _) = significant(nanoseconds);
    let (value, unit) = match rounded.abs() {
        below if below < 1e6 => (rounded / 1e3, "µs"),
        below if below < 1e9 => (rounded / 1e6, "ms"),
        _ => (rounded / 1e9, "s"),
    };
    format!("{} {unit}", number(value))
}

/// Formats a tick's label: [`time`] without zeros at the end of its decimals.
pub fn tick(nanoseconds: f64) -> String {
    let text = time(nanoseconds);
    match text.split_once(' ') {
        Some((value, unit)) => format!("{} {unit}", trim(value)),
        None => text,
    }
}

fn trim(value: &str) -> &str {
    if value.contains('.') { value.trim_end_matches('0').trim_end_matches('.') } else { value }
}

/// Formats a time that may be absent, like [`time`].
pub fn maybe_time(nanoseconds: Option<u64>) -> String {
    nanoseconds.map_or_else(|| ABSENT.to_owned(), |value| time(value as f64))
}

/// Formats a count with commas between the thousands.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a rate per second. It is a whole number from 100 on, and has three significant digits
/// below that.
pub fn rate(value: f64) -> String {
    if value.is_finite() && value >= 99.95 {
        format!("{}/s", count(value.round() as u64))
    } else {
        format!("{}/s", trim(&number(value)))
    }
}

/// Formats the rate that was asked for. `None` means a closed loop.
pub fn asked(value: Option<f64>) -> String {
    value.map_or_else(|| "closed loop".to_owned(), rate)
}

/// Formats a rate briefly for a tick, such as `10k/s`.
pub fn short_rate(value: f64) -> String {
    let (scaled, unit) = match significant(value).0 {
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    format!("{}{unit}/s", trim(&number(scaled)))
}

/// Formats a share as a percentage.
pub fn percent(share: f64) -> String {
    format!("{} %", number(share * 100.0))
}

/// Returns the CPU seconds of the server for each answer, if they are known.
pub fn cpu_a_request(run: &crate::results::Run) -> Option<f64> {
    let cpu = run.cpu.filter(|_| run.answered > 0)?;
    Some((cpu.user + cpu.system) / run.answered as f64)
}

/// Formats a figure of the metric `name` in that metric's unit.
pub fn metric(name: &str, value: f64) -> String {
    match name {
        "throughput" => rate(value),
        // CPU seconds per request.
        "cpu" => time(value * 1e9),
        _ => time(value),
    }
}

/// Formats a cell of a table. A figure is followed by its spread, which has no unit if all three
/// have the same one.
pub fn cell(cell: &Cell, unit: Unit) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Absent => ABSENT.to_owned(),
        Cell::Figure { value, low: Some(low), high: Some(high) } if low < high => {
            let [value, low, high] = [*value, *low, *high].map(|value| in_unit(value, unit));
            if low == high {
                return value;
            }
            let unit_of = |text: &str| text.split_once(' ').map(|(_, unit)| unit.to_owned());
            let has_same = |text: &str| unit_of(text) == unit_of(&value);
            // If the units differ, each figure keeps its own.
            match low.split_once(' ').zip(high.split_once(' ')) {
                Some(((bare_low, _), (bare_high, _))) if has_same(&low) && has_same(&high) => {
                    format!("{value} ({bare_low} to {bare_high})")
                }
                _ => format!("{value} ({low} to {high})"),
            }
        }
        Cell::Figure { value, .. } => in_unit(*value, unit),
    }
}

fn in_unit(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Nanoseconds => time(value),
        Unit::Count if value.fract() == 0.0 && (0.0..1e15).contains(&value) => count(value as u64),
        Unit::PerSecond => rate(value),
        Unit::Share => percent(value),
        Unit::Text | Unit::Count | Unit::Number => number(value),
    }
}

/// Formats a metric's verdict as a symbol and words, with a mark if the figure is near the floor.
pub fn metric_verdict(metric: &crate::results::Metric) -> String {
    let symbol = match metric.verdict.as_str() {
        "higher" => "▲",
        "lower" => "▼",
        "no difference" => "=",
        _ => "≈",
    };
    let mark = if metric.near_floor { FLOOR_MARK } else { "" };
    format!("{symbol} {}{mark}", metric.verdict)
}

/// Stands after a figure that is below twice the floor.
pub const FLOOR_MARK: &str = "*";

/// Explains [`FLOOR_MARK`].
pub const FLOOR_NOTE: &str = "* marks a figure below twice the floor: more than half of it is the generator's and the kernel's.";

/// Formats a percentile that may be absent, with a mark if it is below twice the floor's.
pub fn marked_time(nanoseconds: Option<u64>, floor: Option<u64>) -> String {
    let is_near = nanoseconds.zip(floor).is_some_and(|(time, floor)| time < floor * 2);
    maybe_time(nanoseconds) + if is_near { FLOOR_MARK } else { "" }
}

/// Returns a symbol and words for a claim's verdict.
pub fn verdict(verdict: crate::results::Verdict) -> &'static str {
    match verdict {
        crate::results::Verdict::Holds => "✓ holds",
        crate::results::Verdict::DoesNotHold => "✗ does not hold",
        crate::results::Verdict::CannotTell => "? cannot tell",
    }
}

/// Formats seconds since 1970 as a date and a time of day.
pub fn date(unix: u64) -> String {
    // Howard Hinnant's algorithm for the civil calendar from days, in which years begin in March.
    let (days, second) = (unix / 86_400 + 719_468, unix % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
}

/// Returns text on one line, without control characters, which neither a terminal nor a page should
/// get.
pub fn plain(text: &str) -> String {
    printable(text).replace(['\n', '\t'], " ")
}

/// Like [`plain`], but keeps line breaks and tabs.
pub fn printable(text: &str) -> String {
    let is_bad = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    text.replace(|c| is_bad(c) || matches!(c, '\u{fffe}' | '\u{ffff}'), "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let cases = [
            (0.0, "0 µs"),
            (850.0, "0.850 µs"),
            (9_996.0, "10.0 µs"),
            (123_456.0, "123 µs"),
            (999_400.0, "999 µs"),
            (999_600.0, "1.00 ms"),
            (42_000_000.0, "42.0 ms"),
            (1_234_000_000.0, "1.23 s"),
            (1_234_000_000_000.0, "1230 s"),
        ];
        for (value, text) in cases {
            assert_eq!(time(value), text);
        }
        assert_eq!(tick(10_000.0), "10 µs");
        assert_eq!(tick(100_000.0), "100 µs");
        assert_eq!(maybe_time(None), "-");
        assert_eq!(time(f64::NAN), "-");
    }

    #[test]
    fn cells_have_their_spread_and_one_unit() {
        let times = |measured: &[f64]| cell(&Cell::of(measured), Unit::Nanoseconds);
        assert_eq!(times(&[52_000.0, 50_000.0, 57_000.0]), "52.0 µs (50.0 to 57.0)");
        assert_eq!(times(&[1e6, 999_000.0]), "1.00 ms (999 µs to 1.00 ms)");
        assert_eq!(times(&[52_000.0]), "52.0 µs");
        assert_eq!(times(&[52_000.0, 52_000.0]), "52.0 µs");
        assert_eq!(times(&[52_001.0, 52_002.0]), "52.0 µs", "no spread that could be seen");
        assert_eq!(times(&[f64::NAN]), "-");
        assert_eq!(cell(&Cell::of(&[0.0, 0.0]), Unit::Count), "0");
        assert_eq!(cell(&Cell::of(&[1.0, 2.0]), Unit::Count), "1.50 (1 to 2)");
        assert_eq!(cell(&Cell::of(&[0.5]), Unit::Share), "50.0 %");
        assert_eq!(cell(&Cell::text("no"), Unit::Count), "no");
    }

    #[test]
    fn rates_shares_and_dates() {
        assert_eq!(rate(1_234_567.4), "1,234,567/s");
        assert_eq!(rate(250.0), "250/s");
        assert_eq!(rate(0.5), "0.5/s");
        assert_eq!(short_rate(10_000.0), "10k/s");
        assert_eq!(short_rate(1_250_000.0), "1.25M/s");
        assert_eq!(percent(0.5), "50.0 %");
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(1_709_210_096), "2024-02-29 12:34:56 UTC");
        assert_eq!(plain("a\u{1b}[31mb\nc"), "a\u{fffd}[31mb c");
    }
}
