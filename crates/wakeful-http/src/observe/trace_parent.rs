//! W3C Trace Context: the header `traceparent`, by which a request belongs to a trace.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};

pub(super) const NAME: HeaderName = HeaderName::from_static("traceparent");
pub(super) const STATE: HeaderName = HeaderName::from_static("tracestate");

/// A `traceparent`: the trace of a request, and its parent.
///
/// In a handler, `TraceParent::from_headers(request.headers())` returns the value that the server
/// derived from the client's header. Send this value with the handler's own requests. `Display`
/// shows it as the header has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    trace_id: u128,
    parent_id: u64,
    flags: u8,
}

impl TraceParent {
    /// Returns the `traceparent` of `headers`, or `None` if there is no such header, or several, or
    /// an invalid one.
    #[must_use]
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(NAME).iter();
        let (value, None) = (values.next()?, values.next()) else { return None };
        Self::parse(value.as_bytes())
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let is_delimited = |at| value.get(at) == Some(&b'-');
        if !is_delimited(2) || !is_delimited(35) || !is_delimited(52) {
            return None;
        }
        let version = hex(&value[..2])?;
        // Later versions may add fields. This version has none.
        let ends_well = value.len() == 55 || (version > 0 && is_delimited(55));
        let this = Self {
            trace_id: hex(&value[3..35])?,
            parent_id: u64::try_from(hex(&value[36..52])?).ok()?,
            flags: u8::try_from(hex(value.get(53..55)?)?).ok()?,
        };
        let is_valid = version != 0xff && ends_well && this.trace_id != 0 && this.parent_id != 0;
        is_valid.then_some(this)
    }

    /// A new trace, which is not sampled. `trace_id` and `span_id` are random.
    pub(super) fn root(trace_id: u128, span_id: u64) -> Self {
        Self { trace_id: trace_id.max(1), parent_id: span_id.max(1), flags: 0 }
    }

    /// Returns the same trace with `span_id` as the parent span. 0, which is not a valid id,
    /// becomes 1.
    #[must_use]
    pub fn child(self, span_id: u64) -> Self {
        Self { parent_id: span_id.max(1), ..self }
    }

    /// Returns the id of the trace, which is never 0.
    #[must_use]
    pub fn trace_id(self) -> u128 {
        self.trace_id
    }

    /// Returns the id of the parent span, which is never 0.
    #[must_use]
    pub fn parent_id(self) -> u64 {
        self.parent_id
    }

    /// Returns whether the caller records the trace.
    #[must_use]
    pub fn is_sampled(self) -> bool {
        self.flags & 1 == 1
    }

    /// Returns the value of the header.
    #[must_use]
    pub fn to_header_value(self) -> HeaderValue {
        // Digits and dashes are always a valid value.
        HeaderValue::try_from(self.to_string()).unwrap_or(HeaderValue::from_static(""))
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace_id, parent_id, flags } = self;
        // The meaning of other flags is unknown, so they are not passed on.
        write!(f, "00-{trace_id:032x}-{parent_id:016x}-{:02x}", flags & 1)
    }
}

/// Lower-case digits only, as the recommendation has it.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_valid_one_reads_as_it_prints() {
        let parent = TraceParent::parse(VALID.as_bytes()).unwrap();
        assert_eq!(parent.to_string(), VALID);
        assert!(parent.is_sampled());
        assert_eq!(parent.trace_id(), 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        let child = parent.child(0xab);
        assert_eq!(child.to_string(), "00-0af7651916cd43dd8448eb211c80319c-00000000000000ab-01");
        let later = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03-more";
        assert_eq!(TraceParent::parse(later.as_bytes()).unwrap().to_string(), VALID);
    }

    #[test]
    fn one_that_is_not_valid_counts_as_none() {
        for value in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-011",
            "00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01",
            "zz-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceParent::parse(value.as_bytes()), None, "{value}");
        }
    }
}
