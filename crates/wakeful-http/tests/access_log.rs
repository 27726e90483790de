//! The access log: a line for each request that says what became of it, whoever leaves in between,
//! and however slow the destination is.

mod common;

use std::convert::Infallible;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::routing::get;
use common::{GUARD, Gate, addr, http2_client, raw, read_all, request, router, server, until};
use futures_lite::stream;
use http::HeaderMap;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use serde_json::Value;
use tempfile::TempDir;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use wakeful::LoopGroup;
use wakeful_http::access_log::{AccessLog, Destination, Format, Query};
use wakeful_http::observe::{Observe, RequestIds, TraceContext};
use wakeful_http::{Limits, Running, Server};

struct Logging {
    running: Running,
    log: AccessLog,
    dir: TempDir,
}

impl Logging {
    fn new(format: Format, query: Query) -> Self {
        Self::with(format, query, |observe| observe)
    }

    fn with(format: Format, query: Query, settings: impl FnOnce(Observe) -> Observe) -> Self {
        Self::of(app(), format, query, settings)
    }

    fn of(
        app: Router,
        format: Format,
        query: Query,
        settings: impl FnOnce(Observe) -> Observe,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let destination = Destination::File(dir.path().join("log"));
        let log = AccessLog::new(format, destination, query).unwrap();
        let observe = settings(Observe::new().access_log(log.clone()));
        let running = server().observe(observe).start(app).unwrap();
        Self { running, log, dir }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = raw(&self.running);
        stream.write_all(request.as_bytes()).unwrap();
        read_all(stream)
    }

    /// Ends the server; what the log says then is all.
    fn text(self) -> String {
        let file = self.file();
        self.running.shutdown(GUARD).unwrap();
        assert_eq!(self.log.dropped(), 0);
        let text = fs::read_to_string(file).unwrap();
        assert_eq!(self.log.written(), text.lines().count() as u64);
        text
    }

    fn lines(self) -> Vec<Value> {
        parse(&self.text())
    }
}

/// Makes a FIFO, and opens it for reading without waiting for a writer. Reads do not wait either.
fn fifo(path: &Path) -> File {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path).unwrap()
}

