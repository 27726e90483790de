//! Standard input, whatever it is: what is there is read, nobody's flags are changed, and nothing
//! that has yet to come blocks the loop.
#![allow(unsafe_code)] // `dup2` onto standard input, and a terminal of our own.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_lite::io::{AsyncBufReadExt, BufReader};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use rustix::pipe::{PipeFlags, pipe_with};
use wakeful::io::{stderr, stdin, stdout};

use crate::backend::Backend;
use crate::support::{is_pending, soon};

on_every_backend! {
    a_pipe_as_standard_input_is_waited_for,
    a_terminal_as_standard_input_is_waited_for,
    a_terminal_s_other_side_as_standard_input_is_read,
    a_socket_as_standard_input_is_waited_for,
    a_large_datagram_as_standard_input_is_read_as_a_whole,
    a_regular_file_as_standard_input_is_read_where_it_stands,
    a_fifo_whose_writer_has_left_ends,
    an_empty_standard_input_ends,
    standard_output_and_error_are_files,
}

/// Something else is standard input until this is dropped.
struct Instead {
    before: OwnedFd,
    _alone: MutexGuard<'static, ()>,
}

impl Instead {
    fn of(fd: impl AsFd) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
        // SAFETY: both are open, and 0 is nobody's to close.
        assert_eq!(unsafe { libc::dup2(fd.as_fd().as_raw_fd(), 0) }, 0);
        Self { before, _alone: alone }
    }
}

impl Drop for Instead {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::dup2(self.before.as_raw_fd(), 0) };
    }
}

fn is_nonblocking(fd: impl AsFd) -> bool {
    rustix::fs::fcntl_getfl(fd).unwrap().contains(OFlags::NONBLOCK)
}

fn a_pipe_as_standard_input_is_waited_for<B: Backend>() {
    let (reads, writes) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let _instead = Instead::of(&reads);
    B::block_on(async {
        let mut input = stdin().unwrap();
        assert!(!is_nonblocking(&reads));
        assert!(is_pending(input.read(&mut [0; 8])).await);
        rustix::io::write(&writes, b"words").unwrap();
        assert_eq!(soon(input.read(&mut [0; 3])).await.unwrap(), 3);
        assert_eq!(soon(input.read(&mut [0; 8])).await.unwrap(), 2);
        assert!(is_pending(input.read(&mut [0; 8])).await);
        rustix::io::write(&writes, b"a line\nand another").unwrap();
        drop(writes);
        let mut lines = BufReader::new(input);
        let mut line = String::new();
        for length in [7, 11, 0] {
            line.clear();
            assert_eq!(soon(lines.read_line(&mut line)).await.unwrap(), length);
        }
        assert!(!is_nonblocking(&reads));
    });
}

/// The keyboard's side, and the program's.
fn terminal() -> (File, OwnedFd) {
    // SAFETY: plain calls; the numbers are new and ours.
    unsafe {
        let (mut one, mut other) = (0, 0);
        let null = std::ptr::null_mut();
        if libc::openpty(&raw mut one, &raw mut other, null, null.cast(), null.cast()) != 0 {
            crate::backend::driven::skip("no terminal can be had");
        }
        (File::from_raw_fd(one), OwnedFd::from_raw_fd(other))
    }
}

fn a_terminal_as_standard_input_is_waited_for<B: Backend>() {
    let (mut keyboard, terminal) = terminal();
    let _instead = Instead::of(&terminal);
    B::block_on(async {
        let mut input = stdin().unwrap();
        assert!(is_pending(input.read(&mut [0; 64])).await);
        keyboard.write_all(b"half").unwrap();
        assert!(is_pending(input.read(&mut [0; 64])).await);
        keyboard.write_all(b" a line\nand another\n").unwrap();
        assert_eq!(soon(input.read(&mut [0; 64])).await.unwrap(), 12);
        assert_eq!(soon(input.read(&mut [0; 64])).await.unwrap(), 12);
        assert!(is_pending(input.read(&mut [0; 64])).await);
        assert!(!is_nonblocking(&terminal));
    });
}

