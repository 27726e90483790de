use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv6Addr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixListener};
use std::process::Stdio;

use super::*;
use crate::affinity::{allowed_cpus, parse_cpus};

const LONG: Duration = Duration::from_secs(60);

/// Has this test program run one of its ignored tests, with one more argument.
fn this_program(test: &str, argument: &str) -> Vec<String> {
    let program = env::current_exe().unwrap().into_os_string().into_string().unwrap();
    let test = format!("servers::tests::{test}");
    [&program, "--ignored", "--exact", "--nocapture", &test, argument].map(str::to_owned).to_vec()
}

fn listening() -> ServerSpec {
    ServerSpec::Command { name: "listening".to_owned(), argv: this_program("a_server", "{addr}") }
}

fn sh(script: &str) -> ServerSpec {
    let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
    ServerSpec::Command { name: "script".to_owned(), argv }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(RETRY);
    }
}

#[test]
#[ignore = "other tests start it as their server"]
fn a_server() {
    let Some(addr) = env::args().next_back().and_then(|addr| addr.parse::<SocketAddr>().ok())
    else {
        return;
    };
    eprintln!("listening on {addr}");
    for stream in TcpListener::bind(addr).unwrap().incoming() {
        drop(stream);
    }
}

#[test]
#[ignore = "another test starts it, to kill it"]
fn a_starter() {
    if env::args().next_back().as_deref() != Some("start") {
        return;
    }
    let server = Server::start(&listening(), None, LONG).unwrap();
    println!("\npid={}", server.pid().unwrap());
    thread::sleep(LONG * 10);
}

#[test]
fn a_command_listens_where_it_is_told_to() {
    let mut server = Server::start(&listening(), None, LONG).unwrap();
    assert_eq!(server.name(), "listening");
    TcpStream::connect(server.addr()).unwrap();
    assert_eq!(server.pids(), [server.pid().unwrap()]);
    assert_eq!(server.died(), None);
    server.stop();
    assert!(TcpStream::connect(server.addr()).is_err());
    assert!(server.pids().is_empty());
    assert!(server.died().is_some());
    server.stop();
}

#[test]
fn servers_run_beside_each_other_and_on_their_cpus() {
    let last = *allowed_cpus().unwrap().last().unwrap();
    let first = Server::start(&listening(), Some(&[last]), LONG).unwrap();
    let second = Server::start(&listening(), None, LONG).unwrap();
    assert_ne!(first.addr(), second.addr());
    let status = std::fs::read_to_string(format!("/proc/{}/status", first.pid().unwrap())).unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    assert_eq!(parse_cpus(list).unwrap(), [last]);
    let error = Server::start(&listening(), Some(&[99_999]), LONG).unwrap_err().to_string();
    assert!(error.contains("listening cannot have its CPUs: CPU 99999"), "{error}");
}

#[test]
fn a_server_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Server>();
    shared::<ServerError>();
}

#[test]
fn a_dropped_server_is_gone() {
    let server = Server::start(&listening(), None, LONG).unwrap();
    let pid = server.pid().unwrap();
    drop(server);
    assert!(process_tree(pid).is_err());
}

#[test]
fn a_server_that_fails_says_why() {
    let error = Server::start(&sh("echo no luck at {addr} >&2; exit 7"), None, LONG).unwrap_err();
    let ServerError::Ended { addr, how, .. } = &error else { panic!("{error}") };
    assert_eq!(how, &format!("exited with status 7: no luck at {addr}"));
    let text = format!("script accepted no connection on {addr}: it {how}");
    assert_eq!(error.to_string(), text);

    let nowhere = "x=/no/such/program {addr}".parse().unwrap();
    let error = Server::start(&nowhere, None, LONG).unwrap_err().to_string();
    assert!(
        error.starts_with("x cannot be started: \"/no/such/program\": No such file"),
        "{error}"
    );
}

#[test]
fn a_server_that_never_listens_is_given_up_and_stopped() {
    let script = "echo $$ >&2; echo {host} {port} >&2; exec sleep 600";
    let error = Server::start(&sh(script), None, Duration::from_millis(500)).unwrap_err();
    let ServerError::NotReady { addr, error, .. } = error else { panic!("{error}") };
    let (host, port) = addr.split_once(':').unwrap();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[1], format!("{host} {port}"), "{error}");
    let pid = lines[0].rsplit_once(' ').unwrap().1.parse().unwrap();
    assert!(process_tree(pid).is_err());
}

