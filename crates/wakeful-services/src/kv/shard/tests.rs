use std::hash::BuildHasher;
use std::sync::Arc;

use proptest::prelude::*;

use super::freeing::{MOST_BYTES, MOST_KEYS};
use super::*;
use crate::buffers::{Budget, Charge, FREE};

fn key(bytes: &[u8]) -> Key<'_> {
    let state = foldhash::quality::FixedState::default();
    Key { hash: state.hash_one(bytes), bytes }
}

struct Tested {
    shard: Shard,
    meters: Arc<Meters>,
}

impl Tested {
    fn new(cap: usize) -> Self {
        Self::with_buffers(cap, usize::MAX)
    }

    fn with_buffers(cap: usize, buffers: usize) -> Self {
        let meters = Arc::new(Meters::new(cap, Budget::new(buffers), 1));
        Self { shard: Shard::new(Meter::new(meters.clone(), 0)), meters }
    }

    fn apply(&mut self, op: Operation, name: &str, value: &str) -> String {
        let (mut out, mut charge) = (Vec::new(), Charge::default());
        self.shard.apply(op, key(name.as_bytes()), value.as_bytes(), &mut out, &mut charge);
        String::from_utf8(out).unwrap()
    }

    fn set(&mut self, name: &str, value: &str) -> String {
        self.apply(Operation::Set(Condition::Always), name, value)
    }

    fn get(&mut self, name: &str) -> String {
        self.apply(Operation::Get, name, "")
    }
}

const NULL: &str = "$-1\r\n";
const OK: &str = "+OK\r\n";
const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";

#[test]
fn values_are_set_replaced_and_removed() {
    let mut shard = Tested::new(usize::MAX);
    assert_eq!(shard.get("k"), NULL);
    assert_eq!(shard.set("k", "one"), OK);
    assert_eq!(shard.set("k", "two"), OK);
    assert_eq!(shard.get("k"), "$3\r\ntwo\r\n");
    assert_eq!(shard.set("k", "longer"), OK);
    assert_eq!(shard.get("k"), "$6\r\nlonger\r\n");
    assert_eq!(shard.set("", ""), OK);
    assert_eq!(shard.get(""), "$0\r\n\r\n");
    assert_eq!(shard.apply(Operation::Count, "k", ""), ":1\r\n");
    assert_eq!(shard.apply(Operation::Remove, "k", ""), ":1\r\n");
    assert_eq!(shard.apply(Operation::Remove, "k", ""), ":0\r\n");
    assert_eq!(shard.apply(Operation::Count, "k", ""), ":0\r\n");
    assert_eq!(shard.meters.keys(), 1);
    assert_eq!((shard.meters.hits(), shard.meters.misses()), (4, 2));
}

#[test]
fn the_places_of_removed_keys_are_given_back() {
    const KEYS: usize = 400_000;
    let mut shard = Tested::new(usize::MAX);
    let places = |shard: &Tested| shard.shard.tables.iter().map(HashTable::capacity).sum::<usize>();
    for number in 0..KEYS {
        shard.set(&number.to_string(), "");
    }
    assert!(places(&shard) >= KEYS);
    for number in 1..KEYS {
        shard.apply(Operation::Remove, &number.to_string(), "");
    }
    assert_eq!(shard.get("0"), "$0\r\n\r\n");
    let least = shard.shard.tables.len() * LEAST_PLACES;
    assert!(places(&shard) <= 2 * least, "{}", places(&shard));
}

#[test]
fn conditions_hold_and_swap_answers_with_what_was_there() {
    let mut shard = Tested::new(usize::MAX);
    assert_eq!(shard.apply(Operation::Set(Condition::IfPresent), "k", "a"), NULL);
    assert_eq!(shard.apply(Operation::Swap(Condition::IfAbsent), "k", "a"), NULL);
    assert_eq!(shard.apply(Operation::Set(Condition::IfAbsent), "k", "b"), NULL);
    assert_eq!(shard.apply(Operation::Swap(Condition::IfAbsent), "k", "b"), "$1\r\na\r\n");
    assert_eq!(shard.apply(Operation::Set(Condition::IfPresent), "k", "b"), OK);
    assert_eq!(shard.apply(Operation::Swap(Condition::Always), "k", "c"), "$1\r\nb\r\n");
    assert_eq!(shard.get("k"), "$1\r\nc\r\n");
}

#[test]
fn numbers_are_read_as_strictly_as_in_redis() {
    let mut shard = Tested::new(usize::MAX);
    assert_eq!(shard.apply(Operation::Add(1), "n", ""), ":1\r\n");
    assert_eq!(shard.apply(Operation::Add(1), "n", ""), ":2\r\n");
    shard.set("n", "-1");
    assert_eq!(shard.apply(Operation::Add(1), "n", ""), ":0\r\n");
    assert_eq!(shard.get("n"), "$1\r\n0\r\n");
    for wrong in ["", " 1", "1 ", "+1", "01", "-0", "1.0", "x", "9223372036854775808"] {
        shard.set("n", wrong);
        let text = "-ERR value is not an integer or out of range\r\n";
        assert_eq!(shard.apply(Operation::Add(1), "n", ""), text, "{wrong}");
    }
    shard.set("n", "9223372036854775807");
    assert_eq!(shard.apply(Operation::Add(-7), "n", ""), ":9223372036854775800\r\n");
    let text = "-ERR increment or decrement would overflow\r\n";
    assert_eq!(shard.apply(Operation::Add(8), "n", ""), text);
    shard.set("n", "9223372036854775807");
    assert_eq!(shard.apply(Operation::Add(1), "n", ""), text);
}

