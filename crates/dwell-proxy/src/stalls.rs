//! Streams whose program does not read, and which of them makes room when others wait for it.
//! No sockets, and no clock: the time is an argument.
//!
//! A program that reads slowly begins and ends to wait many times a second, and somebody may ask for
//! room as often. So neither visits all streams. A stream that begins to wait is listed once, by the
//! time at which it did so; what has become of it since is looked up when its time is over, and from
//! there it is listed under its source until it reads. Each step is a few searches in ordered tables, and
//! there is at most one more of them for each time that a stream began to wait.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dwell_base::Instant;
use tokio::sync::oneshot;

use crate::source::Source;

/// All streams of a process.
#[derive(Debug)]
pub(crate) struct Stalls {
    /// A program may not read for this long before its stream can be asked to make room.
    patience_ns: u64,
    table: Mutex<Table>,
}

/// Since when a stream waits (in nanoseconds), and its number: the lesser, the longer.
type Waiting = (u64, u64);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    streams: HashMap<u64, Entry>,
    /// Streams that began to wait, at the time at which they were found to. Some read again since.
    began: BTreeSet<Waiting>,
    /// Streams that have waited for too long and still do.
    stalled: HashMap<Source, BTreeSet<Waiting>>,
    /// The same by whom they share memory with.
    of_parties: HashMap<u64, BTreeSet<Waiting>>,
    /// Their sources, by how many these are and by the one that has waited longest. The last one is
    /// asked.
    order: BTreeMap<(usize, Reverse<Waiting>), Source>,
}

#[derive(Debug)]
struct Entry {
    source: Source,
    party: u64,
    shared: Arc<Shared>,
    /// The time under which it is listed, if it is.
    listed_ns: u64,
    give_up: Option<oneshot::Sender<()>>,
}

/// The fields that a stream changes without the lock.
#[derive(Debug, Default)]
struct Shared {
    /// Since when its program has not read although there is something for it; 0: it reads.
    since_ns: AtomicU64,
    /// The list that it is in: one of the constants below. Changed only under the lock. Whoever
    /// changes one of the two fields reads the other one afterwards, so that one of both sides sees
    /// both changes.
    list: AtomicU8,
}

/// Nowhere; in `began`; in `stalled`; and nowhere for ever, as it has been asked.
const NOWHERE: u8 = 0;
const BEGAN: u8 = 1;
const STALLED: u8 = 2;
const ASKED: u8 = 3;

/// One stream, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Stall<'a> {
    stalls: &'a Stalls,
    number: u64,
    shared: Arc<Shared>,
    /// Ready when the stream has to make room.
    pub(crate) gives_up: oneshot::Receiver<()>,
}

