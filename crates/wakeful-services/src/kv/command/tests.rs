use super::*;
use crate::kv::resp::{Limits, Parser};

/// What becomes of the words of a line; the answer must not depend on it being one.
fn parse<T>(line: &str, then: impl FnOnce(Result<Command<'_>, Refusal>) -> T) -> T {
    let mut parser = Parser::new(Limits { word: 1000, command: 10_000 });
    let bytes = format!("{line}\r\n").into_bytes();
    let length = parser.parse(&bytes).unwrap().unwrap();
    then(Command::parse(parser.words(&bytes[..length])))
}

fn refusal(line: &str) -> String {
    parse(line, |command| command.map(|_| ()).unwrap_err().to_string())
}

fn set(line: &str) -> Operation {
    parse(line, |command| match command {
        Ok(Command::Set(b"k", b"v", operation)) => operation,
        other => panic!("{other:?}"),
    })
}

#[test]
fn the_descriptions_name_every_command_with_its_arity() {
    for Description { name, arity, .. } in &DESCRIPTIONS {
        let with = |count: usize| format!("{name}{}", " 0".repeat(count));
        let least = usize::try_from(arity.abs()).unwrap() - 1;
        parse(&with(least), |command| assert!(command.is_ok(), "{name}"));
        if least > 0 {
            let text = format!("ERR wrong number of arguments for '{name}' command");
            assert_eq!(refusal(&with(least - 1)), text);
        }
        if *arity > 0 {
            let text = format!("ERR wrong number of arguments for '{name}' command");
            assert_eq!(refusal(&with(least + 1)), text);
        }
    }
}

#[test]
fn names_have_no_case() {
    for line in ["get k", "GET k", "gEt k"] {
        assert!(parse(line, |command| matches!(command, Ok(Command::Get(b"k")))));
    }
}

#[test]
fn options_of_set_say_when_and_what_is_answered() {
    assert_eq!(set("SET k v"), Operation::Set(Condition::Always));
    assert_eq!(set("SET k v nx"), Operation::Set(Condition::IfAbsent));
    assert_eq!(set("SET k v XX"), Operation::Set(Condition::IfPresent));
    assert_eq!(set("SET k v GET"), Operation::Swap(Condition::Always));
    assert_eq!(set("SET k v GET NX"), Operation::Swap(Condition::IfAbsent));
    assert_eq!(refusal("SET k v NX XX"), "ERR syntax error");
    assert_eq!(refusal("SET k v SOON"), "ERR syntax error");
    let text = "ERR option 'EX' is not supported: keys do not expire here";
    assert_eq!(refusal("SET k v ex 10"), text);
}

#[test]
fn an_unknown_command_is_shown_with_the_beginning_of_its_arguments() {
    let text = "ERR unknown command 'LPUSH', with args beginning with: 'list' 'a' ";
    assert_eq!(refusal("LPUSH list a"), text);
    assert!(refusal("ZUNIONSTORE").starts_with("ERR unknown command 'ZUNIONSTORE', with args"));
    let long = format!("NO {}", "x".repeat(1000));
    assert!(refusal(&long).len() < 250);
    assert!(parse("\0\u{1}", |command| command.is_err()));
    assert_eq!(refusal("MSET k"), "ERR wrong number of arguments for 'mset' command");
    assert_eq!(refusal("MSET k v k"), "ERR wrong number of arguments for 'mset' command");
    assert_eq!(refusal("FLUSHALL SOON"), "ERR syntax error");
}

#[test]
fn what_browsers_send_is_no_command() {
    assert!(parse("POST / HTTP/1.1", |command| matches!(command, Ok(Command::Http))));
    assert!(parse("Host: 127.0.0.1", |command| matches!(command, Ok(Command::Http))));
}
