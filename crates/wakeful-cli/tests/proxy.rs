//! `wakeful serve proxy`, in front of `wakeful serve http`.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use std::{fs, thread};

use common::{GUARD, PROGRAM, Service, get};

#[test]
fn requests_go_through_and_operators_see_it() {
    let mut backend = Service::start(&["http", "--listen", "127.0.0.1:0"]);
    let to = backend.behind("listening on ");
    for version in [&[][..], &["--http2-upstream"]] {
        let mut arguments =
            vec!["proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--to", &to];
        arguments.extend_from_slice(version);
        let mut proxy = Service::start(&arguments);
        let admin = proxy.behind("admin on ");
        let addr = proxy.behind("listening on ");
        assert!(get(&addr, "/").contains("wakeful serve http"));
        assert!(get(&addr, "/bytes/1000000").len() > 1_000_000);
        let metrics = get(&admin, "/metrics");
        let requests = format!("wakeful_proxy_requests_total{{backend=\"{to}\"}} 2");
        assert!(metrics.contains(&requests), "{metrics}");
        let pid = proxy.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        proxy.behind("drained");
        assert!(proxy.child.wait().unwrap().success());
    }
}

/// In a network of its own, whose range of local ports has two.
#[test]
fn where_local_ports_are_short_requests_are_503_and_the_backend_is_not_to_blame() {
    let unshare = |script: &str| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "--pid", "--mount-proc", "--fork", "--kill-child"]);
        unshare.args(["sh", "-c", script, PROGRAM]);
        unshare
    };
    let few_ports = "ip link set lo up && echo 40000 40001 >/proc/sys/net/ipv4/ip_local_port_range";
    if !unshare(few_ports).output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there can be no network with few ports (unshare, ip, root)");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = |name| format!("unix:{}", directory.path().join(name).display());
    let (listen, admin) = (socket("socket"), socket("admin"));
    let both = format!(
        "{few_ports} && (\"$0\" serve http --listen 127.0.0.1:8081 --loops 1 &) && exec \"$0\" \"$@\""
    );
    let arguments = ["proxy", "--to", "127.0.0.1:8081", "--listen", &listen, "--admin", &admin];
    let mut proxy = Service::start_by(unshare(&both), &arguments);
    // One is the backend's, which has no other address.
    proxy.behind("listening on ");
    proxy.behind("listening on ");
    let statuses = thread::scope(|scope| {
        let ask = |_| scope.spawn(|| get(&listen, "/sleep/1000")[9..12].to_owned());
        let asked: Vec<_> = (0..8).map(ask).collect();
        let mut statuses: Vec<_> = asked.into_iter().map(|asked| asked.join().unwrap()).collect();
        statuses.sort();
        statuses
    });
    assert_eq!(statuses, ["200", "200", "503", "503", "503", "503", "503", "503"]);
    let metrics = get(&admin, "/metrics");
    for count in [
        "wakeful_proxy_failures_total{backend=\"127.0.0.1:8081\"} 0\n",
        "wakeful_proxy_overloads_total 6\n",
    ] {
        assert!(metrics.contains(count), "{metrics}");
    }
}

/// A file of hosts that only the proxy has, and changes of it.
struct Hosts {
    directory: tempfile::TempDir,
}