impl Stalls {
    /// None yet. Programs may wait for `patience_ns` before their streams are asked to make room.
    pub(crate) fn new(patience_ns: u64) -> Self {
        Self { patience_ns, table: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream begins; `from` is the address of who opened it, `party` with whom it shares memory.
    pub(crate) fn enter(&self, from: IpAddr, party: u64) -> Stall<'_> {
        let (give_up, gives_up) = oneshot::channel();
        let shared = Arc::new(Shared::default());
        let mut table = self.lock();
        let number = table.next;
        table.next += 1;
        let entry = Entry {
            source: Source::of(from),
            party,
            shared: Arc::clone(&shared),
            listed_ns: 0,
            give_up: Some(give_up),
        };
        table.streams.insert(number, entry);
        Stall { stalls: self, number, shared, gives_up }
    }

    /// Has one stream make room, if there is one whose program has not read for too long: of the
    /// source that has most of these the one that has waited longest. Returns whether there was one.
    pub(crate) fn make_room(&self, now: Instant) -> bool {
        self.ask(now, |table| {
            let (_, source) = table.order.last_key_value()?;
            table.stalled.get(source)?.first().copied()
        })
    }

    /// The same of the streams of one party: the one that has waited longest.
    pub(crate) fn make_room_of(&self, party: u64, now: Instant) -> bool {
        self.ask(now, |table| table.of_parties.get(&party)?.first().copied())
    }

    fn ask(&self, now: Instant, which: impl Fn(&Table) -> Option<Waiting>) -> bool {
        let mut table = self.lock();
        if let Some(limit_ns) = now.as_ns().checked_sub(self.patience_ns) {
            // Those that read meanwhile are listed nowhere afterwards, or by a later time.
            while let Some(&(since_ns, number)) = table.began.first()
                && since_ns <= limit_ns
            {
                table.unlist(number);
                table.list(number, limit_ns);
            }
        }
        while let Some((_, number)) = which(&table) {
            table.unlist(number);
            let Some(entry) = table.streams.get_mut(&number) else { continue };
            entry.shared.list.store(ASKED, SeqCst);
            if entry.give_up.take().is_some_and(|give_up| give_up.send(()).is_ok()) {
                return true;
            }
        }
        false
    }
}

impl Table {
    /// Lists a stream that is listed nowhere, if it waits: as stalled, if it has done so since
    /// `limit_ns`.
    fn list(&mut self, number: u64, limit_ns: u64) {
        let Some(entry) = self.streams.get_mut(&number) else { return };
        let Shared { since_ns, list } = &*entry.shared;
        // Before looking, so that a stream that reads meanwhile finds where it is about to be listed.
        list.store(STALLED, SeqCst);
        let mut since = since_ns.load(SeqCst);
        if since == 0 {
            list.store(NOWHERE, SeqCst);
            since = since_ns.load(SeqCst);
            if since == 0 {
                return;
            }
        }
        entry.listed_ns = since;
        // Again before looking. If it reads just now, it is looked up by the next one who asks.
        list.store(STALLED, SeqCst);
        if since <= limit_ns && since_ns.load(SeqCst) == since {
            let (source, party) = (entry.source, entry.party);
            self.with_stalled(source, |stalled| stalled.insert((since, number)));
            self.of_parties.entry(party).or_default().insert((since, number));
        } else {
            list.store(BEGAN, SeqCst);
            self.began.insert((since, number));
        }
    }

    /// Takes a stream out of where it is listed.
    fn unlist(&mut self, number: u64) {
        let Some(entry) = self.streams.get(&number) else { return };
        let (at, source, party) = ((entry.listed_ns, number), entry.source, entry.party);
        match entry.shared.list.load(SeqCst) {
            BEGAN => drop(self.began.remove(&at)),
            STALLED => {
                self.with_stalled(source, |stalled| stalled.remove(&at));
                if let Some(stalled) = self.of_parties.get_mut(&party) {
                    stalled.remove(&at);
                    if stalled.is_empty() {
                        self.of_parties.remove(&party);
                    }
                }
            }
            _ => return,
        }
        if let Some(entry) = self.streams.get(&number) {
            entry.shared.list.store(NOWHERE, SeqCst);
        }
    }

    /// Changes what is stalled of a source, and keeps the sources in their order.
    fn with_stalled(
        &mut self,
        source: Source,
        change: impl FnOnce(&mut BTreeSet<Waiting>) -> bool,
    ) {
        let rank = |stalled: &BTreeSet<Waiting>| {
            stalled.first().map(|&longest| (stalled.len(), Reverse(longest)))
        };
        let stalled = self.stalled.entry(source).or_default();
        let before = rank(stalled);
        change(stalled);
        let after = rank(stalled);
        if let Some(before) = before {
            self.order.remove(&before);
        }
        match after {
            Some(after) => drop(self.order.insert(after, source)),
            None => drop(self.stalled.remove(&source)),
        }
    }
}

impl Stall<'_> {
    /// The program reads, or has nothing to read.
    pub(crate) fn reads(&self) {
        let Shared { since_ns, list } = &*self.shared;
        if since_ns.load(Relaxed) != 0 {
            since_ns.store(0, SeqCst);
            // After a long time only.
            if list.load(SeqCst) == STALLED {
                let mut table = self.stalls.lock();
                if list.load(SeqCst) == STALLED {
                    table.unlist(self.number);
                }
            }
        }
    }

