//! `wakeful serve http` with TLS: its options, its log, and the reload by a signal.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http1;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use wakeful::net::TcpStream;
use wakeful_services::tls::{Alpn, CertificateDer, ClientTls};

const PROGRAM: &str = env!("CARGO_BIN_EXE_wakeful");

struct Files {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Files {
    fn new(name: &str) -> Self {
        let name = format!("wakeful-cli-tls-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        std::fs::write(directory.join("ca.pem"), pem).unwrap();
        let this = Self { directory, issuer: Issuer::new(params, key) };
        this.issue("server");
        this
    }

    /// Writes a new certificate for localhost, and its key. Returns the certificate.
    fn issue(&self, name: &str) -> CertificateDer<'static> {
        self.issue_with(name, |_| ())
    }

    fn issue_with(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        certificate.der().clone()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn serve(&self) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "http", "--listen", "127.0.0.1:0", "--loops", "1", "--tls-cert"]);
        command.arg(self.path("server.pem")).arg("--tls-key").arg(self.path("server.key"));
        command
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

struct Server {
    child: Child,
    stderr: BufReader<ChildStderr>,
    addr: String,
    /// The lines that were read so far.
    said: Vec<String>,
}

impl Server {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut this = Self { child, stderr, addr: String::new(), said: Vec::new() };
        let line = this.until_line_with("listening on https://");
        let rest = line.split("https://").nth(1).unwrap();
        rest.split(',').next().unwrap().clone_into(&mut this.addr);
        this
    }

    fn until_line_with(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.stderr.read_line(&mut line).unwrap() > 0, "it ended early");
            self.said.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// What the server shows.
    fn certificate(&self, tls: &ClientTls) -> CertificateDer<'static> {
        wakeful::block_on(async {
            let stream = TcpStream::connect(self.addr.as_str()).await.unwrap();
            let stream = tls.connect(stream, "localhost").await.unwrap();
            stream.peer_certificates().unwrap()[0].clone()
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn client(ca: &Path) -> ClientTls {
    ClientTls::builder().ca(ca).build().unwrap()
}

#[test]
fn hangup_reloads_the_certificate_and_a_bad_file_keeps_the_old_one_and_says_why() {
    let files = Files::new("hangup");
    let tls = client(&files.path("ca.pem"));
    let mut server = Server::start(&mut files.serve());
    let renewed = files.issue("server");
    assert_ne!(server.certificate(&tls), renewed);
    server.signal("-HUP");
    server.until_line_with("reloaded");
    assert_eq!(server.certificate(&tls), renewed);
    std::fs::write(files.path("server.pem"), "garbage").unwrap();
    server.signal("-HUP");
    let line = server.until_line_with("cannot reload");
    assert!(line.contains("server.pem: no certificate in it"), "{line}");
    assert_eq!(server.certificate(&tls), renewed);
    server.signal("-TERM");
    server.until_line_with("drained");
    assert!(server.child.wait().unwrap().success());
}

/// And a reload refuses one.
#[test]
fn a_certificate_whose_time_is_not_now_is_a_warning_at_the_start() {
    let files = Files::new("time");
    let expired = |params: &mut CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
    let early = |params: &mut CertificateParams| params.not_before = date_time_ymd(4000, 1, 1);
    for (change, why) in [
        (&expired as &dyn Fn(&mut CertificateParams), "the certificate has expired"),
        (&early, "the certificate is not valid yet"),
    ] {
        files.issue_with("server", change);
        let mut server = Server::start(&mut files.serve());
        let warns = |line: &&String| line.contains("WARN") && line.contains("server.pem");
        let warning = server.said.iter().find(warns);
        let warning = warning.unwrap_or_else(|| panic!("{why}: {:?}", server.said));
        assert!(warning.contains(why), "{warning}");
        files.issue_with("server", change);
        server.signal("-HUP");
        let line = server.until_line_with("cannot reload");
        assert!(line.contains("server.pem") && line.contains(why), "{line}");
    }
}

#[test]
fn a_session_goes_on_with_another_worker() {
    session_goes_on_with_another_worker("tickets", &["--workers", "1"]);
}

#[test]
fn a_session_goes_on_with_another_worker_that_is_executed() {
    session_goes_on_with_another_worker("executed", &["--workers", "1", "--exec"]);
}

fn session_goes_on_with_another_worker(name: &str, options: &[&str]) {
    let files = Files::new(name);
    let tls = ClientTls::builder().ca(files.path("ca.pem")).protocols(&[Alpn::Http1]);
    let tls = tls.build().unwrap();
    let mut server = Server::start(files.serve().args(options));
    // The lines of the master and of the worker come in any order.
    let is_resumed = |server: &Server| {
        wakeful::block_on(async {
            let stream = TcpStream::connect(server.addr.as_str()).await.unwrap();
            let stream = tls.connect(stream, "localhost").await.unwrap();
            let is_resumed = stream.is_resumed();
            // Tickets arrive after the handshake.
            let (mut sender, connection) = http1::handshake(stream).await.unwrap();
            wakeful::spawn(connection).detach();
            let request = Request::get("/healthz").header("host", "localhost");
            let answer = sender.send_request(request.body(Empty::<&[u8]>::new()).unwrap()).await;
            assert_eq!(answer.unwrap().collect().await.unwrap().to_bytes(), "ok\n");
            is_resumed
        })
    };
    assert!(!is_resumed(&server));
    server.signal("-HUP");
    server.until_line_with("replacing the workers");
    server.until_line_with("all workers accept");
    assert!(is_resumed(&server));
}

#[test]
fn files_that_changed_are_noticed() {
    let files = Files::new("interval");
    let tls = client(&files.path("ca.pem"));
    let mut server = Server::start(files.serve().args(["--tls-reload-interval", "0.01"]));
    let renewed = files.issue("server");
    // Between the two files it may have found that they do not belong together.
    server.until_line_with("were reloaded");
    assert_eq!(server.certificate(&tls), renewed);
}

#[test]
fn what_cannot_be_served_by_tls_is_one_line_and_exit_code_1_bad_usage_2() {
    let files = Files::new("usage");
    let missing = files.path("missing.pem");
    let mut command = files.serve();
    let output = command.arg("--tls-client-ca").arg(&missing).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains(missing.to_str().unwrap()), "{text}");
    for (arguments, says) in [
        (&["--tls-cert", "a"][..], "--tls-key"),
        (&["--tls-key", "a"], "--tls-cert"),
        (&["--tls-cert", "a", "--tls-cert", "b", "--tls-key", "a"], "go in pairs: 2 and 1"),
        (&["--tls-client-auth", "request"], "--tls-client-ca"),
        (&["--tls-min-version", "1.1"], "1.2"),
        (&["--tls-reload-interval", "0"], "more than 0"),
    ] {
        let output = Command::new(PROGRAM).args(["serve", "http"]).args(arguments).output();
        let output = output.unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(says), "{arguments:?}: {text}");
    }
}
