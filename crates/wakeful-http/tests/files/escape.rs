//! What is never served: nothing outside of the root, whatever paths and links say, and nothing
//! that is no file.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use wakeful_http::files::{HiddenFiles, Precompressed};

use crate::site::{Site, TEXT};

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
    let site = Site::with(|dir| dir.precompressed(Precompressed::Offer));
    // Nobody writes to them.
    let fifo = |name: &str| {
        let path = site.root().join(name);
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    };
    fs::create_dir(site.root().join("pipes")).unwrap();
    ["fifo", "pipes/index.html", "text.txt.gz"].into_iter().for_each(fifo);
    symlink("fifo", site.root().join("link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(site.root().join("socket")).unwrap();
    for path in ["/fifo", "/pipes/", "/link", "/socket"] {
        assert_eq!(site.get(path).status(), 404, "{path}");
    }
    assert_eq!(site.get_with("/text.txt", "accept-encoding", "gzip").text(), TEXT);
    // The kernel's /dev/zero.
    let zero = site.root().join("zero");
    match mknodat(CWD, zero, FileType::CharacterDevice, Mode::RUSR, makedev(1, 5)) {
        Ok(()) => assert_eq!(site.get("/zero").status(), 404),
        Err(error) => eprintln!("skipped: a device: {error}"),
    }
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
