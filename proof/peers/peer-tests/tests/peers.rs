//! What every peer must do, whatever runtime it uses.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use peer_tests::{Entry, Idle, PATIENCE, Peer, Service};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, Signal, getrlimit, kill_process,
    pidfd_getfd, pidfd_open, prlimit,
};

/// Runs a check for every entry, and names all entries for which it fails.
fn for_each(check: impl Fn(&Entry) -> Result<()>) {
    let mut failed = Vec::new();
    for entry in peer_tests::built().expect("a catalog of peers that are built") {
        if let Err(error) = check(&entry) {
            failed.push(format!("{}: {error:#}", entry.name));
        }
    }
    assert!(failed.is_empty(), "\n  {}", failed.join("\n  "));
}

/// Runs a check for every service of every entry.
fn for_each_service(check: impl Fn(&Entry, Service) -> Result<()>) {
    for_each(|entry| {
        for service in &entry.services {
            check(entry, *service).with_context(|| service.flag())?;
        }
        Ok(())
    });
}

fn for_each_echo(check: impl Fn(&Entry) -> Result<()>) {
    for_each(|entry| if entry.services.contains(&Service::Echo) { check(entry) } else { Ok(()) });
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a small payload");
    [&length.to_be_bytes(), payload].concat()
}

/// Returns bytes that differ everywhere.
fn payload(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 % 251).to_le_bytes()[0]).collect()
}

/// Expects exactly the bytes that were sent.
fn expect(stream: &mut impl Read, sent: &[u8]) -> Result<()> {
    let mut got = vec![0; sent.len()];
    stream.read_exact(&mut got).context("the answer does not come")?;
    ensure!(got == sent, "the answer to {} bytes is different", sent.len());
    Ok(())
}

fn echo(stream: &mut (impl Read + Write), sent: &[u8]) -> Result<()> {
    stream.write_all(sent)?;
    expect(stream, sent)
}

/// Expects that the peer closes the connection, and sends nothing before that.
fn expect_end(stream: &mut impl Read) -> Result<()> {
    match stream.read(&mut [0]) {
        Ok(0) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(()),
        other => bail!("instead of the end: {other:?}"),
    }
}

/// Reads one response: its head in lower case, and its body.
fn response(stream: &mut impl Read) -> Result<(String, String)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).context("no response")?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head)?.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let mut body = vec![0; length.context("no content-length")?.trim().parse()?];
    stream.read_exact(&mut body)?;
    Ok((head, String::from_utf8(body)?))
}

fn expect_hello(stream: &mut impl Read) -> Result<()> {
    let (head, body) = response(stream)?;
    ensure!(head.starts_with("http/1.1 200 ok\r\n"), "{head}");
    ensure!(body == "hello\n", "the body is {body:?}");
    Ok(())
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: peer\r\n\r\n";

/// Makes one exchange of the peer's service.
fn exchange(stream: &mut (impl Read + Write), service: Service) -> Result<()> {
    match service {
        Service::Echo => echo(stream, &frame(b"a frame")),
        Service::Http => {
            stream.write_all(GET)?;
            expect_hello(stream)
        }
    }
}

#[test]
fn the_catalog_makes_sense() {
    let catalog = peer_tests::catalog().expect("a catalog");
    for (index, entry) in catalog.iter().enumerate() {
        let name = &entry.name;
        assert!(catalog[..index].iter().all(|other| other.name != *name), "{name} twice");
        assert!(!entry.workers.is_empty() && !entry.workers.contains(&0), "{name}: workers");
        assert!(!entry.services.is_empty(), "{name}: services");
        assert!(entry.about.ends_with('.'), "{name}: about");
    }
    assert!(catalog.iter().any(|entry| entry.quick));
}

#[test]
fn a_frontend_passes_frames_on_and_ends_with_its_backend() {
    for_each_echo(|entry| {
        let mut frontend = entry.clone();
        frontend.args.extend(["--backend", "127.0.0.1:1"].map(str::to_owned));
        if entry.binary != "tokio-current-thread" {
            let refused = frontend.output(&["--listen", "127.0.0.1:0"])?;
            ensure!(refused.status.code() == Some(2), "it takes --backend");
            return Ok(());
        }
        let backend = entry.start_tcp(Service::Echo, 1)?;
        *frontend.args.last_mut().context("an address")? = backend.addr.clone();
        let peer = frontend.start_tcp(Service::Echo, 1)?;
        let mut stream = peer.connect()?;
        for length in [0, 1, 1 << 10, 20_000, 3] {
            echo(&mut stream, &frame(&payload(length)))?;
        }
        drop(backend);
        expect_end(&mut stream)
    });
}

#[test]
fn frames_of_every_size_come_back() {
    for_each_echo(|entry| {
        let peer = entry.start_tcp(Service::Echo, 1)?;
        let mut stream = peer.connect()?;
        for length in [0, 1, 1 << 10, 20_000, 1 << 20, 0, 3] {
            let (sent, mut writer) = (frame(&payload(length)), stream.try_clone()?);
            // This is more than the sockets hold, so it must be read while it is sent.
            thread::scope(|scope| -> Result<()> {
                let writing = scope.spawn(|| writer.write_all(&sent));
                expect(&mut stream, &sent)?;
                writing.join().expect("no panic")?;
                Ok(())
            })
            .with_context(|| format!("a frame of {length} bytes"))?;
        }
        Ok(())
    });
}

#[test]
fn pipelined_frames_come_back_in_order() {
    for_each_echo(|entry| {
        let peer = entry.start_tcp(Service::Echo, 1)?;
        let many: Vec<u8> = (0..500).flat_map(|index| frame(&payload(index % 40))).collect();
        echo(&mut peer.connect()?, &many)
    });
}

#[test]
fn half_a_frame_is_waited_for() {
    for_each_echo(|entry| {
        let peer = entry.start_tcp(Service::Echo, 1)?;
        let mut stream = peer.connect()?;
        let (first, second) = (frame(b"first"), frame(&payload(1000)));
        let sent = [&first[..], &second[..]].concat();
        // The parts end in the middle of the second header, and then of its payload.
        for part in [&sent[..11], &sent[11..14], &sent[14..500]] {
            stream.write_all(part)?;
            thread::sleep(Duration::from_millis(10));
        }
        expect(&mut stream, &first)?;
        stream.set_read_timeout(Some(Duration::from_millis(20)))?;
        ensure!(stream.read(&mut [0]).is_err(), "an answer to half a frame");
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&sent[500..])?;
        expect(&mut stream, &second)
    });
}