#[test]
fn beyond_the_cap_what_needs_more_is_refused_and_all_else_goes_on() {
    let mut shard = Tested::new(1000);
    assert_eq!(shard.set("k", &"x".repeat(800)), OK);
    let used = shard.meters.used();
    assert_eq!(shard.set("l", &"y".repeat(200)), OOM);
    assert_eq!(shard.apply(Operation::Swap(Condition::Always), "k", &"x".repeat(999)), OOM);
    assert_eq!(shard.get("l"), NULL);
    assert_eq!((shard.meters.used(), shard.meters.keys()), (used, 1));
    assert_eq!(shard.set("k", &"z".repeat(800)), OK, "no more than before");
    assert_eq!(shard.set("k", "z"), OK);
    assert_eq!(shard.set("l", &"y".repeat(200)), OK);
}

#[test]
fn many_are_set_all_or_none() {
    let mut shard = Tested::new(1000);
    let large = "x".repeat(300);
    let all = |shard: &mut Tested, names: &[&str]| {
        let pairs = names.iter().map(|name| (key(name.as_bytes()), large.as_bytes()));
        shard.shard.set_all(pairs)
    };
    assert_eq!(all(&mut shard, &["a", "b", "c"]), Err(Refused::OutOfMemory));
    assert_eq!((shard.meters.used(), shard.meters.keys()), (0, 0));
    assert_eq!(all(&mut shard, &["a", "b"]), Ok(()));
    let used = shard.meters.used();
    assert_eq!(all(&mut shard, &["b", "a"]), Ok(()), "what is there already needs no more");
    assert_eq!(all(&mut shard, &["a", "a", "c"]), Err(Refused::OutOfMemory));
    assert_eq!(shard.meters.used(), used);
}

#[test]
fn many_fit_if_they_do_together_in_whatever_order_they_come() {
    let (mut shard, short) = (Tested::new(1100), "y".repeat(20));
    assert_eq!(shard.set("a", &"x".repeat(869)), OK);
    assert_eq!(shard.meters.used(), 950);
    let pairs = [("b", &*short), ("c", &short), ("a", "x")];
    let pairs = pairs.map(|(name, value)| (key(name.as_bytes()), value.as_bytes()));
    assert_eq!(shard.shard.set_all(pairs.into_iter()), Ok(()));
    assert_eq!((shard.meters.used(), shard.meters.keys()), (101 + 101 + 82, 3));
    assert_eq!(shard.get("c"), format!("$20\r\n{short}\r\n"));
    assert_eq!(shard.get("a"), "$1\r\nx\r\n");
}

#[test]
fn a_cap_is_for_all_shards_together() {
    let meters = Arc::new(Meters::new(1000, Budget::new(usize::MAX), 2));
    let mut shards = [0, 1].map(|number| Shard::new(Meter::new(meters.clone(), number)));
    let value = [0; 500];
    assert_eq!(shards[0].set(key(b"a"), &value, Condition::Always), Ok(true));
    let refused = shards[1].set(key(b"b"), &value, Condition::Always);
    assert_eq!(refused, Err(Refused::OutOfMemory));
    assert!(shards[0].remove(key(b"a")));
    assert_eq!(shards[1].set(key(b"b"), &value, Condition::Always), Ok(true));
}

#[test]
fn a_cleared_shard_and_a_dropped_one_hold_nothing() {
    let mut shard = Tested::new(usize::MAX);
    let many: Vec<_> = (0..MOST_KEYS + 10).map(|number| number.to_string()).collect();
    many.iter().for_each(|name| assert_eq!(shard.set(name, "v"), OK));
    assert_eq!(shard.meters.keys(), MOST_KEYS + 10);
    assert_eq!(shard.shard.clear(), FreedBy::Thread);
    assert_eq!((shard.meters.used(), shard.meters.keys()), (0, 0));
    assert_eq!(shard.get("1"), NULL);
    shard.set("k", "v");
    let Tested { shard, meters } = shard;
    drop(shard);
    assert_eq!((meters.used(), meters.keys()), (0, 0));
}

