//! The functions that the targets in `proof/fuzz/` call with arbitrary bytes. The tests call them
//! with the corpus, so that they also run without a fuzzer.

/// Reads `data` as frames of the echo service.
///
/// # Panics
/// If the service reads them differently from a simple model.
pub fn frames(data: &[u8]) {
    crate::echo::check_frames(data);
}

/// Reads `data` as commands of Redis clients.
///
/// # Panics
/// If the service reads them differently from a simple model.
pub fn resp(data: &[u8]) {
    crate::kv::check_resp(data);
}

/// Reads `data` as the head of a request that the proxy forwards.
///
/// # Panics
/// If a server could understand the forwarded head in two ways.
pub fn heads(data: &[u8]) {
    crate::proxy::headers::fuzzing::heads(data);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn go_through(target: &str, check: fn(&[u8])) {
        let corpus =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proof/fuzz/corpus").join(target);
        let mut inputs = 0;
        for file in std::fs::read_dir(&corpus).unwrap() {
            let path = file.unwrap().path();
            println!("{}", path.display());
            check(&std::fs::read(path).unwrap());
            inputs += 1;
        }
        assert!(inputs > 10, "{inputs} in {}", corpus.display());
    }

    #[test]
    fn the_corpus_of_frames() {
        go_through("frames", super::frames);
    }

    #[test]
    fn the_corpus_of_resp() {
        go_through("resp", super::resp);
    }

    #[test]
    fn the_corpus_of_heads() {
        go_through("heads", super::heads);
    }
}
