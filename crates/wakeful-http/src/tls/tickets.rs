//! Session tickets that all processes of a server can read: their keys follow from one secret.
//!
//! A ticket contains the number of its period, a nonce, and the session, encrypted with
//! AES-256-GCM. Each period of six hours has a key of its own, derived (HKDF-SHA256, RFC 5869) from
//! the secret and the period's number. Tickets of the previous period are also accepted, and so are
//! those of the next period, because another process may have begun it a moment earlier.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::server::ProducesTickets;

const PERIOD: Duration = Duration::from_secs(6 * 60 * 60);
const NUMBER: usize = size_of::<u64>();

/// A secret for session tickets that several processes share. Make it before a fork, and give it to
/// the server of each child
/// ([`ServerTlsBuilder::ticket_secret`](super::ServerTlsBuilder::ticket_secret)). A client can then
/// resume its session with any of them. If a child executes another program, pass the
/// [bytes](Self::to_bytes) of the secret to it by a pipe or by shared memory: other users may read
/// the environment and the command line of a process.
///
/// Anyone who has the secret can read all tickets that were made with it, and with TLS 1.2 also
/// recorded traffic of their sessions. So do not keep it for longer than the processes live.
/// `Debug` does not show it.
///
/// # Threads
/// `Send` and `Sync`.
#[derive(Clone)]
pub struct TicketSecret([u8; 32]);

impl TicketSecret {
    /// Makes a random secret. Returns `None` if the kernel provides no random numbers.
    #[must_use]
    pub fn random() -> Option<Self> {
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).ok()?;
        Some(Self(secret))
    }

    /// Returns the secret itself, for another process of the same server.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0
    }
}

impl From<[u8; 32]> for TicketSecret {
    /// Restores a secret from its [bytes](TicketSecret::to_bytes).
    fn from(secret: [u8; 32]) -> Self {
        Self(secret)
    }
}

impl fmt::Debug for TicketSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketSecret").finish_non_exhaustive()
    }
}

/// The tickets that all processes of a server share. See the [module](self).
pub(super) struct SharedTickets {
    keys: Prk,
    random: SystemRandom,
}

impl SharedTickets {
    pub(super) fn new(TicketSecret(secret): &TicketSecret) -> Self {
        let keys = Salt::new(HKDF_SHA256, b"").extract(secret);
        Self { keys, random: SystemRandom::new() }
    }

    fn key(&self, period: u64) -> Option<LessSafeKey> {
        let number = period.to_be_bytes();
        let info = [&b"wakeful session tickets"[..], &number];
        let derived = self.keys.expand(&info, &AES_256_GCM).ok()?;
        Some(LessSafeKey::new(UnboundKey::from(derived)))
    }

    fn encrypt_in(&self, period: u64, session: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let number = period.to_be_bytes();
        let mut sealed = session.to_vec();
        let nonce_used = Nonce::assume_unique_for_key(nonce);
        self.key(period)?
            .seal_in_place_append_tag(nonce_used, Aad::from(number), &mut sealed)
            .ok()?;
        Some([&number[..], &nonce, &sealed].concat())
    }

    fn decrypt_in(&self, now: u64, ticket: &[u8]) -> Option<Vec<u8>> {
        let (number, rest) = ticket.split_first_chunk::<NUMBER>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let period = u64::from_be_bytes(*number);
        if period.abs_diff(now) > 1 {
            return None;
        }
        let mut opened = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let session = self.key(period)?.open_in_place(nonce, Aad::from(*number), &mut opened);
        session.ok().map(|session| session.to_vec())
    }
}

impl ProducesTickets for SharedTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        PERIOD.as_secs().try_into().unwrap_or(u32::MAX)
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        self.encrypt_in(period_now(), session)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_in(period_now(), ticket)
    }
}

impl fmt::Debug for SharedTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTickets").finish_non_exhaustive()
    }
}

fn period_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs() / PERIOD.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets(secret: &TicketSecret) -> SharedTickets {
        SharedTickets::new(secret)
    }

    #[test]
    fn who_has_the_secret_reads_tickets_of_this_period_and_of_its_neighbours() {
        let secret = TicketSecret::random().unwrap();
        let (one, other) = (tickets(&secret), tickets(&secret.to_bytes().into()));
        let ticket = one.encrypt_in(7, b"a session").unwrap();
        for now in 6..=8 {
            assert_eq!(other.decrypt_in(now, &ticket).as_deref(), Some(&b"a session"[..]));
        }
        for now in [0, 5, 9, u64::MAX] {
            assert_eq!(other.decrypt_in(now, &ticket), None);
        }
        let stranger = tickets(&TicketSecret::random().unwrap());
        assert_eq!(stranger.decrypt_in(7, &ticket), None);
        assert_ne!(one.encrypt_in(7, b"a session").unwrap(), ticket, "each has its nonce");
        let ticket = one.encrypt(b"now").unwrap();
        assert_eq!(other.decrypt(&ticket).as_deref(), Some(&b"now"[..]));
    }

    #[test]
    fn what_was_changed_is_not_read() {
        let tickets = tickets(&TicketSecret::random().unwrap());
        let ticket = tickets.encrypt_in(7, b"a session").unwrap();
        for place in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[place] ^= 1;
            assert_eq!(tickets.decrypt_in(7, &changed), None, "{place}");
            assert_eq!(tickets.decrypt_in(7, &ticket[..place]), None, "{place}");
        }
    }

    #[test]
    fn no_secret_is_shown() {
        let secret = TicketSecret([7; 32]);
        assert!(!format!("{secret:?} {:?}", tickets(&secret)).contains('7'));
    }
}
