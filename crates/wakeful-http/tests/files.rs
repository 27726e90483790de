//! Files of a directory, through sockets: what is sent, what is not, and what never is.
#![cfg(feature = "files")]

mod common;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::routing::get;
use common::{GUARD, addr, http2_client, raw, read_all, request, server};
use http_body_util::BodyExt;
use tempfile::TempDir;
use wakeful_http::Running;
use wakeful_http::files::{HiddenFiles, Precompressed, ServeDir};

const TEXT: &str = "0123456789abcdefghijklmnopqrstuvwxyz";

/// A root, a secret beside it, and a server of that root.
struct Site {
    tree: TempDir,
    running: Running,
}

struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn status(&self) -> u16 {
        self.head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines
            .into_iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Site {
    fn new() -> Self {
        Self::with(|dir| dir)
    }

    fn with(settings: impl FnOnce(ServeDir) -> ServeDir) -> Self {
        let tree = tempfile::tempdir().unwrap();
        fs::write(tree.path().join("secret"), "secret").unwrap();
        let root = tree.path().join("root");
        fs::create_dir_all(root.join("docs")).unwrap();
        write_old(&root.join("text.txt"), TEXT.as_bytes());
        write_old(&root.join("index.html"), b"<p>root");
        write_old(&root.join("docs/index.html"), b"<p>docs");
        let dir = settings(ServeDir::new(&root).unwrap());
        let app = Router::new().route("/api", get(|| async { "api" })).fallback_service(dir);
        Self { running: server().start(app).unwrap(), tree }
    }

    fn root(&self) -> PathBuf {
        self.tree.path().join("root")
    }

    /// `head` is the request line and headers that come behind `host`.
    fn ask(&self, line: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request =
            format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n").into_bytes();
        for (name, value) in headers {
            request.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        request.extend_from_slice(b"\r\n");
        self.send(&request)
    }

    fn send(&self, request: &[u8]) -> Answer {
        let mut stream = raw(&self.running);
        stream.write_all(request).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        let end = all.windows(4).position(|four| four == b"\r\n\r\n").expect("a complete head");
        let head = String::from_utf8(all[..end].to_vec()).unwrap();
        Answer { head, body: all[end + 4..].to_vec() }
    }

    fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"), &[])
    }

    fn get_with(&self, path: &str, name: &str, value: &str) -> Answer {
        self.ask(&format!("GET {path}"), &[(name, value)])
    }
}

/// Old enough for a strong entity tag.
fn write_old(path: &std::path::Path, content: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.write_all(content).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
}

/// Different in every place, so that a wrong offset shows.
fn large(size: usize) -> Vec<u8> {
    (0..size.div_ceil(8)).flat_map(|number| (number as u64).to_le_bytes()).take(size).collect()
}

#[test]
fn a_file_is_sent_with_its_type_length_and_validators() {
    let site = Site::new();
    let answer = site.get("/text.txt");
    assert_eq!((answer.status(), answer.text().as_str()), (200, TEXT));
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(answer.header("content-length"), Some("36"));
    assert_eq!(answer.header("accept-ranges"), Some("bytes"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert!(answer.header("etag").unwrap().starts_with('"'));
    assert!(answer.header("last-modified").unwrap().ends_with(" GMT"));
    assert_eq!(answer.header("cache-control"), None);
    assert_eq!(site.get("/api").text(), "api");
}

#[test]
fn types_follow_the_extension_and_are_bytes_without_one() {
    let site = Site::new();
    for (name, kind) in [
        ("a.html", "text/html; charset=utf-8"),
        ("a.css", "text/css; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.PNG", "image/png"),
        ("a.svg", "image/svg+xml"),
        ("a.wasm", "application/wasm"),
        ("a.json", "application/json"),
        ("a", "application/octet-stream"),
        ("a.unheard-of", "application/octet-stream"),
    ] {
        fs::write(site.root().join(name), "x").unwrap();
        assert_eq!(site.get(&format!("/{name}")).header("content-type"), Some(kind), "{name}");
    }
}

#[test]
fn a_large_file_comes_whole_and_in_order_by_either_protocol() {
    let site = Site::with(|dir| dir.chunk_size(8 * 1024));
    let content = large(1_000_003);
    fs::write(site.root().join("large"), &content).unwrap();
    let answer = site.get("/large");
    assert_eq!(answer.header("content-length"), Some("1000003"));
    assert!(answer.body == content, "the content differs");
    let addr = addr(&site.running);
    wakeful::block_on(async {
        let mut client = http2_client(addr).await;
        let response = client.send_request(request("GET", "/large", "")).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(body == content, "the content differs");
    });
}

#[test]
fn an_empty_file_is_an_empty_answer() {
    let site = Site::new();
    fs::write(site.root().join("empty"), "").unwrap();
    for range in ["", "bytes=0-", "bytes=-5"] {
        let answer = site.get_with("/empty", "range", range);
        assert_eq!((answer.status(), answer.header("content-length")), (200, Some("0")), "{range}");
        assert!(answer.body.is_empty());
    }
}

#[test]
fn head_has_the_headers_of_get_and_no_body() {
    let site = Site::new();
    let (get, head) =
        (site.get("/text.txt"), site.ask("HEAD /text.txt", &[("range", "bytes=0-1")]));
    assert_eq!(head.status(), 200, "a range is for GET only");
    for name in ["content-length", "content-type", "etag", "last-modified", "accept-ranges"] {
        assert_eq!(head.header(name), get.header(name), "{name}");
    }
    assert!(head.body.is_empty());
    assert_eq!(site.ask("HEAD /missing", &[]).status(), 404);
}

#[test]
fn other_methods_are_told_which_ones_there_are() {
    let site = Site::new();
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"] {
        let answer = site.ask(&format!("{method} /text.txt"), &[]);
        assert_eq!((answer.status(), answer.header("allow")), (405, Some("GET, HEAD")), "{method}");
    }
}

#[test]
fn a_directory_is_its_index_and_has_a_slash_at_its_end() {
    let site = Site::new();
    assert_eq!(site.get("/").text(), "<p>root");
    assert_eq!(site.get("/docs/").text(), "<p>docs");
    assert_eq!(site.get("/docs/").header("content-type"), Some("text/html; charset=utf-8"));
    let answer = site.get("/docs?a=//b");
    assert_eq!((answer.status(), answer.header("location")), (301, Some("./docs/?a=//b")));
    fs::create_dir_all(site.root().join("no index/a:b")).unwrap();
    assert_eq!(site.get("/no%20index").header("location"), Some("./no%20index/"));
    assert_eq!(site.get("/no%20index/a:b").header("location"), Some("./a:b/"));
    assert_eq!(site.get("/no%20index/").status(), 404);
    assert_eq!(site.get("/text.txt/").status(), 404);
    fs::create_dir_all(site.root().join("odd/index.html")).unwrap();
    assert_eq!(site.get("/odd/").status(), 404);
}

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

#[test]
fn no_path_leads_out_of_the_root() {
    let site = Site::new();
    let long = format!("/{}", "a".repeat(300));
    let deep = "/a".repeat(3000);
    for path in [
        "/../secret",
        "/..%2fsecret",
        "/%2e%2e/secret",
        "/%2E%2E%2Fsecret",
        "/.%2e/secret",
        "/docs/../../secret",
        "/docs/..%5c..%5c..%5csecret",
        "/..\\secret",
        "//secret",
        "//etc/passwd",
        "/%2fetc/passwd",
        "/%2Fetc%2fpasswd",
        "/docs//index.html",
        "/%252e%252e/secret",
        "/text.txt%00",
        "/%00",
        "/text.txt%00.html",
        "/./text.txt",
        "/%c0%ae%c0%ae/secret",
        "/%ff%fe",
        "/docs/%2e%2e/text.txt",
        &long,
        &deep,
    ] {
        let answer = site.get(path);
        // hyper refuses some by itself.
        assert!(matches!(answer.status(), 400 | 404), "{path}: {}", answer.head);
        assert!(!answer.text().contains("secret"), "{path}");
    }
}

#[test]
fn links_are_followed_within_the_root_and_never_out_of_it() {
    let site = Site::new();
    let root = site.root();
    symlink("../secret", root.join("up")).unwrap();
    symlink("..", root.join("parent")).unwrap();
    symlink(site.tree.path().join("secret"), root.join("absolute")).unwrap();
    symlink("/", root.join("everything")).unwrap();
    symlink("/proc/self/root", root.join("magic")).unwrap();
    symlink("up", root.join("twice")).unwrap();
    symlink("round", root.join("round")).unwrap();
    for path in [
        "/up",
        "/parent/secret",
        "/parent",
        "/absolute",
        "/everything/etc/passwd",
        "/magic/etc/passwd",
        "/twice",
        "/round",
        "/everything/",
    ] {
        assert_eq!(site.get(path).status(), 404, "{path}");
    }
    // Where the kernel has no openat2, no link is followed.
    symlink("text.txt", root.join("within")).unwrap();
    let within = site.get("/within");
    assert!(within.text() == TEXT || within.status() == 404, "{}", within.head);
}

#[test]
fn names_are_bytes() {
    let site = Site::new();
    for (name, path) in [
        (&b"\xff\xfe.txt"[..], "/%ff%fe.txt"),
        (b"a b", "/a%20b"),
        (b"a\\b", "/a%5Cb"),
        (b"100%", "/100%25"),
        (b"%2e", "/%252e"),
        ("grün".as_bytes(), "/gr%C3%BCn"),
        (b"?#", "/%3F%23"),
        (b"\r\n", "/%0D%0A"),
    ] {
        fs::write(site.root().join(OsStr::from_bytes(name)), name).unwrap();
        assert!(site.get(path).body == name, "{path}");
    }
}

#[test]
fn hidden_files_are_served_only_where_asked_for() {
    let refusing = Site::new();
    let serving = Site::with(|dir| dir.hidden_files(HiddenFiles::Serve));
    for site in [&refusing, &serving] {
        fs::write(site.root().join(".env"), "hidden").unwrap();
        fs::create_dir_all(site.root().join(".well-known")).unwrap();
        fs::write(site.root().join(".well-known/x"), "known").unwrap();
        assert_eq!(site.get("/.well-known/x").text(), "known");
    }
    assert_eq!(refusing.get("/.env").status(), 404);
    assert_eq!(serving.get("/.env").text(), "hidden");
}

#[test]
fn what_is_no_regular_file_holds_nobody_up() {
    let site = Site::new();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        site.root().join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(site.root().join("socket")).unwrap();
    assert_eq!(site.get("/fifo").status(), 404);
    assert_eq!(site.get("/socket").status(), 404);
}

#[test]
fn what_may_not_be_read_is_forbidden() {
    let site = Site::new();
    let path = site.root().join("private");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    if File::open(&path).is_ok() {
        eprintln!("skipped: root may read everything");
        return;
    }
    assert_eq!(site.get("/private").status(), 403);
}

#[test]
fn a_file_that_becomes_shorter_ends_the_connection() {
    let site = Site::new();
    let path = site.root().join("shrinks");
    // Sparse, and more than sockets and buffers take.
    File::create(&path).unwrap().set_len(256 << 20).unwrap();
    let mut stream = raw(&site.running);
    stream.write_all(b"GET /shrinks HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut start = [0; 1024];
    stream.read_exact(&mut start).unwrap();
    assert!(String::from_utf8_lossy(&start).contains("content-length: 268435456\r\n"));
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    // The connection is kept alive otherwise, so this would not end.
    let rest = read_all(stream);
    assert!(rest.len() < 200 << 20, "{} bytes came", rest.len());
}

#[test]
fn a_file_that_becomes_shorter_ends_a_stream_of_http2_and_not_its_connection() {
    let site = Site::new();
    let path = site.root().join("shrinks");
    File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let addr = addr(&site.running);
    wakeful::block_on(async {
        let mut client = http2_client(addr).await;
        let response = client.send_request(request("GET", "/shrinks", "")).await.unwrap();
        // The stream's window holds the rest back until it is read.
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
        assert!(response.into_body().collect().await.is_err());
        let response = client.send_request(request("GET", "/text.txt", "")).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), TEXT);
    });
}

#[test]
fn a_client_that_leaves_gives_the_file_back() {
    let site = Site::new();
    let path = site.root().join("long");
    File::create(&path).unwrap().set_len(256 << 20).unwrap();
    let mut stream = raw(&site.running);
    stream.write_all(b"GET /long HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 1024]).unwrap();
    let is_open = || {
        let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
        links.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| target == path)
    };
    assert!(is_open());
    drop(stream);
    common::until("the file is closed", || !is_open());
}

#[test]
fn compressed_files_are_sent_to_who_takes_them() {
    let site = Site::with(|dir| dir.precompressed(Precompressed::Offer));
    fs::write(site.root().join("text.txt.gz"), "gzipped").unwrap();
    fs::write(site.root().join("docs/index.html.br"), "brotli").unwrap();
    let (plain, zipped) =
        (site.get("/text.txt"), site.get_with("/text.txt", "accept-encoding", "br, gzip"));
    assert_eq!((plain.text().as_str(), plain.header("content-encoding")), (TEXT, None));
    assert_eq!(zipped.text(), "gzipped");
    assert_eq!(zipped.header("content-encoding"), Some("gzip"));
    assert_eq!(zipped.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_ne!(zipped.header("etag"), plain.header("etag"));
    assert_eq!(plain.header("vary"), Some("accept-encoding"));
    assert_eq!(zipped.header("vary"), Some("accept-encoding"));
    assert_eq!(site.get_with("/docs/", "accept-encoding", "br").text(), "brotli");
    let refused = site.get_with("/text.txt", "accept-encoding", "gzip;q=0");
    assert_eq!(refused.header("content-encoding"), None);
    let ignoring = Site::new();
    fs::write(ignoring.root().join("text.txt.gz"), "gzipped").unwrap();
    assert_eq!(ignoring.get_with("/text.txt", "accept-encoding", "gzip").text(), TEXT);
}

#[test]
fn caches_are_told_what_was_set() {
    let site = Site::with(|dir| dir.cache_control("max-age=60".parse().unwrap()));
    let first = site.get("/text.txt");
    assert_eq!(first.header("cache-control"), Some("max-age=60"));
    let tag = first.header("etag").unwrap();
    let unchanged = site.get_with("/text.txt", "if-none-match", tag);
    assert_eq!(unchanged.header("cache-control"), Some("max-age=60"));
    assert_eq!(site.get("/missing").header("cache-control"), None);
}

#[test]
fn a_root_that_was_replaced_is_served_anew() {
    let site = Site::new();
    fs::rename(site.root(), site.tree.path().join("old")).unwrap();
    assert_eq!(site.get("/text.txt").status(), 404);
    fs::create_dir(site.root()).unwrap();
    fs::write(site.root().join("text.txt"), "new").unwrap();
    assert_eq!(site.get("/text.txt").text(), "new");
}

#[test]
fn a_prefix_keeps_its_directories() {
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir(tree.path().join("a")).unwrap();
    fs::write(tree.path().join("a/index.html"), "a").unwrap();
    let app = Router::new().nest_service("/static", ServeDir::new(tree.path()).unwrap());
    let site = Site { running: server().start(app).unwrap(), tree };
    assert_eq!(site.get("/static/a/").text(), "a");
    // Relative to /static/a, so /static/a/.
    assert_eq!(site.get("/static/a").header("location"), Some("./a/"));
}

#[test]
fn it_serves_without_a_router_as_well() {
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("a"), "a").unwrap();
    let running = server().start(ServeDir::new(tree.path()).unwrap()).unwrap();
    let site = Site { running, tree };
    assert_eq!(site.get("/a").text(), "a");
    let missing = ServeDir::new(site.tree.path().join("b")).unwrap_err().to_string();
    assert!(missing.contains("/b"), "{missing}");
    assert_eq!(site.running.shutdown(GUARD).unwrap(), 0);
}
