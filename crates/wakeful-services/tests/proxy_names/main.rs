//! Backends that are the addresses of a name, by real look-ups, each test in a network of its own.

#[path = "../proxy/common.rs"]
mod common;
#[path = "../proxy/log.rs"]
mod log;
mod name_server;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use wakeful::accept::SharedListener;
use wakeful_services::HttpVersion;
use wakeful_services::proxy::headers::Upgrades;
use wakeful_services::proxy::{self, Ejection, NameCounts, ProxyOptions, RunningProxy};

use common::*;
use log::Log;
use name_server::{Says, with_names};

const NAME: &str = "backends.test:8080";
const FAST: Duration = Duration::from_millis(5);
const HOUR: Duration = Duration::from_secs(3600);
/// A look-up that is not answered would end a test before itself.
const PATIENT: &str = "timeout:30 attempts:1";

/// A backend at this address, and the port of all.
fn backend(ip: &str, script: impl Fn(&Backend, &mut TcpStream) + Send + Sync + 'static) -> Backend {
    Backend::on(TcpListener::bind(at(ip)).unwrap(), script)
}

fn at(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse::<IpAddr>().unwrap(), 8080)
}

/// A backend that answers with its address.
fn named(ip: &'static str) -> Backend {
    backend(ip, move |this, stream| {
        while this.read(stream).is_some() {
            answer(stream, ip);
        }
    })
}

/// Idle connections close for no other reason than that their backend has gone.
fn start(
    loops: usize,
    to: &[&str],
    set: impl FnOnce(ProxyOptions) -> ProxyOptions,
) -> RunningProxy {
    let to = to.iter().map(|ip| at(ip).into());
    let settings = ProxyOptions::new(to).names([NAME.parse().unwrap()]).name_interval(FAST);
    let settings = set(settings.idle_timeout(HOUR));
    let listener = || vec![SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap()];
    proxy::start(&options(loops), settings, listener(), listener()).unwrap()
}

fn backends(proxy: &RunningProxy) -> BTreeSet<String> {
    proxy.counts().backends().iter().map(|one| one.name().to_owned()).collect()
}

#[track_caller]
fn until_backends_are(proxy: &RunningProxy, ips: &[&str]) {
    let wanted = ips.iter().map(|ip| at(ip).to_string()).collect();
    until(&format!("the backends are {ips:?}"), || backends(proxy) == wanted);
}

fn name(proxy: &RunningProxy) -> Arc<NameCounts> {
    proxy.counts().names()[0].clone()
}

/// Asks until each of them has answered.
#[track_caller]
fn until_these_answer(proxy: &RunningProxy, ips: &[&str]) {
    let mut left: BTreeSet<_> = ips.iter().copied().collect();
    until(&format!("{ips:?} answer"), || {
        let answer = get(addr(proxy), "/");
        assert_status(&answer, 200);
        left.remove(body(&answer));
        left.is_empty()
    });
}

/// Look-ups that begin from now on have been heeded.
fn until_looked_up_again(proxy: &RunningProxy) {
    let name = name(proxy);
    let before = name.lookups();
    until("the name is looked up again", || name.lookups() >= before + 3);
}

/// Clients that ask again and again on their connections, and count what is not a 200.
struct Load {
    ends: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    clients: Vec<thread::JoinHandle<Vec<String>>>,
}

impl Load {
    fn on(addr: SocketAddr, clients: usize) -> Self {
        let (ends, asked) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let client = |_| {
            let (ends, asked, mut stream) = (ends.clone(), asked.clone(), connect(addr));
            thread::spawn(move || {
                let mut lost = Vec::new();
                while !ends.load(Ordering::Relaxed) {
                    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
                    let answer = read_answer(&mut stream);
                    if !answer.starts_with("HTTP/1.1 200 ") {
                        lost.push(answer);
                    }
                    asked.fetch_add(1, Ordering::Relaxed);
                }
                lost
            })
        };
        let clients = (0..clients).map(client).collect();
        Self { ends, asked, clients }
    }

    /// So many requests have been answered from now on.
    #[track_caller]
    fn goes_on(&self, requests: usize) {
        let before = self.asked.load(Ordering::Relaxed);
        until("requests are answered", || self.asked.load(Ordering::Relaxed) >= before + requests);
    }

    fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        for client in self.clients {
            assert_eq!(client.join().unwrap(), Vec::<String>::new());
        }
    }
}