#[test]
fn the_end_of_a_server_is_noticed() {
    let server = Server::start(&listening(), None, LONG).unwrap();
    let pid = rustix::process::Pid::from_raw(server.pid().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    wait_until("it is noticed", || server.died().is_some());
    let how = server.died().unwrap();
    let expected = format!("was killed by signal 9: listening on {}", server.addr());
    assert!(how.starts_with(&expected), "{how}");
    assert!(server.pids().is_empty());
}

#[test]
fn a_server_lives_on_in_who_listens_when_its_first_process_has_ended() {
    let server = this_program("a_server", "{addr}").join(" ");
    let server = Server::start(&sh(&format!("{server} & sleep 1")), None, LONG).unwrap();
    let first = server.pid().unwrap();
    wait_until("it is another one", || !server.pids().contains(&first));
    let successor = server.pids()[0].cast_signed();
    assert_eq!(server.died(), None);
    let successor = rustix::process::Pid::from_raw(successor).unwrap();
    rustix::process::kill_process(successor, rustix::process::Signal::KILL).unwrap();
    wait_until("the end is noticed", || server.died().is_some());
    assert!(server.died().unwrap().starts_with("exited with status 0"), "{:?}", server.died());
    assert!(server.pids().is_empty());
}

#[test]
fn a_server_ends_with_a_starter_that_is_killed() {
    let argv = this_program("a_starter", "start");
    let mut starter = Command::new(&argv[0]);
    starter.args(&argv[1..]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut starter = starter.spawn().unwrap();
    let mut lines = BufReader::new(starter.stdout.take().unwrap()).lines().map(Result::unwrap);
    let pid = lines.find_map(|line| line.strip_prefix("pid=").map(str::to_owned)).unwrap();
    let pid = pid.parse().unwrap();
    assert!(!has_ended(pid));
    starter.kill().unwrap();
    starter.wait().unwrap();
    wait_until("the server ends", || has_ended(pid));
}

#[test]
fn a_running_server_is_taken_as_it_is_and_left_running() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let mut server = Server::start(&addr.parse().unwrap(), None, LONG).unwrap();
    assert_eq!((server.name(), server.addr()), (addr.as_str(), addr.as_str()));
    let us = std::process::id();
    assert_eq!((server.pid(), server.died()), (Some(us), None), "whose socket it is, is looked up");

    let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
    server.attach(sleeper.id());
    assert_eq!(server.pids(), [sleeper.id()]);
    server.stop();
    assert_eq!(server.died(), None, "not ours to stop");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!((server.died(), server.pids()[0]), (None, us), "somebody listens there still");
    TcpStream::connect(&addr).unwrap().write_all(b"x").unwrap();
}

/// The generator's thread asks it every 50 ms.
#[test]
fn whether_a_running_server_has_ended_is_read_from_one_file_however_many_threads_it_has() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let server = Server::start(&addr.parse().unwrap(), None, LONG).unwrap();
    assert_eq!(server.pid(), Some(std::process::id()));
    // How often this thread has called read(2) and the like: proc_pid_io(5).
    let reads = || {
        let io = std::fs::read_to_string("/proc/thread-self/io").ok()?;
        io.lines().find_map(|line| line.strip_prefix("syscr: ")?.parse::<u64>().ok())
    };
    let Some(before) = reads() else {
        println!("skipped: this kernel does not count reads (CONFIG_TASK_IO_ACCOUNTING)");
        return;
    };
    let own = reads().unwrap() - before;
    let (sender, ends) = std::sync::mpsc::channel::<()>();
    let ends = std::sync::Mutex::new(ends);
    thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| ends.lock().unwrap().recv().ok());
        }
        let before = reads().unwrap();
        let died = server.died();
        let spent = reads().unwrap() - before - own;
        drop(sender);
        assert_eq!(died, None);
        assert!(spent < 16, "{spent} reads");
    });
}

#[test]
fn a_running_server_may_be_on_a_unix_socket() {
    let path = env::temp_dir().join(format!("wakeful-load-{}.socket", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let spec: ServerSpec = format!("local=unix:{}", path.display()).parse().unwrap();
    let started = Server::start(&spec, None, LONG);
    drop(listener);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(started.unwrap().name(), "local");
    let error = Server::start(&spec, None, Duration::ZERO).unwrap_err().to_string();
    let expected = format!("local on unix:{} does not accept connections", path.display());
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn a_server_whose_backlog_is_full_is_given_up_and_one_may_be_on_an_abstract_socket() {
    let name = format!("wakeful-load-full-{}", std::process::id());
    let addr = net::SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&addr).unwrap();
    let spec: ServerSpec = format!("local=unix:@{name}").parse().unwrap();
    Server::start(&spec, None, LONG).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let error = Server::start(&spec, None, Duration::ZERO).unwrap_err().to_string();
    assert!(error.contains("does not accept connections"), "{error}");
    assert!(error.contains("backlog is full"), "{error}");
}

#[test]
fn an_untouched_server_is_found_by_what_it_says() {
    let said = |says: &str| {
        let says = says.replace("ADDR", "[::1]:4711");
        let spec: ServerSpec =
            format!("said=sh -c \"{says}; sleep 600\" {{addr}}").parse().unwrap();
        Server::start_untouched(&spec, Ipv6Addr::LOCALHOST.into(), None, LONG)
    };
    let server = said("echo listening on ADDR >&2").unwrap();
    assert_eq!(server.addr(), "[::1]:4711");
    assert_eq!(server.last_words(), "listening on [::1]:4711");
    let server = said("echo INFO x: listening on ADDR, loops 1 >&2").unwrap();
    assert_eq!(server.addr(), "[::1]:4711");
    let error = said("echo no such thing >&2; exit 3").unwrap_err().to_string();
    assert!(error.contains("no such thing"), "{error}");

    let told: ServerSpec =
        "told=sh -c 'echo listening on $0 >&2; sleep 600' {addr}".parse().unwrap();
    let within = Duration::from_millis(200);
    let told = Server::start_untouched(&told, Ipv6Addr::LOCALHOST.into(), None, within);
    let error = told.unwrap_err().to_string();
    assert!(error.contains("listening on [::1]:0"), "port 0 is none: {error}");
}
