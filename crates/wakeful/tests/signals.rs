//! Signals as futures. Alone in its process, because signals are the process's.

use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use wakeful::signal::{SIGUSR1, SIGUSR2, Signals};
use wakeful::time::timeout;

#[wakeful::test]
async fn each_signal_is_received_by_its_number() {
    let mut signals = Signals::new(&[SIGUSR1, SIGUSR2]).unwrap();
    for (signal, number) in
        [(Signal::USR1, SIGUSR1), (Signal::USR2, SIGUSR2), (Signal::USR1, SIGUSR1)]
    {
        kill_process(getpid(), signal).unwrap();
        let received = timeout(Duration::from_secs(20), signals.recv()).await.unwrap();
        assert_eq!(received.unwrap(), number);
    }
    assert!(timeout(Duration::from_millis(1), signals.recv()).await.is_err(), "no more of them");
    assert!(Signals::new(&[9]).is_err(), "SIGKILL cannot be caught");
}
