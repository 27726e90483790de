//! As much of a shell's language as command lines in documents have.

/// A command with its arguments, and the number of its first line, from 0.
pub(crate) type Command = (usize, Vec<String>);

/// What stands before a command and is none.
const BEFORE: [&str; 9] = ["!", "do", "else", "if", "sudo", "then", "time", "until", "while"];

/// The commands of some lines: those of pipes, lists, loops and subshells, each by itself, without
/// redirections and variables that are set for them. What is substituted (`$(…)`, `$NAME`) stays as
/// it is written.
pub(crate) fn commands(text: &str) -> Vec<Command> {
    let mut reader = Reader::default();
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\\' => match chars.next() {
                Some('\n') | None => reader.line += 1,
                Some(char) => reader.word().push(char),
            },
            '\'' => reader.take_until(&mut chars, '\''),
            '"' => reader.take_until(&mut chars, '"'),
            '$' if chars.peek() == Some(&'(') => {
                reader.word().push('$');
                reader.take_until(&mut chars, ')');
                reader.word().push(')');
            }
            '#' if reader.word.is_none() => while chars.next_if(|char| *char != '\n').is_some() {},
            '>' | '<' => {
                // A number before it is a descriptor's.
                if reader.word.as_ref().is_none_or(|word| word.parse::<u8>().is_err()) {
                    reader.end_word();
                }
                reader.word = None;
                while chars.next_if(|char| matches!(char, '>' | '&' | ' ')).is_some() {}
                reader.is_redirected = true;
            }
            '\n' | ';' | '|' | '&' | '(' | ')' => {
                reader.end_command();
                reader.line += usize::from(char == '\n');
            }
            char if char.is_whitespace() => reader.end_word(),
            char => reader.word().push(char),
        }
    }
    reader.end_command();
    reader.commands
}

#[derive(Default)]
struct Reader {
    commands: Vec<Command>,
    begins: usize,
    line: usize,
    words: Vec<String>,
    word: Option<String>,
    /// The next word is a file, and no argument.
    is_redirected: bool,
}

impl Reader {
    fn word(&mut self) -> &mut String {
        self.word.get_or_insert_default()
    }

    fn take_until(&mut self, chars: &mut impl Iterator<Item = char>, end: char) {
        self.word();
        for char in chars.take_while(|char| *char != end) {
            self.line += usize::from(char == '\n');
            self.word().push(char);
        }
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        if self.is_redirected {
            self.is_redirected = false;
            return;
        }
        if self.words.is_empty() {
            self.begins = self.line;
            if BEFORE.contains(&word.as_str()) || is_variable(&word) {
                return;
            }
        }
        self.words.push(word);
    }

    fn end_command(&mut self) {
        self.end_word();
        if !self.words.is_empty() {
            self.commands.push((self.begins, std::mem::take(&mut self.words)));
        }
    }
}

/// As `NAME=value`.
fn is_variable(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| name.chars().all(|char| char == '_' || char.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Vec<String>> {
        commands(text).into_iter().map(|(_, words)| words).collect()
    }

    #[test]
    fn commands_are_found_in_whatever_is_around_them() {
        for (text, found) in [
            ("a b  c # d", &[&["a", "b", "c"][..]][..]),
            ("a \\\n  b", &[&["a", "b"]]),
            ("A=1 sudo B=2 a --c=d", &[&["a", "--c=d"]]),
            ("a 'b c'\"d e\" f\\ g", &[&["a", "b cd e", "f g"]]),
            ("a | b && c; d & e", &[&["a"], &["b"], &["c"], &["d"], &["e"]]),
            ("a b >c 2>&1 <d e >> f", &[&["a", "b", "e"]]),
            ("until a b; do c 0.1; done", &[&["a", "b"], &["c", "0.1"], &["done"]]),
            ("a --pid $(b -c | d) e", &[&["a", "--pid", "$(b -c | d)", "e"]]),
            ("( a; b )", &[&["a"], &["b"]]),
            ("a '' b", &[&["a", "", "b"]]),
        ] {
            assert_eq!(read(text), found, "{text}");
        }
    }

    #[test]
    fn each_command_has_its_line() {
        let lines = commands("a\n\nb 'c\nd' \\\n e\nf").into_iter().map(|(line, _)| line);
        assert_eq!(lines.collect::<Vec<_>>(), [0, 2, 5]);
    }
}
