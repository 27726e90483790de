//! The program `api-surface`: prints the public API of a library, a line for each item, from
//! rustdoc's JSON.
//!
//! `.ci/api` compares what it prints with the files in `docs/api`. Left out are what is hidden in
//! the docs, what `derive` makes, and what the compiler and blanket implementations give to all
//! types.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (Some(json), None) = (args.next(), args.next()) else {
        eprintln!("usage: api-surface RUSTDOC.json");
        return ExitCode::from(2);
    };
    let api = public_api::Builder::from_rustdoc_json(&json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build();
    match api {
        Ok(api) => {
            print!("{api}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {json}: {error}");
            ExitCode::FAILURE
        }
    }
}
