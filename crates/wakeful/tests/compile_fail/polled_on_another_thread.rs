//! A read that was begun on the stream's loop is not polled elsewhere.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use wakeful::net::TcpStream;

fn polled(mut stream: TcpStream) {
    let mut buf = [0; 64];
    let mut read = pin!(stream.read(&mut buf));
    std::thread::scope(|scope| {
        scope.spawn(|| read.as_mut().poll(&mut Context::from_waker(Waker::noop())));
    });
}

fn main() {}
