use proptest::prelude::*;

use super::fuzzing::{Seen, parse};
use super::*;

const LIMITS: Limits = Limits { word: 1000, command: 2000 };

fn whole(bytes: &[u8]) -> Seen {
    parse(LIMITS, [bytes])
}

fn error_of(bytes: &[u8]) -> String {
    let (commands, error) = whole(bytes);
    assert!(commands.is_empty(), "{commands:?}");
    error.map_or_else(String::new, |error| error.to_string())
}

#[test]
fn arrays_lines_and_empty_commands_are_told_apart() {
    let bytes =
        b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\nPING  x\r\n\r\n*0\r\n*-1\r\nPING\n*1\r\n$0\r\n\r\n";
    let (commands, error) = whole(bytes);
    assert_eq!(error, None);
    let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let expected: Vec<Vec<Vec<u8>>> = vec![
        words(&["GET", "\r\n"]),
        words(&["PING", "x"]),
        words(&[]),
        words(&[]),
        words(&[]),
        words(&["PING"]),
        words(&[""]),
    ];
    assert_eq!(commands, expected);
}

#[test]
fn every_split_gives_the_same() {
    let inputs: [&[u8]; 4] = [
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$12\r\nsome\r\nvalue!\r\n*1\r\n$4\r\nPING\r\nGET k\r\n",
        b"PING\r\nMGET a b c \r\n\r\n*2\r\n$4\r\nECHO\r\n$0\r\n\r\n",
        b"*2\r\n$3\r\nGET\r\n:1\r\n",
        b"*1\r\n$4\r\nPING\r\n*1\r\n$2000\r\n",
    ];
    for input in inputs {
        let expected = whole(input);
        assert!(!expected.0.is_empty() || expected.1.is_some());
        for first in 0..=input.len() {
            for second in first..=input.len() {
                let pieces = [&input[..first], &input[first..second], &input[second..]];
                assert_eq!(parse(LIMITS, pieces), expected, "{first} {second}");
            }
        }
        assert_eq!(parse(LIMITS, input.chunks(1)), expected);
    }
}

#[test]
fn what_is_malformed_is_refused_as_redis_does() {
    for (bytes, expected) in [
        (&b"*x\r\n"[..], "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*1\n$4\r\nPING\r\n", "invalid multibulk length"),
        (b"*1\rx", "invalid multibulk length"),
        (b"*99999999999\r\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*1\r\n:4\r\n", "expected '$', got ':'"),
        (b"*1\r\n\0", "expected '$', got '\\x00'"),
        (b"*1\r\n$\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$+4\r\n", "invalid bulk length"),
        (b"*1\r\n$1001\r\n", "invalid bulk length"),
        (b"*1\r\n$4\r\nPINGS\r\n", "a bulk string does not end where its length says"),
        (b"SET a \"b c\"\r\n", "no quotes in inline requests: send an array"),
    ] {
        assert_eq!(error_of(bytes), format!("Protocol error: {expected}"));
    }
    assert_eq!(error_of(b"*1048576\r\n"), "", "so many words are allowed");
}

#[test]
fn lines_and_commands_that_are_too_long_are_refused_before_they_are_complete() {
    let line = vec![b'x'; MAX_LINE + 1];
    let limits = Limits { command: 1 << 20, ..LIMITS };
    let error = parse(limits, [&line[..]]).1.expect("it is too long").to_string();
    assert_eq!(error, "Protocol error: too big inline request");
    assert_eq!(parse(limits, [&line[1..]]), (vec![], None));
    let word = [b"GET ".as_slice(), &[b'x'; 1001], b"\r\n"].concat();
    assert_eq!(error_of(&word), "Protocol error: too big inline request");
    // Two words of the longest, and a third one that is announced.
    let mut command = b"*3\r\n".to_vec();
    for _ in 0..2 {
        command.extend_from_slice(b"$900\r\n");
        command.extend_from_slice(&[b'x'; 900]);
        command.extend_from_slice(b"\r\n");
    }
    assert_eq!(error_of(&command), "");
    command.extend_from_slice(b"$900\r\n");
    assert_eq!(error_of(&command), "Protocol error: a command may have 2000 bytes");
}

