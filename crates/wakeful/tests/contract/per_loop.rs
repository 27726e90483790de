//! A value that each loop has one of: made there at its first use, and dropped there.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, ThreadId};
use std::time::Duration;

use wakeful::{PerLoop, PerLoopError};

use crate::backend::Backend;
use crate::background::wait_until;

on_every_backend! {
    each_loop_makes_its_own_once_at_its_first_use,
    a_value_is_dropped_by_its_loop_s_end_the_last_one_first,
    a_value_goes_with_the_last_clone_on_every_loop,
    another_one_in_its_place_never_sees_the_value,
    without_a_loop_it_is_an_error,
    a_panic_in_its_making_leaves_it_usable,
    it_may_be_used_within_its_use_but_not_within_its_making,
    a_task_that_is_dropped_at_the_loop_s_end_may_use_it,
    a_destructor_of_a_value_may_not_make_another_at_the_end,
    loops_that_come_and_go_leave_nothing_behind,
}

/// Where values were made and dropped.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(&'static str, ThreadId)>>>);

impl Log {
    fn say(&self, what: &'static str) {
        self.0.lock().unwrap().push((what, thread::current().id()));
    }

    fn taken(&self) -> Vec<(&'static str, ThreadId)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Says that it was dropped.
struct Value(Log, &'static str, PhantomData<Rc<()>>);

impl Drop for Value {
    fn drop(&mut self) {
        self.0.say(self.1);
    }
}

fn logged(log: &Log, made: &'static str, dropped: &'static str) -> PerLoop<Value> {
    let log = log.clone();
    PerLoop::new(move || {
        log.say(made);
        Value(log.clone(), dropped, PhantomData)
    })
}

fn each_loop_makes_its_own_once_at_its_first_use<B: Backend>() {
    fn is<T: Clone + Send + Sync + 'static>(_: &T) {}
    let log = Log::default();
    let values = logged(&log, "made", "dropped");
    is(&values);
    let group = B::group().loops(3).build().unwrap();
    assert_eq!(log.taken(), [], "nothing is made before its use");
    let mut threads = Vec::new();
    for handle in group.handles() {
        let values = values.clone();
        let thread = handle.post_and_wait(move || {
            let first = Rc::as_ptr(&values.get());
            assert!(std::ptr::eq(first, Rc::as_ptr(&values.get())), "made once");
            assert!(values.with(|value| std::ptr::eq(first, value)));
            thread::current().id()
        });
        threads.push(thread.unwrap());
    }
    let made: Vec<_> = threads.iter().map(|&thread| ("made", thread)).collect();
    assert_eq!(log.taken(), made);
    group.shutdown(Duration::from_secs(10)).unwrap();
    let mut dropped = log.taken();
    dropped.sort_by_key(|&(_, at)| threads.iter().position(|&thread| thread == at));
    let wanted: Vec<_> = threads.iter().map(|&thread| ("dropped", thread)).collect();
    assert_eq!(dropped, wanted);
}

fn a_value_is_dropped_by_its_loop_s_end_the_last_one_first<B: Backend>() {
    let log = Log::default();
    // The index of the one that is made first is the higher one.
    let second = logged(&log, "make second", "drop second");
    let first = logged(&log, "make first", "drop first");
    B::block_on(async {
        first.with(|_| second.with(|_| ()));
    });
    let said: Vec<_> = log.taken().iter().map(|&(what, _)| what).collect();
    assert_eq!(said, ["make first", "make second", "drop second", "drop first"]);
}

fn a_value_goes_with_the_last_clone_on_every_loop<B: Backend>() {
    let log = Log::default();
    let values = logged(&log, "made", "dropped");
    let clone = values.clone();
    let group = B::group().loops(2).build().unwrap();
    for handle in group.handles() {
        let values = values.clone();
        handle.post_and_wait(move || values.with(|_| ())).unwrap();
    }
    drop(values);
    assert_eq!(log.taken().len(), 2, "both are made");
    // On the thread of one of them, whose own value goes at once.
    let seen = log.clone();
    let at_once = group.handles()[0].post_and_wait(move || {
        drop(clone);
        let mut said = seen.0.lock().unwrap();
        let before = said.len();
        said.retain(|&(_, at)| at != thread::current().id());
        said.len() < before
    });
    assert!(at_once.unwrap());
    let other = group.handles()[1].post_and_wait(|| thread::current().id()).unwrap();
    wait_until("the other loop drops its own", || !log.0.lock().unwrap().is_empty());
    assert_eq!(log.taken(), [("dropped", other)], "while it runs");
    group.shutdown(Duration::from_secs(10)).unwrap();
    assert_eq!(log.taken(), [], "each is dropped once");
}

fn another_one_in_its_place_never_sees_the_value<B: Backend>() {
    B::block_on(async {
        for round in 0..100_u32 {
            let numbers = PerLoop::new(move || Cell::new(round));
            assert_eq!(numbers.with(Cell::get), round);
            numbers.with(|number| number.set(u32::MAX));
            drop(numbers);
            let texts = PerLoop::new(move || round.to_string());
            assert_eq!(texts.with(String::clone), round.to_string());
        }
    });
}

fn without_a_loop_it_is_an_error<B: Backend>() {
    let values = PerLoop::new(|| ());
    assert_eq!(values.try_with(|()| ()), Err(PerLoopError::NoLoop));
    let panicked = catch_unwind(|| values.with(|()| ())).expect_err("it panics");
    let text = panicked.downcast_ref::<String>().expect("a text");
    assert!(text.contains("no event loop runs on this thread"), "{text}");
}

fn a_panic_in_its_making_leaves_it_usable<B: Backend>() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    let values = PerLoop::new(move || {
        assert!(counted.fetch_add(1, Ordering::Relaxed) > 0, "the first time, on purpose");
        42
    });
    B::block_on(async {
        assert!(catch_unwind(AssertUnwindSafe(|| values.with(|_| ()))).is_err());
        assert_eq!(values.with(|value| *value), 42);
        assert!(catch_unwind(AssertUnwindSafe(|| values.with(|_| panic!("on purpose")))).is_err());
        assert_eq!(values.try_with(|value| *value), Ok(42));
    });
    assert_eq!(attempts.load(Ordering::Relaxed), 2);
}

fn it_may_be_used_within_its_use_but_not_within_its_making<B: Backend>() {
    static ITSELF: OnceLock<PerLoop<Result<u32, PerLoopError>>> = OnceLock::new();
    let values = ITSELF.get_or_init(|| {
        PerLoop::new(|| {
            let itself = ITSELF.get().expect("it is there");
            itself.try_with(|_| 0)
        })
    });
    B::block_on(async {
        assert_eq!(values.with(|value| *value), Err(PerLoopError::IsBeingMade));
        let others: PerLoop<RefCell<u32>> = PerLoop::new(RefCell::default);
        let counted = others.with(|one| {
            *one.borrow_mut() += 1;
            others.with(|same| *same.borrow()) + others.get().take()
        });
        assert_eq!(counted, 2);
    });
}

fn a_task_that_is_dropped_at_the_loop_s_end_may_use_it<B: Backend>() {
    struct Uses(PerLoop<Value>);
    impl Drop for Uses {
        fn drop(&mut self) {
            self.0.with(|value| value.0.say("used"));
        }
    }
    let log = Log::default();
    let values = logged(&log, "made", "dropped");
    let uses = Uses(values.clone());
    B::block_on(async move {
        let task = async move {
            let _uses = uses;
            std::future::pending::<()>().await;
        };
        wakeful::spawn(task).detach();
        wakeful::task::yield_now().await;
    });
    let said: Vec<_> = log.taken().iter().map(|&(what, _)| what).collect();
    assert_eq!(said, ["made", "used", "dropped"]);
}

fn a_destructor_of_a_value_may_not_make_another_at_the_end<B: Backend>() {
    struct Asks(PerLoop<u32>, Arc<OnceLock<Result<u32, PerLoopError>>>);
    impl Drop for Asks {
        fn drop(&mut self) {
            let _ = self.1.set(self.0.try_with(|value| *value));
        }
    }
    let (answer, theirs) = (Arc::new(OnceLock::new()), PerLoop::new(|| 42));
    let told = answer.clone();
    let values = PerLoop::new(move || Asks(theirs.clone(), told.clone()));
    B::block_on(async { values.with(|_| ()) });
    assert_eq!(answer.get(), Some(&Err(PerLoopError::LoopEnded)));
}

fn loops_that_come_and_go_leave_nothing_behind<B: Backend>() {
    let log = Log::default();
    let values = logged(&log, "made", "dropped");
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    B::block_on(async { values.with(|_| ()) });
    let before = open();
    for _ in 0..50 {
        B::block_on(async { values.with(|_| ()) });
    }
    // Each loop's bell is a descriptor, and other tests open some meanwhile.
    assert!(open() < before + 50, "a handle of each loop is kept");
    assert_eq!(log.taken().len(), 2 * 51);
}