fn parse(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn app() -> Router {
    // In pieces, of which the connection takes a few ahead of the client.
    static PIECE: &str = match std::str::from_utf8(&[b'w'; 1 << 20]) {
        Ok(piece) => piece,
        Err(_) => "",
    };
    let long = || async { Body::new(Pieces((0..256).map(|_| Ok(PIECE)).collect())) };
    let broken = || async {
        let pieces = [Ok("some"), Err(std::io::Error::other("broken"))];
        Body::new(Pieces(pieces.into_iter().collect()))
    };
    let announced = || async {
        let pieces = ["four", "more"].map(Ok);
        ([("content-length", "8")], Body::new(Pieces(pieces.into_iter().collect())))
    };
    // Which says of itself only when it is asked that nothing comes.
    let nothing = || async {
        (
            [("content-length", "0")],
            Body::from_stream(stream::empty::<Result<&str, std::io::Error>>()),
        )
    };
    router()
        .route("/announced", get(announced))
        .route("/nothing", get(nothing))
        .route("/long", get(long))
        .route("/broken", get(broken))
        .route("/none", get(|| async { StatusCode::NO_CONTENT }))
}

/// A body of unknown length.
struct Pieces(std::collections::VecDeque<std::io::Result<&'static str>>);

impl http_body::Body for Pieces {
    type Data = bytes::Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<std::io::Result<http_body::Frame<bytes::Bytes>>>> {
        let piece = self.0.pop_front();
        std::task::Poll::Ready(
            piece.map(|piece| piece.map(|text| http_body::Frame::data(text.into()))),
        )
    }
}

#[test]
fn a_request_is_a_line_with_what_is_known_of_it() {
    let logging = Logging::with(Format::Json, Query::Log, |observe| {
        observe.request_ids(RequestIds::Accept).trace_context(TraceContext::Continue)
    });
    let addr = {
        let mut stream = raw(&logging.running);
        let request = "POST /echo?a=%22b%22 HTTP/1.1\r\nhost: x\r\nuser-agent: \"hostile\\\r\nreferer: http://r/\r\ncontent-length: 5\r\n\
            x-request-id: id-1\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nconnection: close\r\n\r\nhello";
        stream.write_all(request.as_bytes()).unwrap();
        let addr = stream.local_addr().unwrap();
        assert!(read_all(stream).ends_with("hello"));
        addr
    };
    let lines = logging.lines();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    for (field, value) in [
        ("peer", addr.to_string().as_str()),
        ("method", "POST"),
        ("path", "/echo"),
        ("query", "a=%22b%22"),
        ("protocol", "HTTP/1.1"),
        ("user_agent", "\"hostile\\"),
        ("referer", "http://r/"),
        ("request_id", "id-1"),
        ("trace_id", "0af7651916cd43dd8448eb211c80319c"),
    ] {
        assert_eq!(line[field], value, "{field}");
    }
    assert_eq!((&line["status"], &line["bytes"]), (&200.into(), &5.into()));
    assert_eq!(line["aborted"], false);
    assert!(line["duration_us"].is_u64());
    assert!(line["time"].as_str().unwrap().ends_with('Z'));
}

#[test]
fn the_path_of_connect_is_its_target_without_a_password() {
    let logging = Logging::new(Format::Json, Query::Omit);
    for target in ["example.com:443", "name:secret@example.com:443"] {
        let head = format!("CONNECT {target} HTTP/1.1\r\nhost: example.com:443");
        logging.ask(&format!("{head}\r\nconnection: close\r\n\r\n"));
    }
    let lines = logging.lines();
    assert_eq!(lines.len(), 2);
    for line in lines {
        assert_eq!(
            (&line["method"], &line["path"]),
            (&"CONNECT".into(), &"example.com:443".into())
        );
    }
}

#[test]
fn a_line_that_an_earlier_process_has_cut_damages_no_other_line() {
    for (before, lines) in [("", 1), ("{}\n", 2), ("{}\n{", 3)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, before).unwrap();
        let destination = Destination::File(path.clone());
        let log = AccessLog::new(Format::Json, destination, Query::Omit).unwrap();
        let running =
            server().observe(Observe::new().access_log(log.clone())).start(app()).unwrap();
        common::is_served(&running);
        running.shutdown(GUARD).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!((text.lines().count(), log.written()), (lines, 1), "{text}");
        assert_eq!(parse(text.lines().last().unwrap())[0]["path"], "/");
    }
}

#[test]
fn what_the_limits_refuse_is_logged_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let destination = Destination::File(dir.path().join("log"));
    let log = AccessLog::new(Format::Json, destination, Query::Omit).unwrap();
    let limits = Limits::new().max_body(3);
    let observe = Observe::new().access_log(log).request_ids(RequestIds::Replace);
    let running = server().limits(limits).observe(observe).start(app()).unwrap();
    let mut stream = raw(&running);
    stream.write_all(b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello").unwrap();
    let answer = read_all(stream);
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("x-request-id: "), "{answer}");
    running.shutdown(GUARD).unwrap();
    let lines = parse(&fs::read_to_string(dir.path().join("log")).unwrap());
    assert_eq!((&lines[0]["status"], &lines[0]["path"]), (&413.into(), &"/echo".into()));
}

