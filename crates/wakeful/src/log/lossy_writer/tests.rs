use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Instant;

use rustix::fs::{CWD, Mode, OFlags, fcntl_getfl, mkfifoat, open};
use rustix::pty::{self, OpenptFlags};

use super::*;

/// Nothing here takes long. A test that waits for this long has failed.
const GUARD: Duration = Duration::from_secs(20);

fn without_thread(destination: impl Destination) -> LossyWriter {
    let (this, started) = LossyWriter::make(destination, Queue::default(), |run| {
        drop(run);
        Err(io::ErrorKind::WouldBlock.into())
    });
    assert!(started.is_err());
    this
}

fn line(number: usize) -> String {
    format!("{number:0>99}\n")
}

/// Everything that comes until all writers are dropped.
fn rest_of(mut reader: PipeReader) -> String {
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text
}

/// A pipe with a capacity of two pages: 81 lines fit, and most of another.
fn small_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&writer, 8192).unwrap();
    (reader, writer)
}

#[test]
fn lines_are_written_in_order_and_counted() {
    let (reader, writer) = io::pipe().unwrap();
    let mut log = LossyWriter::new(writer);
    for number in 0..100 {
        log.write_all(line(number).as_bytes()).unwrap();
    }
    assert!(log.flush_within(GUARD));
    assert_eq!((log.written(), log.dropped()), (100, 0));
    drop(log);
    assert_eq!(rest_of(reader), (0..100).map(line).collect::<String>());
}

#[test]
fn a_reader_that_stands_still_costs_lines_that_are_counted_and_reported() {
    for is_nonblocking in [false, true] {
        let (reader, writer) = small_pipe();
        rustix::io::ioctl_fionbio(&writer, is_nonblocking).unwrap();
        let mut log = LossyWriter::new(writer);
        for number in 0..10_000 {
            log.write_all(line(number).as_bytes()).unwrap();
        }
        assert!(!log.flush_within(Duration::ZERO));
        let dropped = log.dropped();
        assert!((1..10_000).contains(&dropped), "{dropped}");
        let reader = thread::spawn(|| rest_of(reader));
        assert!(log.flush_within(GUARD));
        assert_eq!((log.written(), log.dropped()), (10_000 - dropped, dropped));
        drop(log);
        let text = reader.join().unwrap();
        let reported = |line: &str| {
            let note = line.strip_prefix("wakeful: ")?.split(' ').next()?;
            Some(note.parse::<u64>().unwrap())
        };
        assert_eq!(text.lines().filter_map(reported).sum::<u64>(), dropped);
        let lines = text.lines().filter(|line| reported(line).is_none()).count() as u64;
        assert_eq!(lines, 10_000 - dropped);
    }
}

/// The cases are with and without a thread, and with and without room in the queue.
#[test]
fn a_pipe_that_nobody_reads_does_not_have_all_of_the_time() {
    let timeout = Duration::from_secs(2);
    let nobody_reads = |log: &LossyWriter, lines: usize| {
        log.write_lines(line(0).repeat(1000).into_bytes(), 1000);
        (0..lines).for_each(|number| log.write_lines(line(number).into_bytes(), 1));
        let start = Instant::now();
        assert!(!log.flush_within(timeout));
        assert!(start.elapsed() < timeout);
        let start = Instant::now();
        log.write_lines_within(line(1).into_bytes(), 1, timeout);
        assert!(start.elapsed() < timeout);
    };
    for is_nonblocking in [false, true] {
        for lines in [1, 3000] {
            let (reader, writer) = small_pipe();
            rustix::io::ioctl_fionbio(&writer, is_nonblocking).unwrap();
            nobody_reads(&LossyWriter::new(writer), lines);
            drop(reader);
        }
    }
    let (_reader, writer) = small_pipe();
    let log = without_thread(Plain(writer));
    (0..100).for_each(|number| log.write_lines(line(number).into_bytes(), 1));
    let start = Instant::now();
    assert!(!log.flush_within(timeout));
    assert!(start.elapsed() < timeout);
}

#[test]
fn the_queue_is_bounded_in_bytes() {
    let (reader, writer) = small_pipe();
    let mut log = LossyWriter::new(writer);
    let large = "x".repeat(1 << 20) + "\n";
    for _ in 0..6 {
        log.write_all(large.as_bytes()).unwrap();
    }
    // The thread is writing one of the lines, or is about to.
    assert!((2..=3).contains(&log.dropped()), "{}", log.dropped());
    drop(reader);
    assert!(log.flush_within(GUARD));
    assert_eq!((log.written(), log.dropped()), (0, 6));
}

