//! A client that sends new keys and empty records without end, and no data. rustls allows that, if
//! they alternate.

use std::io::Write;
use std::sync::{Arc, Mutex};

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};
use rustls::CipherSuite::TLS13_AES_128_GCM_SHA256;
use rustls::KeyLog;
use rustls::version::TLS13;
use wakeful_http::Refusal;

use crate::common::{addr, router, server, until};
use crate::material::Site;
use crate::raw::{ask, config, connect, shake, with_provider};

const APPLICATION_DATA: u8 = 23;
const HANDSHAKE: u8 = 22;
/// update_not_requested
const KEY_UPDATE: &[u8] = &[24, 0, 0, 1, 0];

/// Keeps the secret that the client's records are encrypted by.
#[derive(Debug, Default)]
struct Secret(Mutex<Vec<u8>>);

impl KeyLog for Secret {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        if label == "CLIENT_TRAFFIC_SECRET_0" {
            *self.0.lock().unwrap() = secret.to_vec();
        }
    }
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label of RFC 8446, 7.1.
fn expand(secret: &[u8], label: &str, length: usize) -> Vec<u8> {
    let label = format!("tls13 {label}");
    let (length_bytes, label_length) = ((length as u16).to_be_bytes(), [label.len() as u8]);
    let info = [&length_bytes[..], &label_length, label.as_bytes(), &[0]];
    let prk = Prk::new_less_safe(HKDF_SHA256, secret);
    let mut out = vec![0; length];
    prk.expand(&info, Length(length)).unwrap().fill(&mut out).unwrap();
    out
}

/// Encrypts records as the client does.
struct Records {
    secret: Vec<u8>,
    sequence: u64,
    bytes: Vec<u8>,
}

impl Records {
    fn push(&mut self, kind: u8, content: &[u8]) {
        let key = UnboundKey::new(&AES_128_GCM, &expand(&self.secret, "key", 16)).unwrap();
        let mut nonce: [u8; 12] = expand(&self.secret, "iv", 12).try_into().unwrap();
        nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()).for_each(|(byte, of)| *byte ^= of);
        let mut inner = [content, &[kind]].concat();
        let length = (inner.len() + AES_128_GCM.tag_len()) as u16;
        let header = [&[APPLICATION_DATA, 3, 3][..], &length.to_be_bytes()].concat();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let key = LessSafeKey::new(key);
        key.seal_in_place_append_tag(nonce, Aad::from(&header), &mut inner).unwrap();
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(&inner);
        self.sequence += 1;
    }

    fn push_new_key(&mut self) {
        self.push(HANDSHAKE, KEY_UPDATE);
        (self.secret, self.sequence) = (expand(&self.secret, "traffic upd", 32), 0);
    }
}

#[test]
fn a_client_that_sends_new_keys_and_no_data_is_cut_off() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    let secret = Arc::new(Secret::default());
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.retain(|suite| suite.suite() == TLS13_AES_128_GCM_SHA256);
    let mut settings = with_provider(provider, &site.ca(), &[&TLS13], None);
    settings.key_log = secret.clone();
    let mut client = connect(addr(&running), settings);
    shake(&mut client).unwrap();
    let secret = secret.0.lock().unwrap().clone();
    let mut records = Records { secret, sequence: 0, bytes: Vec::new() };
    while records.bytes.len() < 1 << 20 {
        for _ in 0..30 {
            records.push_new_key();
        }
        records.push(APPLICATION_DATA, b"");
    }
    // The server may have closed it by then.
    let _ = client.sock.write_all(&records.bytes);
    until("it is closed", || running.counts().open() == 0);
    let late = running.http_counts().refused(Refusal::HeaderTimeout);
    assert_eq!(late, 0, "it was closed only when its time was over");
    ask(&mut connect(addr(&running), config(&site.ca())));
}
