//! Files: operations on the blocking pool, one at a time and in order.

use std::cell::Cell;
use std::future::pending;
use std::io::{self, SeekFrom};
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use futures_lite::future::poll_once;
use futures_lite::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use rustix::pipe::{PipeFlags, pipe_with};
use wakeful::fs::{self, File, OpenOptions};
use wakeful::spawn;
use wakeful::task::yield_now;

use crate::backend::Backend;
use crate::background::wait_until;
use crate::support::{is_pending, soon};

on_every_backend! {
    files_are_written_read_renamed_and_removed,
    a_directory_of_many_entries_is_read,
    an_entry_that_is_not_waited_for_is_there_for_the_next_call,
    a_file_is_read_and_written_where_it_stands,
    a_file_s_length_and_metadata_are_what_was_set,
    a_write_that_is_handed_over_is_told_by_a_flush,
    a_file_that_is_dropped_in_a_write_is_written,
    a_read_of_a_file_that_is_given_up_is_kept_for_the_next,
    an_operation_that_is_given_up_and_fails_is_told_by_the_next,
    what_was_read_ahead_moves_no_other_operation,
    a_file_goes_to_the_standard_library_and_comes_back,
    large_transfers_are_cut_and_complete,
    a_file_that_others_made_non_blocking_is_waited_for,
    a_file_read_in_small_pieces_lets_others_run,
    files_need_no_loop_and_may_be_used_on_any_thread,
}

/// A directory of its own, until this is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let thread = std::thread::current().id();
        let name = format!("wakeful-{name}-{}-{thread:?}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("file")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn both() -> OpenOptions {
    let mut options = File::options();
    options.read(true).write(true).create(true);
    options
}

fn files_are_written_read_renamed_and_removed<B: Backend>() {
    let directory = Directory::new("functions");
    let (one, two) = (directory.file(), directory.0.join("two"));
    B::block_on(async {
        fs::write(&one, "text").await.unwrap();
        assert_eq!(fs::read(&one).await.unwrap(), b"text");
        assert_eq!(fs::copy(&one, &two).await.unwrap(), 4);
        fs::remove_file(&one).await.unwrap();
        fs::rename(&two, &one).await.unwrap();
        assert_eq!(fs::read_to_string(&one).await.unwrap(), "text");
        assert_eq!(fs::metadata(&one).await.unwrap().len(), 4);
        fs::hard_link(&one, &two).await.unwrap();
        let link = directory.0.join("link");
        fs::symlink(&two, &link).await.unwrap();
        assert_eq!(fs::read_link(&link).await.unwrap(), two);
        assert!(fs::symlink_metadata(&link).await.unwrap().is_symlink());
        let real = std::fs::canonicalize(&two).unwrap();
        assert_eq!(fs::canonicalize(&link).await.unwrap(), real);
        let mut permissions = fs::metadata(&one).await.unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&one, permissions).await.unwrap();
        assert!(fs::metadata(&one).await.unwrap().permissions().readonly());

        let deep = directory.0.join("a/b/c");
        assert!(fs::create_dir(&deep).await.is_err());
        fs::create_dir_all(&deep).await.unwrap();
        assert!(fs::try_exists(&deep).await.unwrap());
        fs::remove_dir(&deep).await.unwrap();
        fs::remove_dir_all(directory.0.join("a")).await.unwrap();
        assert!(!fs::try_exists(&deep).await.unwrap());
        let missing = fs::read(&deep).await.unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    });
}

fn a_directory_of_many_entries_is_read<B: Backend>() {
    let directory = Directory::new("entries");
    for number in 0..130 {
        std::fs::write(directory.0.join(number.to_string()), "").unwrap();
    }
    B::block_on(async {
        let mut entries = fs::read_dir(&directory.0).await.unwrap();
        let mut found = Vec::new();
        while let Some(entry) = soon(entries.next_entry()).await.unwrap() {
            assert_eq!(entry.path(), directory.0.join(entry.file_name()));
            found.push(entry.file_name().into_string().unwrap().parse::<u32>().unwrap());
            if found.len() == 1 {
                assert!(entry.file_type().await.unwrap().is_file() && entry.ino() > 0);
                assert_eq!(entry.metadata().await.unwrap().len(), 0);
            }
        }
        found.sort_unstable();
        assert_eq!(found, (0..130).collect::<Vec<_>>());
        assert!(soon(entries.next_entry()).await.unwrap().is_none());
        assert!(fs::read_dir(directory.file()).await.is_err());
    });
}

