//! Other people's programs have the options that the documentation gives them.

use std::collections::BTreeSet;
use std::process::{self, Command};

use doc_pages::{command_lines, is_installed};

/// What a program begins with, and how it lists its options.
const HELP: [(&[&str], &[&str]); 7] = [
    (&["curl"], &["--help", "all"]),
    (&["h2load"], &["--help"]),
    (&["install"], &["--help"]),
    (&["openssl", "s_client"], &["-help"]),
    (&["openssl", "x509"], &["-help"]),
    (&["systemctl"], &["--help"]),
    (&["usermod"], &["--help"]),
];

/// Older and newer names of options, which a page gives for these versions.
const OF_VERSIONS: [&str; 2] = ["--kill-who", "--kill-whom"];

#[test]
fn options_are_those_of_the_program() {
    for (begin, help) in HELP {
        if !is_installed(begin[0]) {
            continue;
        }
        let output = Command::new(begin[0]).args(&begin[1..]).args(help).output().expect("help");
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        let text = text.concat();
        let is_end = |char: char| char.is_whitespace() || [',', '=', '['].contains(&char);
        let known: BTreeSet<_> = text.split(is_end).collect();
        let mut count = 0;
        for line in command_lines(begin[0]) {
            if !begin.iter().eq(line.words.iter().take(begin.len())) {
                continue;
            }
            count += 1;
            let mut named: Vec<_> =
                line.words.iter().filter(|word| word.starts_with('-') && word.len() > 1).collect();
            // Its commands are in its help, too.
            named.extend((begin == ["systemctl"]).then_some(&line.words[1]));
            for word in named {
                let name = word.split('=').next().unwrap_or_default();
                let is_known = known.contains(name) || OF_VERSIONS.contains(&name);
                assert!(is_known, "{}: {} has no {word}", line.place, begin.join(" "));
            }
        }
        assert!(count > 0, "no page has {begin:?} any more");
    }
}

/// Of this process.
#[test]
fn ps_prints_what_it_is_asked_for() {
    if !is_installed("ps") {
        return;
    }
    for line in command_lines("ps").iter().filter(|line| line.is_whole) {
        let pid = process::id().to_string();
        let words = line.words[1..].iter().map(|word| if word == "PID" { &pid } else { word });
        let output = Command::new("ps").args(words).output().expect("ps");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{}: {said}", line.place);
    }
}
