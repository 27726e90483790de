//! A stream does not leave its loop while a read is in flight.

use std::pin::pin;

use wakeful::net::TcpStream;

async fn detached(mut stream: TcpStream) {
    let mut buf = [0; 64];
    let read = pin!(stream.read(&mut buf));
    let _ = stream.detach();
    let _ = read.await;
}

fn main() {}
