//! What operators do not read: a backend's 426 is no mistake of the proxy. A process of its own,
//! because there is one log.

#[path = "proxy/common.rs"]
mod common;
#[path = "proxy/log.rs"]
mod log;

use common::*;
use log::Log;

#[test]
fn a_backend_s_426_to_a_request_for_an_upgrade_is_not_told_as_an_error() {
    let log = Log::start();
    let backend = Backend::saying(
        "HTTP/1.1 426 Upgrade Required\r\nupgrade: websocket\r\ncontent-length: 0\r\n\r\n",
    );
    let proxy = proxy(&[backend.addr], |settings| settings);
    // One that the proxy forwards, and one that it does not know.
    for protocol in ["websocket", "x/1"] {
        let request = format!(
            "GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade, close\r\nupgrade: {protocol}\r\n\r\n"
        );
        assert_status(&ask(addr(&proxy), &request), 426);
    }
    let lines = log.take_with("426");
    assert!(lines.is_empty(), "{lines:?}");
}