#[test]
fn a_client_may_read_late() {
    for_each_echo(|entry| {
        let peer = entry.start_tcp(Service::Echo, 1)?;
        let mut stream = peer.connect()?;
        let many: Vec<u8> = (0..400).flat_map(|_| frame(&payload(40_000))).collect();
        let mut writer = stream.try_clone()?;
        thread::scope(|scope| -> Result<()> {
            let writing = scope.spawn(|| writer.write_all(&many));
            thread::sleep(Duration::from_millis(200));
            exchange(&mut peer.connect()?, Service::Echo).context("meanwhile, for another")?;
            expect(&mut stream, &many)?;
            writing.join().expect("no panic")?;
            Ok(())
        })
    });
}

#[test]
fn too_large_a_frame_ends_the_connection() {
    for_each_echo(|entry| {
        let peer = entry.start_tcp(Service::Echo, 1)?;
        let mut stream = peer.connect()?;
        let small = frame(b"small");
        stream.write_all(&[&small[..], &[1, 0, 0, 1]].concat())?;
        expect(&mut stream, &small)?;
        expect_end(&mut stream)
    });
}

#[test]
fn requests_are_answered_on_one_connection() {
    for_each(|entry| {
        let peer = entry.start_tcp(Service::Http, 1)?;
        let mut stream = peer.connect()?;
        for _ in 0..3 {
            exchange(&mut stream, Service::Http).context("keep-alive")?;
        }
        stream.write_all(&GET.repeat(20))?;
        for _ in 0..20 {
            expect_hello(&mut stream).context("pipelined")?;
        }
        for part in GET.chunks(11) {
            stream.write_all(part)?;
            thread::sleep(Duration::from_millis(2));
        }
        expect_hello(&mut stream).context("in parts")?;
        stream.write_all(b"GET /other HTTP/1.1\r\nhost: peer\r\n\r\n")?;
        let (head, _) = response(&mut stream)?;
        ensure!(head.starts_with("http/1.1 404 "), "{head}");
        stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nGET /")?;
        let (head, _) = response(&mut stream)?;
        ensure!(head.starts_with("http/1.1 405 "), "{head}");
        stream.write_all(b"GET / HTTP/1.1\r\nhost: peer\r\nConnection: close\r\n\r\n")?;
        expect_hello(&mut stream).context("the last one")?;
        expect_end(&mut stream)
    });
}

#[test]
fn what_is_no_request_ends_the_connection() {
    for_each(|entry| {
        let peer = entry.start_tcp(Service::Http, 1)?;
        let mut stream = peer.connect()?;
        stream.write_all(b"no request\r\n\r\n")?;
        let mut rest = String::new();
        stream.read_to_string(&mut rest)?;
        ensure!(rest.starts_with("HTTP/1.1 400 "), "{rest:?}");
        exchange(&mut peer.connect()?, Service::Http)
    });
}

