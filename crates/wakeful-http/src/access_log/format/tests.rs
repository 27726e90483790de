use proptest::prelude::*;

use super::*;

fn line<'a>() -> Line<'a> {
    Line {
        // 2026-11-22T06:30:01.234Z
        time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_329_001_234),
        peer: PeerAddr::Tcp(([127, 0, 0, 1], 4321).into()),
        method: &Method::GET,
        path: "/a",
        query: None,
        version: Version::HTTP_11,
        status: Some(200),
        bytes: 5,
        duration: Duration::from_micros(1234),
        aborted: false,
        user_agent: None,
        referer: None,
        request_id: None,
        trace_id: None,
    }
}

fn text(format: Format, line: &Line<'_>) -> String {
    let mut out = Vec::new();
    write(&mut out, format, line);
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn json_has_a_field_for_all_that_is_known() {
    let short = r#"{"time":"2026-11-22T06:30:01.234Z","peer":"127.0.0.1:4321","method":"GET","path":"/a","protocol":"HTTP/1.1","status":200,"bytes":5,"duration_us":1234,"aborted":false}"#;
    assert_eq!(text(Format::Json, &line()), format!("{short}\n"));
    let full = Line {
        query: Some("b=\"c\""),
        status: None,
        aborted: true,
        user_agent: Some(b"curl/8"),
        referer: Some(b"\x00\xff\\"),
        request_id: Some(b"id"),
        trace_id: Some(0xab),
        peer: PeerAddr::Unix,
        version: Version::HTTP_2,
        ..line()
    };
    let value: serde_json::Value = serde_json::from_str(&text(Format::Json, &full)).unwrap();
    assert_eq!(value["query"], "b=\"c\"");
    assert_eq!((&value["status"], &value["aborted"]), (&serde_json::Value::Null, &true.into()));
    assert_eq!((&value["peer"], &value["protocol"]), (&"unix".into(), &"HTTP/2.0".into()));
    assert_eq!(value["referer"], "\0\u{fffd}\\");
    assert_eq!(value["trace_id"], "000000000000000000000000000000ab");
}

#[test]
fn the_common_format_is_apaches() {
    let expected = r#"127.0.0.1 - - [22/Nov/2026:06:30:01 +0000] "GET /a HTTP/1.1" 200 5"#;
    assert_eq!(text(Format::Common, &line()), format!("{expected}\n"));
    let hostile =
        Line { status: None, query: Some("b"), user_agent: Some(b"a\"b\\\x1b\xe9\n"), ..line() };
    let expected = r#"127.0.0.1 - - [22/Nov/2026:06:30:01 +0000] "GET /a?b HTTP/1.1" - 5 "-" "a\x22b\x5C\x1B\xE9\x0A""#;
    assert_eq!(text(Format::Combined, &hostile), format!("{expected}\n"));
}

#[test]
fn no_control_character_reaches_a_terminal_by_json() {
    // C1's control sequence introducer in UTF-8, beside DEL and ESC.
    let json =
        text(Format::Json, &Line { user_agent: Some(b"\xc2\x9b2J\x7f\x1b\xc2\xa0"), ..line() });
    assert!(json.contains("\"\\u009b2J\\u007f\\u001b\u{a0}\""), "{json}");
    // A line end, and a mark that turns what follows around.
    let agent = "a\u{2028}b\u{202e}c\u{2069}".as_bytes();
    let json = text(Format::Json, &Line { user_agent: Some(agent), ..line() });
    assert!(json.contains("\"a\\u2028b\\u202ec\\u2069\""), "{json}");
}

#[test]
fn long_texts_are_cut() {
    let long = vec![b'a'; LONGEST + 1];
    let text = text(Format::Json, &Line { user_agent: Some(&long), ..line() });
    assert!(text.contains(&format!("\"{}...\"", "a".repeat(LONGEST))));
}

#[test]
fn a_clock_that_is_far_off_costs_no_line() {
    let epoch = SystemTime::UNIX_EPOCH;
    for (time, year) in [
        (epoch - Duration::from_secs(1), "1970"),
        (epoch + Duration::from_secs(300_000_000_000), "9999"),
    ] {
        for format in [Format::Json, Format::Common, Format::Combined] {
            let line = text(format, &Line { time, ..line() });
            assert!(line.contains(year) && line.contains("/a"), "{line}");
            let mut out = Vec::new();
            write_dropped(&mut out, format, time, 3);
            assert!(String::from_utf8(out).unwrap().contains('3'));
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_end_a_line_or_leave_their_field(
        agent in proptest::collection::vec(any::<u8>(), 0..200),
        path in "\\PC{0,30}",
    ) {
        let line = Line { user_agent: Some(&agent), path: &path, ..line() };
        let json = text(Format::Json, &line);
        prop_assert_eq!(json.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(&value["user_agent"], &String::from_utf8_lossy(&agent).into_owned());
        prop_assert_eq!(&value["path"], &path);
        let combined = text(Format::Combined, &line);
        prop_assert_eq!(combined.matches('\n').count(), 1);
        prop_assert_eq!(combined.matches('"').count(), 6);
        prop_assert!(combined.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')));
    }
}