#[test]
fn a_queue_has_room_for_a_write_and_is_never_too_large_to_be_made() {
    for writes in [0, usize::MAX] {
        let (reader, writer) = io::pipe().unwrap();
        let queue = Queue { writes, bytes: usize::MAX };
        let mut log = LossyWriter::on_thread("log", Plain(writer), queue).unwrap();
        log.write_all(b"one\n").unwrap();
        assert!(log.flush_within(GUARD));
        drop(log);
        assert_eq!(rest_of(reader), "one\n");
    }
}

#[test]
fn a_destination_that_fails_costs_lines_that_are_counted() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let full = File::options().write(true).open("/dev/full").unwrap();
    for mut log in [LossyWriter::new(writer), LossyWriter::new(full)] {
        for number in 0..100 {
            log.write_all(line(number).as_bytes()).unwrap();
        }
        assert!(log.flush_within(GUARD));
        assert_eq!((log.written(), log.dropped()), (0, 100));
    }
}

#[test]
fn without_a_thread_lines_are_written_as_far_as_there_is_room() {
    let (mut reader, writer) = small_pipe();
    let mut log = without_thread(Plain(writer));
    for number in 0..100 {
        log.write_all(line(number).as_bytes()).unwrap();
    }
    let written = log.written();
    assert!((1..=81).contains(&written), "{written}");
    assert!(!log.flush_within(Duration::ZERO));
    assert!(reader.read(&mut [0; 8192]).unwrap() > 0);
    let reader = thread::spawn(|| rest_of(reader));
    assert!(log.flush_within(GUARD));
    assert_eq!(log.written() + log.dropped(), 100);
    drop(log);
    assert!(reader.join().unwrap().ends_with(&line(99)));
}

/// A destination that another process fills at the `at`th look at its descriptor.
struct FilledAt<F> {
    fd: F,
    at: usize,
    looks: AtomicUsize,
}

impl<F: AsFd + Send + 'static> Destination for FilledAt<F> {
    fn fd(&self) -> BorrowedFd<'_> {
        if self.looks.fetch_add(1, SeqCst) + 1 == self.at {
            rustix::io::ioctl_fionbio(&self.fd, true).unwrap();
            while rustix::io::write(&self.fd, &[b'x'; 4096]).is_ok() {}
            rustix::io::ioctl_fionbio(&self.fd, false).unwrap();
        }
        self.fd.as_fd()
    }
}

/// The looks are at the start, before the line is taken, before the write, and in the write.
#[test]
fn a_writer_without_a_thread_waits_for_no_room_that_another_process_takes_meanwhile() {
    fn fills<F: AsFd + Send + 'static>(ends: impl Fn() -> (OwnedFd, F)) {
        for at in 1..=5 {
            let (reader, fd) = ends();
            let log = without_thread(FilledAt { fd, at, looks: AtomicUsize::new(0) });
            let (done, is_done) = sync_channel(1);
            thread::spawn(move || {
                log.write_lines(line(0).into_bytes(), 1);
                done.send(log.written()).unwrap();
            });
            let written = is_done.recv_timeout(GUARD).expect("it returns");
            assert_eq!(written, u64::from(at == 5), "look {at}");
            drop(reader);
        }
    }
    fills(|| {
        let (reader, writer) = small_pipe();
        (reader.into(), writer)
    });
    fills(|| {
        let (reader, writer) = UnixStream::pair().unwrap();
        (reader.into(), writer)
    });
}

