//! Writes interval logs in HdrHistogram's format, version 2 (compressed, base64), which
//! HistogramLogAnalyzer, HdrHistogram's plotter and other public viewers open. Values are
//! nanoseconds.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{
    IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag,
};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer};

use crate::recorder::Recording;

/// One line of a log: the response times in one stretch of time.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What the stretch belongs to: a server and a rate.
    pub tag: Option<String>,
    /// The beginning of the stretch, since the beginning of the log.
    pub start: Duration,
    /// The length of the stretch.
    pub length: Duration,
    /// The response times in nanoseconds.
    pub histogram: Histogram<u64>,
}

/// A log that was read, or that is to be written.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// The entries in the order of their start.
    pub entries: Vec<Entry>,
}

impl Log {
    /// Makes a log of several runs, each under its tag, with an entry for each slice of their time.
    /// The runs follow each other as if no time had passed in between.
    #[must_use]
    pub fn of_runs(runs: Vec<(String, Recording)>) -> Self {
        let mut start = Duration::ZERO;
        let mut entries = Vec::new();
        for (tag, recording) in runs {
            for histogram in recording.intervals {
                let (tag, length) = (Some(tag.clone()), recording.interval);
                entries.push(Entry { tag, start, length, histogram });
                start += length;
            }
        }
        Self { entries }
    }

    /// Reads a log.
    ///
    /// # Errors
    /// The text is for the user. It says what is wrong, and with which entry.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        let mut deserializer = Deserializer::new();
        let mut entries = Vec::new();
        for (number, entry) in IntervalLogIterator::new(text).enumerate() {
            let wrong = |why: String| format!("entry {}: {why}", number + 1);
            let entry = entry.map_err(|error| {
                wrong(format!("this is not a line of an HdrHistogram log ({error:?})"))
            })?;
            let LogEntry::Interval(interval) = entry else { continue };
            let bytes = BASE64_STANDARD
                .decode(interval.encoded_histogram())
                .map_err(|error| wrong(error.to_string()))?;
            let histogram = deserializer
                .deserialize(&mut io::Cursor::new(bytes))
                .map_err(|error| wrong(format!("this is not a histogram ({error:?})")))?;
            entries.push(Entry {
                tag: interval.tag().map(|tag| tag.as_str().to_owned()),
                start: interval.start_timestamp(),
                length: interval.duration(),
                histogram,
            });
        }
        if entries.is_empty() { Err("it has no entries".to_owned()) } else { Ok(Self { entries }) }
    }

    /// Adds the entries of another log, for example from another machine.
    pub fn add(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.entries.sort_by_key(|entry| entry.start);
    }

    /// Merges all entries into one distribution.
    ///
    /// # Errors
    /// There is a value that no histogram can hold. Logs of this program have no such value.
    pub fn sum(&self) -> Result<Histogram<u64>, String> {
        let mut sum: Histogram<u64> = Histogram::new(3).map_err(|error| error.to_string())?;
        for entry in &self.entries {
            sum.add(&entry.histogram).map_err(|error| error.to_string())?;
        }
        Ok(sum)
    }

    /// Writes the log. `started` is the time at which the log begins.
    ///
    /// # Errors
    /// The writer fails.
    pub fn write(&self, out: &mut dyn Write, started: SystemTime) -> io::Result<()> {
        let mut serializer = V2DeflateSerializer::new();
        let mut builder = IntervalLogWriterBuilder::new();
        builder
            .add_comment("[Response times of wakeful load, in nanoseconds]")
            .with_start_time(started)
            .with_base_time(started)
            // This is only for the column of maxima, which readers expect in milliseconds.
            .with_max_value_divisor(1e6);
        let mut out = out;
        let mut writer = builder.begin_log_with(&mut out, &mut serializer)?;
        for entry in &self.entries {
            // Characters that would end a tag or its line are replaced.
            let tag = entry.tag.as_ref().map(|tag| tag.replace([',', ' ', '\n', '\r'], "_"));
            writer
                .write_histogram(
                    &entry.histogram,
                    entry.start,
                    entry.length,
                    tag.as_deref().and_then(Tag::new),
                )
                .map_err(|error| {
                    io::Error::other(format!("cannot encode a histogram: {error:?}"))
                })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Request;

    #[test]
    fn what_was_written_is_read_again() {
        let mut recording = Recording::new(0..1_000_000_000, 0);
        for at in (0..1_000_000_000).step_by(1_000_000) {
            let request = Request { intended: at, sent: at, kind: 0 };
            recording.answered(request, at + 50_000);
        }
        let mut text = Vec::new();
        let written = Log::of_runs(vec![("a, b".to_owned(), recording.clone())]);
        written.write(&mut text, SystemTime::UNIX_EPOCH).unwrap();
        let mut log = Log::read(&text).unwrap();
        assert_eq!(log.entries.len(), 10);
        assert_eq!(log.entries[0].tag.as_deref(), Some("a__b"));
        let sum = log.sum().unwrap();
        assert_eq!(sum.len(), 1000);
        assert_eq!(sum.value_at_quantile(0.5), recording.response.value_at_quantile(0.5));
        log.add(written);
        assert_eq!(log.sum().unwrap().len(), 2000);
    }

    #[test]
    fn what_is_no_log_is_an_error() {
        assert!(Log::read(b"").is_err());
        assert!(Log::read(b"Tag=a,0.0,1.0,2.0,nonsense\n").is_err());
        assert!(Log::read(b"\xff\xfe").is_err());
    }
}
