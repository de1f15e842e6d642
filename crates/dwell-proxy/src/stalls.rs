//! Streams whose program does not read, and which of them makes room when others wait for it.
//! No sockets, and no clock: the time is an argument.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dwell_base::Instant;
use tokio::sync::oneshot;

/// All streams of a process.
#[derive(Debug, Default)]
pub(crate) struct Stalls(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    streams: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    from: IpAddr,
    since_ns: Arc<AtomicU64>,
    give_up: Option<oneshot::Sender<()>>,
}

/// One stream, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Stall<'a> {
    stalls: &'a Stalls,
    number: u64,
    /// Since when its program has not read although there is something for it; 0: it reads.
    since_ns: Arc<AtomicU64>,
    /// Ready when the stream has to make room.
    pub(crate) gives_up: oneshot::Receiver<()>,
}

impl Stalls {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream begins; `from` is the address of who opened it.
    pub(crate) fn enter(&self, from: IpAddr) -> Stall<'_> {
        let (give_up, gives_up) = oneshot::channel();
        let since_ns = Arc::new(AtomicU64::new(0));
        let mut table = self.lock();
        let number = table.next;
        table.next += 1;
        let entry = Entry { from, since_ns: Arc::clone(&since_ns), give_up: Some(give_up) };
        table.streams.insert(number, entry);
        Stall { stalls: self, number, since_ns, gives_up }
    }

    /// Has one stream make room, if there is one whose program has not read for `patience_ns`: of the
    /// source that has most of these the one that has waited longest. Returns whether there was one.
    pub(crate) fn make_room(&self, now: Instant, patience_ns: u64) -> bool {
        let mut table = self.lock();
        let stalled = |entry: &Entry| {
            let since_ns = entry.since_ns.load(Relaxed);
            let is_stalled = since_ns > 0 && now.as_ns().saturating_sub(since_ns) >= patience_ns;
            (is_stalled && entry.give_up.is_some()).then_some(since_ns)
        };
        let mut sources: HashMap<IpAddr, (u32, u64, u64)> = HashMap::new();
        for (&number, entry) in &table.streams {
            let Some(since_ns) = stalled(entry) else { continue };
            let (count, oldest_ns, oldest) =
                sources.entry(entry.from).or_insert((0, since_ns, number));
            *count += 1;
            if since_ns < *oldest_ns {
                (*oldest_ns, *oldest) = (since_ns, number);
            }
        }
        let most = sources.values().max_by_key(|&&(count, oldest_ns, oldest)| {
            (count, std::cmp::Reverse((oldest_ns, oldest)))
        });
        let Some(&(_, _, number)) = most else { return false };
        let give_up = table.streams.get_mut(&number).and_then(|entry| entry.give_up.take());
        give_up.is_some_and(|give_up| give_up.send(()).is_ok())
    }
}

impl Stall<'_> {
    /// The program reads, or has nothing to read.
    pub(crate) fn reads(&self) {
        if self.since_ns.load(Relaxed) != 0 {
            self.since_ns.store(0, Relaxed);
        }
    }

    /// There is something for the program, and it does not read.
    pub(crate) fn waits(&self, now: impl FnOnce() -> Instant) {
        if self.since_ns.load(Relaxed) == 0 {
            self.since_ns.store(now().as_ns().max(1), Relaxed);
        }
    }
}

impl Drop for Stall<'_> {
    fn drop(&mut self) {
        self.stalls.lock().streams.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
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
        let stalls = Stalls::default();
        let (honest, hostile) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let mut patient = stalls.enter(honest);
        patient.waits(|| at(1));
        let mut hoard: Vec<_> = (0..3).map(|_| stalls.enter(hostile)).collect();
        for (number, stall) in hoard.iter().enumerate() {
            stall.waits(|| at(12 - number as u64));
        }
        // Nobody has waited for long enough, and then the oldest of the larger group.
        assert!(!stalls.make_room(at(30), PATIENCE_NS));
        assert!(stalls.make_room(at(50), PATIENCE_NS));
        assert_eq!(hoard.iter_mut().map(gave_up).collect::<Vec<_>>(), [false, false, true]);
        // Who has been asked is not asked again; of equals the one that has waited longest.
        hoard[1].reads();
        assert!(stalls.make_room(at(50), PATIENCE_NS));
        assert!(gave_up(&mut patient) && !gave_up(&mut hoard[0]));
        assert!(stalls.make_room(at(50), PATIENCE_NS));
        assert!(gave_up(&mut hoard[0]));
        assert!(!stalls.make_room(at(90), PATIENCE_NS));
    }

    #[test]
    fn who_reads_is_left_alone() {
        let stalls = Stalls::default();
        let mut stall = stalls.enter([192, 0, 2, 1].into());
        assert!(!stalls.make_room(at(100), PATIENCE_NS));
        stall.waits(|| at(100));
        stall.reads();
        stall.waits(|| at(120));
        stall.waits(|| at(200));
        assert!(!stalls.make_room(at(149), PATIENCE_NS));
        assert!(stalls.make_room(at(150), PATIENCE_NS) && gave_up(&mut stall));
        drop(stall);
        assert!(stalls.lock().streams.is_empty());
    }
}
