//! The queue with the production bell: an eventfd in the loop's epoll. The loop never reads it, so
//! the counter that the kernel shows in `/proc/self/fdinfo` is the number of rings.

use super::*;
use crate::driver::Driver;
use crate::driver::bell::EventFdBell;
use crate::driver::epoll::Timeout;
use crate::sys::fork_check::Process;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// This time is reached only if a wake is lost.
const LONG: Timeout = Timeout::After(Duration::from_secs(20));

fn queue_and_driver() -> (ReadyQueue<EventFdBell>, Driver) {
    let (driver, bell) = Driver::new(Process::current().unwrap(), 4).unwrap();
    (ReadyQueue::new(bell), driver)
}

fn rings(queue: &ReadyQueue<EventFdBell>) -> u64 {
    let path = format!("/proc/self/fdinfo/{}", queue.bell.as_fd().as_raw_fd());
    let text = std::fs::read_to_string(path).unwrap();
    let count = text.lines().find_map(|line| line.strip_prefix("eventfd-count:")).unwrap();
    u64::from_str_radix(count.trim(), 16).unwrap()
}

fn push_numbered(queue: &ReadyQueue<EventFdBell>, number: usize) {
    // SAFETY: a fresh node, freed by `take`.
    unsafe { queue.push(numbered(0, number)) }.expect("the queue is open");
}

/// The ring may come before the wait, or between this wait and the last one.
#[test]
fn a_ring_before_the_wait_ends_it_and_one_only() {
    let (queue, driver) = queue_and_driver();
    for number in 0..10 {
        assert!(queue.try_sleep());
        push_numbered(&queue, 2 * number);
        push_numbered(&queue, 2 * number + 1);
        assert_eq!(driver.wait(LONG).unwrap(), 1, "the ring is one event");
        driver.dispatch();
        assert_eq!(take(queue.drain()).len(), 2);
        assert_eq!(driver.wait(Timeout::Zero).unwrap(), 0, "heard, and not heard again");
        assert_eq!(
            rings(&queue),
            number as u64 + 1,
            "one for each sleep, and nobody has read the counter"
        );
    }
}

#[test]
fn a_ring_at_a_full_counter_reads_once_and_is_heard() {
    let (queue, driver) = queue_and_driver();
    rustix::io::write(&queue.bell, &(u64::MAX - 2).to_ne_bytes()).unwrap();
    for expected in [u64::MAX - 1, 1, 2] {
        driver.wait(Timeout::Zero).unwrap();
        driver.dispatch();
        assert!(queue.try_sleep());
        push_numbered(&queue, 0);
        assert_eq!(driver.wait(LONG).unwrap(), 1);
        assert_eq!(rings(&queue), expected);
        assert_eq!(take(queue.drain()).len(), 1);
    }
}

/// A signal handler may run on the loop's own thread, between the loop's decision to sleep and the
/// system call. A wait that has not begun cannot be interrupted, so only the ring ends it.
#[test]
fn a_signal_handler_on_the_own_thread_between_the_decision_and_the_wait() {
    use signal_hook::consts::signal::SIGUSR1;
    let (queue, driver) = queue_and_driver();
    let queue = Arc::new(queue);
    let its_queue = queue.clone();
    // SAFETY: the handler calls `wake`, which is async-signal-safe.
    let handler = unsafe { signal_hook::low_level::register(SIGUSR1, move || its_queue.wake()) };
    for sleeps in 1..=3 {
        assert!(queue.try_sleep());
        signal_hook::low_level::raise(SIGUSR1).unwrap();
        assert_eq!(rings(&queue), sleeps);
        assert_eq!(driver.wait(LONG).unwrap(), 1);
        driver.dispatch();
        assert!(take(queue.drain()).is_empty());
        signal_hook::low_level::raise(SIGUSR1).unwrap();
        assert!(!queue.try_sleep(), "awake: the bit prevents the sleep, without a ring");
        assert_eq!(rings(&queue), sleeps);
        take(queue.drain());
    }
    signal_hook::low_level::unregister(handler.unwrap());
}