#[test]
fn queries_are_left_out_unless_asked_for() {
    let logging = Logging::new(Format::Json, Query::Omit);
    logging.ask("GET /?token=secret HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let text = logging.text();
    assert!(text.contains("\"path\":\"/\"") && !text.contains("secret"), "{text}");
}

#[test]
fn the_combined_format_keeps_hostile_bytes_within_their_quotes() {
    let logging = Logging::new(Format::Combined, Query::Log);
    let mut stream = raw(&logging.running);
    let request =
        b"GET /?a HTTP/1.1\r\nhost: x\r\nuser-agent: a\"\xe9\\\tb\r\nconnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    read_all(stream);
    let text = logging.text();
    assert!(text.starts_with("127.0.0.1 - - ["), "{text}");
    let expected = r#"+0000] "GET /?a HTTP/1.1" 200 5 "-" "a\x22\xE9\x5C\x09b""#;
    assert!(text.ends_with(&format!("{expected}\n")), "{text}");
}

#[test]
fn answers_without_a_body_are_complete() {
    let logging = Logging::new(Format::Json, Query::Omit);
    for line in ["HEAD /", "GET /none", "GET /missing", "HEAD /long", "POST /echo"] {
        logging.ask(&format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"));
    }
    let lines = logging.lines();
    // The lines of two loops, in any order.
    let mut statuses: Vec<_> = lines.iter().map(|line| line["status"].as_u64().unwrap()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 200, 204, 404]);
    for line in lines {
        assert_eq!((&line["aborted"], &line["bytes"]), (&false.into(), &0.into()), "{line}");
    }
}

/// hyper asks a body for no more than its response has announced.
#[test]
fn a_stream_whose_length_was_announced_is_complete_with_its_last_byte() {
    let logging = Logging::new(Format::Json, Query::Omit);
    let request = "GET /announced HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert!(logging.ask(request).ends_with("fourmore"));
    logging.ask("GET /nothing HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let lines = logging.lines();
    assert_eq!((&lines[0]["aborted"], &lines[0]["bytes"]), (&false.into(), &8.into()));
    assert_eq!((&lines[1]["aborted"], &lines[1]["bytes"]), (&false.into(), &0.into()));
}

/// hyper asks a body for no more than its trailers, and a stream does not know that it has ended.
#[test]
fn a_stream_that_ends_with_trailers_is_complete() {
    let answer = || async {
        let frames = [Frame::data(Bytes::from("four")), Frame::trailers(HeaderMap::new())];
        Body::new(StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>))))
    };
    let app = Router::new().route("/", get(answer));
    let logging = Logging::of(app, Format::Json, Query::Omit, |observe| observe);
    logging.ask("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    wakeful::block_on(async {
        let mut client = http2_client(addr(&logging.running)).await;
        let response = client.send_request(request("GET", "/", "")).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "four");
    });
    for line in logging.lines() {
        assert_eq!((&line["aborted"], &line["bytes"]), (&false.into(), &4.into()), "{line}");
    }
}

