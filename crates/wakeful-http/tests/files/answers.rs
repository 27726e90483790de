//! What is sent for a file or a directory, and with which headers.

use std::fs;

use axum::Router;
use http_body_util::BodyExt;
use wakeful_http::files::{Precompressed, ServeDir};

use crate::common::{GUARD, addr, http2_client, request, server};
use crate::site::{Site, TEXT, large};

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
    // It may be searched, and not read. (Root may read it all the same.)
    let locked = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    fs::set_permissions(site.root().join("no index"), locked).unwrap();
    assert_eq!(site.get("/no%20index").header("location"), Some("./no%20index/"));
    fs::create_dir_all(site.root().join("odd/index.html")).unwrap();
    assert_eq!(site.get("/odd/").status(), 404);
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
