//! `wakeful serve proxy`, in front of `wakeful serve http`.

mod common;

use std::process::Command;
use std::thread;

use common::{PROGRAM, Service, get};

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

#[test]
fn bad_usage_is_said_in_a_line() {
    for (arguments, code, text) in [
        (&["proxy"][..], 2, "--to"),
        (&["proxy", "--to", "nowhere"], 1, "\"nowhere\" names no HTTP server"),
        (&["proxy", "--to", "ftp://a"], 1, "neither http nor https"),
        (&["proxy", "--to", "a:1", "--admin", "b"], 1, "--admin: \"b\""),
        (
            &["proxy", "--to", "a:1", "--upstream-ca", "x"],
            2,
            "--upstream-ca needs a backend with https",
        ),
        (&["proxy", "--to", "https://a", "--upstream-ca", "/no/file"], 1, "/no/file"),
        (&["proxy", "--to", "a:1", "--upstream-connections", "0"], 2, "1 or more"),
    ] {
        let output = Command::new(PROGRAM).arg("serve").args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(text), "{arguments:?}: {said}");
    }
}
