//! An ingress' connections to its egress: some are kept ready, so that a stream begins at once.
//!
//! Each carries one stream at a time. Sharing one among several streams would make the slowest
//! reader hold up the others, or need a window of its own for each, as TCP has one already; a lost
//! segment would hold up all of them; and how busy the link is could not be seen any more from whether it takes bytes.
//! A stream on a connection that is ready begins without waiting for an answer, as one of many on a shared one would.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::carrier::Carrier;
use crate::kept::{Kept, Whose};
use crate::metrics::{Counter, Present};

/// A connection without a stream is closed after this time: before a NAT or a firewall between
/// the two forgets it, and before the egress does.
pub(crate) const WARM_TIME: Duration = Duration::from_secs(240);

/// So many are kept where nobody has used any for [`WARM_TIME`]: making one costs some 3 kB on the link, which on a
/// metered one nobody wants to pay sixteen times in each four minutes for nothing.
const UNUSED_SIZE: usize = 2;

/// Fewer may be ready than half of the pool for this time before others are made: one that a stream has done with comes back a
/// round trip after its program has gone on, for which it may have taken another one. With eight programs that open a connection for
/// each request that was a handshake for each of them, whose bytes the answers then waited for.
const SHORT_TIME: Duration = Duration::from_secs(1);

/// Or for this time, if none has come back in it: then the streams that have them last, and the next ones would wait for handshakes of
/// their own. And as long as it takes to make one, which is some round trips more than to come back.
const SILENT_TIME: Duration = Duration::from_millis(250);

/// The pool is tidied this often.
const TIDY: Duration = Duration::from_secs(15);

/// What is known of how soon connections come back.
#[derive(Clone, Copy, Debug, Default)]
struct Returns {
    last: Option<Instant>,
    /// The time that it took to make the latest one.
    making: Duration,
}

/// Connections that wait for a stream, the latest last.
#[derive(Debug)]
pub(crate) struct Pool {
    size: usize,
    warm: Mutex<VecDeque<(Instant, Carrier)>>,
    /// Streams that wait for a connection: for each of these one more is kept.
    waiting: Counter,
    /// Streams that have a connection or wait for one: most of these come back.
    lent: Counter,
    used_at: Mutex<Instant>,
    /// The time since which fewer are ready than half of them.
    short_since: Mutex<Option<Instant>>,
    returns: Mutex<Returns>,
    came: Notify,
    /// One was taken, so that there is room for another one.
    taken: Notify,
}