/// The keyboard's side, and the one to which programs write.
fn terminal() -> (OwnedFd, OwnedFd) {
    let terminal = pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    pty::unlockpt(&terminal).unwrap();
    let written_to = pty::ptsname(&terminal, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    (terminal, open(written_to, flags, Mode::empty()).unwrap())
}

/// A terminal takes a part of a write, and a write that blocks waits until it takes all.
#[test]
fn a_writer_without_a_thread_waits_for_no_terminal_that_nobody_reads() {
    const LINES: usize = 2_000;
    let (reader, writer) = terminal();
    let log = without_thread(Plain(writer.try_clone().unwrap()));
    let (done, is_done) = sync_channel(1);
    thread::spawn(move || {
        (0..LINES).for_each(|number| log.write_lines(line(number).into_bytes(), 1));
        done.send(log).unwrap();
    });
    let log = is_done.recv_timeout(GUARD).expect("it returns");
    assert!(log.written() < LINES as u64);
    assert!(!fcntl_getfl(&writer).unwrap().contains(OFlags::NONBLOCK));
    drop(writer);
    let reader = thread::spawn(|| {
        let mut text = Vec::new();
        // At the end of a terminal there is an error.
        let _ = File::from(reader).read_to_end(&mut text);
        String::from_utf8(text).unwrap()
    });
    assert!(log.flush_within(GUARD));
    let written = log.written();
    assert_eq!(written + log.dropped(), LINES as u64);
    drop(log);
    let text = reader.join().unwrap();
    let is_whole = |shown: &&str| shown.parse().is_ok_and(|number| line(number).trim() == *shown);
    assert_eq!(text.lines().filter(is_whole).count() as u64, written, "{text}");
}

#[test]
fn a_writer_without_a_thread_notices_that_its_terminal_is_gone() {
    let (reader, writer) = terminal();
    let log = without_thread(Plain(writer));
    log.write_lines(line(0).into_bytes(), 1);
    drop(reader);
    log.write_lines(line(1).into_bytes(), 1);
    assert_eq!((log.written(), log.dropped()), (1, 1));
}

/// The others have the same open file, and expect it to block.
#[test]
fn a_writer_without_a_thread_leaves_its_pipe_blocking_and_notices_that_nobody_reads() {
    let path = std::env::temp_dir().join(format!("wakeful-log-{}", std::process::id()));
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
    let opened = |access| open(&path, access, Mode::empty()).unwrap();
    let named = (opened(OFlags::RDONLY | OFlags::NONBLOCK), opened(OFlags::WRONLY));
    std::fs::remove_file(&path).unwrap();
    for (reader, writer) in [rustix::pipe::pipe().unwrap(), named] {
        let log = without_thread(Plain(writer.try_clone().unwrap()));
        log.write_lines(line(0).into_bytes(), 1);
        assert!(!fcntl_getfl(&writer).unwrap().contains(OFlags::NONBLOCK));
        drop(reader);
        log.write_lines(line(1).into_bytes(), 1);
        assert_eq!((log.written(), log.dropped()), (1, 1));
    }
}

#[test]
fn a_flush_without_time_writes_all_for_which_there_is_room() {
    let (mut reader, mut writer) = small_pipe();
    writer.write_all(&[b'x'; 8192]).unwrap();
    let log = without_thread(Plain(writer));
    (0..10).for_each(|number| log.write_lines(line(number).into_bytes(), 1));
    assert_eq!(log.written(), 0, "there is no room");
    reader.read_exact(&mut [0; 8192]).unwrap();
    assert!(log.flush_within(Duration::ZERO));
    assert_eq!((log.written(), log.dropped()), (10, 0));
    drop(log);
    assert_eq!(rest_of(reader), (0..10).map(line).collect::<String>());
}

/// The pipe plays a disk that is full in the middle of a line, and later has room again.
#[test]
fn what_was_written_before_a_failure_counts_and_a_part_of_a_line_stays_alone() {
    let (mut reader, writer) = small_pipe();
    let mut log = without_thread(Plain(writer));
    // Only a line that is longer than what a pipe takes in one piece is cut.
    let long = "x".repeat(10_000);
    log.write_lines(format!("{}{long}\n{}", line(7).repeat(40), line(8)).into_bytes(), 42);
    assert_eq!((log.written(), log.dropped()), (40, 2));
    let mut first = vec![0; 40 * line(7).len() + 4096];
    reader.read_exact(&mut first).unwrap();
    assert!(first.ends_with(b"x"));
    for line in ["one\n", "two\n"] {
        log.write_all(line.as_bytes()).unwrap();
    }
    drop(log);
    let note = "wakeful: 2 log lines were dropped: the log was full or failed\n";
    assert_eq!(rest_of(reader), format!("\none\n{note}two\n"));
}

#[test]
fn a_line_that_lacks_only_its_end_is_written() {
    let (mut reader, writer) = small_pipe();
    let mut log = without_thread(Plain(writer));
    let cut = "x".repeat(8192);
    log.write_all(format!("{cut}\n").as_bytes()).unwrap();
    assert_eq!((log.written(), log.dropped()), (1, 0));
    reader.read_exact(&mut [0; 8192]).unwrap();
    log.write_all(b"more\n").unwrap();
    assert_eq!((log.written(), log.dropped()), (2, 0));
    drop(log);
    assert_eq!(rest_of(reader), "\nmore\n");
}

#[test]
fn a_destination_that_panics_costs_nothing_else() {
    struct Panics(PipeWriter);
    impl Destination for Panics {
        fn fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
        fn reopen(&mut self) -> bool {
            panic!("in a destination")
        }
    }
    let (reader, writer) = io::pipe().unwrap();
    let mut log = LossyWriter::on_thread("log", Panics(writer), Queue::default()).unwrap();
    log.write_all(b"one\n").unwrap();
    log.write_all(b"two\n").unwrap();
    assert!(log.flush_within(GUARD));
    assert_eq!((log.written(), log.dropped()), (2, 0));
    drop(log);
    assert_eq!(rest_of(reader), "one\ntwo\n");
}

#[test]
fn a_descriptor_that_panics_panics_in_no_thread_that_writes() {
    struct Panics(PipeWriter, Arc<AtomicBool>);
    impl AsFd for Panics {
        fn as_fd(&self) -> BorrowedFd<'_> {
            assert!(!self.1.load(SeqCst), "as it was told to");
            self.0.as_fd()
        }
    }
    let (reader, writer) = io::pipe().unwrap();
    let panics = Arc::new(AtomicBool::new(false));
    let mut log = without_thread(Plain(Panics(writer, panics.clone())));
    panics.store(true, SeqCst);
    log.write_all(b"one\n").unwrap();
    assert!(!log.flush_within(Duration::from_millis(1)));
    panics.store(false, SeqCst);
    log.write_all(b"two\n").unwrap();
    assert!(log.flush_within(GUARD));
    drop(log);
    assert_eq!(rest_of(reader), "one\ntwo\n");
}