impl Hosts {
    fn new() -> Self {
        let this = Self { directory: tempfile::tempdir().unwrap() };
        fs::write(this.path("nsswitch.conf"), "hosts: files\n").unwrap();
        fs::write(this.path("hosts"), [b' '; 256]).unwrap();
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn unix(&self, name: &str) -> String {
        format!("unix:{}", self.path(name).display())
    }

    /// What `backends.test` has. The file stays the same, and as long as it is: what is mounted is
    /// the file and not its name, and nobody reads a part of it.
    fn set(&self, addrs: &[&str]) {
        let lines: String = addrs.iter().map(|addr| format!("{addr} backends.test\n")).collect();
        let file = fs::OpenOptions::new().write(true).open(self.path("hosts")).unwrap();
        file.write_all_at(format!("{lines:256}").as_bytes(), 0).unwrap();
    }

    /// Runs the program that the caller adds as an argument.
    fn unshare(&self, program: &str) -> Command {
        let mut unshare = Command::new("unshare");
        let mount = "mount --bind \"$0\" /etc/hosts && mount --bind \"$1\" /etc/nsswitch.conf && shift && exec \"$@\"";
        unshare.args(["--mount", "sh", "-c", mount]);
        unshare.args([self.path("hosts"), self.path("nsswitch.conf")]).arg(program);
        unshare
    }

    /// `false` is said.
    fn are_possible(&self) -> bool {
        let are = self.unshare("true").output().is_ok_and(|output| output.status.success());
        if !are {
            eprintln!("skipped: there can be no hosts of its own (unshare, mount, root)");
        }
        are
    }
}

/// Waits for what has to come, without an idea of when.
#[track_caller]
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < GUARD, "never: {what}");
        thread::yield_now();
    }
}

/// Sets it, also if the test fails.
struct AtTheEnd<'a>(&'a AtomicBool);

impl Drop for AtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Two servers at the same port of these addresses.
fn pair(more: &[&str]) -> (Service, Service, String) {
    let start = |addr: &str| {
        let mut arguments = vec!["http", "--listen", addr];
        arguments.extend_from_slice(more);
        let mut server = Service::start(&arguments);
        let listens = server.behind("listening on ");
        (server, listens.rsplit_once(':').unwrap().1.to_owned())
    };
    let (one, port) = start("127.83.0.1:0");
    let (two, _) = start(&format!("127.83.0.2:{port}"));
    (one, two, port)
}

#[test]
fn workers_follow_a_name_and_so_do_those_that_replace_them() {
    let hosts = Hosts::new();
    if !hosts.are_possible() {
        return;
    }
    let (_one, _two, port) = pair(&[]);
    hosts.set(&["127.83.0.1"]);
    let (listen, admin) = (hosts.unix("socket"), hosts.unix("admin"));
    let to = format!("dns:backends.test:{port}");
    let arguments = [
        "proxy",
        "--to",
        &to,
        "--dns-interval",
        "1",
        "--workers",
        "2",
        "--listen",
        &listen,
        "--admin",
        &admin,
    ];
    let mut proxy = Service::start_by(hosts.unshare(PROGRAM), &arguments);
    proxy.behind("listening on ");
    proxy.behind("listening on ");
    let metrics = || get(&admin, "/metrics");
    let has = |ip: &str| {
        metrics().contains(&format!("wakeful_proxy_requests_total{{backend=\"{ip}:{port}\"}}"))
    };
    // Of both workers.
    let addresses = |count: u32| {
        let line = format!("wakeful_proxy_addresses{{name=\"backends.test:{port}\"}} {count}\n");
        metrics().contains(&line)
    };
    let pids = || -> Vec<String> {
        let workers = get(&admin, "/workers");
        let pids = workers.split("\"pid\": ").skip(1);
        pids.map(|rest| rest.split(',').next().unwrap().to_owned()).collect()
    };
    let ends = AtomicBool::new(false);
    let answered = AtomicUsize::new(0);
    thread::scope(|scope| {
        let end = AtTheEnd(&ends);
        let load = scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                let answer = get(&listen, "/");
                assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert!(has("127.83.0.1") && !has("127.83.0.2"));
        hosts.set(&["127.83.0.1", "127.83.0.2"]);
        until("both workers have both", || load.is_finished() || addresses(4));
        let before = pids();
        proxy.signal("-HUP");
        until("others serve", || {
            load.is_finished()
                || pids().len() == 2 && pids().iter().all(|pid| !before.contains(pid))
        });
        hosts.set(&["127.83.0.2"]);
        until("one has gone", || {
            load.is_finished() || addresses(2) && !has("127.83.0.1") && has("127.83.0.2")
        });
        let so_far = answered.load(Ordering::Relaxed);
        until("requests are answered", || {
            load.is_finished() || answered.load(Ordering::Relaxed) > so_far + 20
        });
        drop(end);
        load.join().unwrap();
    });
    proxy.signal("-TERM");
    assert!(proxy.child.wait().unwrap().success());
}