impl Pool {
    /// The most connections in it.
    pub(crate) fn new(size: usize) -> Self {
        Self {
            size,
            warm: Mutex::default(),
            waiting: Counter::default(),
            lent: Counter::default(),
            used_at: Mutex::new(Instant::now()),
            short_since: Mutex::default(),
            returns: Mutex::default(),
            came: Notify::new(),
            taken: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Instant, Carrier)>> {
        self.warm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Notes that a stream begins, which lasts as long as what this returns.
    pub(crate) fn lend(&self) -> Lent<'_> {
        self.used();
        self.lent.add(1);
        Lent(self)
    }

    fn used(&self) {
        *self.used_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// How many are to be made beforehand. Those that streams have at present will come back: with others in their
    /// place there would be no room for them then, and each stream would cost a handshake. But half of them are to be ready,
    /// as streams may last, but for [`SHORT_TIME`], or [`SILENT_TIME`] in which none came back.
    pub(crate) fn missing(&self) -> usize {
        self.missing_at(Instant::now())
    }

    fn missing_at(&self, now: Instant) -> usize {
        let used_at = *self.used_at.lock().unwrap_or_else(PoisonError::into_inner);
        // One stream that lasts all day is no use of the others.
        let is_used = used_at.elapsed() < WARM_TIME;
        let size = if is_used { self.size } else { self.size.min(UNUSED_SIZE) };
        let lent = usize::try_from(self.lent.get()).unwrap_or(usize::MAX);
        let warm = self.len();
        let spare = size.saturating_sub(warm.saturating_add(lent));
        let short = size.div_ceil(2).saturating_sub(warm);
        let mut since = self.short_since.lock().unwrap_or_else(PoisonError::into_inner);
        if short == 0 {
            *since = None;
            return spare;
        }
        let since = *since.get_or_insert(now);
        let Returns { last, making } = *self.returns();
        let silent_since = last.map_or(since, |last| last.max(since));
        let silent_time = making.clamp(SILENT_TIME, SHORT_TIME);
        let is_lasting = now >= since + SHORT_TIME || now >= silent_since + silent_time;
        if is_lasting { spare.max(short) } else { spare }
    }

    /// The time in which it is to be looked again whether some are missing.
    pub(crate) fn next_look(&self) -> Duration {
        match *self.short_since.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(_) => SILENT_TIME / 2,
            None => TIDY,
        }
    }

    /// How many are kept that streams have done with: those beyond the size of the pool, which were made as streams had all others, are
    /// likely to be needed again.
    const fn kept_max(&self) -> usize {
        self.size + self.size / 2
    }

    /// A connection that is still there: the one that was used last, of those whose last stream has left something that is for
    /// them, or else of those without any. The one that was used first, if all have something for others.
    pub(crate) fn take(&self, whose: Option<&Whose>) -> Option<Carrier> {
        loop {
            let best = {
                let mut warm = self.lock();
                let is_theirs = |kept: &Kept| kept.whose.as_ref() == whose;
                let theirs =
                    warm.iter().rposition(|(_, one)| one.kept.as_ref().is_some_and(is_theirs));
                let free = || warm.iter().rposition(|(_, one)| one.kept.is_none());
                let at = theirs.or_else(free).unwrap_or(0);
                warm.remove(at)
            };
            let (since, mut carrier) = best?;
            self.taken.notify_one();
            if since.elapsed() < WARM_TIME && carrier.is_quiet() {
                return Some(carrier);
            }
        }
    }

    /// Waits for a connection that another stream gives back.
    pub(crate) async fn wait(&self, whose: Option<&Whose>) -> Carrier {
        let _waiting = Present::new(&self.waiting);
        loop {
            if let Some(carrier) = self.take(whose) {
                return carrier;
            }
            self.came.notified().await;
        }
    }

    /// Waits until one is taken, or a stream ends.
    pub(crate) async fn taken(&self) {
        self.taken.notified().await;
    }

    fn returns(&self) -> MutexGuard<'_, Returns> {
        self.returns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that making one took so long.
    pub(crate) fn made(&self, time: Duration) {
        self.returns().making = time;
    }

    /// Notes that a stream has done with its connection, and keeps that.
    pub(crate) fn give_back(&self, carrier: Carrier) {
        self.came_back(Instant::now());
        self.put(carrier);
    }

    fn came_back(&self, now: Instant) {
        self.returns().last = Some(now);
    }

    /// Keeps a connection whose stream has finished, if there is room for it, or somebody waits for
    /// it. Whether it was fit to be kept.
    pub(crate) fn put(&self, mut carrier: Carrier) -> bool {
        if !carrier.is_quiet() {
            return false;
        }
        let waiting = usize::try_from(self.waiting.get()).unwrap_or(usize::MAX);
        let mut warm = self.lock();
        if warm.len() < self.kept_max().saturating_add(waiting) {
            warm.push_back((Instant::now(), carrier));
            drop(warm);
            self.came.notify_one();
        }
        true
    }

    /// Closes all of them.
    pub(crate) fn clear(&self) {
        self.lock().clear();
        self.taken.notify_one();
    }

    /// Closes those that have waited for too long, that the other end has closed, or for which
    /// nobody waits any more.
    pub(crate) fn tidy(&self) {
        let mut warm = self.lock();
        warm.retain_mut(|(since, carrier)| since.elapsed() < WARM_TIME && carrier.is_quiet());
        let spare = warm.len().saturating_sub(self.kept_max());
        warm.drain(..spare);
    }
}

/// A stream that has a connection of the pool, or will have one.
#[derive(Debug)]
pub(crate) struct Lent<'a>(&'a Pool);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.0.lent.subtract(1);
        self.0.used();
        // What it had may not have come back.
        self.0.taken.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_streams_have_comes_back_and_half_is_ready_meanwhile() {
        let pool = Pool::new(16);
        // Nothing is connected here: all that streams don't have is missing.
        let now = Instant::now();
        assert_eq!(pool.missing_at(now), 16);
        let few: Vec<_> = (0..5).map(|_| pool.lend()).collect();
        assert_eq!(pool.missing_at(now), 11);
        let many: Vec<_> = (0..100).map(|_| pool.lend()).collect();
        assert_eq!(pool.missing_at(now), 0, "they may come back");
        // As they do, if not all of them.
        for ms in (100..1_000).step_by(100) {
            assert_eq!(pool.missing_at(now + Duration::from_millis(ms)), 0);
            pool.came_back(now + Duration::from_millis(ms));
        }
        assert_eq!(pool.missing_at(now + SHORT_TIME), 8);
        drop((few, many));
        assert_eq!(pool.missing(), 16);
    }

    /// A burst of streams that last, and then another one.
    #[test]
    fn where_none_comes_back_others_are_made_sooner() {
        let pool = Pool::new(16);
        let _burst: Vec<_> = (0..20).map(|_| pool.lend()).collect();
        let now = Instant::now();
        assert_eq!(pool.missing_at(now), 0);
        assert_eq!(pool.missing_at(now + SILENT_TIME), 8);
        // Not while they can't be back yet.
        pool.made(2 * SILENT_TIME);
        assert_eq!(pool.missing_at(now + SILENT_TIME), 0);
        assert_eq!(pool.missing_at(now + 2 * SILENT_TIME), 8);
        pool.made(10 * SHORT_TIME);
        assert_eq!(pool.missing_at(now + SHORT_TIME), 8);
    }

    #[test]
    fn a_pool_that_nobody_uses_keeps_two() {
        let pool = Pool::new(16);
        let Some(before) = Instant::now().checked_sub(WARM_TIME) else { return };
        *pool.used_at.lock().unwrap() = before;
        assert_eq!(pool.missing(), 2);
        let lasting = pool.lend();
        assert_eq!(pool.missing(), 15);
        assert!(pool.next_look() < SHORT_TIME);
        *pool.used_at.lock().unwrap() = before;
        assert_eq!(pool.missing(), 1, "nobody has begun another one for minutes");
        drop(lasting);
        assert_eq!(pool.missing(), 16, "one has ended just now");
        let none = Pool::new(0);
        let _lent = none.lend();
        assert_eq!(none.missing(), 0);
    }
}
