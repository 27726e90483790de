//! One task wakes another task of the same loop, again and again. `atomics.sh` counts the cost.
//!
//! `local_wakes wakeful|tokio ROUNDS`. In each round both tasks run once: the second task wakes the
//! first, and then itself by a yield. So each round has two wakes.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::process::ExitCode;
use std::rc::Rc;
use std::task::{Poll, Waker};

type Slot = Rc<RefCell<Option<Waker>>>;

/// Completes when it has been woken `rounds` times.
fn sleeper(rounds: u64, slot: Slot) -> impl Future<Output = ()> {
    let mut left = rounds;
    poll_fn(move |cx| {
        slot.borrow_mut().get_or_insert_with(|| cx.waker().clone());
        left -= 1;
        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
}

/// Wakes the sleeper, and then itself.
fn waker(slot: Slot) -> impl Future<Output = ()> {
    poll_fn(move |cx| {
        if let Some(sleeper) = &*slot.borrow() {
            sleeper.wake_by_ref();
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

fn wakeful(rounds: u64) {
    wakeful::block_on(async {
        let slot = Slot::default();
        let sleeper = wakeful::spawn(sleeper(rounds, slot.clone()));
        wakeful::spawn(waker(slot)).detach();
        sleeper.await.expect("no panic");
    });
}

fn tokio(rounds: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let slot = Slot::default();
        let sleeper = tokio::task::spawn_local(sleeper(rounds, slot.clone()));
        tokio::task::spawn_local(waker(slot));
        sleeper.await.expect("no panic");
    });
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [runtime, rounds] if rounds.parse::<u64>().is_ok_and(|rounds| rounds > 0) => {
            let rounds = rounds.parse().expect("it just was");
            match runtime {
                "wakeful" => wakeful(rounds),
                "tokio" => tokio(rounds),
                _ => return usage(),
            }
            ExitCode::SUCCESS
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: local_wakes wakeful|tokio ROUNDS");
    ExitCode::from(2)
}
