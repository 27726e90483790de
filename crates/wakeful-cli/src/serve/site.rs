//! `wakeful serve http`: the files that it serves, and its access log.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use wakeful_services::http::{
    AccessLog, Destination, Format, HttpOptions, Precompressed, Query, ServeDir,
};

use super::writable::can_be_appended;

#[derive(Debug, Args)]
#[command(next_help_heading = "Files and logs")]
pub(super) struct SiteArguments {
    /// Serve the files of this directory; / is its index.html. The service's own paths stay. Files
    /// outside of the directory are not served, not even through links, nor are names that begin
    /// with a dot. Clients that accept it get file.br or file.gz instead of file
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Write a line for each request to standard output, or to --access-log-file. Each request then
    /// gets a new id (x-request-id), and a traceparent is continued. Query strings are left out
    #[arg(long, value_enum, value_name = "FORMAT")]
    access_log: Option<LogFormat>,

    /// Append the access log to this file. HUP opens it anew, after a rotation
    #[arg(long, value_name = "FILE", requires = "access_log")]
    access_log_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    /// A JSON object on each line.
    Json,
    /// The common log format.
    Common,
    /// The common log format, with referer and user agent.
    Combined,
}

impl SiteArguments {
    /// Opens the files of the options.
    ///
    /// # Errors
    /// A line for the user.
    pub(super) fn options(&self) -> Result<HttpOptions, String> {
        let files = self.files()?.map(|files| files.precompressed(Precompressed::Offer));
        let log = self.access_log.map(|format| self.open(format)).transpose();
        let log = log.map_err(|error| error.to_string())?;
        Ok(HttpOptions::new().files(files).access_log(log))
    }

    /// Checks that the files can be used. The access log is not made.
    ///
    /// # Errors
    /// A line for the user.
    pub(super) fn try_out(&self) -> Result<(), String> {
        self.files()?;
        let Some(path) = &self.access_log_file else { return Ok(()) };
        can_be_appended(path)
            .map_err(|error| format!("cannot write the access log {}: {error}", path.display()))
    }

    /// What HUP reloads.
    pub(super) fn reloaded(&self) -> Option<&'static str> {
        self.access_log_file.is_some().then_some("reopening the access log")
    }

    /// # Errors
    /// A line for the user.
    fn files(&self) -> Result<Option<ServeDir>, String> {
        let files = self.root.as_deref().map(ServeDir::new).transpose();
        files.map_err(|error| format!("--root: {error}"))
    }

    fn open(&self, format: LogFormat) -> std::io::Result<AccessLog> {
        let format = match format {
            LogFormat::Json => Format::Json,
            LogFormat::Common => Format::Common,
            LogFormat::Combined => Format::Combined,
        };
        let file = self.access_log_file.clone();
        let destination = file.map_or(Destination::Stdout, Destination::File);
        AccessLog::new(format, destination, Query::Omit)
    }
}
