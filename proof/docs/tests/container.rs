//! The image of docs/production.md is built as packaging/container/Dockerfile, which
//! `.ci/container` and `.ci/packaging` check.

use std::fs;

use doc_pages::{blocks, root};

/// Without comments.
fn instructions(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_page_has_our_image_for_another_program() {
    let ours = fs::read_to_string(root().join("packaging/container/Dockerfile")).unwrap();
    let ours: String = instructions(&ours)
        .replace(" -p wakeful-cli", "")
        .replace("/wakeful", "/my-service")
        .replace("ENTRYPOINT [\"/my-service\", \"serve\"]", "ENTRYPOINT [\"/my-service\"]")
        .lines()
        .filter(|line| !line.starts_with("EXPOSE ") && !line.starts_with("CMD "))
        .map(|line| format!("{line}\n"))
        .collect();
    let blocks = blocks("dockerfile");
    assert!(!blocks.is_empty());
    for block in blocks {
        assert_eq!(instructions(&block.text), ours, "{}", block.place);
    }
}

/// As `1.95`, of `FROM rust:1.95-slim`.
fn version(text: &str) -> Vec<u32> {
    text.split('.').map(|number| number.parse().unwrap()).collect()
}

#[test]
fn its_rust_can_build_it() {
    for block in blocks("dockerfile") {
        let image = block.text.lines().find_map(|line| line.strip_prefix("FROM rust:")).unwrap();
        let of_image = version(image.split('-').next().unwrap());
        assert!(of_image >= version(env!("CARGO_PKG_RUST_VERSION")), "{}: {image}", block.place);
    }
}
