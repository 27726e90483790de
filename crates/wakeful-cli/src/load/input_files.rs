//! Files that `wakeful load` reads as a whole.

use std::io::Read;
use std::path::Path;

/// The largest file in bytes, because it is kept in memory.
const LARGEST: u64 = 256 << 20;

/// Reads a request's body.
pub(super) fn read_body(path: &Path) -> Result<Vec<u8>, String> {
    // The check comes before the open, because opening a FIFO would wait for its writer.
    let known = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !known.is_file() {
        return Err("it is not a regular file, so it may have no end".to_owned());
    }
    read_at_most(path, known.len(), "a body")
}

/// Reads a trace. It may also come through a pipe, from a program that unpacks it.
pub(super) fn read_text(path: &Path) -> Result<String, String> {
    let known = std::fs::metadata(path).map_err(|error| error.to_string())?;
    let text = read_at_most(path, known.len(), "a trace: split it, and replay its parts")?;
    String::from_utf8(text).map_err(|_| "it is not valid UTF-8".to_owned())
}

fn read_at_most(path: &Path, known: u64, what: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    if known <= LARGEST {
        let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
        // The file may grow, or be a device.
        let read = file.take(LARGEST + 1).read_to_end(&mut bytes);
        read.map_err(|error| error.to_string())?;
    }
    if known > LARGEST || bytes.len() as u64 > LARGEST {
        return Err(format!("it has more than {} MiB, the most for {what}", LARGEST >> 20));
    }
    Ok(bytes)
}