/// The head, and the body by its length.
fn read_answer(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&text).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    text.extend(body);
    String::from_utf8(text).unwrap()
}

#[test]
fn addresses_come_and_go_and_come_back_under_load_and_no_request_is_lost() {
    let test = "addresses_come_and_go_and_come_back_under_load_and_no_request_is_lost";
    with_names(test, PATIENT, |names| {
        let (ones, twos, sixes) = (named("127.0.0.2"), named("127.0.0.3"), named("::1"));
        names.says_these(&["127.0.0.2"]);
        let proxy = start(2, &[], |settings| settings);
        until_these_answer(&proxy, &["127.0.0.2"]);
        let load = Load::on(addr(&proxy), 4);
        for _ in 0..3 {
            names.says_these(&["127.0.0.3", "127.0.0.2", "127.0.0.3"]);
            until_these_answer(&proxy, &["127.0.0.2", "127.0.0.3"]);
            names.says_these(&["::1", "127.0.0.3"]);
            until_these_answer(&proxy, &["::1", "127.0.0.3"]);
            until_backends_are(&proxy, &["::1", "127.0.0.3"]);
            until("nobody is connected to what has gone", || ones.is_alone());
            let before = ones.requests().len();
            load.goes_on(100);
            assert_eq!(ones.requests().len(), before, "it has gone");
            assert!(!twos.is_alone() && !sixes.is_alone());
            names.says_these(&["127.0.0.2"]);
            until_backends_are(&proxy, &["127.0.0.2"]);
            until("nobody is connected to them", || twos.is_alone() && sixes.is_alone());
            load.goes_on(100);
        }
        load.end();
        let counts = proxy.counts();
        assert_eq!((counts.backends()[0].failures(), name(&proxy).failures()), (0, 0));
        // One look-up at a time for all loops, and none for a connection.
        let (asked, lookups) = (names.asked_for_addresses(), name(&proxy).lookups());
        assert!((lookups..=lookups + 2).contains(&asked), "{asked} questions, {lookups} look-ups");
    });
}

#[test]
fn what_is_under_way_at_an_address_that_goes_ends_in_its_own_time() {
    let test = "what_is_under_way_at_an_address_that_goes_ends_in_its_own_time";
    with_names(test, PATIENT, |names| {
        // Two pieces: the second one when the client has had the first.
        let go_on = Arc::<AtomicBool>::default();
        let goes_on = go_on.clone();
        let going = backend("127.0.0.2", move |this, stream| {
            while let Some(request) = this.read(stream) {
                if request.starts_with("GET /stream ") {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf").unwrap();
                    until("it may go on", || goes_on.load(Ordering::Relaxed));
                    stream.write_all(b"full").unwrap();
                } else if request.to_lowercase().contains("\r\nupgrade: ") {
                    let switch = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
                    stream.write_all(switch.as_bytes()).unwrap();
                    let mut byte = [0];
                    while let Ok(1) = stream.read(&mut byte) {
                        stream.write_all(&byte).unwrap();
                    }
                } else {
                    answer(stream, "127.0.0.2");
                }
            }
        });
        let _stays = named("127.0.0.3");
        names.says_these(&["127.0.0.2"]);
        let proxy = start(1, &[], |settings| settings.upgrades(Upgrades::Any));
        let client = connect(addr(&proxy));
        let ask = |mut stream: &TcpStream, path: &str, more: &str| {
            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n{more}\r\n");
            stream.write_all(request.as_bytes()).unwrap();
        };
        let read = |mut stream: &TcpStream, end: &str| {
            let mut text = Vec::new();
            while !text.ends_with(end.as_bytes()) {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                text.push(byte[0]);
            }
        };
        ask(&client, "/stream", "");
        read(&client, "half");
        let tunnel = connect(addr(&proxy));
        ask(&tunnel, "/", "connection: upgrade\r\nupgrade: echo\r\n");
        read(&tunnel, "\r\n\r\n");
        assert_status(&get(addr(&proxy), "/"), 200);
        // A stream, a tunnel, and one that is idle.
        until("all connections are there", || going.open() == 3);

        names.says_these(&["127.0.0.3"]);
        until_these_answer(&proxy, &["127.0.0.3"]);
        until("the idle one closes", || going.open() == 2);
        until_backends_are(&proxy, &["127.0.0.2", "127.0.0.3"]);
        let of_it = proxy.counts().backends()[0].clone();
        assert_eq!((of_it.name(), of_it.in_flight()), ("127.0.0.2:8080", 2));
        // An address that is back while it still has requests has one line of metrics.
        names.says_these(&["127.0.0.2", "127.0.0.3"]);
        until_these_answer(&proxy, &["127.0.0.2"]);
        until_backends_are(&proxy, &["127.0.0.2", "127.0.0.3"]);
        names.says_these(&["127.0.0.3"]);
        until("the idle one closes again", || going.open() == 2);

        go_on.store(true, Ordering::Relaxed);
        read(&client, "full");
        until("its connection closes behind it", || going.open() == 1);
        (&tunnel).write_all(b"still there").unwrap();
        read(&tunnel, "still there");
        until_looked_up_again(&proxy);
        until_backends_are(&proxy, &["127.0.0.2", "127.0.0.3"]);
        drop(tunnel);
        until_backends_are(&proxy, &["127.0.0.3"]);
        assert_eq!((of_it.in_flight(), of_it.failures()), (0, 0));
        until("nobody is connected to it", || going.is_alone());
    });
}