/// To open it by its name would be to make another terminal.
fn a_terminal_s_other_side_as_standard_input_is_read<B: Backend>() {
    let (keyboard, terminal) = terminal();
    let _instead = Instead::of(&keyboard);
    rustix::io::write(&terminal, b"shown").unwrap();
    B::block_on(async {
        let mut input = stdin().unwrap();
        let mut buf = [0; 8];
        assert_eq!(soon(input.read(&mut buf)).await.unwrap(), 5);
        assert_eq!(&buf[..5], b"shown");
    });
}

fn a_socket_as_standard_input_is_waited_for<B: Backend>() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let _instead = Instead::of(&ours);
    B::block_on(async {
        let mut input = stdin().unwrap();
        assert!(is_pending(input.read(&mut [0; 8])).await);
        theirs.write_all(b"word").unwrap();
        let mut buf = [0; 8];
        assert_eq!(soon(input.read(&mut buf)).await.unwrap(), 4);
        assert_eq!(&buf[..4], b"word");
        assert!(is_pending(input.read(&mut [0; 8])).await);
        drop(theirs);
        assert_eq!(soon(input.read(&mut buf)).await.unwrap(), 0);
        assert!(!is_nonblocking(&ours));
    });
}

fn a_large_datagram_as_standard_input_is_read_as_a_whole<B: Backend>() {
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    let _instead = Instead::of(&ours);
    theirs.send(&[7; 10_000]).unwrap();
    theirs.send(b"word").unwrap();
    B::block_on(async {
        let mut input = stdin().unwrap();
        let mut buf = vec![0; 64 << 10];
        assert_eq!(soon(input.read(&mut buf)).await.unwrap(), 10_000);
        assert_eq!(soon(input.read(&mut buf)).await.unwrap(), 4);
    });
}

fn a_regular_file_as_standard_input_is_read_where_it_stands<B: Backend>() {
    let path = std::env::temp_dir().join(format!("wakeful-stdin-{}", std::process::id()));
    std::fs::write(&path, "0123456789").unwrap();
    let mut file = File::open(&path).unwrap();
    file.seek(SeekFrom::Start(4)).unwrap();
    let instead = Instead::of(&file);
    B::block_on(async {
        let mut input = stdin().unwrap();
        let mut buf = [0; 3];
        assert_eq!(soon(input.read(&mut buf)).await.unwrap(), 3);
        assert_eq!(&buf, b"456");
        assert_eq!(file.stream_position().unwrap(), 7, "all have the same position");
        assert_eq!(soon(input.read(&mut [0; 64])).await.unwrap(), 3);
        assert_eq!(soon(input.read(&mut [0; 64])).await.unwrap(), 0);
    });
    drop(instead);
    std::fs::remove_file(path).unwrap();
}

fn a_fifo_whose_writer_has_left_ends<B: Backend>() {
    let path = std::env::temp_dir().join(format!("wakeful-stdin-fifo-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
    let writer = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let reader = File::open(&path).unwrap();
    (&writer).write_all(b"left").unwrap();
    drop(writer);
    let instead = Instead::of(&reader);
    B::block_on(async {
        let mut input = stdin().unwrap();
        assert_eq!(soon(input.read(&mut [0; 64])).await.unwrap(), 4);
        for _ in 0..3 {
            assert_eq!(soon(input.read(&mut [0; 64])).await.unwrap(), 0);
        }
    });
    drop(instead);
    std::fs::remove_file(path).unwrap();
}

fn an_empty_standard_input_ends<B: Backend>() {
    let _instead = Instead::of(File::open("/dev/null").unwrap());
    assert!(stdin().unwrap_err().to_string().contains("no event loop runs"));
    B::block_on(async {
        let (mut one, mut other) = (stdin().unwrap(), stdin().unwrap());
        assert_eq!(soon(one.read(&mut [0; 64])).await.unwrap(), 0);
        assert_eq!(soon(other.read(&mut [0; 64])).await.unwrap(), 0);
    });
}

fn standard_output_and_error_are_files<B: Backend>() {
    B::block_on(async {
        for output in [stdout(), stderr()] {
            soon(output.unwrap().write_all(b"")).await.unwrap();
        }
    });
}
