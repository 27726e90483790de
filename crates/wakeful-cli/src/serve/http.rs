//! `wakeful serve http`.

use clap::Args;
use wakeful_services::http;

use super::activity::ActivityArguments;
use super::common::CommonArguments;
use super::lifecycle::{Started, until_terminated};
use super::site::SiteArguments;

#[derive(Debug, Args)]
pub(super) struct HttpArguments {
    #[command(flatten)]
    pub(super) common: CommonArguments,

    #[command(flatten)]
    activity: ActivityArguments,

    #[command(flatten)]
    site: SiteArguments,
}

/// # Errors
/// A line for the user.
pub(super) fn serve(arguments: &HttpArguments) -> Result<(), String> {
    let options = arguments.common.options(&arguments.activity)?;
    let http_options = arguments.site.options()?;
    let listeners = options.bind()?;
    until_terminated(&options, || {
        let running = http::start(&options, http_options, listeners)?;
        Ok(Started {
            addrs: running.local_addrs().to_vec(),
            loops: running.handles().len(),
            shutdown: move |grace| running.shutdown(grace),
        })
    })
}
