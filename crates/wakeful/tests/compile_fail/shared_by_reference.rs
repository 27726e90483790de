//! Nor do two threads have the stream at once.

use wakeful::net::TcpStream;

fn shared(stream: &TcpStream) {
    std::thread::scope(|scope| {
        scope.spawn(|| stream.peer_addr());
    });
}

fn main() {}
