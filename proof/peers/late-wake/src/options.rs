//! The command line of a probe.

use std::env;
use std::process;
use std::time::Duration;

/// What a probe measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Many posts, one by one.
    Post,
    /// The public case: the work that a post queues on the loop.
    Deferred,
}

/// The flags of all probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The name of the program.
    pub name: &'static str,
    /// What to measure.
    pub measure: Measure,
    /// The way to run it.
    pub variant: String,
    /// The loop's CPU.
    pub loop_cpu: usize,
    /// The poster's CPU.
    pub poster_cpu: usize,
    /// How many posts are measured. Before that, a tenth as many are sent without a measurement.
    pub posts: u32,
    /// The time between the end of one post and the next. With `deferred`, the time before each
    /// pair of posts.
    pub gap: Duration,
    /// With `deferred`: how far away the loop's timer is.
    pub timer: Duration,
    /// With `deferred`: how many pairs of posts, as long as the timer is far enough away.
    pub times: u32,
}

const USAGE: &str = "[--measure post|deferred] [--variant V] [--loop-cpu N] [--poster-cpu N]\n       \
     [--posts N] [--gap-us N] [--timer-ms N] [--times N] [--version]";

pub(crate) fn parse(name: &'static str, version: &str, variants: &[(&str, &[Measure])]) -> Options {
    let words = env::args().skip(1).collect::<Vec<_>>();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--version" | "-V"] => println!("{name} {version}"),
        ["--help" | "-h"] => println!("Usage: {name} {USAGE}"),
        _ => match read(name, &words, variants) {
            Ok(options) => return options,
            Err(error) => {
                eprintln!("{name}: {error}; see --help");
                process::exit(2);
            }
        },
    }
    process::exit(0);
}

fn read(
    name: &'static str,
    words: &[String],
    variants: &[(&str, &[Measure])],
) -> Result<Options, String> {
    let mut options = Options {
        name,
        measure: variants[0].1[0],
        variant: variants[0].0.to_owned(),
        loop_cpu: 0,
        poster_cpu: 0,
        posts: 1000,
        gap: Duration::from_micros(400),
        timer: Duration::from_secs(5),
        times: 10,
    };
    for pair in words.chunks(2) {
        let [flag, value] = pair else { return Err(format!("{} without a value", pair[0])) };
        let wrong = || format!("{flag} {value}");
        let number = || value.parse::<u32>().map_err(|_| wrong());
        match flag.as_str() {
            "--measure" => {
                options.measure = match value.as_str() {
                    "post" => Measure::Post,
                    "deferred" => Measure::Deferred,
                    _ => return Err(wrong()),
                };
            }
            "--variant" => options.variant.clone_from(value),
            "--loop-cpu" => options.loop_cpu = number()? as usize,
            "--poster-cpu" => options.poster_cpu = number()? as usize,
            "--posts" => options.posts = number()?.max(1),
            "--gap-us" => options.gap = Duration::from_micros(number()?.into()),
            "--timer-ms" => options.timer = Duration::from_millis(number()?.max(1).into()),
            "--times" => options.times = number()?.max(1),
            _ => return Err(format!("unexpected argument: {flag}")),
        }
    }
    let variant = variants.iter().find(|(name, _)| *name == options.variant);
    let (_, can) = variant.ok_or_else(|| format!("--variant {}", options.variant))?;
    if can.contains(&options.measure) {
        Ok(options)
    } else {
        Err(format!("--variant {} does not measure that", options.variant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VARIANTS: &[(&str, &[Measure])] =
        &[("a", &[Measure::Post, Measure::Deferred]), ("b", &[Measure::Post])];

    fn of(line: &str) -> Result<Options, String> {
        let words: Vec<String> = line.split_ascii_whitespace().map(str::to_owned).collect();
        read("test", &words, VARIANTS)
    }

    #[test]
    fn flags_take_values() {
        let options = of("--variant b --posts 5 --gap-us 20 --poster-cpu 1").unwrap();
        assert_eq!((options.variant.as_str(), options.posts), ("b", 5));
        assert_eq!((options.gap, options.poster_cpu), (Duration::from_micros(20), 1));
        assert_eq!(of("").unwrap().measure, Measure::Post);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, named) in [
            ("--posts x", "--posts x"),
            ("--variant c", "--variant c"),
            ("--what 1", "--what"),
            ("--posts", "--posts"),
            ("--measure deferred --variant b", "--variant b"),
        ] {
            let error = of(line).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
