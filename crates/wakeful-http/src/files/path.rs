//! Finds out which file a request's path names. The path is decoded once, and checked after that.
//!
//! The result is a chain of names. No name is empty, `.` or `..`, or contains a slash or NUL, so
//! the chain can only lead down. (`beneath` handles symbolic links.) A name may have any other
//! bytes, as in Linux: it need not be UTF-8, and a backslash is an ordinary character.

use super::settings::HiddenFiles;

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The names, with a slash between two; empty for the root.
    pub(super) name: Vec<u8>,
    /// The path ended in a slash.
    pub(super) is_directory: bool,
}

/// `None`: the path names nothing that may be served.
pub(super) fn resolve(path: &str, hidden: HiddenFiles) -> Option<Target> {
    let path = path.strip_prefix('/')?;
    let mut name = Vec::with_capacity(path.len());
    let mut segments = path.split('/').peekable();
    while let Some(segment) = segments.next() {
        if segment.is_empty() {
            // Two slashes in a row are not the same as one, because that would be another URL for
            // the same file.
            return segments.peek().is_none().then_some(Target { name, is_directory: true });
        }
        if !name.is_empty() {
            name.push(b'/');
        }
        let start = name.len();
        name.extend(percent_encoding::percent_decode_str(segment));
        if !is_allowed(&name[start..], start == 0, hidden) {
            return None;
        }
    }
    Some(Target { name, is_directory: false })
}

fn is_allowed(name: &[u8], is_first: bool, hidden: HiddenFiles) -> bool {
    if name.is_empty() || name == b"." || name == b".." {
        return false;
    }
    let is_hidden = name[0] == b'.' && !(is_first && name == b".well-known");
    let is_refused = is_hidden && matches!(hidden, HiddenFiles::Refuse);
    !is_refused && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(path: &str) -> Option<Vec<u8>> {
        let target = resolve(path, HiddenFiles::Refuse)?;
        assert!(!target.is_directory, "{path}");
        Some(target.name)
    }

    #[test]
    fn a_path_is_decoded_once() {
        assert_eq!(file("/a/b.txt"), Some(b"a/b.txt".to_vec()));
        assert_eq!(file("/a%20b"), Some(b"a b".to_vec()));
        assert_eq!(file("/%2541"), Some(b"%41".to_vec()));
        assert_eq!(file("/%ff"), Some(vec![0xff]));
        assert_eq!(file("/100%"), Some(b"100%".to_vec()));
        assert_eq!(file("/a\\..\\b"), Some(b"a\\..\\b".to_vec()));
    }

    #[test]
    fn what_leads_up_or_elsewhere_names_nothing() {
        for path in [
            "",
            "*",
            "a",
            "//",
            "//a",
            "/a//b",
            "/.",
            "/..",
            "/../a",
            "/a/..",
            "/%2e%2e/a",
            "/.%2e",
            "/%2E%2e/",
            "/a%2fb",
            "/%2fetc",
            "/a%00",
            "/%00",
            "/.git/config",
            "/a/.env",
            "/..%2f..",
            "/a/.well-known/b",
            "/...",
        ] {
            assert_eq!(resolve(path, HiddenFiles::Refuse), None, "{path}");
        }
    }

    #[test]
    fn hidden_files_are_served_where_asked_for_but_never_the_parent() {
        assert!(resolve("/.well-known/acme-challenge/x", HiddenFiles::Refuse).is_some());
        assert!(resolve("/.env", HiddenFiles::Serve).is_some());
        assert!(resolve("/...", HiddenFiles::Serve).is_some());
        assert!(resolve("/../.env", HiddenFiles::Serve).is_none());
        assert!(resolve("/./a", HiddenFiles::Serve).is_none());
    }

    #[test]
    fn a_slash_at_the_end_is_a_directory() {
        let directory = |name: &str| Some(Target { name: name.into(), is_directory: true });
        assert_eq!(resolve("/", HiddenFiles::Refuse), directory(""));
        assert_eq!(resolve("/a/b/", HiddenFiles::Refuse), directory("a/b"));
    }

    proptest! {
        #[test]
        fn no_path_leads_up(path in "(/|\\.|%2e|%2E|%2f|%5c|%00|%25|%|a|\\\\|%ff|2e|\\PC){0,40}") {
            if let Some(Target { name, is_directory }) = resolve(&path, HiddenFiles::Serve) {
                prop_assert!(!name.contains(&0));
                if name.is_empty() {
                    prop_assert!(is_directory);
                    return Ok(());
                }
                for component in name.split(|byte| *byte == b'/') {
                    prop_assert!(!matches!(component, b"" | b"." | b".."), "{name:?}");
                }
            }
        }

        #[test]
        fn every_name_can_be_asked_for(name in proptest::collection::vec(any::<u8>(), 1..40)) {
            let is_name = name != b"." && name != b".." && !name.iter().any(|b| matches!(b, 0 | b'/'));
            let encoded: String = name.iter().map(|byte| format!("%{byte:02x}")).collect();
            let found = resolve(&format!("/{encoded}"), HiddenFiles::Serve);
            prop_assert_eq!(found, is_name.then_some(Target { name, is_directory: false }));
        }
    }
}
