//! Certificates that change while a server runs.
//!
//! Each handshake uses the configuration of that moment, so a reload does not affect open
//! connections. A reload replaces all or nothing: if a file cannot be loaded, nothing changes.
//! Sessions survive a reload.

use std::sync::PoisonError;
use std::time::Duration;

use wakeful::task::spawn_blocking;
use wakeful::time::sleep;

use super::server::{ServerTls, Shared};
use super::{TlsError, pem_files};
use crate::foreign_code;

/// A limit, because a check reads the metadata of all files.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);

impl ServerTls {
    /// Reads all files again. New handshakes use the new contents. Open connections do not change.
    /// Reading the files blocks the thread, so do not call it on a loop: use for example
    /// `wakeful::task::spawn_blocking`.
    ///
    /// # Errors
    /// The same as for [`ServerTlsBuilder::build`](super::ServerTlsBuilder::build); or a
    /// certificate has expired or is not valid yet, and is not the one in use. After an error,
    /// which is also logged, the server keeps its old certificates.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.reload_unless_told_of(None)
    }

    /// Reloads. An error whose text equals `told` is neither logged nor counted again.
    fn reload_unless_told_of(&self, told: Option<&str>) -> Result<(), TlsError> {
        let Shared { settings, current, source, counts } = &*self.0;
        let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
        source.looks = settings.looks();
        match settings.load(Some((self.config().ticketer.clone(), &source.leaves))) {
            Ok((config, leaves)) => {
                source.leaves = leaves;
                *current.write().unwrap_or_else(PoisonError::into_inner) = config;
                source.may_pass = None;
                // The lock is released first, because a subscriber may block, or itself reload.
                drop(source);
                counts.reloads.one_more();
                foreign_code::log!(info, "TLS: the certificates were reloaded");
                Ok(())
            }
            Err(error) => {
                let text = error.to_string();
                let is_news = told.is_none_or(|told| told != text);
                source.may_pass = pem_files::may_pass(&error).then_some(text);
                drop(source);
                if is_news {
                    counts.failed_reloads.one_more();
                    foreign_code::log!(error, %error, "TLS: cannot reload the certificates; the old ones stay in use");
                }
                Err(error)
            }
        }
    }

    /// Checks the files periodically, on the blocking pool, and [reloads](Self::reload) them when
    /// one of them was written or replaced. Between two checks it waits for `every`, but at least
    /// for 100 ms. The future never completes: spawn it on a loop. Use it if the program that
    /// changes the files cannot send a signal.
    ///
    /// If a file cannot be read, or a certificate is not valid yet, this is logged once, and each
    /// check tries again.
    ///
    /// # Cancel safety
    /// Cancel-safe: a check that has started finishes in the background.
    ///
    /// # Panics
    /// If it is polled where no loop runs.
    pub async fn reload_on_change(self, every: Duration) {
        loop {
            sleep(every.max(SHORTEST_WAIT)).await;
            let this = self.clone();
            // The next check may succeed.
            if let Err(error) = spawn_blocking(move || this.reload_if_changed()).await {
                foreign_code::log!(error, %error, "TLS: cannot check whether the certificates have changed");
            }
        }
    }

    fn reload_if_changed(&self) {
        let looks = self.0.settings.looks();
        let source = self.0.source.lock().unwrap_or_else(PoisonError::into_inner);
        let (changed, told) = (source.looks != looks, source.may_pass.clone());
        drop(source);
        if changed || told.is_some() {
            // The error was logged. If the files have changed, the same error is logged once more.
            let _ = self.reload_unless_told_of(told.filter(|_| !changed).as_deref());
        }
    }
}
