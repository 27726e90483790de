//! Conditional requests: entity tags, dates, and their precedence (RFC 9110, 13.2.2).
//!
//! The tag is made of inode, size and time of the last change, in nanoseconds. It is strong once
//! that time is a second in the past: a later change has another time. Until then, two changes
//! within a tick of the file system's clock may have the same time, so the tag is weak, and no
//! range is continued with it. (If somebody changes a file without changing its length, and then
//! sets its time back, that is not noticed.) Each encoding is a file of its own, and so has its own
//! tag.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

/// This is longer than a tick of any usual file system's clock.
const SETTLED: Duration = Duration::from_secs(1);

/// Identifies a version of a file.
#[derive(Debug)]
pub(super) struct Validators {
    /// The tag as it stands in the header, with its quotes and the mark of a weak tag.
    pub(super) etag: String,
    is_strong: bool,
    /// In whole seconds, and not in the future.
    pub(super) modified: SystemTime,
}

/// The result of the conditions.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

impl Validators {
    pub(super) fn new(metadata: &Metadata, now: SystemTime) -> Self {
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let is_strong = now.duration_since(modified).is_ok_and(|age| age >= SETTLED);
        let (inode, size) = (metadata.ino(), metadata.size());
        let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
        let mark = if is_strong { "" } else { "W/" };
        let etag = format!("{mark}\"{inode:x}-{size:x}-{seconds:x}.{nanoseconds:x}\"");
        Self { etag, is_strong, modified: whole_seconds(modified.min(now)) }
    }

    /// Evaluates the conditions of a GET or HEAD.
    pub(super) fn check(&self, headers: &HeaderMap) -> Verdict {
        if headers.contains_key(header::IF_MATCH) {
            if !self.is_listed(headers, &header::IF_MATCH, Comparison::Strong) {
                return Verdict::Failed;
            }
        } else if let Some(since) = date(headers, &header::IF_UNMODIFIED_SINCE)
            && self.modified > since
        {
            return Verdict::Failed;
        }
        if headers.contains_key(header::IF_NONE_MATCH) {
            if self.is_listed(headers, &header::IF_NONE_MATCH, Comparison::Weak) {
                return Verdict::NotModified;
            }
        } else if let Some(since) = date(headers, &header::IF_MODIFIED_SINCE)
            && self.modified <= since
        {
            return Verdict::NotModified;
        }
        Verdict::Proceed
    }

    /// The `Range` header, if it applies: in a GET, and for this version of the file.
    pub(super) fn range<'a>(
        &self,
        method: &Method,
        headers: &'a HeaderMap,
    ) -> Option<&'a HeaderValue> {
        if *method != Method::GET {
            return None;
        }
        let mut ranges = headers.get_all(header::RANGE).iter();
        let (range, None) = (ranges.next()?, ranges.next()) else { return None };
        let Some(condition) = headers.get(header::IF_RANGE) else { return Some(range) };
        let is_this = match date(headers, &header::IF_RANGE) {
            Some(date) => self.is_strong && date == self.modified,
            None => self.is_strong && condition.as_bytes() == self.etag.as_bytes(),
        };
        is_this.then_some(range)
    }

    fn is_listed(&self, headers: &HeaderMap, name: &HeaderName, how: Comparison) -> bool {
        let own = self.etag.trim_start_matches("W/").as_bytes();
        headers.get_all(name).iter().any(|value| {
            value.as_bytes().trim_ascii() == b"*"
                || Tags(value.as_bytes()).any(|(is_weak, tag)| match how {
                    Comparison::Strong => self.is_strong && !is_weak && tag == own,
                    Comparison::Weak => tag == own,
                })
        })
    }
}

#[derive(Debug, Clone, Copy)]
enum Comparison {
    Strong,
    Weak,
}

/// The entity tags of a list, with their quotes, and whether each is weak. The list ends at the
/// first thing that is no tag.
struct Tags<'a>(&'a [u8]);

impl<'a> Iterator for Tags<'a> {
    type Item = (bool, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.0.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
        let rest = &self.0[start..];
        let (is_weak, rest) = match rest.strip_prefix(b"W/") {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let inner = rest.strip_prefix(b"\"")?;
        let length = inner.iter().position(|byte| *byte == b'"')?;
        let (tag, rest) = rest.split_at(length + 2);
        self.0 = rest;
        Some((is_weak, tag))
    }
}

/// `None`: there is no such header, or it contains no date, which counts as no header.
fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()
}

fn whole_seconds(time: SystemTime) -> SystemTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(text: &str) -> Vec<(bool, String)> {
        Tags(text.as_bytes())
            .map(|(weak, tag)| (weak, String::from_utf8(tag.to_vec()).unwrap()))
            .collect()
    }

    #[test]
    fn a_list_of_tags_is_read_with_commas_within_them() {
        assert_eq!(
            tags(r#""a,b" , W/"c""#),
            [(false, r#""a,b""#.to_owned()), (true, r#""c""#.to_owned())]
        );
        assert_eq!(tags(r#",,"""#), [(false, r#""""#.to_owned())]);
        assert_eq!(tags(r#""a" b "c""#).len(), 1);
        assert!(tags(r#""open"#).is_empty());
        assert!(tags("w/\"a\"").is_empty());
        assert!(tags("").is_empty());
    }

    #[test]
    fn a_tag_is_strong_once_the_last_change_is_a_second_old() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let metadata = file.as_file().metadata().unwrap();
        let modified = metadata.modified().unwrap();
        let young = Validators::new(&metadata, modified + Duration::from_millis(999));
        assert!(young.etag.starts_with("W/\""), "{}", young.etag);
        let settled = Validators::new(&metadata, modified + SETTLED);
        assert!(settled.etag.starts_with('"'), "{}", settled.etag);
        let ahead = Validators::new(&metadata, modified - Duration::from_secs(60));
        assert!(ahead.etag.starts_with("W/\"") && ahead.modified < modified, "{}", ahead.etag);
    }
}
