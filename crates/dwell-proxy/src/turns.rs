//! Turns for a bounded number of things at a time, for many that want to do them.
//!
//! The stream that waits longest and the one that came last have the next turn alternately. So
//! after thousands have come at once a later one does not wait for all of them, and none of them
//! waits for ever.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

/// Hands out turns. Clones hand out the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Turns(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    free: usize,
    waiting: VecDeque<oneshot::Sender<Turn>>,
    /// True if the next turn is for the one that came last.
    newest_next: bool,
}

/// A turn; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn(Option<Turns>);

/// Somebody who wants a turn. Dropping it gives the turn up.
#[derive(Debug)]
pub(crate) enum Asked {
    /// It has come at once.
    Granted(Option<Turn>),
    /// It is waited for.
    Waiting(oneshot::Receiver<Turn>),
}

impl Turns {
    /// At most `max` at a time.
    pub(crate) fn new(max: usize) -> Self {
        let state = State { free: max, waiting: VecDeque::new(), newest_next: false };
        Self(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a turn.
    pub(crate) fn ask(&self) -> Asked {
        let mut state = self.lock();
        if state.free > 0 {
            state.free -= 1;
            return Asked::Granted(Some(Turn(Some(self.clone()))));
        }
        let (sender, receiver) = oneshot::channel();
        state.waiting.push_back(sender);
        Asked::Waiting(receiver)
    }

    /// A turn is over: the next one has it, of those that still want it.
    fn pass_on(&self) {
        loop {
            let mut state = self.lock();
            let newest = std::mem::replace(&mut state.newest_next, false);
            let next = match newest {
                true => state.waiting.pop_back(),
                false => state.waiting.pop_front(),
            };
            let Some(next) = next else {
                state.free += 1;
                return;
            };
            state.newest_next = !newest;
            drop(state);
            match next.send(Turn(Some(self.clone()))) {
                Ok(()) => return,
                // Nobody waits there any more; it must not pass itself on as well.
                Err(mut turn) => turn.0 = None,
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.pass_on();
        }
    }
}

impl Future for Asked {
    type Output = Turn;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Turn> {
        match &mut *self {
            Self::Granted(turn) => turn.take().map_or(Poll::Pending, Poll::Ready),
            // Senders are only dropped when they have been sent something.
            Self::Waiting(receiver) => {
                Pin::new(receiver).poll(cx).map(|turn| turn.unwrap_or(Turn(None)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn granted(asked: &mut Asked) -> Option<Turn> {
        match Pin::new(asked).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    #[test]
    fn no_more_than_so_many_have_a_turn_and_nobody_waits_for_all_before() {
        let turns = Turns::new(2);
        let mut asked: Vec<_> = (0..10).map(|_| turns.ask()).collect();
        let mut held: Vec<_> = asked.iter_mut().filter_map(granted).collect();
        assert_eq!(held.len(), 2);
        let mut order = Vec::new();
        while let Some(turn) = held.pop() {
            drop(turn);
            for (name, asked) in asked.iter_mut().enumerate().skip(2) {
                if order.contains(&name) {
                    continue;
                }
                if let Some(turn) = granted(asked) {
                    order.push(name);
                    held.push(turn);
                }
            }
        }
        // The oldest, the latest, the oldest of the rest, ...
        assert_eq!(order, [2, 9, 3, 8, 4, 7, 5, 6]);
        assert_eq!(turns.lock().free, 2);
    }

    #[test]
    fn who_gives_up_leaves_its_turn_to_the_others() {
        let turns = Turns::new(1);
        let first = granted(&mut turns.ask()).unwrap();
        let (gone, mut oldest, last) = (turns.ask(), turns.ask(), turns.ask());
        drop(gone);
        drop(first);
        // The one that came last has it, but never takes it.
        assert!(granted(&mut oldest).is_none());
        drop(last);
        drop(granted(&mut oldest).unwrap());
        let state = turns.lock();
        assert_eq!((state.free, state.waiting.len()), (1, 0));
    }
}
