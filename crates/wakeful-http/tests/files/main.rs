//! Files of a directory, through sockets: what is sent, what is not, and what never is.
#![cfg(feature = "files")]

mod answers;
mod changes;
#[path = "../common/mod.rs"]
mod common;
mod conditions;
mod escape;
mod open_files;
mod otherwise;
mod site;
