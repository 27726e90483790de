//! A loop with a guest is built or returns an error, however few descriptors are left. Tokio's
//! feature `signal` is on, as in many programs: it panics if no descriptors are left. The test has
//! a process of its own, because it uses up the descriptors, and because Tokio's signal pipe
//! belongs to the process.

use std::fs::File;

use wakeful::EventLoop;
use wakeful::accept::is_shortage;

#[path = "contract/descriptors.rs"]
#[allow(dead_code, reason = "not all of it is needed here")]
mod descriptors;

use self::descriptors::open;

/// A loop and its guest need fewer descriptors than this.
const PLENTY: usize = 32;

#[test]
fn a_guest_that_finds_too_few_descriptors_is_an_error() {
    let before = open().len();
    let mut refused = 0;
    for left in 0..PLENTY {
        let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        taken.truncate(taken.len() - left);
        let built = EventLoop::builder().tokio().build();
        drop(taken);
        match built {
            Ok(mut event_loop) => {
                assert!(refused > 0, "the first tries found none");
                assert_eq!(event_loop.block_on(async { left }).unwrap(), left);
                return;
            }
            Err(error) => {
                assert!(is_shortage(&error), "{left} left: {error}");
                assert!(error.to_string().contains("RLIMIT_NOFILE"), "{left} left: {error}");
                // Tokio never closes its signal pipe.
                assert!(open().len() <= before + 2, "{left} left");
                refused += 1;
            }
        }
    }
    panic!("{PLENTY} descriptors are not enough");
}
