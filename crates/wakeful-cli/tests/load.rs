//! `wakeful load` as its users run it: exit codes, outputs, Ctrl-C, servers that die. None of these
//! tests looks at a time.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use wakeful_load::internals::procfs::ProcessCpu;

/// Flags that keep a run short on a machine that is not quiet.
const SHORT: [&str; 9] = [
    "--duration",
    "300ms",
    "--warm-up",
    "50ms",
    "--quiet-patience",
    "0s",
    "--repeats",
    "0",
    "--no-floor",
];

fn wakeful() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wakeful"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn load(arguments: &[&str]) -> Output {
    wakeful().arg("load").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// 0, or 4: whether the machine was quiet is not what is tested.
fn assert_measured(output: &Output) {
    assert!(matches!(output.status.code(), Some(0 | 4)), "{output:?}");
}

fn echo() -> String {
    format!("echo={} serve echo --loops 1 --listen {{addr}}", env!("CARGO_BIN_EXE_wakeful"))
}

fn http() -> String {
    format!("http={} serve http --loops 1 --listen {{addr}}", env!("CARGO_BIN_EXE_wakeful"))
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let output = load(&[arguments, &SHORT, &["--json"]].concat());
    assert_measured(&output);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_protocol_is_answered_and_the_servers_cpu_is_known() {
    for (server, flags) in [
        (echo(), &["--protocol", "frames", "--rate", "2k"][..]),
        (http(), &["--rate", "2k"]),
        (http(), &["--protocol", "h2", "--rate", "2k"]),
        (http(), &["--rate", "500", "--connect-per-request"]),
        (http(), &["--rate", "500", "--slow", "20"]),
        (
            http(),
            &[
                "--method",
                "POST",
                "--path",
                "/echo",
                "--body",
                "hello",
                "--constant",
                "--rate",
                "500",
            ],
        ),
        (echo(), &["--protocol", "frames", "--closed"]),
    ] {
        let results = json(&[&["--server", &server], flags].concat());
        let run = &results["runs"][0];
        assert_eq!(results["schema"], 1);
        assert_eq!(run["failed"], 0, "{flags:?}: {run}");
        // In a closed loop it is the machine's pace that says how many there are.
        let least = if run["schedule"] == "closed" { 0 } else { 50 };
        assert!(run["answered"].as_u64().unwrap() > least, "{flags:?}: {run}");
        assert_eq!(run["answered"], run["offered"], "{flags:?}: {run}");
        assert!(run["cpu"]["user"].as_f64().unwrap() >= 0.0, "{flags:?}: {run}");
    }
}

#[test]
fn a_sweep_has_a_run_for_each_server_and_rate() {
    let (one, other) = (echo(), echo().replacen("echo=", "other=", 1));
    let flags = ["--server", &one, "--server", &other, "--protocol", "frames", "--rate", "500,1k"];
    let results = json(&flags);
    let runs: Vec<_> = results["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| (&run["server"], &run["rate"]))
        .collect();
    assert_eq!(runs.len(), 4, "{runs:?}");
    assert_eq!(runs[3], (&"other".into(), &1000.0.into()));
}

#[test]
fn logs_and_reports_are_written_and_logs_merged() {
    let dir = std::env::temp_dir().join(format!("wakeful-load-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let (log, report, sum) = (path("a.hlog"), path("a.html"), path("sum.hlog"));
    let server = echo();
    let flags = [
        "--server",
        &server,
        "--protocol",
        "frames",
        "--rate",
        "2k",
        "--log",
        &log,
        "--report",
        &report,
    ];
    let output = load(&[&flags[..], &SHORT].concat());
    assert_measured(&output);
    assert!(text(&output.stdout).contains("echo"), "{output:?}");
    let html = std::fs::read_to_string(&report).unwrap();
    assert!(html.contains("<svg") && !html.contains("<script"));
    let once = load(&["merge", &log]);
    let twice = load(&["merge", &log, &log, "--out", &sum]);
    let again = load(&["merge", &sum]);
    let count = |output: &Output| {
        text(&output.stdout).split(' ').next().unwrap().replace(',', "").parse::<u64>().unwrap()
    };
    assert!(once.status.success() && count(&once) > 100, "{once:?}");
    assert_eq!(count(&twice), 2 * count(&once));
    assert_eq!(count(&again), count(&twice));
    std::fs::remove_dir_all(dir).unwrap();
}

/// The log has the blocks at the best rate so far, also of a search that is ended early. On a busy
/// machine a search would take minutes, as the generator is late at each rate.
#[test]
fn a_search_has_a_log_too() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("a.hlog");
    let log = log.to_str().unwrap();
    // The longer an answer takes, the later the generator may be.
    let wakeful = env!("CARGO_BIN_EXE_wakeful");
    let server = format!("late={wakeful} load null-server --delay 100ms --listen {{addr}}");
    let mut search = Command::new("timeout");
    // In the foreground, so that it signals once: a second signal would end the search at once.
    search.args(["--foreground", "-s", "INT", "15", wakeful, "load", "--json"]);
    // The load of other programs must not matter.
    search.args(["--quiet-share", "1024"]);
    search.args(SHORT.map(|flag| if flag == "50ms" { "300ms" } else { flag }));
    search.args(["--server", &server, "--protocol", "frames", "--find-max", "p50<1s"]);
    let output = search.args(["--log", log]).output().unwrap();
    let Ok(results) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else {
        println!("skipped: this machine was too busy for a block: {output:?}");
        return;
    };
    let (runs, notes) = (results["runs"].as_array().unwrap(), results["notes"].to_string());
    // What was measured when it was ended is not a whole block.
    let is_ended = notes.contains("It was ended early");
    let mut whole = runs[..runs.len() - usize::from(is_ended)].iter();
    let is_kept = match is_ended {
        true => whole.any(|run| run["validity"]["verdict"] == "valid"),
        false => notes.contains("is kept at"),
    };
    let merged = load(&["merge", log]);
    let has_requests = merged.status.success() && !text(&merged.stdout).starts_with("0 ");
    assert!(has_requests || !is_kept, "{merged:?} {notes}");
    if !is_kept {
        println!("skipped: this machine was too busy for any rate");
    }
}

#[test]
fn a_report_at_its_size_limit_is_an_error_and_the_figures_are_printed() {
    let dir = std::env::temp_dir().join(format!("wakeful-size-limit-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let report = dir.join("a.html");
    let mut limited = Command::new("sh");
    limited.args([
        "-c",
        "ulimit -f 0 && exec \"$0\" \"$@\"",
        env!("CARGO_BIN_EXE_wakeful"),
        "load",
    ]);
    limited.args(["--server", &echo(), "--protocol", "frames", "--rate", "2k"]).args(SHORT);
    let output = limited.arg("--report").arg(&report).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("File too large"), "{output:?}");
    assert!(text(&output.stdout).contains("echo"), "{output:?}");
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_stdout_that_is_full_costs_neither_the_report_nor_the_log() {
    let dir = std::env::temp_dir().join(format!("wakeful-full-stdout-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (report, log) = (dir.join("a.html"), dir.join("a.hlog"));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut run = wakeful();
    run.args(["load", "--server", &echo(), "--protocol", "frames", "--rate", "2k"]).args(SHORT);
    run.arg("--report").arg(&report).arg("--log").arg(&log);
    let output = run.stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("cannot write to stdout"), "{output:?}");
    assert!(std::fs::read_to_string(&report).unwrap().contains("<svg"));
    assert!(load(&["merge", log.to_str().unwrap()]).status.success());
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_report_and_the_log_are_two_files() {
    let dir = std::env::temp_dir().join(format!("wakeful-one-file-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (file, link) = (dir.join("a"), dir.join("b"));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for other in [&file, &link] {
        let [file, other] = [&file, other].map(|path| path.to_str().unwrap());
        let output = load(&["--server", &echo(), "--report", file, "--log", other]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains("cannot both be this file"), "{output:?}");
    }
    // A device takes both.
    let server = echo();
    let flags = ["--server", &server, "--protocol", "frames"];
    let both = ["--report", "/dev/null", "--log", "/dev/null"];
    assert_measured(&load(&[&flags[..], &SHORT, &both].concat()));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_trace_is_replayed_as_it_is() {
    let path = std::env::temp_dir().join(format!("wakeful-trace-{}", std::process::id()));
    let times: String = (0..100).map(|index| format!("{}\n", f64::from(index) / 1000.0)).collect();
    std::fs::write(&path, times).unwrap();
    let server = echo();
    let results =
        json(&["--server", &server, "--protocol", "frames", "--trace", path.to_str().unwrap()]);
    assert_eq!(results["runs"][0]["schedule"], "trace");
    assert_eq!(results["runs"][0]["offered"], 100, "{results}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn what_cannot_be_done_is_one_line_and_exit_code_1() {
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    for (flags, part) in [
        (vec![gone.as_str()], "does not accept connections"),
        (vec!["--server", "a=false {addr}"], "a accepted no connection on 127.0.0.1:"),
        (vec!["--server", "a=/nowhere/x {addr}"], "cannot be started"),
        (vec![gone.as_str(), "--trace", "/nowhere"], "/nowhere"),
        (vec![gone.as_str(), "--log", "/nowhere/x"], "/nowhere/x"),
        (vec!["merge", "/nowhere"], "/nowhere"),
        (vec!["merge", "/dev/zero"], "more than 64 MiB"),
    ] {
        let output = load(&flags);
        assert_eq!(output.status.code(), Some(1), "{flags:?}: {output:?}");
        assert!(text(&output.stderr).contains(part), "{flags:?}: {output:?}");
    }
}

#[test]
fn a_body_is_a_file_with_an_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (fifo, large) = (path("fifo"), path("large"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // It has holes only.
    std::fs::File::create(&large).unwrap().set_len((256 << 20) + 1).unwrap();
    for (file, part) in [
        (&*fifo, "not a regular file"),
        (directory.path().to_str().unwrap(), "not a regular file"),
        ("/dev/zero", "not a regular file"),
        (&*large, "more than 256 MiB"),
        ("/nowhere", "No such file"),
    ] {
        let output = load(&["127.0.0.1:9", "--body-file", file]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(file) && said.contains(part), "{said}");
    }
}

/// The floor is measured with frames, which have less room.
#[test]
fn a_body_that_is_larger_than_any_frame_is_measured() {
    let body = tempfile::NamedTempFile::new().unwrap();
    body.as_file().set_len((16 << 20) + 1).unwrap();
    let (server, body) = (http(), body.path().to_str().unwrap());
    let mut flags = SHORT.to_vec();
    flags.retain(|flag| *flag != "--no-floor");
    flags.extend(["--server", &server, "--method", "POST", "--body-file", body, "--json"]);
    flags.extend(["--connections", "1", "--rate", "10"]);
    let output = load(&flags);
    assert_measured(&output);
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(results["floor"]["response"]["count"].as_u64() > Some(0), "{}", results["floor"]);
    let note = "The floor was measured with 16777216 bytes, not 16777217";
    assert!(results["notes"].to_string().contains(note), "{}", results["notes"]);
}

#[test]
fn a_trace_is_read_within_a_limit() {
    let directory = tempfile::tempdir().unwrap();
    let large = directory.path().join("large");
    std::fs::File::create(&large).unwrap().set_len((256 << 20) + 1).unwrap();
    for file in [large.to_str().unwrap(), "/dev/zero"] {
        // In bytes: more than the program takes otherwise.
        let mut limited = Command::new("prlimit");
        limited.args(["--as=4294967296", env!("CARGO_BIN_EXE_wakeful"), "load", "127.0.0.1:9"]);
        let output = limited.args(["--trace", file]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{}", said.len());
        assert!(said.len() < 1000 && said.contains(file), "{}", said.len());
        assert!(said.contains("more than 256 MiB, the most for a trace: split it"), "{said}");
    }
}

#[test]
fn more_connections_than_descriptors_are_an_error_that_names_the_limit() {
    let mut limited = Command::new("prlimit");
    limited.args(["--nofile=64", env!("CARGO_BIN_EXE_wakeful"), "load", "--server", &echo()]);
    limited.args(["--protocol", "frames", "--connections", "100"]).args(SHORT);
    let output = limited.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("Too many open files") && said.contains("ulimit -n"), "{said}");
}

/// Both ends of the floor's connections are in one process.
#[test]
fn a_floor_without_descriptors_names_the_limit() {
    let mut limited = Command::new("prlimit");
    limited.args(["--nofile=30", env!("CARGO_BIN_EXE_wakeful"), "load", "--server", &http()]);
    limited.args(["--connections", "32"]);
    limited.args(SHORT.iter().filter(|flag| **flag != "--no-floor"));
    let output = limited.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("Too many open files") && said.contains("ulimit -n"), "{said}");
}

/// Ten million requests that no connection takes: their times alone would be 80 MB.
#[test]
fn requests_that_wait_for_a_connection_need_no_memory() {
    // A limit for the generator, and none for its server.
    let server = http().replacen("http=", "http=prlimit --as=unlimited: ", 1);
    let mut limited = Command::new("prlimit");
    limited.args(["--as=134217728:", env!("CARGO_BIN_EXE_wakeful"), "load", "--server", &server]);
    limited.args(["--rate", "10M", "--connections", "1", "--timeout", "100ms", "--json"]);
    limited.args(SHORT.map(|flag| if flag == "300ms" { "1s" } else { flag }));
    let output = limited.output().unwrap();
    assert_measured(&output);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = &report["runs"][0];
    let counts = ["offered", "answered", "failed"].map(|count| run[count].as_u64().unwrap());
    assert!(counts[0] > 9_000_000, "{run}");
    assert_eq!(counts[0], counts[1] + counts[2], "{run}");
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for flags in [
        &[][..],
        &["127.0.0.1:1", "--rate", "fast"],
        &["127.0.0.1:1", "--rate", "0"],
        &["127.0.0.1:1", "--closed", "--rate", "1k"],
        &["127.0.0.1:1", "--find-max", "p98<1ms"],
        &["--compare", "127.0.0.1:1"],
        &["--server", "no placeholder"],
        &["127.0.0.1:1", "--duration", "0s"],
    ] {
        let output = load(flags);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {output:?}");
    }
    for (flags, says) in [
        (&["https://127.0.0.1/"][..], "TLS"),
        (&["ftp://127.0.0.1/"], "only http://"),
        (&["nonsense"], "is not an address"),
        (&["127.0.0.1:1", "--size", "5"], "--size needs --protocol frames or resp"),
        (&["127.0.0.1:1", "--mix", "1:2"], "--mix needs --protocol resp"),
        (&["127.0.0.1:1", "--protocol", "grpc"], "--path /package.Service/Method"),
        (&["127.0.0.1:1", "--pairs", "9"], "--pairs needs --compare"),
        (&["127.0.0.1:1", "--cpu", "9999"], "CPU 9999"),
        (&["127.0.0.1:1", "--server-cpus", "1000"], "CPU 1000"),
        (&["127.0.0.1:1", "--header", "a b: c"], "header name"),
        (&["null-server", "--stall", "2s"], "--stall must be shorter"),
    ] {
        let output = load(flags);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {output:?}");
        assert!(text(&output.stderr).contains(says), "{flags:?}: {output:?}");
    }
    for (option, value, range) in [
        ("--find-max", "p99<0", "1us to 1h"),
        ("--find-max", "p99<-1ms", "1us to 1h"),
        ("--find-max", "p99<5", "1us to 1h"),
        ("--rate", "-1", "at most 10M"),
        ("--rate", "nan", "at most 10M"),
        ("--duration", "5", "10ms to 24h"),
        ("--duration", "25h", "10ms to 24h"),
        ("--warm-up", "-1", "0s to 24h"),
        ("--quiet-share", "nan", "0 to 1024"),
        ("--quiet-share", "-1", "0 to 1024"),
        ("--connections", "-1", "from 1 to 1000000"),
        ("--in-flight", "0", "from 1 to 100000"),
        ("--repeats", "1001", "from 0 to 1000"),
    ] {
        let output = load(&["127.0.0.1:1", option, value]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{option} {value}: {text}");
        let says = |part: &str| text.contains(part);
        assert!(says(option) && says(value) && says(range), "{option} {value}: {text}");
    }
}

#[test]
fn the_first_failure_is_told_with_its_status() {
    let results = load(&[&["--server", &http(), "--path", "/nowhere"][..], &SHORT].concat());
    assert_eq!(results.status.code(), Some(4), "{results:?}");
    let said = text(&results.stdout);
    assert!(said.contains("the first failure: the server answered with status 404"), "{said}");
}

#[test]
fn the_progress_counts_all_blocks_from_the_start() {
    let server = echo();
    let short = SHORT.iter().filter(|flag| **flag != "--no-floor").copied();
    let flags = ["--server", &server, "--protocol", "frames", "--rate", "100,200"];
    let said = load(&flags.into_iter().chain(short).collect::<Vec<_>>()).stderr;
    for number in 1..=3 {
        assert!(text(&said).contains(&format!("[{number}/3] ")), "{}", text(&said));
    }
}

#[test]
fn the_wrong_protocol_is_an_error_and_not_a_measurement() {
    let output = load(&[&["--server", &echo(), "--rate", "500"][..], &SHORT].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// A run of a minute without a warm-up, against a server that sleeps between requests.
fn long_run(flags: &[&str]) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut child = wakeful()
        .args([
            "load",
            "--server",
            &format!("{} --idle park", echo()),
            "--protocol",
            "frames",
            "--rate",
            "1k",
            "--duration",
            "60s",
        ])
        .args(["--warm-up", "0s", "--quiet-patience", "0s", "--no-floor"])
        .args(flags)
        .spawn()
        .unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    (child, stderr)
}

fn children(pid: u32) -> Vec<u32> {
    let output =
        Command::new("ps").args(["-o", "pid=", "--ppid", &pid.to_string()]).output().unwrap();
    text(&output.stdout).split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn command_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
}

/// How often the threads of a process have gone to sleep; 0 if it is gone.
fn times_asleep(pid: u32) -> u64 {
    let used = ProcessCpu::read(pid).map(|now| now.used_since(&ProcessCpu::default()));
    used.map_or(0, |used| used.voluntary_switches)
}

/// The server, once it has been loaded in the measured time: it sleeps at most once for each of 32
/// connections and for each request, and a few times before. One that was only tried out has had no
/// request.
fn measured_server_of(run: &mut Child, stderr: &mut impl Read) -> u32 {
    loop {
        let mut servers = children(run.id()).into_iter();
        if let Some(pid) =
            servers.find(|pid| command_of(*pid).contains("serve echo") && times_asleep(*pid) > 100)
        {
            return pid;
        }
        // At the latest by itself, after a minute.
        if let Some(status) = run.try_wait().unwrap() {
            let mut lines = String::new();
            stderr.read_to_string(&mut lines).unwrap();
            panic!("it ended early: {status}: {lines}");
        }
        // Looking without a pause would take the generator's CPU.
        thread::sleep(Duration::from_millis(20));
    }
}

fn kill(signal: &str, pid: u32) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

#[test]
fn ctrl_c_ends_a_run_and_prints_what_was_measured() {
    is_ended_early_by(&["-INT"]);
}

#[test]
fn a_terminal_that_closes_ends_a_run_as_ctrl_c_does() {
    // The shell and the kernel may send one each.
    is_ended_early_by(&["-HUP", "-HUP"]);
}

#[test]
fn a_hangup_that_is_ignored_stays_ignored() {
    let mut run = Command::new("sh")
        .args(["-c", "trap '' HUP; exec \"$0\" load null-server --listen 127.0.0.1:0"])
        .arg(env!("CARGO_BIN_EXE_wakeful"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(run.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", run.id())).unwrap();
    kill("-TERM", run.id());
    assert!(run.wait().unwrap().success() && line.contains("listening on"), "{line}");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    // The lowest bit is HUP's, the next one INT's.
    assert!(caught.ends_with(['2', '6', 'a', 'e']), "{caught}");
}

/// Sends the signals to a run, which prints what was measured, and writes the report and the log.
fn is_ended_early_by(signals: &[&str]) {
    let name = format!("wakeful-ended-by{}-{}", signals.concat(), std::process::id());
    let files = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&files).unwrap();
    let [report, log] = ["report.html", "log"].map(|name| files.join(name));
    let outputs = ["--report", report.to_str().unwrap(), "--log", log.to_str().unwrap()];
    let (mut run, mut stderr) = long_run(&outputs);
    let server = measured_server_of(&mut run, &mut stderr);
    for signal in signals {
        kill(signal, run.id());
    }
    let output = run.wait_with_output().unwrap();
    let mut rest = String::new();
    let _ = stderr.read_to_string(&mut rest);
    assert_eq!(output.status.code(), Some(130), "{rest}");
    assert!(text(&output.stdout).contains("echo"), "{output:?} {rest}");
    assert!(command_of(server).is_empty(), "the server was left running");
    for file in [report, log] {
        assert!(file.metadata().unwrap().len() > 0, "{}: {rest}", file.display());
    }
    std::fs::remove_dir_all(files).unwrap();
}

#[test]
fn a_server_that_dies_is_an_error_that_says_when() {
    let (mut run, mut stderr) = long_run(&[]);
    let server = measured_server_of(&mut run, &mut stderr);
    kill("-KILL", server);
    let status = run.wait().unwrap();
    let mut lines = String::new();
    while stderr.read_line(&mut lines).unwrap() > 0 {}
    assert_eq!(status.code(), Some(1), "{lines}");
    assert!(lines.contains("died") && lines.contains(" s into the measured time"), "{lines}");
}

#[test]
fn the_lab_lists_what_it_has_and_names_what_it_has_not() {
    let list = wakeful().args(["lab", "list"]).output().unwrap();
    assert!(list.status.success() && text(&list.stdout).contains("echo:"), "{list:?}");
    let unknown = wakeful().args(["lab", "nothing"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("use echo, "), "{unknown:?}");
    assert!(text(&list.stdout).contains("late-wake:"), "{list:?}");
    let timer = wakeful().args(["lab", "late-wake", "--timer", "1h"]).output().unwrap();
    assert_eq!(timer.status.code(), Some(2), "{timer:?}");
    let peer = wakeful().args(["lab", "echo", "--peers", "nothing"]).output().unwrap();
    assert!(text(&peer.stderr).contains("no peer nothing"), "{peer:?}");
    assert_eq!(peer.status.code(), Some(2), "{peer:?}");
    let timer = wakeful().args(["lab", "echo", "--timer", "1s"]).output().unwrap();
    assert_eq!(timer.status.code(), Some(2), "{timer:?}");
    assert!(text(&timer.stderr).contains("it is for late-wake"), "{timer:?}");
}

/// `wakeful lab blocked-consumer` with a shell instead of cargo, which runs this script. Its exit
/// code, what it said, and how often cargo was started.
fn lab_with_cargo(name: &str, script: &str, flags: &[&str]) -> (Option<i32>, String, usize) {
    let dir = std::env::temp_dir().join(format!("wakeful-cargo-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    // The shell takes cargo's subcommand for the name of a file.
    std::fs::write(dir.join("build"), format!("echo >>started\n{script}\n")).unwrap();
    let peers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proof/peers");
    let output = wakeful()
        .args(["lab", "blocked-consumer", "--peers-dir", peers])
        .args(flags)
        .current_dir(&dir)
        .env("CARGO", "/bin/sh")
        .output()
        .unwrap();
    let started = std::fs::read_to_string(dir.join("started")).unwrap_or_default();
    std::fs::remove_dir_all(&dir).unwrap();
    (output.status.code(), text(&output.stderr), started.lines().count())
}

#[test]
fn ctrl_c_while_peers_are_built_ends_the_lab() {
    let (code, stderr, started) = lab_with_cargo("interrupt", "kill -s INT $PPID; exit 1", &[]);
    assert_eq!((code, started), (Some(130), 1), "{stderr}");
    assert!(stderr.contains("building 1 of ") && stderr.contains("interrupted"), "{stderr}");
}

#[test]
fn the_lab_measures_nothing_without_wakefuls_own_probe() {
    let (code, stderr, started) = lab_with_cargo("fail", "exit 1", &[]);
    assert_eq!((code, started), (Some(1), 1), "{stderr}");
    assert!(stderr.contains("ready-list, which measures wakeful itself"), "{stderr}");
}

#[test]
fn a_file_that_cannot_be_written_ends_the_lab_before_anything_runs() {
    for flag in ["--report", "--plot"] {
        let flags = [flag, "/no-such-directory/file"];
        let (code, stderr, started) = lab_with_cargo(&flag[2..], "exit 1", &flags);
        assert_eq!((code, started), (Some(1), 0), "{stderr}");
        assert!(stderr.contains("/no-such-directory/file: No such file"), "{stderr}");
    }
}

#[test]
fn a_reader_of_the_list_that_has_seen_enough_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let list = wakeful().args(["lab", "list"]).stdout(writer).output().unwrap();
    assert!(list.status.success() && list.stderr.is_empty(), "{list:?}");
}

#[test]
fn a_mix_that_does_not_fit_its_commands_is_refused() {
    let two = ["--command", "GET {key}", "--command", "SET {key}"];
    for (flags, part) in [
        (&["--mix", "3:1"][..], "several --command"),
        (&[&two[..], &["--mix", "3"]].concat(), "each of the 2 commands"),
        (&[&two[..], &["--mix", "0:0"]].concat(), "above 0"),
        (&[&two[..], &["--size", "1,2,3"]].concat(), "3 sizes for 2"),
        (&["--size", "1,2"], "2 sizes for 1"),
    ] {
        let output = load(&[&["127.0.0.1:1", "--protocol", "resp"], flags].concat());
        assert!(!output.status.success(), "{flags:?}");
        let error = text(&output.stderr);
        assert!(error.contains(part), "{flags:?}: {error}");
    }
}

#[test]
fn an_option_that_would_have_no_effect_is_refused() {
    for (protocol, option, value, needs) in [
        ("http1", "--command", "PING", "resp"),
        ("grpc", "--keys", "5", "resp"),
        ("h2", "--size", "100", "frames or resp"),
        ("resp", "--path", "/", "http1, h2 or grpc"),
        ("frames", "--header", "a: b", "http1, h2 or grpc"),
        ("resp", "--body", "a", "http1, h2 or grpc"),
        ("resp", "--body-file", "/dev/null", "http1, h2 or grpc"),
    ] {
        let output = load(&["127.0.0.1:1", "--protocol", protocol, option, value]);
        assert!(!output.status.success(), "{output:?}");
        let error = text(&output.stderr);
        assert!(error.contains(&format!("{option} needs --protocol {needs}")), "{error}");
    }
    let output = load(&["127.0.0.1:1", "--pairs", "3"]);
    assert!(text(&output.stderr).contains("--pairs needs --compare"), "{output:?}");
    // Beyond what a kernel numbers.
    let output = load(&["127.0.0.1:1", "--pid", "4194305"]);
    assert!(text(&output.stderr).contains("no such process"), "{output:?}");
    let output = load(&["null-server", "--stall", "1s", "--stall-every", "1s"]);
    assert!(text(&output.stderr).contains("--stall must be shorter"), "{output:?}");
}

#[test]
fn a_refused_call_for_cpus_is_named() {
    let strace = |call: &str| {
        let mut command = Command::new("strace");
        command.args(["-f", "-o", "/dev/null", "-e"]).arg(format!("inject={call}:error=EPERM"));
        command.stdin(Stdio::null());
        command
    };
    if !strace("sched_setaffinity").arg("true").status().is_ok_and(|status| status.success()) {
        println!("skipped: strace is not installed, or may not trace");
        return;
    }
    if thread::available_parallelism().unwrap().get() == 1 {
        println!("skipped: with one CPU nothing is pinned");
        return;
    }
    for (call, says) in [
        ("sched_setaffinity", " only: sched_setaffinity: Operation not permitted"),
        ("sched_getaffinity", "sched_getaffinity: Operation not permitted"),
    ] {
        let mut load = strace(call);
        load.args([env!("CARGO_BIN_EXE_wakeful"), "load", "--protocol", "frames"]);
        let output =
            load.args(["--rate", "100", "--server", &echo()]).args(SHORT).output().unwrap();
        let said = text(&output.stderr);
        assert!(said.contains(says) && said.contains("Allow it"), "{said}");
        assert_eq!(output.status.code(), Some(1), "{said}");
    }
}
