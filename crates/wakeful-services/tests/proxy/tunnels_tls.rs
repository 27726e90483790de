//! A tunnel whose client speaks TLS, and takes nothing.

use std::future::poll_fn;
use std::io::Write;
use std::net::Shutdown;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;
use std::{fs, process};

use hyper::rt::{Read as _, ReadBuf, Write as _};
use wakeful::accept::SharedListener;
use wakeful::net::UnixStream;
use wakeful_services::proxy::{self, ProxyOptions};
use wakeful_services::tls::{Alpn, ClientTls, ServerTls, TlsStream};

use crate::common::*;
use crate::upgrades::{ASK, SWITCH};

/// How many bytes the backend sends: those that the kernel takes, those of which TLS keeps a part,
/// and those of which the tunnel itself does.
const SIZES: [usize; 24] = {
    let mut sizes = [0; 24];
    let mut number = 0;
    while number < sizes.len() {
        sizes[number] = number * 24 * 1024;
        number += 1;
    }
    sizes
};

struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("wakeful-tunnels-tls-{}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Opens a tunnel, and reads nothing behind the answer's head.
async fn open(stream: &mut TlsStream<UnixStream>, ask: &str) {
    let ask = ask.as_bytes();
    let written = poll_fn(|cx| Pin::new(&mut *stream).poll_write(cx, ask)).await;
    assert_eq!(written.unwrap(), ask.len());
    poll_fn(|cx| Pin::new(&mut *stream).poll_flush(cx)).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        let mut buf = ReadBuf::new(&mut byte);
        poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, buf.unfilled())).await.unwrap();
        assert_eq!(buf.filled().len(), 1, "{}", String::from_utf8_lossy(&head));
        head.push(byte[0]);
    }
    assert_status(&String::from_utf8(head).unwrap(), 101);
}

#[test]
fn a_tunnel_whose_client_takes_nothing_over_tls_waits_no_longer_than_for_a_response() {
    let backend = Backend::start(|this, stream| {
        let asked = this.read(stream).unwrap();
        let size = asked.split("room=").nth(1).unwrap().split(' ').next().unwrap();
        stream.write_all(SWITCH.as_bytes()).unwrap();
        let _ = stream.write_all(&vec![b'x'; size.parse().unwrap()]);
        let _ = stream.shutdown(Shutdown::Write);
        read_all(stream);
    });
    let directory = Directory::new();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let [cert, key, socket] = ["cert.pem", "key.pem", "socket"].map(|name| directory.file(name));
    fs::write(&cert, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = ServerTls::from_files(&cert, &key).unwrap();
    let listener = format!("unix:{}", socket.display()).parse().unwrap();
    let listener = SharedListener::bind(&listener).unwrap();
    let settings = ProxyOptions::new([backend.addr.into()]);
    let settings = settings.upstream_timeout(Duration::from_millis(200));
    let proxy = proxy::start(&options(1).tls(tls), settings, vec![listener], Vec::new()).unwrap();
    let client = ClientTls::builder().ca(&cert).protocols(&[Alpn::Http1]).build().unwrap();
    wakeful::block_on(async {
        let mut open_ones = Vec::new();
        for size in SIZES {
            let stream = UnixStream::connect(&socket).await.unwrap();
            let mut stream = client.connect(stream, "localhost").await.unwrap();
            open(&mut stream, &ASK.replace("room=1", &format!("room={size}"))).await;
            open_ones.push(stream);
        }
        until("all are over", || proxy.counts().tunnels() == 0);
    });
    assert_eq!(backend.connections(), SIZES.len());
}
