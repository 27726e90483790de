//! The keys of one loop, and their memory.
//!
//! A shard belongs to its loop, so nothing in it is locked, and other loops send messages to it. It
//! consists of many small tables, because a table that grows moves all its entries at once, and a
//! table of ten million keys would block the loop for a second.

mod entry;
mod freeing;
mod key;
mod meter;
mod operation;
mod spare;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;

use self::entry::Entry;
use self::freeing::{FreedBy, Removed};
pub(super) use self::key::Key;
use self::key::TABLES;
pub(super) use self::meter::{Meter, Meters};
pub(super) use self::operation::{Condition, Operation, Refused};
pub(super) use self::spare::Spare;
use super::reply;
use crate::buffers::Charge;

/// Any answer except a value fits into this many bytes.
pub(super) const ANSWER: usize = 128;

/// A table with this many places is not made smaller.
const LEAST_PLACES: usize = 64;

/// What decides whether there is room for a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// The meter.
    Metered,
    /// It was decided before, for several values together.
    Granted,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Shard {
    tables: Box<[HashTable<Entry>]>,
    meter: Meter,
    spare: Spare,
    removed: Removed,
}

/// Makes the table smaller, if there is memory for the smaller one.
#[cold]
fn give_back_places(table: &mut HashTable<Entry>) {
    let mut smaller = HashTable::new();
    if smaller.try_reserve(2 * table.len(), Entry::hash).is_ok() {
        for entry in table.drain() {
            smaller.insert_unique(entry.hash(), entry, Entry::hash);
        }
        *table = smaller;
    }
}

impl Shard {
    pub(super) fn new(meter: Meter) -> Self {
        let tables = (0..TABLES).map(|_| HashTable::new()).collect();
        Self { tables, meter, spare: Spare::new(), removed: Removed::default() }
    }

    pub(super) fn spare(&mut self) -> &mut Spare {
        &mut self.spare
    }

    /// See [`Spare::is_given`].
    pub(super) fn is_spare_given(&self) -> bool {
        self.spare.is_given()
    }

    /// Executes an operation, and appends the answer to `out`, whose memory `charge` counts.
    /// `false`: there is no memory even for an error, and nothing was done.
    #[inline]
    pub(super) fn apply(
        &mut self,
        op: Operation,
        key: Key<'_>,
        value: &[u8],
        out: &mut Vec<u8>,
        charge: &mut Charge,
    ) -> bool {
        if !self.spare.gives(|| out.try_reserve(ANSWER)) {
            return false;
        }
        match op {
            Operation::Get => {
                self.read(key, out, charge);
            }
            Operation::Set(condition) => match self.set(key, value, condition) {
                Ok(true) => reply::ok(out),
                Ok(false) => reply::null(out),
                Err(refused) => reply::error(out, &refused.to_string()),
            },
            Operation::Swap(condition) => {
                let start = out.len();
                let is_read = self.read(key, out, charge);
                if is_read && let Err(refused) = self.set(key, value, condition) {
                    out.truncate(start);
                    reply::error(out, &refused.to_string());
                }
            }
            Operation::Add(count) => match self.add(key, count) {
                Ok(number) => reply::integer(out, number),
                Err(refused) => reply::error(out, &refused.to_string()),
            },
            Operation::Remove => reply::integer(out, i64::from(self.remove(key))),
            Operation::Count => reply::integer(out, i64::from(self.contains(key))),
            Operation::Clear => {
                self.clear();
                reply::ok(out);
            }
        }
        true
    }

    /// Answers with a value. `false`: there was no room for it, so the answer is an error.
    #[inline]
    fn read(&mut self, key: Key<'_>, out: &mut Vec<u8>, charge: &mut Charge) -> bool {
        let found = self.tables[key.table()].find(key.hash, |entry| entry.is(key));
        let found = found.map(Entry::value);
        self.meter.looked_up(found.is_some());
        match found {
            Some(value) if !charge.cover(self.meter.buffers(), out.len() + value.len()) => {
                reply::error(out, &Refused::NoRoomToAnswer.to_string());
                return false;
            }
            Some(value) if !self.spare.has_room(out, value.len() + 32) => {
                reply::error(out, &Refused::NoMemory.to_string());
                return false;
            }
            Some(value) => reply::bulk(out, value),
            None => reply::null(out),
        }
        true
    }

    #[inline]
    fn get(&self, key: Key<'_>) -> Option<&[u8]> {
        let entry = self.tables[key.table()].find(key.hash, |entry| entry.is(key))?;
        Some(entry.value())
    }

    #[inline]
    pub(super) fn contains(&self, key: Key<'_>) -> bool {
        let found = self.get(key).is_some();
        self.meter.looked_up(found);
        found
    }

    /// Sets a key. Returns whether it was set.
    ///
    /// # Errors
    /// There is not enough memory.
    #[inline]
    pub(super) fn set(
        &mut self,
        key: Key<'_>,
        value: &[u8],
        condition: Condition,
    ) -> Result<bool, Refused> {
        self.set_in(Room::Metered, key, value, condition)
    }

    #[inline]
    fn set_in(
        &mut self,
        room: Room,
        key: Key<'_>,
        value: &[u8],
        condition: Condition,
    ) -> Result<bool, Refused> {
        if !self.spare.is_there() {
            return Err(Refused::NoMemory);
        }
        let set = self.set_if_there_is_room(room, key, value, condition);
        let taken = match set {
            Ok(true) => Entry::size_of(key.bytes, value.len()),
            _ => 0,
        };
        self.spare.settle(taken, set != Err(Refused::NoMemory));
        set
    }