#[test]
fn lines_whose_destination_has_no_descriptor_but_a_panic_are_counted() {
    struct Panics(PipeWriter, Arc<AtomicBool>);
    impl Destination for Panics {
        fn fd(&self) -> BorrowedFd<'_> {
            assert!(!self.1.load(SeqCst), "as it was told to");
            self.0.as_fd()
        }
    }
    let (reader, writer) = io::pipe().unwrap();
    let panics = Arc::new(AtomicBool::new(false));
    let destination = Panics(writer, panics.clone());
    let mut log = LossyWriter::on_thread("log", destination, Queue::default()).unwrap();
    panics.store(true, SeqCst);
    log.write_all(b"lost\n").unwrap();
    assert!(log.flush_within(GUARD));
    assert_eq!((log.written(), log.dropped()), (0, 1));
    panics.store(false, SeqCst);
    log.write_all(b"one\n").unwrap();
    assert!(log.flush_within(GUARD));
    assert_eq!((log.written(), log.dropped()), (1, 1));
    drop(log);
    assert!(rest_of(reader).starts_with("one\n"));
}

/// A destination may report its own failure through a log subscriber that panics.
#[test]
fn a_destination_that_panics_as_it_reports_a_failure_costs_nothing_else() {
    struct Panics {
        full: File,
        writer: PipeWriter,
        has_room: Arc<AtomicBool>,
        failures: Arc<AtomicUsize>,
    }
    impl Destination for Panics {
        fn fd(&self) -> BorrowedFd<'_> {
            if self.has_room.load(SeqCst) { self.writer.as_fd() } else { self.full.as_fd() }
        }
        fn note(&self, _: u64) -> Vec<u8> {
            panic!("in a note")
        }
        fn failed(&self, _: &io::Error) {
            self.failures.fetch_add(1, SeqCst);
            panic!("in a report")
        }
    }
    let (reader, writer) = io::pipe().unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (has_room, failures) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let destination =
        Panics { full, writer, has_room: has_room.clone(), failures: failures.clone() };
    let mut log = LossyWriter::on_thread("log", destination, Queue::default()).unwrap();
    for _ in 0..3 {
        log.write_all(b"lost\n").unwrap();
        assert!(log.flush_within(GUARD));
    }
    assert_eq!(failures.load(SeqCst), 1, "the first one after a success is reported");
    has_room.store(true, SeqCst);
    log.write_all(b"one\n").unwrap();
    assert!(log.flush_within(GUARD));
    assert_eq!((log.written(), log.dropped()), (1, 3));
    drop(log);
    assert!(rest_of(reader).ends_with("one\n"));
}

