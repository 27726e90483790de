//! A stream that is on no loop can do no I/O, and gives nobody its descriptor.

use std::os::fd::AsFd;

use wakeful::net::DetachedStream;

async fn used(mut stream: DetachedStream) {
    let _ = stream.read(&mut [0; 64]).await;
    let _ = stream.write(b"x").await;
    let _ = stream.as_fd();
}

fn main() {}
