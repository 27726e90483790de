//! A report of AddressSanitizer: one error, where it was noticed, and what had freed the memory.

/// An error that ended a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    /// `heap-use-after-free`, `SEGV` and the like.
    pub(super) error: String,
    /// `READ of size 8 by thread T2 in answer (server.cpp:243)`. Empty if the report does not say
    /// it.
    pub(super) used: String,
    /// `thread T1 in close (server.cpp:150)`. Empty if the memory was not freed.
    pub(super) freed: String,
}

impl Report {
    /// Parses a report. Functions are named if they are in the source file `source`.
    pub(super) fn parse(text: &str, source: &str) -> Option<Self> {
        let mut lines = text.lines();
        let (_, error) = lines.find_map(|line| line.split_once("ERROR: AddressSanitizer: "))?;
        let error = error.split([' ', ':']).next()?.to_owned();
        let lines: Vec<&str> = lines.collect();
        let used = lines.iter().position(|line| {
            (line.starts_with("READ of size") || line.starts_with("WRITE of size"))
                && line.contains(" thread ")
        });
        let used = used.map(|at| {
            let (what, by) = (words(lines[at], 0, 4), thread_of(lines[at]));
            format!("{what} by {by}{}", place(&lines[at + 1..], source))
        });
        let freed = lines.iter().position(|line| line.starts_with("freed by thread"));
        let freed =
            freed.map(|at| format!("{}{}", thread_of(lines[at]), place(&lines[at + 1..], source)));
        Some(Self { error, used: used.unwrap_or_default(), freed: freed.unwrap_or_default() })
    }
}

fn words(line: &str, from: usize, to: usize) -> String {
    line.split(' ').skip(from).take(to - from).collect::<Vec<_>>().join(" ")
}

/// Returns `thread T2` from a line that contains it.
fn thread_of(line: &str) -> String {
    let name = line.split_once("thread ").and_then(|(_, rest)| rest.split([' ', ':']).next());
    name.map_or_else(String::new, |name| format!("thread {name}"))
}

/// Returns the first frame of a stack that is in the source file.
fn place(lines: &[&str], source: &str) -> String {
    let stack = lines.iter().take_while(|line| line.trim_start().starts_with('#'));
    let frame = stack.filter_map(|line| {
        let (_, rest) = line.split_once(" in ")?;
        let (function, place) = rest.rsplit_once(' ')?;
        let (_, file) = place.rsplit_once('/')?;
        let line_number = file.strip_prefix(source)?.strip_prefix(':')?;
        let line_number = line_number.split(':').next()?;
        // A closure has no name of its own, and a destructor's name says too little.
        let function = function.split('(').next().unwrap_or(function);
        let says_nothing =
            function.starts_with(['~']) || function.contains("operator") || function.contains('<');
        (!says_nothing).then(|| format!(" in {function} ({source}:{line_number})"))
    });
    frame.into_iter().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
=================================================================
==29351==ERROR: AddressSanitizer: heap-use-after-free on address 0x6290003a12a0 at pc 0x55c7a63c5b2d bp 0x7f5ab49fcde0 sp 0x7f5ab49fcdd8
READ of size 8 at 0x6290003a12a0 thread T2
    #0 0x55c7a63c5b2c in __gnu_cxx::__normal_iterator<std::vector<int> > /usr/include/c++/12/bits/stl_iterator.h:1028
    #3 0x55c7a63c5b2c in answer /somewhere/server.cpp:243
    #4 0x55c7a63c6dec in operator() /somewhere/server.cpp:216
    #20 0x7f5ab68d44a2  (/lib/x86_64-linux-gnu/libstdc++.so.6+0xd44a2)

0x6290003a12a0 is located 16544 bytes inside of 16632-byte region [0x62900039d200,0x6290003a12f8)
freed by thread T1 here:
    #0 0x7f5ab6cba3c8 in operator delete(void*, unsigned long) ../../../../src/libsanitizer/asan/asan_new_delete.cpp:164
    #9 0x55c7a63c7ea4 in ~Session /somewhere/server.cpp:112
    #10 0x55c7a63c7ea4 in operator() /somewhere/server.cpp:140
    #11 0x55c7a63c7ea4 in Sessions::close(unsigned long) /somewhere/server.cpp:150:7
    #12 0x55c7a63c7ea4 in on_read /somewhere/server.cpp:200

previously allocated by thread T3 here:
";

    #[test]
    fn a_use_after_free_says_who_used_and_who_freed() {
        let report = Report::parse(TEXT, "server.cpp").unwrap();
        assert_eq!(report.error, "heap-use-after-free");
        assert_eq!(report.used, "READ of size 8 by thread T2 in answer (server.cpp:243)");
        assert_eq!(report.freed, "thread T1 in Sessions::close (server.cpp:150)");
    }

    #[test]
    fn without_names_there_are_the_threads() {
        let report = Report::parse(TEXT, "other.cpp").unwrap();
        assert_eq!(report.used, "READ of size 8 by thread T2");
        assert_eq!(report.freed, "thread T1");
    }

    #[test]
    fn another_error_is_named_and_no_report_is_none() {
        let segv = "==1==ERROR: AddressSanitizer: SEGV on unknown address 0x0 (pc 0x1 T0)\n";
        let report = Report::parse(segv, "server.cpp").unwrap();
        assert_eq!((report.error.as_str(), report.used.as_str()), ("SEGV", ""));
        assert_eq!(Report::parse("all is well", "server.cpp"), None);
    }
}
