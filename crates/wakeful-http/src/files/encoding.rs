//! Which of the encodings of precompressed files a client accepts (RFC 9110, 12.5.3).

use http::{HeaderMap, header};

/// The known encodings in order of preference: the name of the encoding, and the suffix of its
/// files.
const KNOWN: [(&str, &[u8]); 2] = [("br", b".br"), ("gzip", b".gz")];

/// The known encodings that the client accepts, the best one first. Weights only say yes or no: the
/// server has its own preference.
pub(super) fn accepted(
    headers: &HeaderMap,
) -> impl Iterator<Item = (&'static str, &'static [u8])> + '_ {
    KNOWN.into_iter().filter(move |(name, _)| is_accepted(headers, name))
}

fn is_accepted(headers: &HeaderMap, name: &str) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter();
    let codings = values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let mut any = false;
    for coding in codings {
        let (coding, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let is_wanted = !is_zero(weight);
        match coding.trim() {
            coding if coding.eq_ignore_ascii_case(name) => return is_wanted,
            "*" => any = is_wanted,
            _ => {}
        }
    }
    any
}

/// `q=0`, in any of its spellings.
fn is_zero(weight: &str) -> bool {
    let weight = weight
        .trim()
        .strip_prefix(['q', 'Q'])
        .and_then(|weight| weight.trim_start().strip_prefix('='));
    weight.is_some_and(|weight| weight.trim().parse::<f32>().is_ok_and(|weight| weight <= 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(value: &'static str) -> Vec<&'static str> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, value.parse().unwrap());
        accepted(&headers).map(|(name, _)| name).collect()
    }

    #[test]
    fn what_is_refused_is_not_taken() {
        assert_eq!(names("gzip, deflate, br"), ["br", "gzip"]);
        assert_eq!(names("GZIP;q=0.5"), ["gzip"]);
        assert_eq!(names("br;q=0, gzip;q=0.000, *"), [""; 0]);
        assert_eq!(names("*;q=0.1, br; q = 0"), ["gzip"]);
        assert_eq!(names("identity"), [""; 0]);
        assert_eq!(names(""), [""; 0]);
        assert!(accepted(&HeaderMap::new()).next().is_none());
    }
}
