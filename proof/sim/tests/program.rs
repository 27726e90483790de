//! Runs the program as a user does.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use wakeful_load::internals::results::{Claim, Results, Verdict};
use wakeful_sim::trace::Trace;

fn run(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_wakeful-sim");
    Command::new(program).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_replay_gives_a_verdict_for_each_trace_and_each_policy_a_row() {
    let output = run(&["replay", "--requests", "5000", "--seconds", "5", "--json"]);
    assert!(output.status.success(), "{}", stdout(&output));
    let results: Results = serde_json::from_slice(&output.stdout).unwrap();
    assert!(results.claims.len() > 10);
    assert!(results.claims.iter().all(|claim| claim.verdict == Verdict::Holds));
    assert_eq!(results.tables[0].rows.len(), 6 * results.claims.len());
}

#[test]
fn loops_that_hold_are_replayed_at_each_rate_and_price() {
    let hold = ["replay", "--policy", "hold", "--named", "recorded", "--rate", "10,1k", "--json"];
    let output = run(&[&hold[..], &["--hold-cost", "0.1,1"]].concat());
    assert!(output.status.success(), "{}", stdout(&output));
    let results: Results = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results.claims.len(), 2 * 2);
    // Park, the governor of spins, two governors of holds, four silences, spin.
    assert_eq!(results.tables[0].rows.len(), 2 * 9);
    let heads: Vec<_> = results.tables[0].columns.iter().map(|it| it.head.as_str()).collect();
    assert!(heads.ends_with(&["at 0.1", "at 1"]), "{heads:?}");
    // If a wake takes no time, no hold is worthwhile.
    let halted = run(&[&hold[..], &["--halted-wake", "0us", "--hold-cost", "1"]].concat());
    assert_ne!(stdout(&halted), stdout(&output));
    let group = ["group", "--seconds", "6", "--connections", "64", "--loops", "2", "--json"];
    let more = ["--rate", "5k", "--policy", "hold,hold-spread", "--hold-cost", "0.5"];
    let output = run(&[&group[..], &more].concat());
    let results: Results = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results.tables[0].columns.last().unwrap().head, "CPUs, held at 0.5");
    assert_eq!(results.tables[0].rows.len(), 2);
}

#[test]
fn groups_have_a_row_each_and_a_verdict_for_each_rate() {
    let common = ["group", "--json", "--seconds", "6", "--connections", "64"];
    let group = |more: &[&str]| {
        let output = run(&[&common, more].concat());
        let results: Results = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.success(), results)
    };
    let (holds, results) = group(&["--loops", "1,2,16", "--rate", "1k,5k"]);
    assert!(holds, "{:?}", results.claims);
    assert_eq!(results.tables[0].rows.len(), 3 * 2 * 4);
    // Both settle, and 5k is light.
    assert_eq!(results.claims.len(), 3, "{:?}", results.claims);
    // If no loop spins, none can answer at once.
    let light = ["--loops", "16", "--rate", "5k", "--policy", "concentrate"];
    let (holds, results) = group(&[&light[..], &["--max-window", "0s"]].concat());
    assert!(!holds, "{:?}", results.claims);
    let missed = |claim: &&Claim| claim.verdict == Verdict::DoesNotHold;
    assert_eq!(results.claims.iter().filter(missed).count(), 1);
    // If a group may move nothing, a heavy load is all on its first loops.
    let heavy = ["--loops", "4", "--rate", "15k", "--work", "100us", "--policy", "concentrate"];
    assert!(group(&heavy).0);
    assert!(!group(&[&heavy[..], &["--moves", "0"]].concat()).0);
}

#[test]
fn traces_and_costs_of_the_user_are_read_and_what_is_wrong_with_them_is_said() {
    let directory = std::env::temp_dir().join(format!("wakeful-sim-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = file("mine.txt", "# two\n1000000\n2000000\n");
    let output = run(&["replay", "--trace", &good, "--markdown"]);
    assert!(stdout(&output).contains("| mine"), "{}", stdout(&output));
    let bad = file("bad.txt", "1\nx\n");
    let refused = |arguments: &[&str], why: &str| {
        let output = run(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(why), "{error}");
    };
    refused(&["replay", "--trace", &bad], "bad.txt: line 2");
    refused(&["replay", "--trace", &good, "--costs", &bad], "bad.txt");
    refused(&["replay", "--hit-rate", "2"], "--hit-rate");
    refused(&["replay", "--policy", "hold", "--hold-cost", "2"], "--hold-cost");
    refused(&["replay", "--named", "poisson 7"], "poisson 100, poisson 300");
    refused(&["replay", "--policy", "hold", "--silence", "2s"], "1ms to 1s");
    refused(&["group", "--loops", "0"], "--loops");
    refused(&["group", "--policy", "none"], "--policy");
    refused(&["check", "--program", "/nowhere/wakeful"], "/nowhere/wakeful");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn what_passes_through_is_recorded() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap().to_string();
    // This port was free a moment ago.
    let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let echo = thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let mut request = [0; 4];
        while stream.read_exact(&mut request).is_ok() {
            stream.write_all(&request).unwrap();
        }
    });
    let recorder = Command::new(env!("CARGO_BIN_EXE_wakeful-sim"))
        .args(["record", "--listen", &listen, "--to", &to, "--duration", "1h", "--note", "mine"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut client = loop {
        match TcpStream::connect(&listen) {
            Ok(client) => break client,
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    };
    for _ in 0..3 {
        client.write_all(b"ping").unwrap();
        let mut answer = [0; 4];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"ping");
    }
    drop(client);
    // The end of the stream has passed through as well.
    echo.join().unwrap();
    let pid = Pid::from_raw(recorder.id().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = recorder.wait_with_output().unwrap();
    let text = stdout(&output);
    assert!(output.status.success() && text.contains("# mine"), "{text}");
    assert_eq!(Trace::read("x", &text).unwrap().arrivals.len(), 3);
}