#[test]
fn two_workers_serve_many_connections() {
    for_each_service(|entry, service| {
        let peer = entry.start_tcp(service, 2)?;
        let mut streams: Vec<_> = (0..64).map(|_| peer.connect()).collect::<Result<_>>()?;
        for _ in 0..3 {
            for stream in &mut streams {
                exchange(stream, service)?;
            }
        }
        Ok(())
    });
}

#[test]
fn a_unix_socket_serves_as_well() {
    let dir = std::env::temp_dir().join(format!("peer-tests-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory");
    for_each_service(|entry, service| {
        let path = dir.join(format!("{}.{}", entry.name, service.flag()));
        let listen = format!("unix:{}", path.display());
        if entry.binary == "glommio" {
            // This peer cannot listen there.
            let said = entry.output(&["--listen", &listen])?;
            ensure!(said.status.code() == Some(1), "{said:?}");
            ensure!(String::from_utf8(said.stderr)?.contains("IP:PORT only"), "no clear error");
            return Ok(());
        }
        // The second peer listens over the file that the first one leaves behind.
        for workers in [1, 2] {
            let peer = entry.start(&listen, service, workers)?;
            let mut streams = Vec::new();
            for _ in 0..10 {
                let mut stream = UnixStream::connect(&path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                exchange(&mut stream, service)?;
                streams.push(stream);
            }
            // A peer never replaces the file of a running server.
            let said = entry.output(&["--listen", &listen, "--service", service.flag()])?;
            ensure!(said.status.code() == Some(1), "a second server: {said:?}");
            drop((peer, streams));
            // The kernel ends a ring, and the operations in it, a little after the process.
            let ended = Instant::now();
            while UnixStream::connect(&path).is_ok() {
                ensure!(ended.elapsed() < PATIENCE, "something listens for ever");
                thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    });
    fs::remove_dir_all(&dir).expect("it can be removed");
}

#[test]
fn an_address_in_use_is_a_clear_error() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = taken.local_addr().expect("an address").to_string();
    for_each(|entry| {
        for workers in ["1", "2"] {
            let service = entry.services[0].flag();
            let args = ["--listen", &addr, "--workers", workers, "--service", service];
            let said = entry.output(&args)?;
            let text = String::from_utf8(said.stderr)?;
            ensure!(said.status.code() == Some(1), "{}", said.status);
            let expected = format!("{}: cannot listen on {addr}: ", entry.binary);
            ensure!(text.starts_with(&expected) && text.lines().count() == 1, "{text}");
        }
        Ok(())
    });
}

#[test]
fn a_second_peer_does_not_share_the_port() {
    for_each(|entry| {
        let peer = entry.start_tcp(entry.services[0], 2)?;
        let service = entry.services[0].flag();
        let args = ["--listen", &peer.addr, "--workers", "2", "--service", service];
        let said = entry.output(&args)?;
        ensure!(said.status.code() == Some(1), "{said:?}");
        Ok(())
    });
}

#[test]
fn wrong_flags_are_clear_errors() {
    for_each(|entry| {
        for (args, named) in [
            (&["--listen", "nowhere"][..], "nowhere"),
            (&["--workers", "0"], "--workers"),
            (&["--workers", "many"], "many"),
            (&["--service", "chess"], "chess"),
            (&["--variant", "imaginary"], "imaginary"),
            (&["--dance"], "--dance"),
            (&["--listen"], "--listen"),
        ] {
            // Without the entry's own flags, because no flag may be given twice.
            let said = Entry { args: Vec::new(), ..entry.clone() }.output(args)?;
            let text = String::from_utf8(said.stderr)?;
            ensure!(said.status.code() == Some(2), "{args:?}: {}", said.status);
            ensure!(text.contains(named), "{args:?}: {text}");
        }
        Ok(())
    });
}

#[test]
fn the_version_is_that_of_the_runtime() {
    for_each(|entry| {
        let said = entry.output(&["--version"])?;
        ensure!(said.status.success(), "{said:?}");
        let text = String::from_utf8(said.stdout)?;
        let words: Vec<_> = text.split_ascii_whitespace().collect();
        ensure!(words.len() == 3 && words[0] == entry.binary, "{text}");
        let mut numbers = words[2].split(['.', '-']);
        ensure!(numbers.next().is_some_and(|n| n.parse::<u32>().is_ok()), "{text}");
        Ok(())
    });
}

fn pid(peer: &mut Peer) -> Result<Pid> {
    Pid::from_raw(peer.child().id().cast_signed()).context("no process id")
}

#[test]
fn a_signal_ends_a_peer_at_once() {
    for_each(|entry| {
        for signal in [Signal::TERM, Signal::INT] {
            let mut peer = entry.start_tcp(entry.services[0], 2)?;
            let mut stream = peer.connect()?;
            exchange(&mut stream, entry.services[0])?;
            kill_process(pid(&mut peer)?, signal)?;
            let sent = Instant::now();
            let status = loop {
                if let Some(status) = peer.child().try_wait()? {
                    break status;
                }
                ensure!(sent.elapsed() < Duration::from_secs(5), "it goes on after {signal:?}");
                thread::sleep(Duration::from_millis(1));
            };
            ensure!(status.signal() == Some(signal.as_raw()), "{status}");
        }
        Ok(())
    });
}

#[test]
fn a_client_that_resets_harms_nobody() {
    for_each_service(|entry, service| {
        let peer = entry.start_tcp(service, 1)?;
        let mut other = peer.connect()?;
        exchange(&mut other, service)?;
        let request = match service {
            Service::Echo => frame(&payload(30_000)),
            Service::Http => GET.repeat(100),
        };
        for round in 0..60 {
            let mut stream = peer.connect()?;
            // The connections end in the middle of a request, after many requests, and without one.
            let sent = [&request[..2], &request[..], &request[..request.len() - 1], &[]];
            stream.write_all(sent[round % 4])?;
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
            drop(stream);
        }
        exchange(&mut other, service).context("on the connection before")?;
        exchange(&mut peer.connect()?, service).context("on a new connection")
    });
}

/// Returns the share of one CPU that a peer uses during this time.
fn cpu_share(peer: &Peer, during: Duration) -> Result<f64> {
    let (before, start) = (peer.cpu_ticks()?, Instant::now());
    thread::sleep(during);
    let used = Duration::from_millis((peer.cpu_ticks()? - before) * 10);
    Ok(used.as_secs_f64() / start.elapsed().as_secs_f64())
}

#[test]
fn a_peer_that_parks_uses_no_cpu_when_idle() {
    for_each_service(|entry, service| {
        if entry.idle == Idle::Spin {
            return Ok(());
        }
        let peer = entry.start_tcp(service, 2)?;
        let mut streams: Vec<_> = (0..8).map(|_| peer.connect()).collect::<Result<_>>()?;
        for stream in &mut streams {
            exchange(stream, service)?;
        }
        thread::sleep(Duration::from_millis(50));
        let share = cpu_share(&peer, Duration::from_millis(400))?;
        ensure!(share < 0.1, "{:.0} % of a CPU", share * 100.0);
        Ok(())
    });
}

#[test]
fn a_peer_without_descriptors_waits_and_goes_on() {
    for_each_service(|entry, service| {
        let mut peer = entry.start_tcp(service, 1)?;
        let mut first = peer.connect()?;
        exchange(&mut first, service)?;
        let open = fs::read_dir(format!("/proc/{}/fd", peer.child().id()))?.count() as u64;
        let limit = Rlimit { current: Some(open + 4), ..getrlimit(Resource::Nofile) };
        prlimit(Some(pid(&mut peer)?), Resource::Nofile, limit)?;
        // libuv accepts and closes connections for which there is no descriptor. The others leave
        // them in the kernel's queue.
        let waiting: Vec<_> = (0..30).map(|_| peer.connect()).collect::<Result<_>>()?;
        thread::sleep(Duration::from_millis(50));
        let share = cpu_share(&peer, Duration::from_millis(400))?;
        ensure!(share < 0.3 || entry.idle == Idle::Spin, "{:.0} % of a CPU", share * 100.0);
        exchange(&mut first, service).context("on the connection before")?;
        drop(waiting);
        exchange(&mut peer.connect()?, service).context("once there are some again")
    });
}

#[test]
fn every_connection_is_without_delay() {
    for_each_service(|entry, service| {
        let mut peer = entry.start_tcp(service, 1)?;
        let mut stream = peer.connect()?;
        exchange(&mut stream, service)?;
        ensure!(without_delay(&mut peer, &stream)?, "TCP_NODELAY is not set");
        Ok(())
    });
}

/// Returns whether the peer's end of the connection has `TCP_NODELAY`.
fn without_delay(peer: &mut Peer, ours: &TcpStream) -> Result<bool> {
    let (pid, client) = (pid(peer)?, ours.local_addr()?);
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    for entry in fs::read_dir(format!("/proc/{}/fd", pid.as_raw_pid()))? {
        let entry = entry?;
        if !fs::read_link(entry.path())?.to_string_lossy().starts_with("socket:") {
            continue;
        }
        let fd = entry.file_name().to_string_lossy().parse()?;
        let socket = socket2::Socket::from(pidfd_getfd(&process, fd, PidfdGetfdFlags::empty())?);
        if socket.peer_addr().ok().and_then(|addr| addr.as_socket()) == Some(client) {
            return Ok(socket.tcp_nodelay()?);
        }
    }
    bail!("the peer has no such connection")
}
