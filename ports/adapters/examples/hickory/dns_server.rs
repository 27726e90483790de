//! A small DNS server for one loop: what a name is called says how it is answered.

use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use async_channel::{Receiver, Sender};
use futures_lite::AsyncReadExt;
use hickory_resolver::proto::op::Message;
use hickory_resolver::proto::rr::rdata::A;
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use wakeful::net::{TcpListener, TcpStream, UdpSocket};
use wakeful::spawn;
use wakeful::task::JoinHandle;

/// The address of every name.
pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Listens on one port, on UDP and TCP, until it is dropped.
///
/// Names that begin with `large` are truncated over UDP. Those that contain `silent` are not
/// answered; `large-silent` is truncated over UDP, and not answered over TCP.
pub(crate) struct DnsServer {
    pub(crate) addr: SocketAddr,
    /// What it has seen, in order.
    pub(crate) events: Receiver<Event>,
    shared: Rc<Shared>,
    tasks: [JoinHandle<io::Result<()>>; 2],
}

/// What a server has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A query over UDP, from this address.
    Udp(SocketAddr),
    /// A connection was accepted.
    Connected,
    /// A query over TCP.
    Tcp,
    /// The client has closed a connection.
    Closed,
}

struct Shared {
    events: Sender<Event>,
    never_silent: Cell<bool>,
}

impl DnsServer {
    pub(crate) async fn start(addr: SocketAddr) -> io::Result<Self> {
        let (udp, tcp) = bind(addr).await?;
        let (addr, (send, events)) = (tcp.local_addr()?, async_channel::unbounded());
        let shared = Rc::new(Shared { events: send, never_silent: Cell::new(false) });
        let tasks = [
            spawn(answer_datagrams(shared.clone(), udp)),
            spawn(answer_connections(shared.clone(), tcp)),
        ];
        Ok(Self { addr, events, shared, tasks })
    }

    /// From now on names that contain `silent` are answered, too.
    #[allow(dead_code, reason = "only the tests need it")]
    pub(crate) fn answer_all(&self) {
        self.shared.never_silent.set(true);
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// A port that is free for both.
async fn bind(addr: SocketAddr) -> io::Result<(UdpSocket, TcpListener)> {
    loop {
        let tcp = TcpListener::bind(addr).await?;
        match UdpSocket::bind(tcp.local_addr()?).await {
            Err(error) if addr.port() == 0 && error.kind() == io::ErrorKind::AddrInUse => {}
            udp => return Ok((udp?, tcp)),
        }
    }
}

async fn answer_datagrams(shared: Rc<Shared>, socket: UdpSocket) -> io::Result<()> {
    let mut buf = [0; 4096];
    loop {
        let (length, from) = socket.recv_from(&mut buf).await?;
        shared.tell(Event::Udp(from));
        let answer = shared.answer(&buf[..length], |name| match name.starts_with("large") {
            true => Answer::Truncated,
            false => Answer::Whole,
        })?;
        if let Some(answer) = answer {
            socket.send_to(&answer, from).await?;
        }
    }
}

async fn answer_connections(shared: Rc<Shared>, listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        shared.tell(Event::Connected);
        let shared = shared.clone();
        spawn(async move {
            let ended = answer_connection(&shared, stream).await;
            shared.tell(Event::Closed);
            ended
        })
        .detach();
    }
}

async fn answer_connection(shared: &Shared, mut stream: TcpStream) -> io::Result<()> {
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length).await?;
        let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut query).await?;
        shared.tell(Event::Tcp);
        if let Some(answer) = shared.answer(&query, |_| Answer::Whole)? {
            let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
            stream.write_all(&[&length.to_be_bytes()[..], &answer].concat()).await?;
        }
    }
}

enum Answer {
    Whole,
    Truncated,
}

impl Shared {
    fn tell(&self, event: Event) {
        // Nobody may listen.
        let _ = self.events.try_send(event);
    }

    fn answer(&self, query: &[u8], how: impl Fn(&str) -> Answer) -> io::Result<Option<Vec<u8>>> {
        let query = Message::from_vec(query).map_err(io::Error::other)?;
        let mut answer = Message::response(query.metadata.id, query.metadata.op_code);
        answer.add_queries(query.queries.iter().cloned());
        for asked in &query.queries {
            let name = asked.name().to_ascii();
            match how(&name) {
                Answer::Truncated => answer.metadata.truncation = true,
                Answer::Whole if name.contains("silent") && !self.never_silent.get() => {
                    return Ok(None);
                }
                Answer::Whole if asked.query_type() == RecordType::A => {
                    let record = RData::A(A(ADDRESS));
                    answer.add_answer(Record::from_rdata(asked.name().clone(), 60, record));
                }
                // Of other types it has none.
                Answer::Whole => {}
            }
        }
        answer.to_vec().map(Some).map_err(io::Error::other)
    }
}
