//! State that is not `Send`: each loop makes a service of its own, which holds an `Rc`. No lock, no
//! atomic.
//!
//! Try `curl 127.0.0.1:8080` a few times: each loop counts for itself, so the number depends on
//! which loop took the connection. `curl 127.0.0.1:8080 127.0.0.1:8080` sends two requests on one
//! connection: one loop, two numbers in a row.

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;

use http::Response;
use wakeful_http::{Server, service_fn};

fn main() -> std::io::Result<()> {
    Server::bind("127.0.0.1:8080")?.serve_with(|| {
        // Runs once on each loop.
        let requests = Rc::new(Cell::new(0_u64));
        service_fn(move |_request| {
            let requests = requests.clone();
            async move {
                requests.set(requests.get() + 1);
                Ok::<_, Infallible>(Response::new(format!("request {}\n", requests.get())))
            }
        })
    })
}
