//! What is sent in place of a file that is not there, and single files.

use std::fs;
use std::os::unix::fs::symlink;

use http::HeaderValue;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use wakeful_http::files::{Precompressed, ServeDir, ServeFile};

use crate::common::server;
use crate::site::{Site, TEXT, write_old};

/// The page of a single-page application, beside the root.
fn page(site: &tempfile::TempDir) -> ServeFile {
    let path = site.path().join("page.html");
    write_old(&path, b"<p>page");
    ServeFile::new(path).unwrap()
}

fn with(settings: impl FnOnce(ServeDir, ServeFile) -> ServeDir) -> (tempfile::TempDir, Site) {
    let beside = tempfile::tempdir().unwrap();
    let page = page(&beside);
    let site = Site::with(|dir| settings(dir, page));
    (beside, site)
}

#[test]
fn what_is_not_there_is_the_fallback_s_page_and_what_is_there_is_not() {
    let (_beside, site) =
        with(|dir, page| dir.fallback(page.cache_control(HeaderValue::from_static("no-cache"))));
    for path in ["/users/7", "/missing.js", "/docs/none/", "/a//b", "/.env", "/%00", "/../secret"] {
        let answer = site.get(path);
        assert_eq!((answer.status(), answer.text().as_str()), (200, "<p>page"), "{path}");
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
    }
    assert_eq!(site.get("/text.txt").text(), TEXT);
    assert_eq!(site.get("/text.txt").header("cache-control"), None);
    assert_eq!(site.get("/").text(), "<p>root");
    assert_eq!(site.get("/api").text(), "api");
    assert_eq!(site.get("/docs").status(), 301);
    assert_eq!(site.ask("POST /users/7", &[]).status(), 405);
}

#[test]
fn the_fallback_is_a_file_with_conditions_and_ranges() {
    let (_beside, site) = with(ServeDir::fallback);
    let tag = site.get("/users").header("etag").unwrap().to_owned();
    assert_eq!(site.get_with("/users", "if-none-match", &tag).status(), 304);
    let part = site.get_with("/users", "range", "bytes=3-4");
    assert_eq!((part.status(), part.text().as_str()), (206, "pa"));
    let head = site.ask("HEAD /users", &[]);
    assert_eq!((head.status(), head.header("content-length")), (200, Some("7")));
    assert!(head.body.is_empty());
}

#[test]
fn a_page_of_404_is_whole_whatever_the_request_asks() {
    let (_beside, site) = with(ServeDir::not_found_service);
    for (name, value) in
        [("range", "bytes=0-1"), ("if-none-match", "*"), ("if-match", "\"x\""), ("accept", "*/*")]
    {
        let answer = site.get_with("/users", name, value);
        assert_eq!((answer.status(), answer.text().as_str()), (404, "<p>page"), "{name}");
        assert_eq!(answer.header("etag"), None);
        assert_eq!(answer.header("content-length"), Some("7"));
    }
    assert_eq!(site.get("/text.txt").text(), TEXT);
}

#[test]
fn a_fallback_that_has_gone_is_404() {
    let (beside, site) = with(ServeDir::fallback);
    fs::remove_file(beside.path().join("page.html")).unwrap();
    assert_eq!(site.get("/users").status(), 404);
    // A directory in its place is none either.
    fs::create_dir(beside.path().join("page.html")).unwrap();
    assert_eq!(site.get("/users").status(), 404);
    fs::remove_dir(beside.path().join("page.html")).unwrap();
    // Nor is a FIFO, to which nobody writes.
    mknodat(CWD, beside.path().join("page.html"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert_eq!(site.get("/users").status(), 404);
    assert_eq!(site.get("/text.txt").text(), TEXT);
}

/// A server of one file.
fn serving(file: ServeFile, tree: tempfile::TempDir) -> Site {
    Site { running: server().start(file).unwrap(), tree }
}

#[test]
fn a_single_file_is_served_whatever_the_path_is() {
    let tree = tempfile::tempdir().unwrap();
    let (file, link) = (tree.path().join("text.txt"), tree.path().join("current"));
    write_old(&file, TEXT.as_bytes());
    // The program has chosen it, wherever it leads.
    symlink(&file, &link).unwrap();
    let kind = HeaderValue::from_static("text/x-own");
    let site = serving(ServeFile::new(&link).unwrap().content_type(kind).chunk_size(0), tree);
    for path in ["/", "/any", "/../.."] {
        let answer = site.get(path);
        assert_eq!((answer.status(), answer.text().as_str()), (200, TEXT));
        assert_eq!(answer.header("content-type"), Some("text/x-own"));
        assert!(answer.header("etag").is_some());
    }
    let parts = site.get_with("/", "range", "bytes=0-1,4-5");
    assert!(parts.text().contains("content-type: text/x-own\r\ncontent-range: bytes 4-5/36"));
    assert_eq!(site.ask("DELETE /", &[]).status(), 405);
    // Replaced by a deployment.
    write_old(&file, b"new");
    assert_eq!(site.get("/").text(), "new");
}

#[test]
fn a_single_file_may_have_compressed_ones_beside_it() {
    let tree = tempfile::tempdir().unwrap();
    let file = tree.path().join("page.html");
    write_old(&file, b"plain");
    write_old(&tree.path().join("page.html.br"), b"brotli");
    let site = serving(ServeFile::new(&file).unwrap().precompressed(Precompressed::Offer), tree);
    let answer = site.get_with("/", "accept-encoding", "br");
    assert_eq!((answer.text().as_str(), answer.header("content-encoding")), ("brotli", Some("br")));
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(site.get("/").text(), "plain");
}

#[test]
fn a_single_file_that_is_none_is_said_at_the_start() {
    let tree = tempfile::tempdir().unwrap();
    let missing = ServeFile::new(tree.path().join("missing")).expect_err("it is not there");
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    assert!(missing.to_string().contains("missing"), "{missing}");
    let directory = ServeFile::new(tree.path()).expect_err("it is a directory");
    assert_eq!(directory.kind(), std::io::ErrorKind::InvalidInput);
    assert!(ServeFile::new("/").is_err());
}
