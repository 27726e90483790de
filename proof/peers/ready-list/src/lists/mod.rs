//! The lists. [`Name`](crate::list::Name) describes each.

pub mod kernel_epoll;
pub mod mutexed_deque;
pub mod read_write_locked;
pub mod ready_queue;
pub mod spinlocked;
pub mod tokio_mpsc;
pub mod values;
pub mod vyukov;
