use std::cell::Cell;
use std::sync::Arc;

use wakeful::net::UnixStream;

use super::*;
use crate::buffers::FREE;
use crate::kv::places::Places;
use crate::kv::resp::{Limits, Parser};
use crate::kv::service::Service;

const LIMITS: Limits = Limits { word: 1 << 20, command: 1 << 20 };

/// A session on the first of a number of loops. The others do not run, so they answer nothing.
fn session(loops: usize) -> (Session, PatientStream, UnixStream) {
    let options = KvOptions::new();
    let places = Places::within_descriptors(&options, loops);
    let service = Arc::new(Service::new(loops, options, places, Duration::ZERO));
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Session::new(Local::join(&service)), PatientStream::new(ours.into(), None), theirs)
}

/// Executes a command `count` times, as if each were all of a read. `{}` stands for `keys` times a
/// key of the session's own loop. Returns during how many of them another task of the loop has run.
fn turns_of_others(loops: usize, command: &str, keys: usize, count: usize) -> usize {
    wakeful::block_on(async {
        let (mut session, mut stream, theirs) = session(loops);
        let (service, number) = (&session.local.service, session.local.number);
        let mut names = (0..100).map(|name| format!(" {name}"));
        let key = names.find(|name| service.key(&name.as_bytes()[1..]).owner(loops) == number);
        let command = command.replace("{}", &key.unwrap().repeat(keys));
        let has_run = Rc::new(Cell::new(false));
        let runs = has_run.clone();
        let other = wakeful::spawn(async move {
            loop {
                yield_now().await;
                runs.set(true);
            }
        });
        let reader = wakeful::spawn(async move {
            let (mut theirs, mut answers) = (Stream::from(theirs), vec![0; 64 * 1024]);
            while let Ok(1..) = theirs.read(&mut answers).await {}
        });
        let (mut parser, mut turns) = (Parser::new(LIMITS), 0);
        for _ in 0..count {
            assert_eq!(parser.parse(command.as_bytes()).unwrap(), Some(command.len()));
            let words = parser.words(command.as_bytes());
            assert!(session.command(words, &mut stream).await.unwrap().is_continue());
            session.end_read();
            turns += usize::from(has_run.take());
        }
        drop((other, reader));
        turns
    })
}

#[test]
fn others_run_after_a_stretch_of_commands_in_however_many_reads() {
    for command in ["SET k v\r\n", "PING\r\n", "DBSIZE\r\n", "\r\n", "*0\r\n", "*-1\r\n"] {
        let turns = turns_of_others(1, command, 0, 10 * STRETCH);
        assert!((5..=20).contains(&turns), "{command}: {turns}");
    }
}

#[test]
fn others_run_after_a_stretch_of_keys() {
    for command in ["DEL{}\r\n", "EXISTS{}\r\n", "MGET{}\r\n", "MSET{}\r\n"] {
        for loops in [1, 2] {
            let turns = turns_of_others(loops, command, 100, STRETCH / 10);
            assert!((3..=20).contains(&turns), "{command}, {loops} loops: {turns}");
        }
    }
}

#[test]
fn removed_values_are_freed_at_the_end_of_a_read() {
    wakeful::block_on(async {
        let (mut session, mut stream, _theirs) = session(1);
        let mut parser = Parser::new(LIMITS);
        for command in [format!("SET k {}\r\n", "x".repeat(10_000)), "DEL k\r\n".to_owned()] {
            parser.parse(command.as_bytes()).unwrap();
            let words = parser.words(command.as_bytes());
            assert!(session.command(words, &mut stream).await.unwrap().is_continue());
        }
        assert!(session.local.shard.borrow().has_removed());
        session.end_read();
        assert!(!session.local.shard.borrow().has_removed());
    });
}

#[test]
fn memory_for_other_loops_is_given_back_when_the_client_sends_nothing_more() {
    wakeful::block_on(async {
        let (mut session, mut stream, theirs) = session(2);
        let reader = wakeful::spawn(async move {
            let (mut theirs, mut answers) = (Stream::from(theirs), vec![0; 64 * 1024]);
            while let Ok(1..) = theirs.read(&mut answers).await {}
        });
        let ask = async |session: &mut Session, stream: &mut PatientStream, count: usize| {
            for number in 0..count {
                session.answers.one(Operation::Get, &number.to_le_bytes(), &[]);
            }
            session.answers.write(stream).await.unwrap();
            session.answers.kept()
        };
        let wait = async |session: &mut Session| {
            session.shrink_if_pending(yield_now()).await;
            session.answers.kept()
        };
        let few = ask(&mut session, &mut stream, 20).await;
        assert!(few > 0);
        assert_eq!(wait(&mut session).await, few, "few take no allocation each time");
        let many = ask(&mut session, &mut stream, 1000).await;
        assert!(many > 2 * FREE);
        session.shrink_if_pending(async {}).await;
        assert_eq!(session.answers.kept(), many, "more has come already");
        assert_eq!(wait(&mut session).await, 0);
        assert_eq!(ask(&mut session, &mut stream, 20).await, few, "it can be used again");
        drop(reader);
    });
}