fn an_entry_that_is_not_waited_for_is_there_for_the_next_call<B: Backend>() {
    let directory = Directory::new("given-up");
    for number in 0..1_000 {
        std::fs::write(directory.0.join(number.to_string()), "").unwrap();
    }
    B::block_on(async {
        let mut entries = fs::read_dir(&directory.0).await.unwrap();
        let mut found = 0;
        loop {
            match poll_once(entries.next_entry()).await {
                Some(Ok(Some(_))) => found += 1,
                Some(Ok(None)) => break,
                Some(Err(error)) => panic!("{error}"),
                None => yield_now().await,
            }
        }
        assert_eq!(found, 1_000);
    });
}

fn a_file_is_read_and_written_where_it_stands<B: Backend>() {
    let directory = Directory::new("position");
    B::block_on(async {
        let mut file = both().open(directory.file()).await.unwrap();
        File::write_all(&mut file, b"hello world").await.unwrap();
        assert_eq!(std::fs::read(directory.file()).unwrap(), b"hello world");
        assert_eq!(File::seek(&mut file, SeekFrom::Start(6)).await.unwrap(), 6);
        let mut buf = [0; 3];
        assert_eq!(File::read(&mut file, &mut buf).await.unwrap(), 3);
        assert_eq!(&buf, b"wor");
        File::write_all(&mut file, b"k!").await.unwrap();
        assert_eq!(File::read(&mut file, &mut buf).await.unwrap(), 0, "the end");
        assert_eq!(std::fs::read(directory.file()).unwrap(), b"hello work!");

        // Through the traits.
        assert_eq!(AsyncSeekExt::seek(&mut file, SeekFrom::Start(0)).await.unwrap(), 0);
        let mut text = String::new();
        assert_eq!(file.read_to_string(&mut text).await.unwrap(), 11);
        assert_eq!(text, "hello work!");

        let mut end = File::options().append(true).open(directory.file()).await.unwrap();
        File::write_all(&mut end, b"?").await.unwrap();
        let mut again = File::open(directory.file()).await.unwrap();
        assert_eq!(File::read(&mut again, &mut [0; 64]).await.unwrap(), 12);
        assert!(File::write(&mut again, b"x").await.is_err(), "it is open for reading alone");
        drop(File::create(directory.file()).await.unwrap());
        assert_eq!(std::fs::read(directory.file()).unwrap(), b"");
    });
}

fn a_file_s_length_and_metadata_are_what_was_set<B: Backend>() {
    let directory = Directory::new("length");
    B::block_on(async {
        let mut file = both().mode(0o600).open(directory.file()).await.unwrap();
        file.set_len(100).await.unwrap();
        let metadata = file.metadata().await.unwrap();
        assert_eq!(metadata.len(), 100);
        let mut permissions = metadata.permissions();
        permissions.set_readonly(true);
        file.set_permissions(permissions).await.unwrap();
        file.sync_all().await.unwrap();
        file.sync_data().await.unwrap();
        assert!(std::fs::metadata(directory.file()).unwrap().permissions().readonly());
        assert!(File::options().write(true).create_new(true).open(directory.file()).await.is_err());
    });
}

fn a_write_that_is_handed_over_is_told_by_a_flush<B: Backend>() {
    B::block_on(async {
        let mut full = File::options().write(true).open("/dev/full").await.unwrap();
        let no_space = |error: io::Error| assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        // By the method: at once.
        no_space(File::write(&mut full, b"x").await.unwrap_err());
        File::flush(&mut full).await.unwrap();
        // By the trait: the next operation returns the error.
        AsyncWriteExt::write_all(&mut full, b"x").await.unwrap();
        no_space(AsyncWriteExt::flush(&mut full).await.unwrap_err());
        AsyncWriteExt::flush(&mut full).await.unwrap();
        AsyncWriteExt::write_all(&mut full, b"x").await.unwrap();
        no_space(AsyncWriteExt::write_all(&mut full, b"x").await.unwrap_err());
        AsyncWriteExt::write_all(&mut full, b"x").await.unwrap();
        no_space(AsyncWriteExt::close(&mut full).await.unwrap_err());
        AsyncWriteExt::write_all(&mut full, b"x").await.unwrap();
        no_space(full.sync_all().await.unwrap_err());
        AsyncWriteExt::write_all(&mut full, b"x").await.unwrap();
        no_space(full.into_std().await.unwrap_err());
    });
}

