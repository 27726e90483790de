//! TCP Fast Open where it is allowed and the kernel has a cookie: each test runs in a network
//! namespace of its own, in a process of its own. It needs root, `unshare` and `ip`.

use std::env;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use wakeful::net::{TcpListener, TcpSocket, TcpState, TcpStream};
use wakeful::spawn;
use wakeful::time::timeout;

const INSIDE: &str = "WAKEFUL_TEST_INSIDE";
/// The exit code of the script if there is no such namespace.
const CANNOT: i32 = 77;

/// Runs `test`, which has this name, in such a namespace.
fn with_fast_open(name: &str, test: impl FnOnce()) {
    if env::var_os(INSIDE).is_some() {
        return test();
    }
    let script = format!(
        r#"ip link set lo up && echo 3 >/proc/sys/net/ipv4/tcp_fastopen || exit {CANNOT}
        exec "$0" --exact "$1""#
    );
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", &script]).arg(env::current_exe().unwrap()).arg(name);
    let output = match command.env(INSIDE, "1").output() {
        Ok(output) => output,
        Err(error) => return eprintln!("skipped: {name}: unshare: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(CANNOT) || said.starts_with("unshare:") {
        return eprintln!("skipped: {name}: {said}");
    }
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && out.contains("1 passed"), "{out}{said}");
}

/// Waits for what has to come.
async fn soon<F: Future>(future: F) -> F::Output {
    timeout(Duration::from_secs(30), future).await.expect("an event was lost")
}

fn listener() -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_fastopen_backlog(16).unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    socket.listen(16).unwrap()
}

async fn connect(addr: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_fastopen_connect(true).unwrap();
    soon(socket.connect(addr)).await.unwrap()
}

/// The server gives this machine a cookie with the first connection.
async fn get_a_cookie(listener: &TcpListener) {
    let client = connect(listener.local_addr().unwrap()).await;
    assert_eq!(client.tcp_info().unwrap().state, TcpState::Established);
    soon(listener.accept()).await.unwrap();
}

fn forget_cookies() {
    let flushed = Command::new("ip").args(["tcp_metrics", "flush"]).status().unwrap();
    assert!(flushed.success());
}

#[test]
fn a_write_travels_with_the_request_to_connect() {
    with_fast_open("a_write_travels_with_the_request_to_connect", || {
        wakeful::block_on(async {
            let listener = listener();
            let addr = listener.local_addr().unwrap();
            get_a_cookie(&listener).await;
            for length in [5, 1_000_000] {
                let mut client = connect(addr).await;
                // Nothing was sent.
                assert_eq!(client.tcp_info().unwrap().state, TcpState::SynSent);
                let mut buf = vec![0; 10_000];
                let brief = Duration::from_millis(10);
                assert!(timeout(brief, client.read(&mut buf)).await.is_err());
                let sending = spawn(async move {
                    client.write_all(&vec![7; length]).await.unwrap();
                    let mut answer = [0; 8];
                    let read = client.read(&mut answer).await.unwrap();
                    answer[..read].to_vec()
                });
                let (mut server, _) = soon(listener.accept()).await.unwrap();
                let mut got = 0;
                while got < length {
                    got += soon(server.read(&mut buf)).await.unwrap();
                }
                server.write_all(b"done").await.unwrap();
                assert_eq!(soon(sending).await.unwrap(), b"done");
            }

            // If nothing listens any more, the first operation after the write reports that.
            drop(listener);
            let mut client = connect(addr).await;
            client.write_all(b"hello").await.unwrap();
            let error = soon(client.read(&mut [0; 8])).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        });
    });
}

#[test]
fn a_write_waits_for_the_connection_if_the_cookie_is_gone() {
    with_fast_open("a_write_waits_for_the_connection_if_the_cookie_is_gone", || {
        wakeful::block_on(async {
            let listener = listener();
            let addr = listener.local_addr().unwrap();
            for way in ["write", "try_write"] {
                // A request to connect may have brought one already.
                forget_cookies();
                get_a_cookie(&listener).await;
                let mut client = connect(addr).await;
                assert_eq!(client.tcp_info().unwrap().state, TcpState::SynSent);
                forget_cookies();
                if way == "write" {
                    soon(client.write_all(b"hello")).await.unwrap();
                } else {
                    let error = client.try_write(b"hello").unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    soon(client.writable()).await.unwrap();
                    assert_eq!(client.try_write(b"hello").unwrap(), 5);
                }
                let (mut server, _) = soon(listener.accept()).await.unwrap();
                let mut buf = [0; 8];
                assert_eq!(soon(server.read(&mut buf)).await.unwrap(), 5);
            }
        });
    });
}
