//! The header `grpc-timeout`: at most eight digits and a unit (gRPC over HTTP/2, "Requests").

use std::time::Duration;

use http::HeaderMap;
use tonic::Status;

/// How long the client will wait; `None` without the header.
///
/// # Errors
/// The status for a header that is malformed, because a deadline that cannot be read must not be
/// ignored.
pub(super) fn of(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get("grpc-timeout") else { return Ok(None) };
    let malformed = || Status::internal(format!("malformed grpc-timeout: {value:?}"));
    parse(value.as_bytes()).map(Some).ok_or_else(malformed)
}

fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = digits.iter().fold(0, |count, digit| count * 10 + u64::from(digit - b'0'));
    match unit {
        b'H' => Some(Duration::from_secs(count * 3600)),
        b'M' => Some(Duration::from_secs(count * 60)),
        b'S' => Some(Duration::from_secs(count)),
        b'm' => Some(Duration::from_millis(count)),
        b'u' => Some(Duration::from_micros(count)),
        b'n' => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read() {
        let hour = Duration::from_secs(3600);
        assert_eq!(parse(b"1H"), Some(hour));
        assert_eq!(parse(b"60M"), Some(hour));
        assert_eq!(parse(b"3600S"), Some(hour));
        assert_eq!(parse(b"3600000m"), Some(hour));
        assert_eq!(parse(b"5u"), Some(Duration::from_micros(5)));
        assert_eq!(parse(b"0n"), Some(Duration::ZERO));
        assert_eq!(parse(b"99999999H"), Some(hour * 99_999_999));
    }

    #[test]
    fn what_is_no_timeout_is_refused() {
        for text in ["", "S", "10", "10s", "-1S", "1.5S", "123456789S", " 1S", "1 S"] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        let mut headers = HeaderMap::new();
        assert!(of(&headers).unwrap().is_none());
        headers.insert("grpc-timeout", "soon".parse().unwrap());
        let status = of(&headers).unwrap_err();
        assert_eq!(status.message(), "malformed grpc-timeout: \"soon\"");
    }
}
