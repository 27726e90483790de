//! docs/slow-requests.md shows a line of the access log, and reads such a log with jq.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::mem::discriminant;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use common::{GUARD, Service};
use doc_pages::{blocks, command_lines, is_installed};
use serde_json::Value;

type Line = BTreeMap<String, Value>;

/// What `wakeful serve http` logs of a request that the page's line could be about.
fn write_log(log: &Path, shown: &Line) {
    let file = log.to_str().unwrap();
    let logged = ["--access-log", "json", "--access-log-file", file];
    let mut service =
        Service::start(&[["http", "--listen", "127.0.0.1:0"].as_slice(), &logged].concat());
    let mut stream = TcpStream::connect(service.behind("listening on ")).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    let text = |key: &str| shown[key].as_str().unwrap();
    let (method, path, agent) = (text("method"), text("path"), text("user_agent"));
    let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nuser-agent: {agent}\r\n");
    stream.write_all(format!("{head}connection: close\r\n\r\n").as_bytes()).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    service.signal("-TERM");
    assert!(service.child.wait().unwrap().success());
}

#[test]
fn the_page_s_line_is_one_of_the_access_log_and_its_commands_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let shown = blocks("json");
    assert!(!shown.is_empty());
    for block in &shown {
        let line: Line = serde_json::from_str(&block.text).unwrap();
        write_log(&log, &line);
        let logged: Line = serde_json::from_str(&fs::read_to_string(&log).unwrap()).unwrap();
        // What a run changes is left out: only its type counts.
        let of_a_run = ["time", "peer", "duration_us", "request_id"];
        let kinds = |line: &Line| {
            let kind = |(key, value): (&String, &Value)| {
                let value = Some(value.clone()).filter(|_| !of_a_run.contains(&key.as_str()));
                (key.clone(), discriminant(&line[key]), value)
            };
            line.iter().map(kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(&line), kinds(&logged), "{}: left is the page", block.place);
    }
    if !is_installed("jq") {
        return;
    }
    let lines = command_lines("jq");
    assert!(!lines.is_empty());
    for line in &lines {
        let mut command = Command::new("jq");
        command.current_dir(folder.path()).args(&line.words[1..]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", line.place);
        let printed = String::from_utf8(output.stdout).unwrap();
        let is_there = !printed.trim().is_empty() && !printed.contains("null");
        assert!(is_there, "{}: {printed}", line.place);
    }
}