#[test]
fn a_thread_frees_few_keys_with_much_memory() {
    let mut shard = Tested::new(usize::MAX);
    let (small, large) = ("x".repeat(MOST_BYTES / 8), "y".repeat(MOST_BYTES));
    shard.set("k", &small);
    assert_eq!(shard.shard.clear(), FreedBy::Loop);
    shard.set("k", &large);
    assert_eq!(shard.shard.clear(), FreedBy::Thread);
    let mut remove = |value: &str, count: usize| {
        let names: Vec<_> = (0..count).map(|number| number.to_string()).collect();
        names.iter().for_each(|name| assert_eq!(shard.set(name, value), OK));
        assert!(names.iter().all(|name| shard.shard.remove(key(name.as_bytes()))));
        assert_eq!((shard.meters.used(), shard.meters.keys()), (0, 0), "before they are freed");
        let is_kept = !shard.shard.removed.is_empty();
        let freed = (is_kept, shard.shard.free_removed());
        assert!(shard.shard.removed.is_empty());
        freed
    };
    assert_eq!(remove("v", 100), (false, FreedBy::Loop));
    assert_eq!(remove(&small, 7), (true, FreedBy::Loop));
    assert_eq!(remove(&small, 8), (true, FreedBy::Thread));
    assert_eq!(remove(&large, 1), (true, FreedBy::Thread));
    assert_eq!(shard.shard.free_removed(), FreedBy::Loop, "nothing is left");
}

#[test]
fn loops_and_tables_get_equal_shares_of_the_keys() {
    let names: Vec<_> = (0..100_000).map(|number| format!("key:{number}")).collect();
    for loops in [1, 2, 3, 4, 64] {
        let mut counts = vec![0_usize; loops];
        names.iter().for_each(|name| counts[key(name.as_bytes()).owner(loops)] += 1);
        let fair = names.len() / loops;
        assert!(counts.iter().all(|count| count.abs_diff(fair) < fair / 5), "{counts:?}");
    }
    // Of one loop's keys, too: the bits that chose the loop choose nothing else.
    let mut counts = vec![0; TABLES];
    let of_first = names.iter().map(|name| key(name.as_bytes())).filter(|key| key.owner(2) == 0);
    of_first.for_each(|key| counts[key.table()] += 1);
    assert!(counts.iter().all(|count| (10..110).contains(count)), "{counts:?}");
}

proptest! {
    /// Against a map, with a cap that is sometimes met.
    #[test]
    fn it_is_a_map_and_its_memory_is_what_is_in_it(
        steps in prop::collection::vec((0_u8..5, 0_u8..12, 0_usize..40), 0..200),
    ) {
        let cap = 8 * (80 + 20);
        let mut shard = Tested::new(cap);
        let mut model = std::collections::BTreeMap::<String, String>::new();
        for (what, name, length) in steps {
            let (name, value) = (format!("k{name}"), "v".repeat(length));
            match what {
                0 | 1 => match shard.set(&name, &value).as_str() {
                    OK => { model.insert(name, value); }
                    answer => {
                        prop_assert_eq!(answer, OOM);
                        let old = model.get(&name).map_or(0, |v| Entry::size_of(name.as_bytes(), v.len()));
                        let new = Entry::size_of(name.as_bytes(), value.len());
                        prop_assert!(shard.meters.used() - old + new > cap);
                    }
                },
                2 => {
                    let expected = model.get(&name);
                    let expected = expected.map_or(NULL.to_owned(), |v| format!("${}\r\n{v}\r\n", v.len()));
                    prop_assert_eq!(shard.get(&name), expected);
                }
                3 => {
                    let expected = i32::from(model.remove(&name).is_some());
                    prop_assert_eq!(shard.apply(Operation::Remove, &name, ""), format!(":{expected}\r\n"));
                }
                _ => {
                    let expected = i32::from(model.contains_key(&name));
                    prop_assert_eq!(shard.apply(Operation::Count, &name, ""), format!(":{expected}\r\n"));
                }
            }
            let size = model.iter().map(|(k, v)| Entry::size_of(k.as_bytes(), v.len())).sum::<usize>();
            prop_assert_eq!((shard.meters.used(), shard.meters.keys()), (size, model.len()));
            prop_assert!(size <= cap);
        }
        for name in model.keys() {
            shard.apply(Operation::Remove, name, "");
        }
        prop_assert_eq!((shard.meters.used(), shard.meters.keys()), (0, 0));
    }
}

#[test]
fn an_answer_for_which_buffers_have_no_room_is_an_error_and_changes_nothing() {
    let mut shard = Tested::with_buffers(usize::MAX, 3 * FREE);
    let (small, large) = ("x".repeat(2 * FREE), "y".repeat(4 * FREE));
    let refused = "-OOM answer not allowed when client buffers > 'maxmemory-clients'.\r\n";
    shard.set("small", &small);
    shard.set("large", &large);
    assert_eq!(shard.get("small"), format!("${}\r\n{small}\r\n", small.len()));
    assert_eq!(shard.get("large"), refused);
    assert_eq!(shard.apply(Operation::Swap(Condition::Always), "large", "new"), refused);
    assert_eq!(shard.meters.buffers().used(), 0, "given back with the answer");
    shard.set("small", "z");
    assert_eq!(shard.get("small"), "$1\r\nz\r\n");
    assert_eq!(shard.get("large"), refused, "it was not replaced");
}