#[test]
fn where_a_look_up_fails_the_addresses_that_are_known_stay() {
    let test = "where_a_look_up_fails_the_addresses_that_are_known_stay";
    with_names(test, PATIENT, |names| {
        let log = Log::start();
        let (one, _two) = (named("127.0.0.2"), named("127.0.0.3"));
        names.says_these(&["127.0.0.2"]);
        let proxy = start(1, &[], |settings| settings);
        until_backends_are(&proxy, &["127.0.0.2"]);
        let lines = log.take();
        assert!(lines.len() == 1 && lines[0].contains("came=[\"127.0.0.2:8080\"]"), "{lines:?}");
        for says in [Says::Failure, Says::HalfOfAFailure] {
            let before = name(&proxy).failures();
            names.says(says);
            until("look-ups fail", || name(&proxy).failures() >= before + 10);
            until_these_answer(&proxy, &["127.0.0.2"]);
            let lines = log.take();
            assert_eq!(lines.len(), 1, "{lines:?}");
            for part in ["WARN", NAME, "cannot be looked up", "known=1"] {
                assert!(lines[0].contains(part), "{part}: {lines:?}");
            }
            names.says_these(&["127.0.0.2"]);
            log.until("can be looked up again");
            assert_eq!((backends(&proxy).len(), name(&proxy).addresses()), (1, 1));
        }
        names.says_these(&["127.0.0.3"]);
        until_these_answer(&proxy, &["127.0.0.3"]);
        until("its connection closes", || one.is_alone());
        log.until("went=[\"127.0.0.2:8080\"]");
    });
}

#[test]
fn a_name_without_addresses_has_no_backends_and_is_answered_503_until_it_has_some() {
    let test = "a_name_without_addresses_has_no_backends_and_is_answered_503_until_it_has_some";
    with_names(test, PATIENT, |names| {
        let log = Log::start();
        let one = named("127.0.0.2");
        names.says_these(&["127.0.0.2"]);
        let proxy = start(1, &[], |settings| settings);
        // A name that is not there, and one that has no addresses.
        for says in [Says::Unknown, Says::These(Vec::new())] {
            until_these_answer(&proxy, &["127.0.0.2"]);
            until_looked_up_again(&proxy);
            log.take();
            names.says(says);
            until_backends_are(&proxy, &[]);
            until("its idle connection closes", || one.is_alone());
            let refused = get(addr(&proxy), "/");
            assert_status(&refused, 503);
            assert_eq!(body(&refused), "no backend is available: its name has no address\n");
            assert!(refused.contains("\r\nretry-after: 1\r\n"), "{refused}");
            assert_eq!(name(&proxy).addresses(), 0);
            until_looked_up_again(&proxy);
            let lines = log.take();
            assert_eq!(lines.len(), 2, "{lines:?}");
            assert!(lines[0].contains("known=1"), "{lines:?}");
            for part in ["WARN", NAME, "3 look-ups in a row", "went=[\"127.0.0.2:8080\"]"] {
                assert!(lines[1].contains(part), "{part}: {lines:?}");
            }
            names.says_these(&["127.0.0.2"]);
            log.until("can be looked up again");
            until_backends_are(&proxy, &["127.0.0.2"]);
        }
    });
}

