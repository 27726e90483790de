//! Files while the process may start no thread to read them on. A process of its own, because the
//! limit is the process's. The test's thread gives up being root, whom the limit does not bind.
#![cfg(feature = "files")]

use std::os::unix::fs::chown;
use std::pin::pin;

use futures_lite::future::{block_on, poll_once};
use http::{Request, StatusCode, header};
use rustix::process::{Resource, Rlimit, Uid, getrlimit, getuid, setrlimit};
use rustix::thread::set_thread_uid;
use tower_service::Service;
use wakeful_http::files::ServeDir;

/// Nobody else is this user, so that what counts is this process alone.
const USER: u32 = 54_323;

fn status(files: &mut ServeDir) -> (StatusCode, bool) {
    let response = block_on(files.call(Request::get("/a").body(()).unwrap())).unwrap();
    (response.status(), response.headers().contains_key(header::RETRY_AFTER))
}

#[test]
fn without_a_thread_a_file_is_503_and_afterwards_it_is_there() {
    if !getuid().is_root() {
        eprintln!("skipped: only root can become a user who has no other thread");
        return;
    }
    let tree = tempfile::tempdir().unwrap();
    chown(tree.path(), Some(USER), None).unwrap();
    std::fs::write(tree.path().join("a"), "content").unwrap();
    let mut files = ServeDir::new(tree.path()).unwrap().max_jobs(1);
    // This thread, and those that it starts.
    set_thread_uid(Uid::from_raw(USER)).unwrap();
    let maximum = getrlimit(Resource::Nproc).maximum;
    let allow = |most| setrlimit(Resource::Nproc, Rlimit { current: most, maximum }).unwrap();

    allow(Some(0));
    for _ in 0..3 {
        // Answered by the first poll, and not counted among the jobs that wait.
        let request = Request::get("/a").body(()).unwrap();
        let answered = block_on(poll_once(pin!(files.call(request))));
        let response = answered.expect("nobody waits").unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
    }
    allow(maximum);
    assert_eq!(status(&mut files), (StatusCode::OK, false));
    // The thread that there is now stays.
    allow(Some(0));
    assert_eq!(status(&mut files), (StatusCode::OK, false));
}
