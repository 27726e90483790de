//! One vectored write per connection per turn, however many responses were queued: `run_this_turn`.

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::rc::Rc;

use wakeful::net::{OwnedWriteHalf, TcpListener, TcpStream};
use wakeful::{run_this_turn, spawn};

/// The write side of a connection, shared by the tasks that answer its requests.
struct Responses {
    queued: RefCell<Vec<Vec<u8>>>,
    /// Away while a flush runs.
    write: RefCell<Option<OwnedWriteHalf>>,
    writes: Cell<usize>,
}

impl Responses {
    fn send(self: &Rc<Self>, response: Vec<u8>) {
        self.queued.borrow_mut().push(response);
        if self.queued.borrow().len() == 1 {
            let this = self.clone();
            run_this_turn(move || {
                spawn(async move { this.flush().await }).detach();
            });
        }
    }

    async fn flush(&self) {
        let Some(mut write) = self.write.take() else { return };
        while !self.queued.borrow().is_empty() {
            let responses = self.queued.take();
            let slices: Vec<_> = responses.iter().map(|bytes| IoSlice::new(bytes)).collect();
            let written = write.write_vectored(&slices).await.expect("the client reads");
            assert_eq!(written, responses.iter().map(Vec::len).sum(), "small enough for one write");
            self.writes.set(self.writes.get() + 1);
        }
        *self.write.borrow_mut() = Some(write);
    }
}

#[wakeful::main]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut client = TcpStream::connect(listener.local_addr()?).await?;
    let (server, _) = listener.accept().await?;
    let (_read, write) = server.into_split();
    let responses = Rc::new(Responses {
        queued: RefCell::default(),
        write: RefCell::new(Some(write)),
        writes: Cell::new(0),
    });
    for number in 0..50 {
        let responses = responses.clone();
        spawn(async move { responses.send(format!("response {number}\n").into_bytes()) }).detach();
    }
    let (mut lines, mut buf) = (0, [0; 4096]);
    while lines < 50 {
        let read = client.read(&mut buf).await?;
        lines += buf[..read].iter().filter(|byte| **byte == b'\n').count();
    }
    println!("{lines} responses in {} write(s)", responses.writes.get());
    Ok(())
}
