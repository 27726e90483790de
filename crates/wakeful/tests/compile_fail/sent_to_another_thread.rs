//! A stream does not leave its loop's thread.

use wakeful::net::TcpStream;

async fn sent(stream: TcpStream) {
    std::thread::spawn(move || drop(stream));
}

fn main() {}