#[test]
fn who_waits_for_ever_waits_until_all_is_written() {
    let (reader, writer) = io::pipe().unwrap();
    let log = LossyWriter::new(writer);
    log.write_lines_within(line(1).into_bytes(), 1, Duration::MAX);
    assert!(log.flush_within(Duration::MAX));
    drop(log);
    assert_eq!(rest_of(reader), line(1));
}

#[test]
fn a_pipe_that_nobody_reads_can_be_replaced_and_no_line_is_cut() {
    struct Replaced {
        now: PipeWriter,
        next: Option<PipeWriter>,
        wanted: Arc<AtomicBool>,
        panics: bool,
    }
    impl Destination for Replaced {
        fn fd(&self) -> BorrowedFd<'_> {
            self.now.as_fd()
        }
        fn reopen(&mut self) -> bool {
            if !self.wanted.load(SeqCst) || self.next.is_none() {
                return false;
            }
            assert!(!std::mem::take(&mut self.panics), "a destination that panics, on purpose");
            self.next.take().is_some_and(|next| {
                self.now = next;
                true
            })
        }
    }
    let (_nobody, now) = small_pipe();
    rustix::io::ioctl_fionbio(&now, true).unwrap();
    let (reader, next) = io::pipe().unwrap();
    let wanted = Arc::new(AtomicBool::new(false));
    let pipe = Replaced { now, next: Some(next), wanted: wanted.clone(), panics: true };
    let log = LossyWriter::on_thread("log", pipe, Queue::default()).unwrap();
    let lines = |range: std::ops::Range<usize>| range.map(line).collect::<String>();
    // 80 lines fit, in two pieces.
    log.write_lines(lines(0..100).into_bytes(), 100);
    assert!(!log.flush_within(Duration::from_millis(50)));
    wanted.store(true, SeqCst);
    log.write_lines(lines(100..120).into_bytes(), 20);
    assert!(log.flush_within(GUARD));
    assert_eq!((log.written(), log.dropped()), (120, 0));
    drop(log);
    assert_eq!(rest_of(reader), lines(80..120));
}

#[test]
fn who_waits_for_room_in_the_queue_of_a_writer_without_a_thread_writes() {
    for queue in [Queue { writes: 1, ..Queue::default() }, Queue { bytes: 150, writes: 10 }] {
        let (reader, writer) = small_pipe();
        let refused = |_| Err(io::ErrorKind::Unsupported.into());
        let log = LossyWriter::make(Plain(writer), queue, refused).0;
        (0..100).for_each(|number| log.write_lines(line(number).into_bytes(), 1));
        let dropped = log.dropped();
        assert!(dropped > 0, "the pipe and the queue are full");
        let reader = thread::spawn(|| rest_of(reader));
        log.write_lines_within(line(100).into_bytes(), 1, GUARD);
        assert_eq!((log.written(), log.dropped()), (101 - dropped, dropped));
        drop(log);
        assert!(reader.join().unwrap().contains(&line(100)));
    }
}

/// A stop of the process (SIGSTOP) looks the same as a destination whose descriptor takes long.
#[test]
fn a_pause_of_the_process_ends_no_flush_of_a_writer_without_a_thread() {
    const TIMEOUT: Duration = Duration::from_millis(400);
    struct Stops {
        writer: PipeWriter,
        reader: PipeReader,
        looks: Arc<AtomicUsize>,
    }
    impl Destination for Stops {
        fn fd(&self) -> BorrowedFd<'_> {
            match self.looks.fetch_add(1, SeqCst) {
                0 => thread::sleep(2 * TIMEOUT),
                1 => assert!((&self.reader).read(&mut [0; 8192]).unwrap() > 0),
                _ => {}
            }
            self.writer.as_fd()
        }
    }
    let (reader, mut writer) = small_pipe();
    writer.write_all(&[b'x'; 8192]).unwrap();
    let looks = Arc::new(AtomicUsize::new(2));
    let log = without_thread(Stops { writer, reader, looks: looks.clone() });
    log.write_lines(line(1).into_bytes(), 1);
    assert_eq!(log.written(), 0, "there is no room");
    looks.store(0, SeqCst);
    assert!(log.flush_within(TIMEOUT));
    assert_eq!((log.written(), log.dropped()), (1, 0));
}
