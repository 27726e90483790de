//! Certificates that change while the server runs, and files that are no use.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, date_time_ymd};
use wakeful_http::tls::{ServerTls, TlsError};

use crate::common::{GUARD, addr, router, server, until};
use crate::material::{Issued, Site, kept};
use crate::raw::{ask, certificate, config, connect};

#[test]
fn a_reload_concerns_new_connections_and_open_ones_go_on() {
    let site = Site::new();
    let tls = site.tls();
    let running = server().tls(tls.clone()).start(router()).unwrap();
    let mut open = connect(addr(&running), config(&site.ca()));
    ask(&mut open);
    let renewed = site.authority.issue("localhost");
    site.serve(&renewed);
    tls.reload().unwrap();
    ask(&mut open);
    assert_eq!(certificate(&open), site.served.der);
    let mut new = connect(addr(&running), config(&site.ca()));
    ask(&mut new);
    assert_eq!(certificate(&new), renewed.der);
    ask(&mut open);
    assert_eq!((tls.counts().reloads(), running.counts().open()), (1, 2));
}

fn dated(site: &Site, change: fn(&mut CertificateParams)) -> Issued {
    site.authority.issue_with("localhost", change)
}

/// What is written over the certificate and the key, which of the two the error names, and what it
/// says of it.
type Bad = (&'static str, Option<String>, Option<String>, &'static str, &'static str);

fn bad_files(site: &Site) -> Vec<Bad> {
    let (cert, key) = ("server.pem", "server.key");
    let other = site.authority.issue("localhost");
    let expired = dated(site, |params| params.not_after = date_time_ymd(2020, 1, 1));
    let early = dated(site, |params| params.not_before = date_time_ymd(4000, 1, 1));
    let cut = site.served.certificate[..200].to_owned();
    let no_der = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
    let served = &site.served;
    vec![
        ("empty", Some(String::new()), None, cert, "no certificate in it"),
        ("garbage", Some("\0garbage".to_owned()), None, cert, "no certificate in it"),
        ("cut off", Some(cut), None, cert, "not a PEM file"),
        ("no certificate", Some(no_der), None, cert, "BadEncoding"),
        ("another key", None, Some(other.key), key, "not the private key of"),
        ("no key", None, Some(served.certificate.clone()), key, "no private key in it"),
        ("expired", Some(expired.certificate), Some(expired.key), cert, "has expired"),
        ("early", Some(early.certificate), Some(early.key), cert, "is not valid yet"),
    ]
}

#[test]
fn files_that_are_no_use_leave_the_old_certificate_and_say_why() {
    let site = Site::new();
    let tls = site.tls();
    let running = server().tls(tls.clone()).start(router()).unwrap();
    let mut failed = 0;
    let mut refused = |what: &str, named: &str, why: &str| {
        let error = tls.reload().expect_err(what);
        let text = error.to_string();
        assert!(text.contains(named) && text.contains(why), "{what}: {text}");
        let mut client = connect(addr(&running), config(&site.ca()));
        ask(&mut client);
        assert_eq!(certificate(&client), site.served.der, "{what}");
        failed += 1;
        assert_eq!((tls.counts().reloads(), tls.counts().failed_reloads()), (0, failed), "{what}");
        error
    };
    for (what, certificate, key, named, why) in bad_files(&site) {
        let write = |name, text: &Option<String>| {
            text.as_ref().map(|text| site.directory.write(name, text))
        };
        write("server.pem", &certificate);
        write("server.key", &key);
        let error = refused(what, named, why);
        assert!(matches!(error, TlsError::Unusable { .. }), "{what}: {error:?}");
        site.serve(&site.served);
    }
    fs::remove_file(site.directory.path("server.key")).unwrap();
    let error = refused("missing", "server.key", "No such file");
    assert!(matches!(error, TlsError::Unreadable { .. }), "{error:?}");
    site.serve(&site.served);
    tls.reload().unwrap();
}

/// As where one of several names was given up.
#[test]
fn a_certificate_that_has_expired_in_use_keeps_no_other_one_from_its_renewal() {
    let site = Site::new();
    let expired = site
        .authority
        .issue_with("elsewhere", |params| params.not_after = date_time_ymd(2020, 1, 1));
    let certificate = site.directory.write("elsewhere.pem", &expired.certificate);
    let key = site.directory.write("elsewhere.key", &expired.key);
    let tls = site.builder().certificate(certificate, key).build().unwrap();
    let running = server().tls(tls.clone()).start(router()).unwrap();
    let renewed = site.authority.issue("localhost");
    site.serve(&renewed);
    tls.reload().unwrap();
    let mut client = connect(addr(&running), config(&site.ca()));
    ask(&mut client);
    assert_eq!(crate::raw::certificate(&client), renewed.der);
    // Another one that has expired is still refused.
    let other = dated(&site, |params| params.not_after = date_time_ymd(2021, 1, 1));
    site.directory.write("elsewhere.pem", &other.certificate);
    site.directory.write("elsewhere.key", &other.key);
    tls.reload().unwrap_err();
}

#[test]
fn a_server_does_not_begin_with_files_that_are_no_use() {
    let site = Site::new();
    for (what, certificate, key, named, why) in bad_files(&site) {
        let write = |name, text: Option<String>| {
            text.map_or(site.directory.path(name), |text| site.directory.write(name, &text))
        };
        let (certificate, key) = (write("server.pem", certificate), write("server.key", key));
        let built = ServerTls::from_files(certificate, key);
        if matches!(what, "expired" | "early") {
            // With a warning: a server that does not start would be of less use.
            let running = server().tls(built.expect(what)).start(router()).unwrap();
            drop(running);
            site.serve(&site.served);
            continue;
        }
        let text = built.expect_err(what).to_string();
        assert!(text.contains(named) && text.contains(why), "{what}: {text}");
        site.serve(&site.served);
    }
    let none = ServerTls::builder().build().unwrap_err();
    assert_eq!(std::io::Error::from(none).kind(), ErrorKind::InvalidInput);
    let missing = ServerTls::from_files("/nowhere.pem", kept("ec-sec1.key")).unwrap_err();
    assert!(missing.to_string().starts_with("/nowhere.pem: "), "{missing}");
    assert_eq!(std::io::Error::from(missing).kind(), ErrorKind::NotFound);
    let no_authority: PathBuf = site.directory.write("none.pem", "nobody");
    let auth = wakeful_http::tls::ClientAuth::Require;
    let error = site.builder().client_ca(auth, no_authority).build().unwrap_err();
    assert!(error.to_string().contains("none.pem: no certificate"), "{error}");
}

#[test]
fn files_that_change_are_noticed_and_a_bad_one_is_tried_once() {
    let site = Site::new();
    let tls = site.tls();
    let running = server().tls(tls.clone()).start(router()).unwrap();
    let (watching, every) = (tls.clone(), Duration::from_millis(1));
    running.handles()[0].spawn(move || watching.reload_on_change(every)).unwrap().detach();
    // As renewal does it: one file, and then the other one, each of them replaced.
    let renewed = site.authority.issue("localhost");
    let replace = |name: &str, text: &str| {
        let new = site.directory.write("new", text);
        fs::rename(new, site.directory.path(name)).unwrap();
    };
    replace("server.key", &renewed.key);
    until("the key was tried", || tls.counts().failed_reloads() == 1);
    ask(&mut connect(addr(&running), config(&site.ca())));
    assert_eq!((tls.counts().reloads(), tls.counts().failed_reloads()), (0, 1));
    replace("server.pem", &renewed.certificate);
    until("both were loaded", || tls.counts().reloads() == 1);
    let mut client = connect(addr(&running), config(&site.ca()));
    ask(&mut client);
    assert_eq!(certificate(&client), renewed.der);
    assert_eq!((tls.counts().reloads(), tls.counts().failed_reloads()), (1, 1));
}

/// Its time comes while the files look the same, as with rights that are given later and with
/// descriptors that become free.
#[test]
fn what_may_be_of_use_later_is_tried_again_and_told_once() {
    let site = Site::new();
    let tls = site.tls();
    let running = server().tls(tls.clone()).start(router()).unwrap();
    let (watching, every) = (tls.clone(), Duration::from_millis(1));
    let early = site.authority.issue_with("localhost", |params| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        params.not_before = date_time_ymd(1970, 1, 1) + now + Duration::from_secs(2);
    });
    site.serve(&early);
    running.handles()[0].spawn(move || watching.reload_on_change(every)).unwrap().detach();
    until("its time has come", || tls.counts().reloads() == 1);
    let mut client = connect(addr(&running), config(&site.ca()));
    ask(&mut client);
    assert_eq!(certificate(&client), early.der);
    let told = tls.counts().failed_reloads();
    assert!(told <= 1, "told {told} times");
}

