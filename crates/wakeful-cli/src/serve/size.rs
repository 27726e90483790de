//! Sizes in bytes, as users write them.

/// `512`, `64KiB`, `16MiB`, `1GiB`.
///
/// # Errors
/// A text that says what is expected.
pub(super) fn parse(text: &str) -> Result<usize, String> {
    const EXPECTED: &str = "expected bytes, 0 or more, with or without a unit: B, KiB, MiB or GiB";
    bytes(text).ok_or_else(|| EXPECTED.to_owned())
}

/// Like [`parse`], for sizes from `least` to `most`. The message shows the range as `range`.
///
/// # Errors
/// The same as for [`parse`].
pub(super) fn within(text: &str, least: usize, most: usize, range: &str) -> Result<usize, String> {
    let size = bytes(text).filter(|size| (least..=most).contains(size));
    size.ok_or_else(|| {
        format!("expected bytes, {range}, with or without a unit: B, KiB, MiB or GiB")
    })
}

fn bytes(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].trim_start() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(parse("512"), Ok(512));
        assert_eq!(parse("64KiB"), Ok(65_536));
        assert_eq!(parse("16 MiB"), Ok(16 << 20));
        assert_eq!(parse("1GiB"), Ok(1 << 30));
        for wrong in ["", "MiB", "1GB", "1.5GiB", "-1", "1MiBs", "99999999999999GiB", "1é"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
