//! The documentation's parts of programs, each in a function around it, so that they compile.
//!
//! A page whose blocks are programs is a doctest instead (`doc_pages::PROGRAMS`). Of a page, what
//! is left to the reader is made up here: types and functions of their own, and of crates that no
//! test of this workspace has (sqlx, reqwest). `ports/` has services that use those. The test
//! `own_service` compiles and runs `fragments/own_service.rs` and `own_pod.rs`.

#![allow(dead_code, unused_imports, unused_mut, unused_variables)] // Nothing here is called.
#![allow(clippy::let_and_return, clippy::needless_pass_by_value)]

#[path = "fragments/axum.rs"]
mod axum_page;
#[path = "fragments/from_tokio.rs"]
mod from_tokio;
#[path = "fragments/getting_started.rs"]
mod getting_started;
#[path = "fragments/grpc.rs"]
mod grpc;
// Part of it is generated.
#[allow(missing_debug_implementations, unreachable_pub, clippy::all, clippy::pedantic)]
#[path = "fragments/grpc_pod.rs"]
mod grpc_pod;
#[path = "fragments/idle.rs"]
mod idle;
#[path = "fragments/keeper.rs"]
mod keeper;
#[path = "fragments/metrics.rs"]
mod metrics;
#[path = "fragments/slow_requests.rs"]
mod slow_requests;
#[path = "fragments/testing.rs"]
mod testing;
#[path = "fragments/tls.rs"]
mod tls;
#[path = "fragments/workers.rs"]
mod workers;

use doc_pages::{Block, PROGRAMS, pages};

/// All that is compiled here.
const COMPILED: [&str; 15] = [
    include_str!("fragments/axum.rs"),
    include_str!("fragments/from_tokio.rs"),
    include_str!("fragments/getting_started.rs"),
    include_str!("fragments/grpc.rs"),
    include_str!("../build.rs"),
    include_str!("fragments/grpc_pod.rs"),
    include_str!("fragments/idle.rs"),
    include_str!("fragments/keeper.rs"),
    include_str!("fragments/metrics.rs"),
    include_str!("fragments/own_pod.rs"),
    include_str!("fragments/own_service.rs"),
    include_str!("fragments/slow_requests.rs"),
    include_str!("fragments/testing.rs"),
    include_str!("fragments/tls.rs"),
    include_str!("fragments/workers.rs"),
];

/// Without comments, white space, and commas that rustfmt adds or takes.
fn tokens(text: &str) -> String {
    let code = text.lines().map(|line| line.split("// ").next().unwrap_or_default());
    let mut tokens: String = code.collect::<Vec<_>>().concat();
    tokens.retain(|char| !char.is_whitespace());
    for end in [")", "]", "}"] {
        tokens = tokens.replace(&format!(",{end}"), end);
    }
    tokens
}

/// A block's code; of a difference, that which there is afterwards.
fn code(block: &Block) -> Option<String> {
    match block.language.as_str() {
        "rust" => Some(block.text.clone()),
        "diff" => {
            let kept = block.text.lines().filter(|line| !line.starts_with('-'));
            Some(kept.map(|line| format!("{}\n", line.get(1..).unwrap_or_default())).collect())
        }
        _ => None,
    }
}

#[test]
fn each_block_is_compiled() {
    let compiled: String = COMPILED.map(tokens).concat();
    let mut missing = Vec::new();
    let mut count = 0;
    for page in pages() {
        if PROGRAMS.contains(&page.file.as_str()) {
            continue;
        }
        for block in page.blocks() {
            let Some(code) = code(&block) else { continue };
            count += 1;
            if !compiled.contains(&tokens(&code)) {
                missing.push(block.place.to_string());
            }
        }
    }
    assert!(missing.is_empty(), "not in tests/fragments/: {}", missing.join(", "));
    assert!(count >= 15, "only {count} found");
}
