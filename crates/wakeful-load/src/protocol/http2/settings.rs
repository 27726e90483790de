//! The preface and the settings of both sides.

use super::wire::{self, Kind, MAX_31, MIN_MAX_FRAME, error};
use crate::protocol::ProtocolError;

/// How many bytes of bodies the peer may send ahead, on each stream and on the whole connection. A
/// large window costs no memory, because bodies are dropped as they arrive, and it needs fewer
/// window updates, which would disturb the measurement.
pub(super) const WINDOW: u32 = (1 << 30) - 1;
/// The windows of both sides before anything is announced.
pub(super) const DEFAULT_WINDOW: u32 = 65_535;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DEFAULT_TABLE: u32 = 4096;

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;

/// Appends the preface, our settings, and the window of the connection.
pub(super) fn open(out: &mut Vec<u8>) {
    out.extend_from_slice(PREFACE);
    let mut settings = [0; 12];
    let ours = [(ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, WINDOW)];
    for (bytes, (name, value)) in settings.chunks_exact_mut(6).zip(ours) {
        bytes[..2].copy_from_slice(&name.to_be_bytes());
        bytes[2..].copy_from_slice(&u32::to_be_bytes(value));
    }
    wire::write(out, Kind::Settings, 0, 0, &settings);
    wire::write_window(out, 0, WINDOW - DEFAULT_WINDOW);
}

/// What the peer has announced.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// Whether the peer's settings have come.
    pub(super) known: bool,
    pub(super) max_frame: usize,
    /// The window with which a stream begins.
    pub(super) window: u32,
    pub(super) max_streams: usize,
    /// Whether the peer has ever asked for a header table that is smaller than the default.
    pub(super) small_table: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            known: false,
            max_frame: MIN_MAX_FRAME,
            window: DEFAULT_WINDOW,
            max_streams: usize::MAX,
            small_table: false,
        }
    }
}

impl Settings {
    /// Takes the payload of a SETTINGS frame.
    pub(super) fn apply(&mut self, payload: &[u8]) -> Result<(), ProtocolError> {
        let (settings, []) = payload.as_chunks::<6>() else {
            return Err(error(format!("settings of {} bytes", payload.len())));
        };
        self.known = true;
        for &[a, b, ref value @ ..] in settings {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([a, b]) {
                HEADER_TABLE_SIZE => self.small_table |= value < DEFAULT_TABLE,
                ENABLE_PUSH if value != 0 => return Err(error("a server that would be pushed to")),
                MAX_CONCURRENT_STREAMS => self.max_streams = value as usize,
                INITIAL_WINDOW_SIZE if value > MAX_31 => {
                    return Err(error(format!("an initial window of {value} bytes")));
                }
                INITIAL_WINDOW_SIZE => self.window = value,
                MAX_FRAME_SIZE => {
                    let size = value as usize;
                    if !(MIN_MAX_FRAME..1 << 24).contains(&size) {
                        return Err(error(format!("frames of at most {value} bytes")));
                    }
                    self.max_frame = size;
                }
                _ => {}
            }
        }
        Ok(())
    }
}
