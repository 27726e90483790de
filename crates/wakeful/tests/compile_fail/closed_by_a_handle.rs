//! Another loop does not close the stream, nor does anybody else by its loop's handle.

use wakeful::LoopHandle;
use wakeful::net::TcpStream;

fn closed(stream: TcpStream, handle: &LoopHandle) {
    let _ = handle.post(move || drop(stream));
}

fn main() {}
