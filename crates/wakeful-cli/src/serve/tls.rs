//! The options of TLS, for the services that speak HTTP. Their files are reloaded at SIGHUP, and
//! when a regular check finds a change.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::seconds::positive_seconds;
use clap::{Args, ValueEnum};
use wakeful::signal::{SIGHUP, Signals};
use wakeful::task::spawn_blocking;
use wakeful_services::tls::{ClientAuth, MinVersion, ServerTls, TicketSecret};

#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(super) struct TlsArguments {
    /// Speak TLS: a PEM file with the certificate and those of its issuers. HUP reads the files
    /// again; if one cannot be used, that is logged, and the old certificates stay. May be
    /// repeated, with as many --tls-key: the name that a client asks for decides which certificate
    /// it gets.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Vec<PathBuf>,

    /// A PEM file with the certificate's private key: PKCS#8, SEC1 or PKCS#1, not encrypted.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Vec<PathBuf>,

    /// A PEM file with the authorities that must have issued the clients' certificates.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,

    /// With --tls-client-ca: whether clients need a certificate.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Auth::Require, requires = "tls_client_ca")]
    tls_client_auth: Auth,

    /// The oldest version of TLS that the server accepts.
    #[arg(long, value_name = "VERSION", value_enum, default_value_t = Version::Tls12, requires = "tls_cert")]
    tls_min_version: Version,

    /// Check the files at this interval, and read them again if one has changed.
    #[arg(long, value_name = "SECONDS", value_parser = positive_seconds, requires = "tls_cert")]
    tls_reload_interval: Option<Duration>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Auth {
    /// A client may connect without one; a certificate that does not verify is refused.
    Request,
    /// A client without one is refused.
    Require,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Version {
    #[value(name = "1.2")]
    Tls12,
    #[value(name = "1.3")]
    Tls13,
}

impl TlsArguments {
    /// # Errors
    /// Options that have no meaning together.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.tls_cert.len() == self.tls_key.len() {
            return Ok(());
        }
        let (certificates, keys) = (self.tls_cert.len(), self.tls_key.len());
        Err(format!(
            "--tls-cert and --tls-key go in pairs: {certificates} and {keys} are given. Give each certificate its key"
        ))
    }

    /// What HUP reloads.
    pub(super) fn reloaded(&self) -> Vec<&'static str> {
        if self.tls_cert.is_empty() { Vec::new() } else { vec!["reloading the certificates"] }
    }

    /// Loads the certificates. `None`: there is no certificate, so this is plain HTTP. `tickets` is
    /// the secret that all workers share.
    ///
    /// # Errors
    /// A line for the user: a file cannot be used.
    pub(super) fn load(&self, tickets: Option<TicketSecret>) -> Result<Option<ServerTls>, String> {
        if self.tls_cert.is_empty() {
            return Ok(None);
        }
        let mut builder =
            ServerTls::builder().ticket_secret(tickets).min_version(match self.tls_min_version {
                Version::Tls12 => MinVersion::Tls12,
                Version::Tls13 => MinVersion::Tls13,
            });
        for (certificate, key) in self.tls_cert.iter().zip(&self.tls_key) {
            builder = builder.certificate(certificate, key);
        }
        if let Some(ca) = &self.tls_client_ca {
            let auth = match self.tls_client_auth {
                Auth::Request => ClientAuth::Request,
                Auth::Require => ClientAuth::Require,
            };
            builder = builder.client_ca(auth, ca);
        }
        let tls = builder.build().map_err(|error| format!("cannot serve TLS: {error}"))?;
        Ok(Some(tls))
    }

    /// Reads the files again when they have changed, or at SIGHUP, as long as this thread's loop
    /// runs.
    ///
    /// # Errors
    /// No loop runs here; no descriptors left.
    pub(super) fn watch(&self, tls: Option<&ServerTls>) -> io::Result<()> {
        let Some(tls) = tls else { return Ok(()) };
        if let Some(interval) = self.tls_reload_interval {
            wakeful::spawn(tls.clone().reload_on_change(interval)).detach();
        }
        // The signal is caught before the server listens, because it would end the program.
        let mut hangups = Signals::new(&[SIGHUP])?;
        let tls = tls.clone();
        wakeful::spawn(async move {
            while hangups.recv().await.is_ok() {
                let tls = tls.clone();
                // Failures are logged there, and a panic by its hook.
                if let Err(error) = spawn_blocking(move || tls.reload()).await {
                    tracing::error!(%error, "the certificates cannot be reloaded; the old ones stay in use");
                }
            }
        })
        .detach();
        Ok(())
    }
}
