//! `wakeful serve proxy`, in front of `wakeful serve http`.

mod common;

use std::process::Command;

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
            "--upstream-ca is for backends of https",
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