#[test]
fn a_command_that_is_not_whole_at_the_limit_is_refused_there() {
    let too_long = "Protocol error: a command may have 2000 bytes";
    let words: &[&[u8]] = &[b"$0\r\n\r\n", b"$1\r\nx\r\n", b"$0000000001\r\nx\r\n"];
    for word in words {
        for first in 0..word.len() {
            let head = format!("*900\r\n${first}\r\n{}\r\n", "x".repeat(first)).into_bytes();
            let bytes = [head, word.repeat(800)].concat();
            assert_eq!(error_of(&bytes[..1990]), "", "{first}");
            assert_eq!(error_of(&bytes[..2000]), too_long, "{first}");
            let refused = whole(&bytes);
            for step in [1, 7, 1999, 2000, 2001] {
                assert_eq!(parse(LIMITS, bytes.chunks(step)), refused, "{first} {step}");
            }
        }
    }
    let line = [b"ECHO", &[b' '; 1996][..]].concat();
    assert_eq!(error_of(&line[..1999]), "");
    assert_eq!(error_of(&line), too_long);
    assert_eq!(whole(&[&line[..1999], b"\n"].concat()).1, None);
    assert_eq!(error_of(&[&line, &b"\n"[..]].concat()), too_long);
    let exact = encode(&[vec![vec![b'x'; 999], vec![b'x'; 973], vec![b'x'; 2]]]);
    assert_eq!(exact.len(), LIMITS.command);
    let (commands, error) = whole(&exact);
    assert_eq!((commands.len(), error), (1, None));
}

#[test]
fn an_announced_length_takes_no_memory() {
    let mut parser = Parser::new(Limits { word: 1 << 29, command: 1 << 30 });
    assert_eq!(parser.parse(b"*1048576\r\n$536870912\r\n"), Ok(None));
    assert!(parser.words.capacity() <= 4, "{}", parser.words.capacity());
}

#[test]
fn the_places_of_a_long_command_are_given_back() {
    let mut bytes = b"*100000\r\n".to_vec();
    (0..100_000).for_each(|_| bytes.extend_from_slice(b"$1\r\nx\r\n"));
    let mut parser = Parser::new(Limits { word: 10, command: 1 << 20 });
    assert_eq!(parser.parse(&bytes), Ok(Some(bytes.len())));
    assert_eq!(parser.words(&bytes).len(), 100_000);
    parser.shrink();
    assert!(parser.words.capacity() <= KEPT_WORDS);
}

fn encode(commands: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for command in commands {
        bytes.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
        for word in command {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
    }
    bytes
}

proptest! {
    #[test]
    fn what_was_encoded_comes_out_however_it_is_cut(
        commands in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 0..8),
        cuts in prop::collection::vec(1_usize..30, 1..20),
    ) {
        let bytes = encode(&commands);
        let (mut rest, mut pieces, mut cuts) = (&bytes[..], Vec::new(), cuts.into_iter().cycle());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(cuts.next().unwrap().min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        prop_assert_eq!(parse(LIMITS, pieces), (commands, None));
    }

    #[test]
    fn garbage_is_understood_the_same_however_it_is_cut(
        bytes in prop::collection::vec(
            prop::sample::select(b"*$0123-\r\n\r\nGET x".to_vec()), 0..60),
        cut in 0_usize..60,
    ) {
        let cut = cut.min(bytes.len());
        prop_assert_eq!(whole(&bytes), parse(LIMITS, [&bytes[..cut], &bytes[cut..]]));
        prop_assert_eq!(whole(&bytes), parse(LIMITS, bytes.chunks(1)));
    }
}
