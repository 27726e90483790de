//! Child processes: their pipes, their end, and who reaps them.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::join_all;
use wakeful::process::{Child, Command};
use wakeful::signal::SIGTERM;
use wakeful::task::yield_now;
use wakeful::time::timeout;
use wakeful::{EventLoop, spawn};

use crate::backend::Backend;
use crate::background::wait_until;
use crate::support::{is_pending, soon};

on_every_backend! {
    a_child_s_status_is_its_code_or_its_signal,
    a_child_is_talked_to_through_its_pipes,
    output_takes_more_than_pipes_hold_of_both,
    output_s_input_is_empty_and_its_choices_are_kept,
    a_wait_closes_the_child_s_input,
    a_wait_for_a_child_that_is_given_up_is_taken_up_again,
    a_child_is_asked_without_waiting,
    many_children_end_at_once,
    signals_reach_a_child_and_never_another_process,
    a_child_s_own_ends_block,
    children_are_connected_by_a_pipe,
    a_child_that_cannot_be_started_is_an_error,
    a_dropped_child_goes_on_and_is_reaped,
    a_dropped_child_is_killed_on_demand_and_reaped,
    a_command_that_is_given_up_leaves_no_zombie,
    children_of_a_loop_that_has_ended_are_killed_on_demand_and_reaped,
    a_child_outlives_its_loop_and_can_be_asked,
    a_silent_child_does_not_hold_up_a_shutdown,
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).stdin(Stdio::null());
    command
}

/// A child that lives until its standard input ends.
fn cat() -> Command {
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    command
}

fn entry(child: &Child) -> PathBuf {
    format!("/proc/{}", child.id().expect("it is not reaped")).into()
}

/// A zombie has an entry, and one that was reaped has none.
fn until_reaped(entry: &Path) {
    wait_until("the child is reaped", || !entry.exists());
}

fn a_child_s_status_is_its_code_or_its_signal<B: Backend>() {
    B::block_on(async {
        assert!(soon(shell("exit 0").status()).await.unwrap().success());
        assert_eq!(soon(shell("exit 7").status()).await.unwrap().code(), Some(7));
        let killed = soon(shell("kill -9 $$").status()).await.unwrap();
        assert_eq!((killed.code(), killed.signal()), (None, Some(libc::SIGKILL)));
        assert!(!killed.core_dumped());

        let mut child = shell("exit 3").spawn().unwrap();
        let entry = entry(&child);
        for _ in 0..2 {
            assert_eq!(soon(child.wait()).await.unwrap().code(), Some(3));
        }
        assert!(!entry.exists(), "it is reaped");
        assert_eq!(child.id(), None);
    });
}

fn a_child_is_talked_to_through_its_pipes<B: Backend>() {
    B::block_on(async {
        let mut child = cat().stdout(Stdio::piped()).spawn().unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        assert!(child.stderr.is_none());
        let sent: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
        let sending = spawn({
            let sent = sent.clone();
            async move { stdin.write_all(&sent).await }
        });
        let mut received = Vec::new();
        soon(stdout.read_to_end(&mut received)).await.unwrap();
        soon(sending).await.unwrap().unwrap();
        assert!(received == sent);
        assert!(soon(child.wait()).await.unwrap().success());
    });
}

fn output_takes_more_than_pipes_hold_of_both<B: Backend>() {
    B::block_on(async {
        let script = "head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2; echo end; exit 4";
        let output = soon(shell(script).output()).await.unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (300_004, 200_000));
        assert_eq!(output.status.code(), Some(4));
    });
}

fn output_s_input_is_empty_and_its_choices_are_kept<B: Backend>() {
    B::block_on(async {
        let output = soon(Command::new("cat").output()).await.unwrap();
        assert!(output.status.success() && output.stdout.is_empty());

        let mut command = shell("echo out; echo err >&2");
        command.stdout(Stdio::null());
        for _ in 0..2 {
            let output = soon(command.output()).await.unwrap();
            assert_eq!((&*output.stdout, &*output.stderr), (&b""[..], &b"err\n"[..]));
        }
    });
}

fn a_wait_closes_the_child_s_input<B: Backend>() {
    B::block_on(async {
        let mut child = cat().spawn().unwrap();
        assert!(soon(child.wait()).await.unwrap().success());
    });
}

fn a_wait_for_a_child_that_is_given_up_is_taken_up_again<B: Backend>() {
    B::block_on(async {
        let mut child = cat().spawn().unwrap();
        let stdin = child.stdin.take();
        for _ in 0..3 {
            assert!(is_pending(child.wait()).await);
        }
        drop(stdin);
        assert!(soon(child.wait()).await.unwrap().success());
    });
}

fn a_child_is_asked_without_waiting<B: Backend>() {
    B::block_on(async {
        let mut child = cat().spawn().unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        drop(child.stdin.take());
        wait_until("the child ends", || child.try_wait().unwrap().is_some());
        assert!(child.try_wait().unwrap().unwrap().success());
        assert!(soon(child.wait()).await.unwrap().success());
    });
}

fn many_children_end_at_once<B: Backend>() {
    B::block_on(async {
        let children = (0..20).map(|code| async move {
            let status = shell(&format!("exit {code}")).status().await.unwrap();
            assert_eq!(status.code(), Some(code));
        });
        soon(join_all(children)).await;
    });
}

fn signals_reach_a_child_and_never_another_process<B: Backend>() {
    B::block_on(async {
        let mut child = cat().spawn().unwrap();
        let stdin = child.stdin.take();
        let nonsense = child.signal(12345).unwrap_err();
        assert_eq!(nonsense.kind(), io::ErrorKind::InvalidInput);
        child.signal(SIGTERM).unwrap();
        assert_eq!(soon(child.wait()).await.unwrap().signal(), Some(SIGTERM));
        // It has ended, and is reaped: there is nobody to be signalled.
        child.signal(SIGTERM).unwrap();
        child.start_kill().unwrap();
        soon(child.kill()).await.unwrap();
        drop(stdin);

        let mut child = cat().spawn().unwrap();
        soon(child.kill()).await.unwrap();
        assert_eq!(soon(child.wait()).await.unwrap().signal(), Some(libc::SIGKILL));
    });
}

