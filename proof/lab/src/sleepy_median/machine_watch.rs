//! Reads the [machine's counters](super::machine) at both ends of the measured time. It does so on
//! its own thread, because that takes longer than the generator can wait.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use wakeful_load::internals::bench::Companion;
use wakeful_load::internals::servers::Server;

use super::machine::{Counters, Pays};

/// How long the first answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct MachineWatch {
    /// The generator's CPU, which is left out.
    but: Option<usize>,
    /// A request that makes a server whose workers start later start them all.
    first_request: Option<&'static [u8]>,
    reader: Option<Reader>,
}

struct Reader {
    now: Sender<()>,
    thread: JoinHandle<Vec<Counters>>,
}

impl MachineWatch {
    pub(super) fn new(but: Option<usize>, first_request: Option<&'static [u8]>) -> Self {
        Self { but, first_request, reader: None }
    }

    /// Returns what the machine paid in the measured time, if the kernel reported it at both ends.
    pub(super) fn pays(self) -> Option<Pays> {
        let Reader { now, thread } = self.reader?;
        drop(now);
        match &thread.join().ok()?[..] {
            [begin, end] => Some(end.since(begin)),
            _ => None,
        }
    }

    fn read(&self) {
        if let Some(reader) = &self.reader {
            // The thread cannot have ended. If it had, there would be no figures.
            let _ = reader.now.send(());
        }
    }
}

impl Companion for MachineWatch {
    fn server_started(&mut self, server: &Server) -> io::Result<()> {
        if let Some(request) = self.first_request {
            let mut stream = TcpStream::connect(server.addr())?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(request)?;
            stream.read_exact(&mut [0])?;
        }
        let (now, asked) = mpsc::channel();
        let but = self.but;
        let read = move || asked.iter().filter_map(|()| Counters::read(but).ok()).collect();
        // The thread of a previous attempt of this block ends with its channel.
        let thread = thread::Builder::new().name("machine".to_owned()).spawn(read)?;
        self.reader = Some(Reader { now, thread });
        Ok(())
    }

    fn window_begins(&mut self) {
        self.read();
    }

    fn window_ended(&mut self) {
        self.read();
    }
}
