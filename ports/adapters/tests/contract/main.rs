//! What the adapters in `examples/` have to keep, on the ways to drive a loop that the runtime's
//! own suite has. `docs/contract.md` says which promise is kept by which test.

#[macro_use]
#[path = "../../../../crates/wakeful/tests/contract/backend.rs"]
mod backend;
#[path = "../../../../crates/wakeful/tests/contract/background.rs"]
#[allow(dead_code, reason = "the runtime's suite needs more of it")]
mod background;
#[path = "../../../../crates/wakeful/tests/contract/support.rs"]
#[allow(dead_code, reason = "the runtime's suite needs more of it")]
mod support;

#[path = "../../examples/hickory/dns_server.rs"]
mod dns_server;
mod hickory;
#[path = "../../examples/hickory/runtime.rs"]
mod hickory_runtime;
mod quic;
#[path = "../../examples/quinn/runtime.rs"]
mod quinn_runtime;