#[test]
fn a_look_up_that_hangs_delays_nobody_and_there_is_never_a_second_one() {
    let test = "a_look_up_that_hangs_delays_nobody_and_there_is_never_a_second_one";
    with_names(test, PATIENT, |names| {
        let (_one, _two) = (named("127.0.0.2"), named("127.0.0.3"));
        names.says_these(&["127.0.0.2"]);
        let proxy = start(2, &[], |settings| settings.name_interval(Duration::from_millis(1)));
        names.says(Says::Nothing);
        until("a look-up hangs", || names.holds() > 0);
        let (asked, lookups) = (names.asked_for_addresses(), name(&proxy).lookups());
        let load = Load::on(addr(&proxy), 4);
        load.goes_on(2000);
        load.end();
        assert_eq!((names.asked_for_addresses(), name(&proxy).lookups()), (asked, lookups));
        assert_eq!(name(&proxy).running(), 1);
        names.says_these(&["127.0.0.3"]);
        until_these_answer(&proxy, &["127.0.0.3"]);
        until_backends_are(&proxy, &["127.0.0.3"]);
        assert_eq!(name(&proxy).failures(), 0);
    });
}

#[test]
fn a_proxy_whose_name_has_no_address_starts_and_answers_503_until_it_has_one() {
    let test = "a_proxy_whose_name_has_no_address_starts_and_answers_503_until_it_has_one";
    with_names(test, PATIENT, |names| {
        let log = Log::start();
        let _one = named("127.0.0.2");
        for (says, line) in
            [(Says::Unknown, "cannot be looked up"), (Says::Nothing, "still being looked up")]
        {
            names.says(says);
            // Without an address it is looked up again sooner than that.
            let rarely = |settings: ProxyOptions| settings.name_interval(HOUR);
            let proxy = start(1, &[], |settings| rarely(settings).connect_timeout(FAST));
            log.until(line);
            let refused = get(addr(&proxy), "/");
            assert_status(&refused, 503);
            assert!(refused.contains("\r\nretry-after: 1\r\n"), "{refused}");
            names.says_these(&["127.0.0.2"]);
            until_backends_are(&proxy, &["127.0.0.2"]);
            until("it answers", || get(addr(&proxy), "/").starts_with("HTTP/1.1 200 "));
        }
    });
}

#[test]
fn a_start_waits_for_the_first_address_while_look_ups_fail() {
    let test = "a_start_waits_for_the_first_address_while_look_ups_fail";
    with_names(test, PATIENT, |names| {
        let log = Log::start();
        let _one = named("127.0.0.2");
        for says in [Says::Unknown, Says::Failure] {
            names.says(says);
            let before = names.asked_for_addresses();
            thread::scope(|scope| {
                let set =
                    |settings: ProxyOptions| settings.name_interval(HOUR).connect_timeout(HOUR);
                let starting = scope.spawn(move || start(1, &[], set));
                until("it is asked again and again", || {
                    starting.is_finished() || names.asked_for_addresses() >= before + 10
                });
                assert!(!starting.is_finished());
                names.says_these(&["127.0.0.2"]);
                let proxy = starting.join().unwrap();
                assert_eq!(backends(&proxy), BTreeSet::from([at("127.0.0.2").to_string()]));
                assert_status(&get(addr(&proxy), "/"), 200);
            });
            let lines = log.take();
            assert_eq!(lines.len(), 3, "{lines:?}");
            for part in ["WARN", NAME, "no address is known", "known=0"] {
                assert!(lines[0].contains(part), "{part}: {lines:?}");
            }
            assert!(lines[1].contains("can be looked up again"), "{lines:?}");
            assert!(lines[2].contains("came=[\"127.0.0.2:8080\"]"), "{lines:?}");
        }
        // It does not wait for longer than it may.
        names.says(Says::Unknown);
        let patience = |settings: ProxyOptions| settings.connect_timeout(HOUR);
        let proxy = start(1, &[], |settings| patience(settings).name_start_timeout(FAST));
        assert_status(&get(addr(&proxy), "/"), 503);
    });
}

