//! The services as a hand-written `io_uring` loop.
//!
//! Each worker has a ring with `SINGLE_ISSUER` and `DEFER_TASKRUN`: the kernel does all work for a
//! ring within the one system call that submits and waits. Connections come from one multishot
//! accept. Each connection has one operation at a time, a receive or a send.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use io_uring::{IoUring, cqueue, opcode, squeue, types::Fd};
use peer_common::{Args, Idle, Service, Session, Socket, cli, version};
use slab::Slab;

const NAME: &str = "uring";

/// Entries of the submission queue; the completion queue has four times as many.
const ENTRIES: u32 = 1024;

/// The user data of the accept; a connection's is its key in the slab.
const ACCEPT: u64 = u64::MAX;

/// From `linux/io_uring.h`: wait for bytes before the first attempt to receive.
const RECVSEND_POLL_FIRST: u16 = 1;

fn main() -> ExitCode {
    let (args, idle) = cli::parse(NAME, version::IO_URING, Service::ALL, Idle::VARIANTS);
    cli::exit_code(NAME, run(&args, idle))
}

fn run(args: &Args, idle: Idle) -> Result<()> {
    let service = args.service;
    cli::run_workers(args, move |socket, ready| Worker::new(socket, service)?.run(idle, ready))
}

struct Connection {
    stream: OwnedFd,
    session: Session,
    /// How much of the answer is written.
    written: usize,
}

struct Worker {
    ring: IoUring,
    /// Never dropped: the kernel may write to a buffer until the operation completes, even when the
    /// ring is already closed.
    connections: ManuallyDrop<Slab<Connection>>,
    listener: OwnedFd,
    service: Service,
    /// Operations that did not fit into the submission queue.
    overflow: VecDeque<squeue::Entry>,
}

impl Worker {
    fn new(socket: Socket, service: Service) -> Result<Self> {
        let listener = socket.blocking()?.into_fd();
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(ENTRIES * 4)
            .build(ENTRIES)
            .context("io_uring with DEFER_TASKRUN is not available (Linux 6.1, not forbidden)")?;
        Ok(Self {
            ring,
            connections: ManuallyDrop::new(Slab::new()),
            listener,
            service,
            overflow: VecDeque::new(),
        })
    }

    fn run(mut self, idle: Idle, ready: &dyn Fn()) -> Result<()> {
        self.accept();
        self.enter(0)?;
        ready();
        let mut completions = Vec::with_capacity(ENTRIES as usize * 4);
        loop {
            match idle {
                Idle::Park => self.enter(1)?,
                Idle::Spin => self.spin()?,
            }
            completions.extend(self.ring.completion());
            for completion in completions.drain(..) {
                self.on_completion(&completion);
            }
        }
    }

    /// Submits what is queued, and waits until there are `want` completions.
    fn enter(&mut self, want: usize) -> Result<()> {
        loop {
            let left = self.refill();
            // If there is more to submit than fits, it must not wait.
            let outcome = self.ring.submit_and_wait(if left { 0 } else { want });
            match outcome {
                Ok(_) if !left => return Ok(()),
                Ok(_) => {}
                // Completions have to be read first, or a signal came.
                Err(error) => match error.raw_os_error() {
                    Some(libc::EBUSY | libc::EAGAIN | libc::EINTR) => return Ok(()),
                    _ => return Err(error).context("io_uring_enter failed"),
                },
            }
        }
    }

    /// Waits for completions without sleeping, and without a system call as long as the kernel has
    /// nothing for this ring.
    fn spin(&mut self) -> Result<()> {
        loop {
            let left = self.refill();
            let submission = self.ring.submission();
            let work = !submission.is_empty() || submission.taskrun() || submission.cq_overflow();
            drop(submission);
            if left || work {
                self.enter(0)?;
            }
            if !self.ring.completion().is_empty() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
    }

    /// Moves what did not fit before into the queue. Returns true if some still does not fit.
    fn refill(&mut self) -> bool {
        while let Some(entry) = self.overflow.pop_front() {
            // SAFETY: the entries in `overflow` are valid: see `push`.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                self.overflow.push_front(entry);
                return true;
            }
        }
        false
    }

    /// Queues an operation.
    ///
    /// # Safety
    ///
    /// The descriptor and the buffer of the operation must stay valid until it completes, and no
    /// other code may use the buffer until then.
    unsafe fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: the caller promises it.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.overflow.push_back(entry);
        }
    }

    fn accept(&mut self) {
        let entry = opcode::AcceptMulti::new(Fd(self.listener.as_raw_fd()))
            .flags(libc::SOCK_CLOEXEC)
            .build()
            .user_data(ACCEPT);
        // SAFETY: the listener lives as long as the worker, and there is no buffer.
        unsafe { self.push(entry) };
    }

    fn receive(&mut self, key: usize, nothing_there: bool) {
        let connection = &mut self.connections[key];
        let fd = Fd(connection.stream.as_raw_fd());
        let space = connection.session.space();
        let length = u32::try_from(space.len()).unwrap_or(u32::MAX);
        let entry = opcode::Recv::new(fd, space.as_mut_ptr(), length)
            .ioprio(if nothing_there { RECVSEND_POLL_FIRST } else { 0 })
            .build()
            .user_data(key as u64);
        // SAFETY: a connection has one operation at a time. Its socket and its session are neither
        // used nor dropped before that operation completes. The buffer is on the heap, so the slab
        // may move the session.
        unsafe { self.push(entry) };
    }

    fn send(&mut self, key: usize) {
        let connection = &mut self.connections[key];
        let fd = Fd(connection.stream.as_raw_fd());
        let rest = &connection.session.output()[connection.written..];
        let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        // All of it, as far as the kernel can. After a short send, the rest is sent.
        let entry = opcode::Send::new(fd, rest.as_ptr(), length)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build()
            .user_data(key as u64);
        // SAFETY: as in `receive`.
        unsafe { self.push(entry) };
    }

    fn on_completion(&mut self, completion: &cqueue::Entry) {
        let (result, flags) = (completion.result(), completion.flags());
        if completion.user_data() == ACCEPT {
            self.on_accept(result, flags);
            return;
        }
        let Ok(key) = usize::try_from(completion.user_data()) else { return };
        let Ok(count) = usize::try_from(result) else {
            if matches!(-result, libc::EINTR | libc::EAGAIN) {
                self.go_on(key, true);
            } else {
                self.connections.remove(key);
            }
            return;
        };
        let connection = &mut self.connections[key];
        if connection.session.output().is_empty() {
            if count == 0 {
                self.connections.remove(key);
                return;
            }
            connection.session.received(count);
        } else {
            connection.written += count;
        }
        self.go_on(key, !cqueue::sock_nonempty(flags));
    }

    /// Starts the next operation of a connection, or closes it.
    fn go_on(&mut self, key: usize, nothing_there: bool) {
        let connection = &mut self.connections[key];
        if connection.written < connection.session.output().len() {
            self.send(key);
            return;
        }
        connection.written = 0;
        if connection.session.written() {
            self.receive(key, nothing_there);
        } else {
            self.connections.remove(key);
        }
    }

    fn on_accept(&mut self, result: RawFd, flags: u32) {
        if result >= 0 {
            // SAFETY: the kernel has made this descriptor for this process, and no other code owns
            // it.
            let stream = unsafe { OwnedFd::from_raw_fd(result) };
            let session = Session::new(self.service);
            let key = self.connections.insert(Connection { stream, session, written: 0 });
            self.receive(key, false);
        } else if matches!(-result, libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if !cqueue::more(flags) {
            self.accept();
        }
    }
}
