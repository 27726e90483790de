//! A root with a server, and a client that shows the bytes as they come.

#![allow(unreachable_pub)] // Of a program of its own.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::routing::get;
use tempfile::TempDir;
use wakeful_http::Running;
use wakeful_http::files::ServeDir;

use crate::common::{raw, server};

pub const TEXT: &str = "0123456789abcdefghijklmnopqrstuvwxyz";

/// A root, a secret beside it, and a server of that root.
pub struct Site {
    pub tree: TempDir,
    pub running: Running,
}

pub struct Answer {
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn status(&self) -> u16 {
        self.head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines
            .into_iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Site {
    pub fn new() -> Self {
        Self::with(|dir| dir)
    }

    pub fn with(settings: impl FnOnce(ServeDir) -> ServeDir) -> Self {
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

    pub fn root(&self) -> PathBuf {
        self.tree.path().join("root")
    }

    /// `head` is the request line and headers that come after `host`.
    pub fn ask(&self, line: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request =
            format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n").into_bytes();
        for (name, value) in headers {
            request.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        request.extend_from_slice(b"\r\n");
        self.send(&request)
    }

    pub fn send(&self, request: &[u8]) -> Answer {
        let mut stream = raw(&self.running);
        stream.write_all(request).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        let end = all.windows(4).position(|four| four == b"\r\n\r\n").expect("a complete head");
        let head = String::from_utf8(all[..end].to_vec()).unwrap();
        Answer { head, body: all[end + 4..].to_vec() }
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"), &[])
    }

    pub fn get_with(&self, path: &str, name: &str, value: &str) -> Answer {
        self.ask(&format!("GET {path}"), &[(name, value)])
    }
}

/// Old enough for a strong entity tag.
pub fn write_old(path: &std::path::Path, content: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.write_all(content).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
}

/// Different in every place, so that a wrong offset shows.
pub fn large(size: usize) -> Vec<u8> {
    (0..size.div_ceil(8)).flat_map(|number| (number as u64).to_le_bytes()).take(size).collect()
}
