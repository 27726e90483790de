//! Parses the numbers of options, and makes their error messages.
//!
//! clap names the option and the value; these functions name what is expected, with the range.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use clap::Command;
use clap::builder::Arg;
use wakeful_awake::keeper_protocol::parse_cpus;

/// A number above that of any machine's CPUs.
const MOST_CPUS: f64 = 1024.0;

/// The value names of options that take a number, or something that begins with one.
const NUMBERS: [&str; 17] = [
    "N",
    "N|auto",
    "N:N…",
    "BYTES,…",
    "CONNECTIONS",
    "CPU",
    "CPUS",
    "LIST",
    "PID",
    "RATE,…",
    "RATIO|off",
    "SECONDS",
    "SEED",
    "SHARE",
    "SIZE",
    "TIME",
    "PORT",
];

/// Makes the options that take a number also accept a negative one. Otherwise clap takes it for
/// another option, and its message names neither the option nor the range.
pub(crate) fn take_negative_values(command: Command) -> Command {
    let take = |arg: Arg| {
        let is_number = takes_a_number(&arg);
        if is_number { arg.allow_hyphen_values(true) } else { arg }
    };
    command.mut_args(take).mut_subcommands(take_negative_values)
}

fn takes_a_number(arg: &Arg) -> bool {
    let names = arg.get_value_names().unwrap_or_default();
    arg.get_action().takes_values() && names.iter().any(|name| NUMBERS.contains(&name.as_str()))
}

/// # Errors
/// A text that says what is expected.
pub(crate) fn number(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("expected a number from {least} to {most}"))
}

/// # Errors
/// As for [`number`].
pub(crate) fn count<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "expected a whole number, 0 or more".to_owned())
}

/// Parses whole numbers in this range.
pub(crate) fn whole<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| {
            format!("expected a whole number from {} to {}", range.start(), range.end())
        })
    }
}

/// # Errors
/// As for [`number`].
pub(crate) fn positive_count<T: FromStr + PartialOrd + Default>(text: &str) -> Result<T, String> {
    let count = text.parse().ok().filter(|count| *count > T::default());
    count.ok_or_else(|| "expected a whole number, 1 or more".to_owned())
}

/// Parses a share of a CPU, which may be more than 1.
///
/// # Errors
/// A text that says what is expected.
pub(crate) fn share_of_cpu(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok();
    let share = share.filter(|share| (0.0..=MOST_CPUS).contains(share));
    share.ok_or_else(|| "expected 0 to 1024 CPUs, as 0.05".to_owned())
}

/// # Errors
/// As for [`share_of_cpu`]; `expected` names the range and an example within it.
pub(crate) fn time_in(
    text: &str,
    range: &RangeInclusive<Duration>,
    expected: &str,
) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).ok().filter(|time| range.contains(time));
    time.ok_or_else(|| format!("expected {expected}: a number and its unit"))
}

/// A list of CPUs. It is a separate type, because clap takes a `Vec` for an option that may be
/// repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CpuList(pub(crate) Vec<usize>);

/// Parses CPUs such as `0-3,8`.
pub(crate) fn cpu_list(text: &str) -> Result<CpuList, String> {
    let cpus = parse_cpus(text).map(CpuList);
    cpus.ok_or_else(|| "expected CPUs in ascending order, as 0-3,8".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The value names of options that take a text. A new name belongs here or into `NUMBERS`.
    const TEXTS: [&str; 23] = [
        "A",
        "ADDR",
        "ACCEPT",
        "B",
        "BODY",
        "COMMAND",
        "DIR",
        "FILE",
        "FILE|PID",
        "FORMAT",
        "FORWARDED",
        "LOGS",
        "METHOD",
        "NAME",
        "NAME,…",
        "NAME: VALUE",
        "OPTION",
        "PART,…",
        "PATH",
        "PLACEMENT",
        "PROMISE",
        "PROTOCOL",
        "[NAME=]COMMAND",
    ];

    fn check(command: &Command) {
        for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
            let names = arg.get_value_names().unwrap_or_default();
            let is_text = names.iter().all(|name| TEXTS.contains(&name.as_str()))
                || !arg.get_possible_values().is_empty()
                || arg.get_id() == "idle";
            assert!(takes_a_number(arg) != is_text, "{}: {arg}: {names:?}", command.get_name());
        }
        command.get_subcommands().for_each(check);
    }

    #[test]
    fn each_option_takes_a_number_or_a_text() {
        check(&crate::Arguments::command());
    }

    #[test]
    fn shares_are_finite_and_not_negative() {
        for (text, share) in [("0", 0.0), ("0.05", 0.05), ("1024", 1024.0)] {
            assert_eq!(share_of_cpu(text), Ok(share));
        }
        for wrong in ["", "-0.1", "nan", "inf", "1025", "1e999", "5%"] {
            assert!(share_of_cpu(wrong).unwrap_err().contains("0 to 1024"), "{wrong}");
        }
    }

    #[test]
    fn every_wrong_time_is_answered_with_the_range() {
        let range = Duration::from_millis(10)..=Duration::from_secs(60);
        let time = |text| time_in(text, &range, "10ms to 1m, as 500ms");
        assert_eq!(time("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(time("1.5s"), Ok(Duration::from_millis(1500)));
        for wrong in ["", "0", "9ms", "61s", "5", "-1s", "99999999999999999999s", "1 fortnight"] {
            let expected = "expected 10ms to 1m, as 500ms: a number and its unit";
            assert_eq!(time(wrong).unwrap_err(), expected, "{wrong}");
        }
    }
}
