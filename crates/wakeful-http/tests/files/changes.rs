//! Files, roots and clients that change or leave while something is sent.

use std::fs::{self, File};
use std::io::{Read, Write};

use http_body_util::BodyExt;

use crate::common::{self, addr, http2_client, raw, read_all, request};
use crate::site::{Site, TEXT};

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
fn a_root_that_was_replaced_is_served_anew() {
    let site = Site::new();
    fs::rename(site.root(), site.tree.path().join("old")).unwrap();
    assert_eq!(site.get("/text.txt").status(), 404);
    fs::create_dir(site.root()).unwrap();
    fs::write(site.root().join("text.txt"), "new").unwrap();
    assert_eq!(site.get("/text.txt").text(), "new");
}
