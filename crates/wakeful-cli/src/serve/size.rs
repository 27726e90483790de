//! Sizes in bytes, as users write them.

/// `512`, `64KiB`, `16MiB`, `1GiB`.
///
/// # Errors
/// A text that says what would have been understood.
pub(super) fn parse(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].trim_start() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return Err("expected bytes, as 512, 64KiB, 16MiB or 1GiB".to_owned()),
    };
    let number: usize = digits.parse().map_err(|_| "expected a number, as in 16MiB")?;
    number.checked_mul(1 << shift).ok_or_else(|| "more than there can be".to_owned())
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