#[test]
fn workers_that_start_while_a_name_is_gone_replace_none_until_it_is_back() {
    let hosts = Hosts::new();
    if !hosts.are_possible() {
        return;
    }
    let (_one, _two, port) = pair(&[]);
    hosts.set(&["127.83.0.1"]);
    let (listen, admin) = (hosts.unix("socket"), hosts.unix("admin"));
    let to = format!("dns:backends.test:{port}");
    let mut arguments = vec!["proxy", "--to", &to, "--listen", &listen, "--admin", &admin];
    // The first workers do not notice the gap, and the next ones have time to see its end.
    arguments.extend(["--dns-interval", "3600", "--connect-timeout", "3600", "--workers", "2"]);
    let mut proxy = Service::start_by(hosts.unshare(PROGRAM), &arguments);
    proxy.behind("all workers accept");
    let answers = |times: usize| {
        for _ in 0..times {
            let answer = get(&listen, "/");
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
    };
    answers(1);
    hosts.set(&[]);
    proxy.signal("-HUP");
    proxy.behind("the name cannot be looked up");
    answers(100);
    hosts.set(&["127.83.0.1"]);
    proxy.behind("all workers accept");
    answers(100);
    // Of both workers.
    let addresses = format!("wakeful_proxy_addresses{{name=\"backends.test:{port}\"}} 2\n");
    assert!(get(&admin, "/metrics").contains(&addresses));
    proxy.signal("-TERM");
    assert!(proxy.child.wait().unwrap().success());
}

/// The start waits for names, and the master does not wait as long as the connect timeout.
#[test]
fn workers_whose_name_has_no_address_are_not_killed_for_it() {
    let hosts = Hosts::new();
    if !hosts.are_possible() {
        return;
    }
    let (listen, mut arguments) =
        (hosts.unix("socket"), vec!["proxy", "--to", "dns:backends.test:1"]);
    arguments.extend(["--listen", &listen, "--connect-timeout", "3600", "--workers", "1"]);
    arguments.extend(["--worker-start-timeout", "6"]);
    let mut proxy = Service::start_by(hosts.unshare(PROGRAM), &arguments);
    proxy.behind("all workers accept");
    assert!(get(&listen, "/").starts_with("HTTP/1.1 503 "));
    proxy.signal("-TERM");
    assert!(proxy.child.wait().unwrap().success());
}

#[test]
fn certificates_of_backends_are_for_the_name_and_not_for_its_addresses() {
    let hosts = Hosts::new();
    if !hosts.are_possible() {
        return;
    }
    let made = rcgen::generate_simple_self_signed(["backends.test".to_owned()]).unwrap();
    fs::write(hosts.path("cert.pem"), made.cert.pem()).unwrap();
    fs::write(hosts.path("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| hosts.path(name).display().to_string());
    let (_one, _two, port) = pair(&["--tls-cert", &cert, "--tls-key", &key]);
    hosts.set(&["127.83.0.1", "127.83.0.2"]);
    let by_name = format!("dns:https://backends.test:{port}");
    let by_address = format!("https://127.83.0.1:{port}");
    for version in [&[][..], &["--http2-upstream"]] {
        for (to, status) in [(&by_name, "200"), (&by_address, "502")] {
            let mut arguments = vec!["proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
            arguments.extend(["--to", to, "--upstream-ca", &cert]);
            arguments.extend_from_slice(version);
            let mut proxy = Service::start_by(hosts.unshare(PROGRAM), &arguments);
            let admin = proxy.behind("admin on ");
            let addr = proxy.behind("listening on ");
            for _ in 0..20 {
                assert_eq!(&get(&addr, "/")[9..12], status, "{arguments:?}");
            }
            let metrics = get(&admin, "/metrics");
            let label = format!("backend=\"https://127.83.0.1:{port}\"");
            assert!(metrics.contains(&label), "{metrics}");
        }
    }
}

#[test]
fn bad_usage_is_said_in_a_line() {
    for (arguments, code, text) in [
        (&["proxy"][..], 2, "--to"),
        (&["proxy", "--to", "nowhere"], 2, "\"nowhere\" is not an HTTP server's address"),
        (&["proxy", "--to", "ftp://a"], 2, "neither http nor https"),
        (&["proxy", "--to", "a:1", "--admin", "b"], 2, "--admin: \"b\""),
        (
            &["proxy", "--to", "a:1", "--upstream-ca", "x"],
            2,
            "--upstream-ca needs a backend with https",
        ),
        (&["proxy", "--to", "https://a", "--upstream-ca", "/no/file"], 1, "/no/file"),
        (&["proxy", "--to", "a:1", "--upstream-connections", "0"], 2, "1 or more"),
        (&["proxy", "--to", "dns:"], 2, "--to: \"dns:\" names no host and port: expected dns:HOST"),
        (&["proxy", "--to", "dns:a"], 2, "--to: \"dns:a\" names no host and port"),
        (&["proxy", "--to", "dns:a:b"], 2, "--to: \"dns:a:b\" names no host and port"),
        (&["proxy", "--to", "dns:unix:/a"], 2, "\"dns:unix:/a\" names no host and port"),
        (&["proxy", "--to", "dns:dns:a:1"], 2, "\"dns:dns:a:1\" names no host and port"),
        (&["proxy", "--to", "dns:81"], 2, "http://dns:PORT is a host called dns"),
        (&["proxy", "--to", "a:1", "--dns-interval", "5"], 2, "needs a backend with dns:"),
        (&["proxy", "--to", "dns:a:1", "--dns-interval", "0.5"], 2, "1 to 3600"),
        (&["proxy", "--to", "dns:a:1", "--dns-interval", "3601"], 2, "1 to 3600"),
        (&["proxy", "--to", "dns:a:1", "--upstream-ca", "x"], 2, "needs a backend with https"),
    ] {
        let output = Command::new(PROGRAM).arg("serve").args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(text), "{arguments:?}: {said}");
    }
}

/// A request that comes back to another worker, or to the next one, is known all the same.
#[test]
fn all_workers_have_one_name_in_via() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut lines = Vec::new();
            while lines.last().is_none_or(|line| line != "\r\n") {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                lines.push(line);
            }
            let via = lines.iter().find_map(|line| line.strip_prefix("via: ")).unwrap().trim();
            let head = format!("content-length: {}\r\nconnection: close", via.len());
            let answer = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{via}");
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    for method in [&[][..], &["--exec"]] {
        let mut arguments = vec!["proxy", "--workers", "1", "--listen", "127.0.0.1:0", "--to", &to];
        arguments.extend_from_slice(method);
        let mut proxy = Service::start(&arguments);
        let addr = proxy.behind("master listening on ");
        let addr = addr.split(' ').next().unwrap();
        proxy.behind("all workers accept");
        let workers = || {
            let pid = proxy.child.id();
            fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap()
        };
        let via = || get(addr, "/").split_once("\r\n\r\n").expect("a whole head").1.to_owned();
        let (worker, name) = (workers(), via());
        assert!(name.starts_with("1.1 wakeful-"), "{name}");
        assert!(Command::new("kill").args(["-KILL", worker.trim()]).status().unwrap().success());
        let start = Instant::now();
        while workers().contains(worker.trim()) {
            assert!(start.elapsed() < GUARD, "it stays");
            thread::yield_now();
        }
        assert_eq!(via(), name, "{method:?}");
    }
}
