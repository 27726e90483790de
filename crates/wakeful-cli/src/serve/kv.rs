//! `wakeful serve kv`.

use clap::Args;
use wakeful_services::kv::{self, KvOptions};

use super::activity::ActivityArguments;
use super::common::CommonArguments;
use super::lifecycle::{serving, until_terminated};
use super::size;

/// The words of a command are values too.
const SMALLEST_MAX_VALUE: usize = 64;

#[derive(Debug, Args)]
pub(super) struct KvArguments {
    #[command(flatten)]
    pub(super) common: CommonArguments,

    /// What keys, values and what holds them may take, on all loops together; beyond it what needs more is refused [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_memory: Option<usize>,

    /// The longest key or value, 64 to 512MiB; a command may have 1 MiB more in all [default: 16MiB]
    #[arg(long, value_name = "SIZE", value_parser = max_value)]
    max_value: Option<usize>,
}

/// # Errors
/// A line for the user.
pub(super) fn serve(arguments: &KvArguments) -> Result<(), String> {
    // All loops have keys.
    let options = arguments.common.options(&ActivityArguments::default())?;
    let default = KvOptions::default();
    let kv_options = KvOptions {
        max_memory: arguments.max_memory.unwrap_or(default.max_memory),
        max_value: arguments.max_value.unwrap_or(default.max_value),
    };
    let listeners = options.bind()?;
    until_terminated(&options, || kv::start(&options, kv_options, listeners).map(serving))
}

fn max_value(text: &str) -> Result<usize, String> {
    let size = size::parse(text)?;
    if (SMALLEST_MAX_VALUE..=kv::LARGEST_VALUE).contains(&size) {
        Ok(size)
    } else {
        Err("at least 64 and at most 512MiB".to_owned())
    }
}