/// Reading it would wait for a writer, and every other reload behind it.
#[test]
fn a_pipe_in_place_of_a_file_holds_no_reload_up() {
    let site = Site::new();
    let tls = site.tls();
    let path = site.directory.path("server.pem");
    fs::remove_file(&path).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let error = tls.reload().unwrap_err().to_string();
    assert!(error.contains("server.pem") && error.contains("not a regular file"), "{error}");
    fs::remove_file(&path).unwrap();
    site.directory.write("server.pem", &site.served.certificate);
    tls.reload().unwrap();
}

/// Reloads once more for the first line, and waits for that. Then how often it has come to its end.
struct Reloads(ServerTls, AtomicUsize, Arc<AtomicUsize>);

impl tracing::Subscriber for Reloads {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        if self.1.fetch_add(1, Ordering::Relaxed) == 0 {
            let tls = self.0.clone();
            // On another thread: `tracing` drops the lines of a subscriber.
            let (ended, is_ended) = mpsc::channel();
            thread::spawn(move || ended.send(tls.reload().is_ok()));
            let has_ended = is_ended.recv_timeout(GUARD).is_ok();
            self.2.fetch_add(has_ended.into(), Ordering::Relaxed);
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_log_subscriber_may_reload_and_wait_for_it() {
    let site = Site::new();
    let tls = site.tls();
    let ended = Arc::<AtomicUsize>::default();
    let log = || Reloads(tls.clone(), AtomicUsize::new(0), ended.clone());
    // A second dispatcher: with only one, `tracing` may ask another test's thread, which has none.
    let _second = tracing::Dispatch::new(log());
    tracing::subscriber::with_default(log(), || tls.reload().unwrap());
    assert_eq!((tls.counts().reloads(), ended.load(Ordering::Relaxed)), (2, 1));
    site.directory.write("server.key", "none");
    tracing::subscriber::with_default(log(), || tls.reload().unwrap_err());
    assert_eq!(ended.load(Ordering::Relaxed), 2);
    assert_eq!((tls.counts().reloads(), tls.counts().failed_reloads()), (2, 2));
}