/// `O_NONBLOCK` in what the kernel says of an open file.
fn a_child_s_own_ends_block<B: Backend>() {
    B::block_on(async {
        let mut command = shell("cat /proc/self/fdinfo/0 /proc/self/fdinfo/1 /proc/self/fdinfo/2");
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = soon(child.wait_with_output()).await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let flags: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("flags:")).collect();
        assert_eq!(flags.len(), 3, "{text}");
        for flags in flags {
            let flags = i32::from_str_radix(flags.trim(), 8).unwrap();
            assert_eq!(flags & libc::O_NONBLOCK, 0, "{text}");
        }
    });
}

fn children_are_connected_by_a_pipe<B: Backend>() {
    B::block_on(async {
        let mut first = shell("echo through; sleep 0.01; echo both");
        let mut first = first.stdout(Stdio::piped()).spawn().unwrap();
        let pipe = first.stdout.take().unwrap().into_blocking_fd().unwrap();
        let output = soon(Command::new("cat").stdin(pipe).output()).await.unwrap();
        assert_eq!(output.stdout, b"through\nboth\n");
        assert!(soon(first.wait()).await.unwrap().success());
    });
}

fn a_child_that_cannot_be_started_is_an_error<B: Backend>() {
    let nowhere = shell("exit 0").spawn().unwrap_err();
    assert!(nowhere.to_string().contains("no event loop runs"), "{nowhere}");
    B::block_on(async {
        let missing = Command::new("/no/such/program").status().await.unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    });
}

fn a_dropped_child_goes_on_and_is_reaped<B: Backend>() {
    B::block_on(async {
        let mut child = cat().stdout(Stdio::piped()).spawn().unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let entry = entry(&child);
        drop(child);
        stdin.write_all(b"alive").await.unwrap();
        assert_eq!(soon(stdout.read(&mut [0; 8])).await.unwrap(), 5);
        drop(stdin);
        until_reaped(&entry);
    });
}

fn a_dropped_child_is_killed_on_demand_and_reaped<B: Backend>() {
    B::block_on(async {
        let child = Command::new("sleep").arg("1000").kill_on_drop(true).spawn().unwrap();
        let entry = entry(&child);
        drop(child);
        until_reaped(&entry);
    });
}

fn a_command_that_is_given_up_leaves_no_zombie<B: Backend>() {
    B::block_on(async {
        let mut command = shell("echo $$; exec sleep 1000");
        command.kill_on_drop(true).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = [0; 32];
        soon(child.stdout.as_mut().unwrap().read(&mut line)).await.unwrap();
        let entry = entry(&child);
        let ten_ms = Duration::from_millis(10);
        assert!(timeout(ten_ms, child.wait_with_output()).await.is_err());
        until_reaped(&entry);
    });
}

fn children_of_a_loop_that_has_ended_are_killed_on_demand_and_reaped<B: Backend>() {
    let mut event_loop = B::event_loop();
    let (killed, goes_on, stdin) = event_loop
        .block_on(async {
            let mut killed = Command::new("sleep");
            let mut killed = killed.arg("1000").kill_on_drop(true).spawn().unwrap();
            let mut goes_on = cat().spawn().unwrap();
            let entries = (entry(&killed), entry(&goes_on));
            let stdin = goes_on.stdin.take().unwrap().into_blocking_fd().unwrap();
            spawn(async move { killed.wait().await }).detach();
            spawn(async move { goes_on.wait().await }).detach();
            yield_now().await;
            (entries.0, entries.1, stdin)
        })
        .unwrap();
    drop(event_loop);
    until_reaped(&killed);
    assert!(goes_on.exists());
    drop(stdin);
    until_reaped(&goes_on);
}

fn a_child_outlives_its_loop_and_can_be_asked<B: Backend>() {
    let mut event_loop = B::event_loop();
    let (mut child, stdin) = event_loop
        .block_on(async {
            let mut child = cat().spawn().unwrap();
            let stdin = child.stdin.take().unwrap().into_blocking_fd().unwrap();
            assert!(is_pending(child.wait()).await);
            (child, stdin)
        })
        .unwrap();
    drop(event_loop);
    let ended = futures_lite::future::block_on(child.wait()).unwrap_err();
    assert!(ended.to_string().contains("ended"), "{ended}");
    assert_eq!(child.try_wait().unwrap(), None);
    drop(stdin);
    wait_until("the child ends", || child.try_wait().unwrap().is_some());
    let entry = {
        let mut other: EventLoop = B::event_loop();
        let child = other.block_on(async { cat().spawn().unwrap() }).unwrap();
        drop(other);
        entry(&child)
    };
    until_reaped(&entry);
}

/// A child that was dropped is no task of its loop.
fn a_silent_child_does_not_hold_up_a_shutdown<B: Backend>() {
    let mut event_loop = B::event_loop();
    let (entry, stdin) = event_loop
        .block_on(async {
            let mut child = cat().spawn().unwrap();
            let stdin = child.stdin.take().unwrap().into_blocking_fd().unwrap();
            (entry(&child), stdin)
        })
        .unwrap();
    let start = std::time::Instant::now();
    event_loop.shutdown(Duration::from_secs(1000)).unwrap();
    assert!(start.elapsed() < Duration::from_secs(500));
    assert!(entry.exists());
    drop(stdin);
    until_reaped(&entry);
}