#[test]
fn what_is_known_of_a_backend_stays_while_its_address_does() {
    let test = "what_is_known_of_a_backend_stays_while_its_address_does";
    with_names(test, PATIENT, |names| {
        let _two = named("127.0.0.3");
        names.says_these(&["127.0.0.2", "127.0.0.3"]);
        let ejection = Ejection::new().shortest(HOUR).longest(HOUR);
        let proxy = start(1, &[], |settings| settings.ejection(ejection));
        let of_it = proxy.counts().backends()[0].clone();
        assert_eq!(of_it.name(), "127.0.0.2:8080");
        until("it is left out", || {
            assert_status(&get(addr(&proxy), "/"), 200);
            of_it.ejections() == 1
        });
        let _three = named("127.0.0.4");
        names.says_these(&["127.0.0.2", "127.0.0.3", "127.0.0.4"]);
        until_these_answer(&proxy, &["127.0.0.4"]);
        let asked = of_it.requests();
        for _ in 0..100 {
            assert_status(&get(addr(&proxy), "/"), 200);
        }
        assert_eq!((of_it.requests(), of_it.ejections()), (asked, 1), "it is still out");
        // Gone and back, it is a new one.
        names.says_these(&["127.0.0.3"]);
        until_backends_are(&proxy, &["127.0.0.3"]);
        let _one = named("127.0.0.2");
        names.says_these(&["127.0.0.2", "127.0.0.3"]);
        until_these_answer(&proxy, &["127.0.0.2"]);
        let counts = proxy.counts();
        let back = counts.backends().into_iter().find(|one| one.name() == of_it.name()).unwrap();
        assert_eq!((back.ejections(), back.failures()), (0, 0));
    });
}

#[test]
fn an_address_that_is_given_and_found_is_one_backend() {
    let test = "an_address_that_is_given_and_found_is_one_backend";
    with_names(test, PATIENT, |names| {
        let (_given, _found) = (named("127.0.0.2"), named("127.0.0.3"));
        names.says_these(&["127.0.0.3", "127.0.0.2", "127.0.0.3"]);
        let second = "other.test:8080".parse().unwrap();
        let address = "127.0.0.3:8080".parse().unwrap();
        let proxy = start(1, &["127.0.0.2"], |settings| {
            settings.names([NAME.parse().unwrap(), second, address])
        });
        until_these_answer(&proxy, &["127.0.0.2", "127.0.0.3"]);
        assert_eq!((proxy.counts().backends().len(), name(&proxy).addresses()), (2, 2));
        // Both were given, so they stay.
        names.says_these(&["127.0.0.4"]);
        until_backends_are(&proxy, &["127.0.0.2", "127.0.0.3", "127.0.0.4"]);
        names.says_these(&["127.0.0.2"]);
        until_backends_are(&proxy, &["127.0.0.2", "127.0.0.3"]);
        until_these_answer(&proxy, &["127.0.0.2", "127.0.0.3"]);
    });
}

#[test]
fn addresses_go_from_backends_of_http2_as_well() {
    let test = "addresses_go_from_backends_of_http2_as_well";
    with_names(test, PATIENT, |names| {
        let servers = ["127.0.0.2", "127.0.0.3"].map(|ip| {
            let listener = SharedListener::bind(&at(ip).to_string().parse().unwrap()).unwrap();
            let own = wakeful_services::http::HttpOptions::default();
            let server = wakeful_services::http::start(&options(1), own, vec![listener], vec![]);
            server.unwrap().into_server()
        });
        names.says_these(&["127.0.0.2"]);
        let proxy = start(1, &[], |settings| settings.version(HttpVersion::Http2));
        let load = Load::on(addr(&proxy), 4);
        load.goes_on(100);
        for round in 0..6 {
            let (comes, goes) = (&servers[(round + 1) % 2], &servers[round % 2]);
            names.says_these(&[["127.0.0.3", "127.0.0.2"][round % 2]]);
            until("the connection closes", || goes.counts().open() == 0);
            let before = goes.http_counts().requests();
            load.goes_on(100);
            assert_eq!((goes.counts().open(), goes.http_counts().requests()), (0, before));
            assert_eq!(comes.counts().open(), 1);
        }
        load.end();
    });
}

#[test]
fn names_that_are_looked_up_end_with_their_proxy() {
    let test = "names_that_are_looked_up_end_with_their_proxy";
    with_names(test, PATIENT, |names| {
        let _one = named("127.0.0.2");
        names.says_these(&["127.0.0.2"]);
        let proxy = start(2, &[], |settings| settings.name_interval(HOUR));
        until_these_answer(&proxy, &["127.0.0.2"]);
        assert!(threads().contains(&"wakeful-names\n".to_owned()), "{:?}", threads());
        drop(proxy);
        until("its threads end", || !threads().iter().any(|one| one.starts_with("wakeful-names")));
    });
}

/// The names of those of this process.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks.filter_map(name).collect()
}