#[test]
fn who_leaves_early_is_marked() {
    let (gate, app) = Gate::on(app());
    let logging = Logging::of(app, Format::Json, Query::Omit, |observe| observe);
    let mut stream = raw(&logging.running);
    stream.write_all(b"GET /long HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 1024]).unwrap();
    drop(stream);
    logging.ask("GET /broken HTTP/1.1\r\nhost: x\r\n\r\n");
    // Over HTTP/2 a client may cancel a request while its handler runs.
    let addr = addr(&logging.running);
    wakeful::block_on(async {
        let mut client = http2_client(addr).await;
        let gated = client.send_request(request("GET", "/gated", ""));
        let left = async {
            gate.one_entered().await;
            None
        };
        // Dropped when the handler runs.
        assert!(futures_lite::future::or(async { Some(gated.await) }, left).await.is_none());
        let response = client.send_request(request("GET", "/", "")).await.unwrap();
        response.into_body().collect().await.unwrap();
    });
    until("three are given up, and one is not", || {
        parse(&fs::read_to_string(logging.file()).unwrap()).len() == 4
    });
    let lines = logging.lines();
    let of = |path: &str| lines.iter().find(|line| line["path"] == path).expect(path);
    for path in ["/long", "/broken", "/gated"] {
        assert_eq!(of(path)["aborted"], true, "{path}");
    }
    assert_eq!((&of("/")["aborted"], &of("/")["protocol"]), (&false.into(), &"HTTP/2.0".into()));
    assert_eq!(of("/gated")["status"], Value::Null);
    assert_eq!((&of("/broken")["status"], &of("/broken")["bytes"]), (&200.into(), &4.into()));
    assert!((1..256 << 20).contains(&of("/long")["bytes"].as_u64().unwrap()));
}

#[test]
fn what_the_end_of_the_grace_aborts_is_logged() {
    let logging = Logging::new(Format::Json, Query::Omit);
    let mut stream = raw(&logging.running);
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET /never HTTP/1.1\r\nhost: x\r\n\r\n")
        .unwrap();
    stream.read_exact(&mut [0; 17]).unwrap();
    until("the first line is there", || {
        fs::read_to_string(logging.file()).unwrap().contains("\"/\"")
    });
    let file = logging.file();
    assert_eq!(logging.running.shutdown(std::time::Duration::ZERO).unwrap(), 1);
    let lines = parse(&fs::read_to_string(file).unwrap());
    assert_eq!((&lines[1]["path"], &lines[1]["aborted"]), (&"/never".into(), &true.into()));
}

#[test]
fn lines_of_many_loops_stay_whole_and_none_is_missing() {
    let logging = Logging::new(Format::Json, Query::Omit);
    let addr = addr(&logging.running);
    wakeful::block_on(async {
        let clients: Vec<_> = (0..40)
            .map(|number| {
                wakeful::spawn(async move {
                    let mut client = http2_client(addr).await;
                    for _ in 0..25 {
                        let path = format!("/n/{number}");
                        let response = client.send_request(request("GET", &path, "")).await;
                        response.unwrap().into_body().collect().await.unwrap();
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
    });
    let lines = logging.lines();
    assert_eq!(lines.len(), 1000);
    assert!(lines.iter().all(|line| line["status"] == 200 && line["aborted"] == false));
}

#[test]
fn a_line_comes_without_a_second_request_and_a_rotated_file_is_left() {
    let logging = Logging::new(Format::Common, Query::Omit);
    let ask = || logging.ask("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let lines = |path: &Path| fs::read_to_string(path).unwrap_or_default().lines().count();
    ask();
    until("the line is written", || lines(&logging.file()) == 1);
    let rotated = logging.dir.path().join("log.1");
    fs::rename(logging.file(), &rotated).unwrap();
    ask();
    until("it goes on in the old file", || lines(&rotated) == 2);
    logging.log.reopen();
    ask();
    until("it goes on in the new file", || lines(&logging.file()) == 1);
    assert_eq!(lines(&rotated), 2);
    // A directory that is gone: it continues in what it has.
    fs::rename(logging.dir.path(), logging.dir.path().with_extension("gone")).unwrap();
    logging.log.reopen();
    ask();
    let gone = logging.dir.path().with_extension("gone");
    until("it goes on in the file that it has", || lines(&gone.join("log")) == 2);
    // It is tried again, although nobody asks for that: without a free descriptor, for example, the
    // one request of a rotation would be lost.
    fs::rename(gone.join("log"), gone.join("log.2")).unwrap();
    fs::rename(gone, logging.dir.path()).unwrap();
    ask();
    until("it goes on in the new file after all", || lines(&logging.file()) == 1);
}

#[test]
fn a_destination_that_fails_costs_lines_which_are_counted() {
    let destination = Destination::File("/dev/full".into());
    let log = AccessLog::new(Format::Json, destination, Query::Omit).unwrap();
    let observe = Observe::new().access_log(log.clone());
    let running = server().observe(observe).start(app()).unwrap();
    for _ in 0..3 {
        let mut stream = raw(&running);
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        assert!(read_all(stream).ends_with("hello"));
    }
    running.shutdown(GUARD).unwrap();
    assert_eq!((log.written(), log.dropped()), (0, 3));
    let missing = Destination::File("/nowhere/at/all".into());
    let error = AccessLog::new(Format::Json, missing, Query::Omit).unwrap_err().to_string();
    assert!(error.contains("/nowhere/at/all"), "{error}");
}

/// More than the pipe and the channel hold: 64 KiB and 256 buffers.
const REQUESTS: u64 = 6000;

#[test]
fn a_pipe_that_nobody_reads_is_left_when_the_log_is_reopened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let log = AccessLog::new(Format::Json, Destination::File(path.clone()), Query::Omit).unwrap();
    let group = LoopGroup::builder().loops(1);
    let observe = Observe::new().access_log(log.clone());
    let server = Server::bind("127.0.0.1:0").unwrap().group(group).observe(observe);
    let running = server.start(app()).unwrap();
    let agent = "a".repeat(4000);
    let request =
        format!("GET / HTTP/1.1\r\nhost: x\r\nuser-agent: {agent}\r\nconnection: close\r\n\r\n");
    let ask = || {
        let mut stream = raw(&running);
        stream.write_all(request.as_bytes()).unwrap();
        assert!(read_all(stream).starts_with("HTTP/1.1 200 "));
    };
    // More than the pipe holds: the writer waits for a reader.
    (0..40).for_each(|_| ask());
    fs::remove_file(&path).unwrap();
    log.reopen();
    until("the log is opened anew", || path.exists());
    ask();
    running.shutdown(GUARD).unwrap();
    until("all lines are written", || log.written() == 41);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.lines().count() > 20, "{}", text.lines().count());
    for line in text.lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
}

#[test]
fn a_slow_reader_gets_the_lines_that_were_handed_over_before_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    let reader = fifo(&path);
    rustix::fs::fcntl_setfl(&reader, OFlags::empty()).unwrap();
    let log = AccessLog::new(Format::Combined, Destination::File(path), Query::Omit).unwrap();
    let observe = Observe::new().access_log(log.clone());
    let group = LoopGroup::builder().loops(1);
    let server = Server::bind("127.0.0.1:0").unwrap().group(group).observe(observe);
    let running = server.start(app()).unwrap();
    // The loop hands over 16 lines of this length at once, so it has none left at its end.
    let agent = "a".repeat(4096);
    let request = format!("GET / HTTP/1.1\r\nhost: x\r\nuser-agent: {agent}\r\n\r\n");
    let mut stream = raw(&running);
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    for _ in 0..40 {
        stream.write_all(request.repeat(16).as_bytes()).unwrap();
        for _ in 0..16 {
            while answers.by_ref().lines().next().unwrap().unwrap() != "" {}
            answers.read_exact(&mut [0; 5]).unwrap();
        }
    }
    drop((stream, answers));
    until("the requests have ended", || running.http_counts().in_flight() == 0);
    let reading = thread::spawn(move || BufReader::with_capacity(4096, reader).lines().count());
    running.shutdown(GUARD).unwrap();
    assert_eq!((log.written(), log.dropped()), (640, 0));
    drop(log);
    assert_eq!(reading.join().unwrap(), 640);
}

#[test]
fn a_reader_that_stands_still_holds_up_no_request_and_the_log_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    let reader = fifo(&path);
    let log = AccessLog::new(Format::Json, Destination::File(path), Query::Omit).unwrap();
    let observe = Observe::new().access_log(log.clone());
    let group = LoopGroup::builder().loops(1);
    let server = Server::bind("127.0.0.1:0").unwrap().group(group).observe(observe);
    let running = server.start(app()).unwrap();
    let agent = "a".repeat(4096);
    let request = format!("GET / HTTP/1.1\r\nhost: x\r\nuser-agent: {agent}\r\n\r\n");
    let mut stream = raw(&running);
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    for _ in 0..REQUESTS {
        stream.write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        while line.trim() != "" || line.is_empty() {
            line.clear();
            assert!(answers.read_line(&mut line).unwrap() > 0, "the connection was closed");
        }
        answers.read_exact(&mut [0; 5]).unwrap();
    }
    assert!(log.dropped() > 0);
    // The reader continues.
    let copy = reader.try_clone().unwrap();
    rustix::fs::fcntl_setfl(&copy, OFlags::empty()).unwrap();
    let reading = thread::spawn(move || {
        let lines = BufReader::new(reader).lines();
        lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap()).collect::<Vec<_>>()
    });
    drop(stream);
    drop(answers);
    running.shutdown(GUARD).unwrap();
    // Not before the loop has given its last lines away.
    assert!(log.flush(GUARD));
    let (dropped, written) = (log.dropped(), log.written());
    drop(log);
    let lines = reading.join().unwrap();
    let told: u64 = lines.iter().filter_map(|line| line["dropped"].as_u64()).sum();
    let there = lines.iter().filter(|line| line.get("dropped").is_none()).count() as u64;
    assert_eq!((told, there), (dropped, written));
    assert_eq!(told + there, REQUESTS);
}

/// What the program's log says of each access log: its path, and the number of dropped lines.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<(String, u64)>>>);

impl Told {
    fn of(&self, path: &Path) -> Vec<u64> {
        let path = path.to_str().unwrap();
        let told = self.0.lock().unwrap();
        told.iter().filter(|(of, _)| of == path).map(|(_, lines)| *lines).collect()
    }
}

impl<S: tracing::Subscriber> Layer<S> for Told {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        struct Fields(String, u64);
        impl Visit for Fields {
            fn record_u64(&mut self, field: &Field, value: u64) {
                if field.name() == "lines" {
                    self.1 = value;
                }
            }
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                if field.name() == "path" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut fields = Fields(String::new(), 0);
        event.record(&mut fields);
        self.0.lock().unwrap().push((fields.0, fields.1));
    }
}

/// The only test with a subscriber, because it is the process's: the writer has its own thread.
#[test]
fn dropped_lines_are_logged_at_most_once_a_second_with_their_sum_and_none_is_left_out() {
    let told = Told::default();
    let layer = told.clone().with_filter(LevelFilter::WARN);
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer)).unwrap();
    for by_the_end in [false, true] {
        drop_lines_and_check(&told, by_the_end);
    }
}

