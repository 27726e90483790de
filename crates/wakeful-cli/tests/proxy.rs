//! `wakeful serve proxy`, in front of `wakeful serve http`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_wakeful");
const GUARD: Duration = Duration::from_secs(20);

/// Killed when it is dropped.
struct Service {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Service {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.arg("serve").args(arguments).args(["--loops", "1", "--idle", "park"]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stderr }
    }

    /// What is behind `text` in the next line that has it, up to a comma.
    fn behind(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.stderr.read_line(&mut line).unwrap() > 0, "it ended early");
            if let Some((_, rest)) = line.split_once(text) {
                return rest.trim().split(',').next().unwrap().to_owned();
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(addr: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

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
        (&["proxy", "--to", "a:1", "--upstream-connections", "0"], 2, "at least 1"),
    ] {
        let output = Command::new(PROGRAM).arg("serve").args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(text), "{arguments:?}: {said}");
    }
}