    /// There is something for the program, and it does not read.
    pub(crate) fn waits(&self, now: impl FnOnce() -> Instant) {
        let Shared { since_ns, list } = &*self.shared;
        if since_ns.load(Relaxed) == 0 {
            since_ns.store(now().as_ns().max(1), SeqCst);
            // It stays listed until somebody needs room, however often it reads meanwhile.
            if list.load(SeqCst) == NOWHERE {
                let mut table = self.stalls.lock();
                if list.load(SeqCst) == NOWHERE {
                    table.list(self.number, 0);
                }
            }
        }
    }
}

impl Drop for Stall<'_> {
    fn drop(&mut self) {
        let mut table = self.stalls.lock();
        table.unlist(self.number);
        table.streams.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PATIENCE_NS: u64 = 30;

    fn at(ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    fn gave_up(stall: &mut Stall<'_>) -> bool {
        stall.gives_up.try_recv().is_ok()
    }

    #[test]
    fn who_has_most_that_wait_makes_room() {
        let stalls = Stalls::new(PATIENCE_NS);
        let (honest, hostile) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let mut patient = stalls.enter(honest, 0);
        patient.waits(|| at(1));
        let mut hoard: Vec<_> = (0..3).map(|_| stalls.enter(hostile, 0)).collect();
        for (number, stall) in hoard.iter().enumerate() {
            stall.waits(|| at(12 - number as u64));
        }
        // Nobody has waited for long enough, and then the oldest of the larger group.
        assert!(!stalls.make_room(at(30)));
        assert!(stalls.make_room(at(50)));
        assert_eq!(hoard.iter_mut().map(gave_up).collect::<Vec<_>>(), [false, false, true]);
        // Who has been asked is not asked again; of equals the one that has waited longest.
        hoard[1].reads();
        assert!(stalls.make_room(at(50)));
        assert!(gave_up(&mut patient) && !gave_up(&mut hoard[0]));
        assert!(stalls.make_room(at(50)));
        assert!(gave_up(&mut hoard[0]));
        assert!(!stalls.make_room(at(90)));
    }

    #[test]
    fn a_party_makes_room_for_itself() {
        let stalls = Stalls::new(PATIENCE_NS);
        let mut streams = [(1, 7), (2, 7), (2, 8)].map(|(from, party)| {
            let stall = stalls.enter([192, 0, 2, from].into(), party);
            stall.waits(|| at(from.into()));
            stall
        });
        assert!(!stalls.make_room_of(9, at(50)) && stalls.make_room_of(7, at(50)));
        assert_eq!(streams.each_mut().map(gave_up), [true, false, false]);
        assert!(stalls.make_room_of(8, at(50)) && !stalls.make_room_of(8, at(50)));
        assert_eq!(streams.each_mut().map(gave_up), [false, false, true]);
        drop(streams);
        assert!(stalls.lock().is_empty());
    }

    #[test]
    fn who_reads_is_left_alone() {
        let stalls = Stalls::new(PATIENCE_NS);
        let mut stall = stalls.enter([192, 0, 2, 1].into(), 0);
        assert!(!stalls.make_room(at(100)));
        stall.waits(|| at(100));
        stall.reads();
        stall.waits(|| at(120));
        stall.waits(|| at(200));
        assert!(!stalls.make_room(at(149)));
        assert!(stalls.make_room(at(150)) && gave_up(&mut stall));
        drop(stall);
        assert!(stalls.lock().is_empty());
    }

    impl Table {
        fn is_empty(&self) -> bool {
            let Self { streams, began, stalled, of_parties, order, .. } = self;
            let listed = [stalled.is_empty(), of_parties.is_empty(), order.is_empty()];
            streams.is_empty() && began.is_empty() && listed == [true; 3]
        }
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one_source() {
        let stalls = Stalls::new(PATIENCE_NS);
        let of = |text: &str| stalls.enter(text.parse().unwrap(), 0);
        let mut honest = [of("2001:db8:1::1"), of("2001:db8:1::1")];
        honest.iter().for_each(|stall| stall.waits(|| at(1)));
        let mut hostile: Vec<_> = (0..3).map(|host| of(&format!("2001:db8:2::{host}"))).collect();
        hostile.iter().for_each(|stall| stall.waits(|| at(2)));
        assert!(stalls.make_room(at(100)));
        assert!(gave_up(&mut hostile[0]) && !honest.iter_mut().any(gave_up));
    }

    /// A request for room while thousands wait visits only a few of them.
    #[test]
    fn nobody_looks_at_all_streams() {
        let stalls = Stalls::new(PATIENCE_NS);
        let streams: Vec<_> = (0..2_000_u32)
            .map(|name| stalls.enter(IpAddr::from((name / 4 + (10 << 24)).to_be_bytes()), 0))
            .collect();
        streams.iter().for_each(|stall| stall.waits(|| at(1_000)));
        // Nobody's time is over: not one is moved, and the next look would find the same.
        assert!(!stalls.make_room(at(1_010)));
        let listed = {
            let table = stalls.lock();
            (table.began.len(), table.stalled.len())
        };
        assert_eq!(listed, (2_000, 0));
        // All are moved once, and then each question takes one out.
        for asked in 1..=5 {
            assert!(stalls.make_room(at(2_000)));
            let table = stalls.lock();
            assert_eq!((table.began.len(), table.order.len()), (0, 500));
            assert_eq!(table.stalled.values().map(BTreeSet::len).sum::<usize>(), 2_000 - asked);
        }
        // Who reads and waits again is listed by the new time.
        streams[1_999].reads();
        streams[1_999].waits(|| at(2_000));
        assert_eq!(stalls.lock().began.first(), Some(&(2_000, 1_999)));
        drop(streams);
        assert!(stalls.lock().is_empty());
    }

    /// A model that checks all streams, to compare with: returns the numbers of those that give up.
    fn chosen(model: &[(Source, u64, bool)], now_ns: u64) -> Option<usize> {
        let is_stalled = |&(_, since_ns, asked): &(Source, u64, bool)| {
            since_ns > 0 && !asked && now_ns.saturating_sub(since_ns) >= PATIENCE_NS
        };
        let count =
            |source| model.iter().filter(|stream| stream.0 == source && is_stalled(stream)).count();
        let stalled = model.iter().enumerate().filter(|(_, stream)| is_stalled(stream));
        let longest =
            |&(number, &(_, since_ns, _)): &(usize, &(Source, u64, bool))| (since_ns, number);
        let most = stalled.clone().map(|(_, stream)| count(stream.0)).max();
        let of_most = stalled.filter(|(_, stream)| Some(count(stream.0)) == most);
        of_most.min_by_key(longest).map(|(number, _)| number)
    }

    proptest! {
        /// Whatever happens in which order, the same streams make room as if all were visited.
        #[test]
        fn the_lists_choose_as_a_look_at_all_would(
            steps in prop::collection::vec((0..3_u8, 0..12_usize, 0..20_u64), 0..300),
        ) {
            let stalls = Stalls::new(PATIENCE_NS);
            let from = |number: usize| IpAddr::from([10, 0, 0, (number % 3) as u8]);
            let mut streams: Vec<_> = (0..12).map(|number| stalls.enter(from(number), 0)).collect();
            let mut model: Vec<_> =
                (0..12).map(|number| (Source::of(from(number)), 0, false)).collect();
            let mut now_ns = 1;
            for (step, number, later_ns) in steps {
                now_ns += later_ns;
                match step {
                    0 => {
                        streams[number].reads();
                        model[number].1 = 0;
                    }
                    1 => {
                        streams[number].waits(|| at(now_ns));
                        if model[number].1 == 0 {
                            model[number].1 = now_ns;
                        }
                    }
                    _ => {
                        let expected = chosen(&model, now_ns);
                        prop_assert_eq!(stalls.make_room(at(now_ns)), expected.is_some());
                        if let Some(number) = expected {
                            prop_assert!(gave_up(&mut streams[number]));
                            model[number].2 = true;
                        }
                    }
                }
            }
            drop(streams);
            prop_assert!(stalls.lock().is_empty());
        }
    }
}