/// The last ones are told by the end, or by a later line.
fn drop_lines_and_check(told: &Told, by_the_end: bool) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    let reader = fifo(&path);
    rustix::fs::fcntl_setfl(&reader, OFlags::empty()).unwrap();
    let file = Destination::File(path.clone());
    let log = AccessLog::new(Format::Json, file, Query::Omit).unwrap();
    let observe = Observe::new().access_log(log.clone());
    let group = LoopGroup::builder().loops(1);
    let server = Server::bind("127.0.0.1:0").unwrap().group(group).observe(observe);
    let running = server.start(app()).unwrap();
    let began = Instant::now();
    // The loop hands over 16 lines of this length at once.
    let agent = "a".repeat(4096);
    let request = format!("GET / HTTP/1.1\r\nhost: x\r\nuser-agent: {agent}\r\n\r\n");
    let mut stream = raw(&running);
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut ask = || {
        stream.write_all(request.repeat(16).as_bytes()).unwrap();
        for _ in 0..16 {
            while answers.by_ref().lines().next().unwrap().unwrap() != "" {}
            answers.read_exact(&mut [0; 5]).unwrap();
        }
    };
    while log.dropped() == 0 {
        assert!(began.elapsed() < GUARD, "nothing is dropped");
        ask();
    }
    // Now the queue is full, and gets twice as much as the reader takes.
    let (mut lines, mut notes) = (BufReader::new(reader).lines().map(Result::unwrap), 0);
    while notes < 20 {
        assert!(began.elapsed() < GUARD, "{notes} notes came");
        (0..2).for_each(|_| ask());
        notes += lines.by_ref().take(16).filter(|line| line.contains("\"dropped\":")).count();
    }
    let times = told.of(&path).len() as u64;
    let seconds = began.elapsed().as_secs();
    assert!((1..=seconds + 1).contains(&times), "{:?}", told.of(&path));
    let reading = thread::spawn(move || lines.count());
    let is_all_told = || told.of(&path).iter().sum::<u64>() == log.dropped();
    if by_the_end {
        drop((stream, answers));
        running.shutdown(GUARD).unwrap();
        // Not before the loop has given its last lines away.
        assert!(log.flush(GUARD));
        assert!(is_all_told(), "{:?} of {}", told.of(&path), log.dropped());
    } else {
        until("all are told", || {
            ask();
            is_all_told()
        });
        drop((stream, answers));
        running.shutdown(GUARD).unwrap();
    }
    drop(log);
    reading.join().unwrap();
}

#[test]
fn a_request_whose_span_panics_has_its_line_too() {
    let span = |_: wakeful_http::observe::Head<'_>| panic!("of a span, on purpose");
    let logging = Logging::with(Format::Json, Query::Omit, |observe| observe.span(span));
    let answer = logging.ask("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    assert_eq!(logging.lines()[0]["status"], 500);
}
