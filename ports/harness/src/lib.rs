//! What the tests of the services share: a service as a process, the databases that it needs, and
//! the check of its end.
//!
//! A service is a library and two programs: `src/tokio.rs`, as its author wrote it, and
//! `src/wakeful.rs`, which it was moved to. [`on_both!`] makes a test for each program, with the
//! same clients. Both read the environment variable `ADDR`.

mod databases;
mod process;

pub use databases::{Postgres, Redis};
pub use process::{Program, Service};

use std::net::{SocketAddr, TcpListener};

/// How long anything may take, on a machine that is busy with something else.
pub const GUARD: std::time::Duration = std::time::Duration::from_secs(60);

/// Makes two tests of `clients`, an `async fn(Program)`: one with the Tokio program `NAME-tokio`,
/// one with the wakeful program `NAME`.
#[macro_export]
macro_rules! on_both {
    ($name:literal, $clients:path) => {
        #[tokio::test]
        async fn on_tokio() {
            $clients($crate::Program::on_tokio(env!(concat!("CARGO_BIN_EXE_", $name, "-tokio"))))
                .await;
        }

        #[tokio::test]
        async fn on_wakeful() {
            $clients($crate::Program::on_wakeful(env!(concat!("CARGO_BIN_EXE_", $name)))).await;
        }
    };
}

/// An address of this host that nobody listens on.
pub fn free_addr() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("the address of a listener")
}

/// Awaits `attempt` again and again until it returns `Some`, for [`GUARD`] at most.
pub async fn until<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = attempt().await {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let found = tokio::time::timeout(GUARD, found).await;
    found.unwrap_or_else(|_| panic!("{what}: not within {GUARD:?}"))
}