fn a_file_that_is_dropped_in_a_write_is_written<B: Backend>() {
    let directory = Directory::new("dropped");
    B::block_on(async {
        let mut file = File::create(directory.file()).await.unwrap();
        AsyncWriteExt::write_all(&mut file, b"handed over").await.unwrap();
        drop(file);
        wait_until("it is written", || std::fs::read(directory.file()).unwrap() == b"handed over");
    });
}

fn a_read_of_a_file_that_is_given_up_is_kept_for_the_next<B: Backend>() {
    let (reads, writes) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    B::block_on(async {
        let mut file = File::from_std(reads.into());
        for _ in 0..3 {
            assert!(is_pending(File::read(&mut file, &mut [0; 8])).await);
        }
        rustix::io::write(&writes, b"words").unwrap();
        let mut buf = [0; 3];
        assert_eq!(soon(File::read(&mut file, &mut buf)).await.unwrap(), 3);
        assert_eq!(&buf, b"wor");
        assert_eq!(soon(File::read(&mut file, &mut buf)).await.unwrap(), 2);
        drop(writes);
        assert_eq!(soon(File::read(&mut file, &mut buf)).await.unwrap(), 0);
    });
}

/// Begins `operation`, which fails, and gives it up. `false`: it has failed at once.
fn is_given_up<T: std::fmt::Debug>(operation: impl Future<Output = io::Result<T>>) -> bool {
    match pin!(operation).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => true,
        Poll::Ready(failed) => {
            failed.unwrap_err();
            false
        }
    }
}

fn an_operation_that_is_given_up_and_fails_is_told_by_the_next<B: Backend>() {
    // A pipe has no disk, no length and no position.
    let (_reads, writes) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    B::block_on(async {
        let mut pipe = File::from_std(writes.into());
        while !is_given_up(pipe.sync_all()) {}
        File::flush(&mut pipe).await.unwrap_err();
        while !is_given_up(pipe.set_len(1)) {}
        File::write(&mut pipe, b"x").await.unwrap_err();
        while !is_given_up(File::seek(&mut pipe, SeekFrom::Start(1))) {}
        pipe.sync_data().await.unwrap_err();
        File::write_all(&mut pipe, b"each is told once").await.unwrap();
        File::flush(&mut pipe).await.unwrap();
    });
}

/// Begins a read of `length` bytes and gives it up. One that has ended by then is taken back.
async fn read_ahead(file: &mut File, length: usize) {
    loop {
        let mut buf = vec![0; length];
        let read = {
            let mut reading = pin!(File::read(file, &mut buf));
            match reading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => return,
                Poll::Ready(read) => read.unwrap(),
            }
        };
        File::seek(file, SeekFrom::Current(-i64::try_from(read).unwrap())).await.unwrap();
    }
}

fn what_was_read_ahead_moves_no_other_operation<B: Backend>() {
    let directory = Directory::new("ahead");
    std::fs::write(directory.file(), "0123456789").unwrap();
    B::block_on(async {
        let mut file = both().open(directory.file()).await.unwrap();
        let mut buf = [0; 2];
        read_ahead(&mut file, 8).await;
        assert_eq!(File::read(&mut file, &mut buf).await.unwrap(), 2);
        assert_eq!(&buf, b"01");
        File::write_all(&mut file, b"ab").await.unwrap();
        assert_eq!(std::fs::read(directory.file()).unwrap(), b"01ab456789");
        read_ahead(&mut file, 8).await;
        assert_eq!(File::seek(&mut file, SeekFrom::Current(1)).await.unwrap(), 5);
        read_ahead(&mut file, 8).await;
        let mut file = File::from_std(file.into_std().await.unwrap());
        assert_eq!(File::read(&mut file, &mut buf).await.unwrap(), 2);
        assert_eq!(&buf, b"56");
    });
}

