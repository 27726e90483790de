//! A wait that spins before it sleeps. It is wakeful's own wait (`event_loop/wait.rs`), adapted to
//! a program that knows nothing of wakeful.

use std::time::Duration;

use wakeful::idle::{Next, Spinner};

use crate::clock::now;
use crate::counts::{self, add};
use crate::errno::{self, Answer};
use crate::settings;
use crate::signals;
use crate::spinner;
use crate::waits::{Limit, Wait};

/// How a wait begins.
enum First {
    /// There is no idle period, because there was something to report.
    Answer(Answer),
    /// The wait continues as without this crate.
    AsAsked,
    Sleep,
    /// The thread spins for at most this long. The value is the time at which that is over.
    Spin(Option<u64>),
}

/// What ended a wait that began with a spin.
enum Ended {
    Spinning(Answer),
    Sleeping(Answer),
}

/// Waits, and returns what libc's function would.
///
/// A cancelled thread leaves its frames from within a sleep: nothing has to be dropped in them, and
/// no sleep is inside of [`spinner::with`]. A thread that is cancelled asynchronously may leave
/// them from anywhere outside of `with`.
#[inline]
pub(crate) fn wait(wait: &impl Wait) -> libc::c_int {
    let before = errno::get();
    let first = spinner::with(|spinner| begin(spinner, wait)).unwrap_or(First::AsAsked);
    let slept = match first {
        First::Answer(answer) => return errno::returned(answer, before),
        First::AsAsked => return errno::returned(wait.as_asked(), before),
        First::Sleep => wait.as_asked(),
        First::Spin(until) => match spin_and_sleep(wait, until) {
            Ended::Spinning(answer) => return errno::returned(answer, before),
            Ended::Sleeping(answer) => answer,
        },
    };
    if slept.is_ok_and(|events| events > 0) {
        spinner::with(|spinner| spinner.woken(now()));
    }
    errno::returned(slept, before)
}

#[inline]
fn begin(spinner: &mut Spinner, wait: &impl Wait) -> First {
    let Some(limit) = wait.limit() else { return First::AsAsked };
    let asked = spinner.expects_soon();
    if asked {
        match wait.ask() {
            Ok(0) => {}
            answer if is_no_answer(answer) => return First::AsAsked,
            answer => return First::Answer(answer),
        }
    }
    let began = now();
    if spinner.begin(began) == Next::Sleep {
        spinner.sleeps();
        return First::Sleep;
    }
    if !asked {
        // The kernel must have seen the program's arguments before the spin uses them.
        match wait.ask() {
            Ok(0) => {}
            answer => {
                spinner.cut_short(began);
                spinner.sleeps();
                let is_none = is_no_answer(answer);
                return if is_none { First::AsAsked } else { First::Answer(answer) };
            }
        }
    }
    First::Spin(deadline(began, limit))
}

/// Spins with signals blocked, and sleeps if the spin has not ended the wait. Restores the mask
/// afterwards.
fn spin_and_sleep(wait: &impl Wait, until: Option<u64>) -> Ended {
    let Some(before) = signals::block() else {
        // As in `is_no_answer`.
        settings::disable();
        return Ended::Sleeping(wait.as_asked());
    };
    let mask = wait.mask().unwrap_or(before.mask());
    let spun = spinner::with(|spinner| {
        let answer = spin(spinner, wait, &mask, until);
        spinner.sleeps();
        (answer, spinner.wants_survey())
    });
    let (spun, wants_survey) = spun.unwrap_or_default();
    if wants_survey && !may_be_in_handler(wait, &before) {
        spinner::begin_survey();
    }
    let ended = match spun {
        Some(answer) => Ended::Spinning(answer),
        None => Ended::Sleeping(wait.sleep(left(until), &mask)),
    };
    before.restore();
    ended
}

/// Whether this wait may have interrupted `malloc`. `poll` may be called in any signal handler
/// (signal-safety(7)), and a handler mostly runs with its own signal blocked. `epoll_wait` may be
/// called only in a handler that has not interrupted such a function.
fn may_be_in_handler(wait: &impl Wait, before: &signals::Before) -> bool {
    wait.is_for_handlers() && before.blocks_any()
}

/// Returns `None` if the wait should sleep.
fn spin(
    spinner: &mut Spinner,
    wait: &impl Wait,
    mask: &libc::sigset_t,
    until: Option<u64>,
) -> Option<Answer> {
    add(&counts::SPINS);
    loop {
        // This costs 0.17 µs if no other thread wants the CPU.
        std::thread::yield_now();
        let found = wait.look(mask);
        let now = now();
        if is_no_answer(found) {
            spinner.cut_short(now);
            return None;
        }
        let gives_way = spinner.look(now) == Next::Sleep;
        if gives_way {
            add(&counts::GAVE_WAY);
        }
        if found != Ok(0) {
            match found {
                _ if gives_way => {}
                Ok(_) => {
                    add(&counts::HITS);
                    spinner.hit(now);
                }
                Err(_) => spinner.cut_short(now),
            }
            return Some(found);
        }
        if gives_way {
            return None;
        }
        if until.is_some_and(|until| now >= until) {
            spinner.cut_short(now);
            // The kernel is asked again, for what has come since the last look.
            return Some(wait.look(mask)).filter(|found| !is_no_answer(*found));
        }
        if spinner.found_nothing(now) == Next::Sleep {
            add(&counts::MISSES);
            return None;
        }
    }
}

/// Whether the kernel has given no answer for the program. An answer is what is found, or EINTR if
/// a handler has run. EBADF, EFAULT and EINVAL mean that the arguments are wrong, for example
/// because another thread has closed the descriptor, and ENOMEM that no memory is left. The
/// program's own call, or the sleep after a spin, reports that to the program. Any other error
/// concerns only this crate: a seccomp filter permits the program's calls, but not these. Then this
/// crate stops spinning for good.
fn is_no_answer(answer: Answer) -> bool {
    match answer {
        Ok(_) | Err(libc::EINTR) => false,
        Err(libc::EBADF | libc::EFAULT | libc::EINVAL | libc::ENOMEM) => true,
        Err(_) => {
            settings::disable();
            true
        }
    }
}

fn deadline(now: u64, limit: Limit) -> Option<u64> {
    let limit = u64::try_from(limit?.as_nanos()).unwrap_or(u64::MAX);
    Some(now.saturating_add(limit))
}

fn left(until: Option<u64>) -> Option<Duration> {
    until.map(|until| Duration::from_nanos(until.saturating_sub(now())))
}
