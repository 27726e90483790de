//! Signals as futures. Alone in its process, because signals are the process's.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use signal_hook::low_level::raise;
use wakeful::signal::{SIGUSR1, SIGUSR2, Signals};
use wakeful::time::timeout;

#[macro_use]
#[path = "contract/backend.rs"]
mod backend;

use backend::Backend;

on_every_backend! {
    each_signal_is_received_by_its_number,
    a_signal_that_comes_again_and_again_leaves_its_loop_to_others,
    a_signal_that_comes_again_and_again_hides_no_other_one,
}

/// Signals reach the whole process: one test at a time.
static TURN: Mutex<()> = Mutex::new(());

fn my_turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn each_signal_is_received_by_its_number<B: Backend>() {
    let _turn = my_turn();
    B::block_on(async {
        let mut signals = Signals::new(&[SIGUSR1, SIGUSR2]).unwrap();
        for (signal, number) in
            [(Signal::USR1, SIGUSR1), (Signal::USR2, SIGUSR2), (Signal::USR1, SIGUSR1)]
        {
            kill_process(getpid(), signal).unwrap();
            let received = timeout(Duration::from_secs(20), signals.recv()).await.unwrap();
            assert_eq!(received.unwrap(), number);
        }
        assert!(
            timeout(Duration::from_millis(1), signals.recv()).await.is_err(),
            "no more of them"
        );
        assert!(Signals::new(&[9]).is_err(), "SIGKILL cannot be caught");
    });
}

fn a_signal_that_comes_again_and_again_leaves_its_loop_to_others<B: Backend>() {
    let _turn = my_turn();
    B::block_on(async {
        let mut signals = Signals::new(&[SIGUSR1]).unwrap();
        let others = Rc::new(Cell::new(false));
        let mark = others.clone();
        let other = wakeful::spawn(async move { mark.set(true) });
        let mut times = 0;
        while !others.get() {
            // It is there before the call returns.
            raise(SIGUSR1).unwrap();
            assert_eq!(signals.recv().await.unwrap(), SIGUSR1);
            times += 1;
            assert!(times < 10_000, "no other task had its turn");
        }
        other.await.unwrap();
    });
}

fn a_signal_that_comes_again_and_again_hides_no_other_one<B: Backend>() {
    let _turn = my_turn();
    B::block_on(async {
        for [often, once] in [[SIGUSR1, SIGUSR2], [SIGUSR2, SIGUSR1]] {
            let mut signals = Signals::new(&[SIGUSR1, SIGUSR2]).unwrap();
            raise(often).unwrap();
            raise(once).unwrap();
            let mut received = Vec::new();
            for _ in 0..3 {
                received.push(signals.recv().await.unwrap());
                raise(often).unwrap();
            }
            assert!(received.contains(&once), "{once} in {received:?}");
        }
    });
}