fn a_file_goes_to_the_standard_library_and_comes_back<B: Backend>() {
    use std::io::Write;

    let directory = Directory::new("std");
    B::block_on(async {
        let mut file = both().open(directory.file()).await.unwrap();
        AsyncWriteExt::write_all(&mut file, b"one").await.unwrap();
        let mut plain = file.into_std().await.unwrap();
        plain.write_all(b"two").unwrap();
        let mut file = File::from(plain);
        let mut other = file.try_clone().await.unwrap();
        File::write_all(&mut other, b"three").await.unwrap();
        File::write_all(&mut file, b"!").await.unwrap();
        assert_eq!(std::fs::read(directory.file()).unwrap(), b"onetwothree!");
    });
}

fn large_transfers_are_cut_and_complete<B: Backend>() {
    let directory = Directory::new("large");
    let bytes: Vec<u8> = (0..5_000_000_u32).map(|number| (number * 31) as u8).collect();
    B::block_on(async {
        let mut file = both().open(directory.file()).await.unwrap();
        File::write_all(&mut file, &bytes[..4_500_000]).await.unwrap();
        AsyncWriteExt::write_all(&mut file, &bytes[4_500_000..]).await.unwrap();
        File::seek(&mut file, SeekFrom::Start(0)).await.unwrap();
        let mut read = Vec::new();
        file.read_to_end(&mut read).await.unwrap();
        assert!(read == bytes);
    });
}

/// A terminal may be like this, because another program has set the flag.
fn a_file_that_others_made_non_blocking_is_waited_for<B: Backend>() {
    let (reads, writes) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
    B::block_on(async {
        let (mut reader, mut writer) =
            (File::from_std(reads.into()), File::from_std(writes.into()));
        assert!(is_pending(File::read(&mut reader, &mut [0; 8])).await);
        soon(File::write_all(&mut writer, b"word")).await.unwrap();
        assert_eq!(soon(File::read(&mut reader, &mut [0; 8])).await.unwrap(), 4);

        let writing = spawn(async move {
            File::write_all(&mut writer, &[7; 200_000]).await?;
            File::flush(&mut writer).await
        });
        assert!(is_pending(pending::<()>()).await && !writing.is_finished(), "it is full");
        let mut bytes = Vec::new();
        soon(reader.read_to_end(&mut bytes)).await.unwrap();
        assert!(bytes == [7; 200_000]);
        writing.await.unwrap().unwrap();
    });
}

fn a_file_read_in_small_pieces_lets_others_run<B: Backend>() {
    let directory = Directory::new("pieces");
    std::fs::write(directory.file(), vec![0; 100_000]).unwrap();
    B::block_on(async {
        let mut file = both().open(directory.file()).await.unwrap();
        read_ahead(&mut file, 100_000).await;
        let reads = Rc::new(Cell::new(0));
        let counts = reads.clone();
        let greedy = spawn(async move {
            while File::read(&mut file, &mut [0; 1]).await.unwrap() > 0 {
                counts.set(counts.get() + 1);
            }
        });
        // What the first read brought is all there: none of the others waits.
        let mut turns = 0;
        while !greedy.is_finished() {
            turns += u32::from(reads.get() > 0);
            yield_now().await;
        }
        assert_eq!(reads.get(), 100_000);
        assert!(turns > 3, "{turns}");
    });
}

fn files_need_no_loop_and_may_be_used_on_any_thread<B: Backend>() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<File>();
    is_send_and_sync::<OpenOptions>();
    let directory = Directory::new("anywhere");
    let path = directory.file();
    let file = B::block_on(async { both().open(&path).await.unwrap() });
    let thread = std::thread::spawn(move || {
        let mut file = file;
        futures_lite::future::block_on(async {
            File::write_all(&mut file, b"elsewhere").await.unwrap();
        });
    });
    thread.join().unwrap();
    assert_eq!(std::fs::read(path).unwrap(), b"elsewhere");
}
