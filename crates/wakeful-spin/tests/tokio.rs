//! Tokio, by mio, waits in this crate's functions as soon as it is linked.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const GUARD: Duration = Duration::from_secs(5);

#[test]
fn a_tokio_runtime_spins_once_it_is_enabled() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        runtime.block_on(async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = [0; 16];
            while let Ok(read @ 1..) = stream.read(&mut bytes).await {
                stream.write_all(&bytes[..read]).await.unwrap();
            }
        });
    });
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    let mut echo = || {
        stream.write_all(b"echo").unwrap();
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"echo");
    };
    (0..50).for_each(|_| echo());
    assert_eq!(wakeful_spin::counts().spins, 0, "not enabled");
    wakeful_spin::enable().unwrap();
    let start = Instant::now();
    while wakeful_spin::counts().hits == 0 && start.elapsed() < GUARD {
        echo();
    }
    assert!(wakeful_spin::counts().hits > 0, "{:?}", wakeful_spin::counts());
}
