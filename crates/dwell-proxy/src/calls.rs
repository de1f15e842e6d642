//! The number of connections that an ingress opens to its egress at the same time.
//!
//! A thousand handshakes at once over a thin link would all be too late. So only a few are under way,
//! and the others wait their turn. How many is learned as TCP learns its window: one more with each
//! that succeeds, half with each that is too late or cut off.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

/// At first, at least and at most.
const START: usize = 32;
const MIN: usize = 4;
const MAX: usize = 256;

/// Connecting is tried for this long, counted from the beginning or from the latest attempt of any
/// stream that succeeded: while some succeed, it is worth waiting.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);
/// The same if nobody listens there: time for a restart.
pub(crate) const REFUSED_PATIENCE: Duration = Duration::from_secs(3);
/// The longest time in any case.
const PATIENCE_MAX: Duration = Duration::from_secs(60);

/// Hands out turns.
#[derive(Debug)]
pub(crate) struct Calls {
    turns: Semaphore,
    window: Mutex<Window>,
}

#[derive(Debug)]
struct Window {
    limit: usize,
    open: usize,
    succeeded: Option<Instant>,
}

/// The turn of one attempt.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    calls: &'a Calls,
}

impl Calls {
    pub(crate) fn new() -> Self {
        let window = Window { limit: START, open: 0, succeeded: None };
        Self { turns: Semaphore::new(START), window: Mutex::new(window) }
    }

    fn lock(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn; none if nothing succeeds for too long.
    pub(crate) async fn turn(&self, since: Instant) -> Option<Call<'_>> {
        let turn = self.turns.acquire();
        let mut turn = std::pin::pin!(turn);
        loop {
            let end = self.deadline(since, PATIENCE);
            match tokio::time::timeout_at(end.into(), turn.as_mut()).await {
                Ok(permit) => {
                    // What is under way is counted here, so that the window may shrink. (It is never
                    // closed.)
                    permit.ok().map(SemaphorePermit::forget)?;
                    self.lock().open += 1;
                    return Some(Call { calls: self });
                }
                Err(_) if self.deadline(since, PATIENCE) <= Instant::now() => return None,
                Err(_) => {}
            }
        }
    }

    /// When whoever has tried since then gives up.
    pub(crate) fn deadline(&self, since: Instant, patience: Duration) -> Instant {
        let hope = self.lock().succeeded.map_or(since, |at| at.max(since));
        (hope + patience).min(since + PATIENCE_MAX)
    }

    /// Hands out as many turns as there may be.
    fn refill(&self, window: &Window) {
        let out = window.open + self.turns.available_permits();
        if out < window.limit {
            self.turns.add_permits(window.limit - out);
        } else {
            self.turns.forget_permits(out - window.limit);
        }
    }
}

impl Call<'_> {
    /// It has become a connection.
    pub(crate) fn succeeded(self) {
        let mut window = self.calls.lock();
        window.limit = (window.limit + 1).min(MAX);
        window.succeeded = Some(Instant::now());
    }

    /// It was too late, or cut off.
    pub(crate) fn overloaded(self) {
        let mut window = self.calls.lock();
        window.limit = (window.limit / 2).max(MIN);
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut window = self.calls.lock();
        window.open -= 1;
        self.calls.refill(&window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now()
    }

    #[tokio::test]
    async fn the_window_follows_the_link() {
        let calls = Calls::new();
        let mut open = Vec::new();
        for _ in 0..START {
            open.push(calls.turn(soon()).await.unwrap());
        }
        assert_eq!(calls.turns.available_permits(), 0);
        open.drain(..4).for_each(Call::succeeded);
        assert_eq!(calls.turns.available_permits(), 8);
        // Half of 36, of which 28 are under way: nobody has a turn until more than ten have ended.
        open.pop().unwrap().overloaded();
        assert_eq!((calls.lock().limit, calls.turns.available_permits()), (18, 0));
        open.drain(..9).for_each(drop);
        assert_eq!(calls.turns.available_permits(), 0);
        open.drain(..1).for_each(drop);
        assert_eq!(calls.turns.available_permits(), 1);
        open.drain(..).for_each(Call::overloaded);
        assert_eq!((calls.lock().limit, calls.turns.available_permits()), (MIN, MIN));
        for _ in 0..2 * MAX {
            calls.turn(soon()).await.unwrap().succeeded();
        }
        assert_eq!((calls.lock().limit, calls.turns.available_permits()), (MAX, MAX));
    }

    #[test]
    fn turns_are_waited_for_as_long_as_some_succeed() {
        let calls = Calls::new();
        let since = Instant::now();
        assert_eq!(calls.deadline(since, PATIENCE), since + PATIENCE);
        calls.lock().succeeded = Some(since + Duration::from_secs(5));
        assert_eq!(calls.deadline(since, PATIENCE), since + Duration::from_secs(20));
        calls.lock().succeeded = Some(since + Duration::from_secs(3000));
        assert_eq!(calls.deadline(since, PATIENCE), since + PATIENCE_MAX);
    }

    #[tokio::test]
    async fn turns_are_not_waited_for_in_vain() {
        let calls = Calls::new();
        let mut open = Vec::new();
        for _ in 0..START {
            open.push(calls.turn(soon()).await.unwrap());
        }
        let long_ago = soon().checked_sub(PATIENCE).unwrap();
        assert!(calls.turn(long_ago).await.is_none());
    }
}