    #[inline]
    fn set_if_there_is_room(
        &mut self,
        room: Room,
        key: Key<'_>,
        value: &[u8],
        condition: Condition,
    ) -> Result<bool, Refused> {
        let check = |old, new| match room {
            Room::Metered => self.meter.check(old, new),
            Room::Granted => Ok(()),
        };
        let table = &mut self.tables[key.table()];
        // `entry` would make the same room, but abort the process if there is no memory.
        table.try_reserve(1, Entry::hash).map_err(|_| Refused::NoMemory)?;
        match table.entry(key.hash, |entry| entry.is(key), Entry::hash) {
            Place::Occupied(_) if condition == Condition::IfAbsent => Ok(false),
            Place::Occupied(mut place) => {
                let entry = place.get_mut();
                let (old, new) = (entry.size(), Entry::size_of(key.bytes, value.len()));
                check(old, new)?;
                self.removed.add(entry.replace(value)?);
                self.meter.resize(old, new);
                Ok(true)
            }
            Place::Vacant(_) if condition == Condition::IfPresent => Ok(false),
            Place::Vacant(place) => {
                let size = Entry::size_of(key.bytes, value.len());
                check(0, size)?;
                place.insert(Entry::new(key, value)?);
                self.meter.add(size);
                Ok(true)
            }
        }
    }

    /// Sets all of them, or none. (If the machine runs out of memory in the middle, the first ones
    /// are set.)
    ///
    /// # Errors
    /// The same as for [`set`](Self::set).
    pub(super) fn set_all<'a>(
        &mut self,
        pairs: impl Iterator<Item = (Key<'a>, &'a [u8])> + Clone,
    ) -> Result<(), Refused> {
        // First assumes that each key is new. If there is no room for that, the size of the entries
        // that exist already is subtracted.
        let most = pairs.clone().map(|(key, value)| Entry::size_of(key.bytes, value.len())).sum();
        if self.meter.check(0, most).is_err() {
            let old =
                |key: Key<'a>| self.get(key).map_or(0, |v| Entry::size_of(key.bytes, v.len()));
            // A key that occurs twice is subtracted only once.
            let mut keys = Vec::new();
            keys.try_reserve_exact(pairs.clone().count()).map_err(|_| Refused::NoMemory)?;
            keys.extend(pairs.clone().map(|(key, _)| key));
            keys.sort_unstable_by_key(|key| key.bytes);
            keys.dedup_by_key(|key| key.bytes);
            self.meter.check(keys.into_iter().map(old).sum(), most)?;
        }
        // All of them fit, though not every one may before a later one has become smaller.
        for (key, value) in pairs {
            self.set_in(Room::Granted, key, value, Condition::Always)?;
        }
        Ok(())
    }

    fn add(&mut self, key: Key<'_>, count: i64) -> Result<i64, Refused> {
        let number = match self.get(key) {
            Some(value) => integer(value).ok_or(Refused::NotAnInteger)?,
            None => 0,
        };
        let number = number.checked_add(count).ok_or(Refused::Overflow)?;
        let mut text = itoa::Buffer::new();
        self.set(key, text.format(number).as_bytes(), Condition::Always)?;
        Ok(number)
    }

    /// Removes a key. Returns whether it was there. Its memory stays allocated until
    /// [`free_removed`](Self::free_removed) is called.
    pub(super) fn remove(&mut self, key: Key<'_>) -> bool {
        let table = &mut self.tables[key.table()];
        let Ok(place) = table.find_entry(key.hash, |entry| entry.is(key)) else {
            return false;
        };
        let (entry, _) = place.remove();
        self.meter.remove(entry.size());
        self.removed.add(entry.into_bytes());
        // An entry's size includes its place in the table, so places that are no longer needed are
        // given back.
        if table.capacity() > LEAST_PLACES && table.len() < table.capacity() / 8 {
            give_back_places(table);
        }
        true
    }

    /// Frees the memory of removed keys. It is counted as free before.
    #[inline]
    pub(super) fn free_removed(&mut self) -> FreedBy {
        if self.removed.is_empty() { FreedBy::Loop } else { self.removed.free() }
    }

    #[cfg(test)]
    pub(super) fn has_removed(&self) -> bool {
        !self.removed.is_empty()
    }

    /// Removes all keys. Their memory is counted as free before it is. Otherwise a client that
    /// clears everything, and sets it anew, would be refused.
    pub(super) fn clear(&mut self) -> FreedBy {
        let (keys, used) = (self.meter.keys(), self.meter.used());
        let cleared = self.tables.iter_mut().map(std::mem::take);
        self.meter.clear();
        let mut tables = Vec::new();
        if !self.spare.gives(|| tables.try_reserve_exact(TABLES)) {
            cleared.for_each(drop);
            return FreedBy::Loop;
        }
        tables.extend(cleared);
        freeing::free(tables, keys, used)
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Parses a number as Redis does: no sign but a minus, no leading zeros, nothing else.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let number = std::str::from_utf8(text).ok()?.parse().ok()?;
    (itoa::Buffer::new().format(number).as_bytes() == text).then_some(number)
}

#[cfg(test)]
mod tests;
