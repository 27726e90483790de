//! Ranges, and conditions on what a client has already.

use std::fs;

use crate::site::{Site, TEXT, large};

#[test]
fn ranges_are_sent_as_curl_asks_for_them() {
    let site = Site::new();
    for (range, content_range, body) in [
        ("bytes=0-9", "bytes 0-9/36", "0123456789"),
        ("bytes=30-", "bytes 30-35/36", "uvwxyz"),
        ("bytes=-3", "bytes 33-35/36", "xyz"),
        ("bytes=35-1000", "bytes 35-35/36", "z"),
        ("bytes=0-1,99-", "bytes 0-1/36", "01"),
    ] {
        let answer = site.get_with("/text.txt", "range", range);
        assert_eq!((answer.status(), answer.text().as_str()), (206, body), "{range}");
        assert_eq!(answer.header("content-range"), Some(content_range));
        assert_eq!(answer.header("content-length"), Some(body.len().to_string().as_str()));
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    }
    for range in ["bytes=36-", "bytes=-0", "bytes=99-100,200-"] {
        let answer = site.get_with("/text.txt", "range", range);
        assert_eq!(answer.status(), 416, "{range}");
        assert_eq!(answer.header("content-range"), Some("bytes */36"));
    }
    let too_many = format!("bytes={}", vec!["0-0"; 17].join(","));
    for range in ["bytes=9-1", "bytes=x", "lines=0-1", "bytes=0-35,0-35", &too_many] {
        let answer = site.get_with("/text.txt", "range", range);
        assert_eq!((answer.status(), answer.text().as_str()), (200, TEXT), "{range}");
    }
    let twice = site.ask("GET /text.txt", &[("range", "bytes=0-1"), ("range", "bytes=2-3")]);
    assert_eq!(twice.status(), 200);
}

#[test]
fn several_ranges_are_a_multipart_of_the_promised_length() {
    let site = Site::with(|dir| dir.chunk_size(4096));
    let content = large(50_000);
    fs::write(site.root().join("large.bin"), &content).unwrap();
    let answer = site.get_with("/large.bin", "range", "bytes=40000-49998, 0-0,-1");
    assert_eq!(answer.status(), 206);
    assert_eq!(answer.header("content-range"), None);
    assert_eq!(answer.header("content-length"), Some(answer.body.len().to_string().as_str()));
    let kind = answer.header("content-type").unwrap();
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let mut expected = Vec::new();
    for (range, part) in [
        ("40000-49998", &content[40_000..=49_998]),
        ("0-0", &content[..1]),
        ("49999-49999", &content[49_999..]),
    ] {
        let head = format!(
            "--{boundary}\r\ncontent-type: application/octet-stream\r\ncontent-range: bytes {range}/50000\r\n\r\n"
        );
        expected.extend_from_slice(head.as_bytes());
        expected.extend_from_slice(part);
        expected.extend_from_slice(b"\r\n");
    }
    expected.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    assert!(answer.body == expected, "the parts differ");
}

#[test]
fn conditions_count_in_the_order_of_the_rfc() {
    let site = Site::new();
    let first = site.get("/text.txt");
    let (tag, modified) = (first.header("etag").unwrap(), first.header("last-modified").unwrap());
    let (past, future) = ("Thu, 01 Jan 1970 00:00:01 GMT", "Fri, 01 Jan 2100 00:00:00 GMT");
    let other = "\"other\"";
    let several = format!("{other}, W/{tag}");
    let if_match = format!("{other},{tag}");
    for (headers, status) in [
        (&[("if-none-match", tag)][..], 304),
        (&[("if-none-match", several.as_str())], 304),
        (&[("if-none-match", "*")], 304),
        (&[("if-none-match", other)], 200),
        (&[("if-none-match", other), ("if-modified-since", future)], 200),
        (&[("if-none-match", tag), ("if-modified-since", past)], 304),
        (&[("if-modified-since", modified)], 304),
        (&[("if-modified-since", past)], 200),
        (&[("if-modified-since", "yesterday")], 200),
        (&[("if-match", if_match.as_str())], 200),
        (&[("if-match", "*")], 200),
        (&[("if-match", other)], 412),
        (&[("if-match", several.as_str())], 412),
        (&[("if-match", tag), ("if-unmodified-since", past)], 200),
        (&[("if-match", other), ("if-none-match", tag)], 412),
        (&[("if-unmodified-since", modified)], 200),
        (&[("if-unmodified-since", past)], 412),
        (&[("if-unmodified-since", past), ("if-none-match", tag)], 412),
        (&[("if-match", tag), ("if-none-match", tag)], 304),
        (&[("if-none-match", tag), ("range", "bytes=0-1")], 304),
        (&[("if-match", other), ("range", "bytes=99-")], 412),
    ] {
        let answer = site.ask("GET /text.txt", headers);
        assert_eq!(answer.status(), status, "{headers:?}");
        if status == 304 {
            assert_eq!(answer.header("etag"), Some(tag));
            assert_eq!(answer.header("content-length"), None);
            assert!(answer.body.is_empty());
        }
    }
}

#[test]
fn a_range_goes_on_only_with_the_same_version() {
    let site = Site::new();
    let first = site.get("/text.txt");
    let (tag, modified) = (first.header("etag").unwrap(), first.header("last-modified").unwrap());
    let weak = format!("W/{tag}");
    for (condition, status) in [
        (tag, 206),
        (modified, 206),
        (weak.as_str(), 200),
        ("\"other\"", 200),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 200),
        ("Fri, 01 Jan 2100 00:00:00 GMT", 200),
    ] {
        let headers = [("range", "bytes=0-1"), ("if-range", condition)];
        assert_eq!(site.ask("GET /text.txt", &headers).status(), status, "{condition}");
    }
    // A change now: a tag of its own, and a weak one, with which nothing is continued.
    fs::write(site.root().join("text.txt"), TEXT.to_uppercase()).unwrap();
    let headers = [("range", "bytes=0-1"), ("if-range", tag)];
    let changed = site.ask("GET /text.txt", &headers);
    assert_eq!((changed.status(), changed.text()), (200, TEXT.to_uppercase()));
    let young = changed.header("etag").unwrap();
    if young.starts_with("W/") {
        let headers = [("range", "bytes=0-1"), ("if-range", young)];
        assert_eq!(site.ask("GET /text.txt", &headers).status(), 200);
    }
}
