//! The reorder buffer: missing datagrams are asked for, and waited for a little, so that packets keep
//! their order (`docs/wire.md` section 8.3, receiver).

use std::collections::BTreeMap;

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_wire::control::Numbers;

use super::loss::JUMP_MIN;

/// Datagrams of one peer that may be missing at a time; of more, the link is gone rather than
/// lossy.
const MISSING_MAX: usize = 256;
/// The same, and how often one is asked for, if nothing that came later can be decoded without it.
const MISSING_MAX_CONTEXTS: usize = 1_024;
const ASKS_MAX_CONTEXTS: u8 = 10;
/// A path on which a datagram was late passes for one that reorders for so long.
const REORDERS_NS: u64 = 10 * SECOND_NS;
/// Bytes of datagrams that wait for one that is missing.
const HELD_BYTES_MAX: usize = 1 << 20;
/// The largest number of them, empty ones included.
const HELD_MAX: usize = 4_096;
/// A datagram is asked for at most this often.
const ASKS_MAX: u8 = 3;
/// A datagram may be late by an eighth of the round trip, within these, before it is missing.
const LATE_NS_MIN: u64 = MILLI_NS;
const LATE_NS_MAX: u64 = 5 * MILLI_NS;
/// An answer should have come after a round trip and a quarter, and this much more.
const ANSWER_MARGIN_NS: u64 = 5 * MILLI_NS;
/// Requests that may be sent together, before a pause.
const ASKS_TOGETHER: u8 = 4;
/// Where others can't be decoded without it, what is missing is asked for twice, a quarter of the round trip
/// apart, within these: the request or the answer is lost as often as anything else, and of a hundred gaps more
/// than one would last for two round trips. Where a round trip takes little longer, the next request comes soon anyway.
const ECHO_NS_MIN: u64 = 2 * MILLI_NS;
const ECHO_NS_MAX: u64 = 8 * MILLI_NS;
/// A request that nobody answers is given up after this.
const FORGET_NS: u64 = 3 * SECOND_NS;

#[derive(Clone, Copy, Debug)]
struct Miss {
    since: Instant,
    ask_at: Instant,
    asks: u8,
    /// Others wait for it.
    awaited: bool,
}

/// The times that missing datagrams are waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// The round trip, if it is known.
    pub(crate) rtt_ns: Option<u64>,
    /// The longest that packets may wait for one that is missing.
    pub(crate) order_wait_ns: u64,
    /// The peer compresses in contexts: all datagrams that are missing are needed.
    pub(crate) has_contexts: bool,
    /// The least time between requests. A request is a datagram itself, and missed if it is lost: where
    /// much is lost each would cause more than one, if nothing kept them from filling the link.
    pub(crate) pause_ns: u64,
    /// So little is lost that what is missing may be sent twice, and something can't be decoded without it.
    pub(crate) asks_twice: bool,
}

impl Waits {
    /// For how long a datagram may be late without being missing.
    fn late_ns(self) -> u64 {
        (self.rtt_ns.unwrap_or(0) / 8).clamp(LATE_NS_MIN, LATE_NS_MAX)
    }

    fn asks_max(self) -> u8 {
        if self.has_contexts { ASKS_MAX_CONTEXTS } else { ASKS_MAX }
    }

    fn missing_max(self) -> usize {
        if self.has_contexts { MISSING_MAX_CONTEXTS } else { MISSING_MAX }
    }

    fn answer_ns(self) -> u64 {
        let rtt_ns = self.rtt_ns.unwrap_or(100 * MILLI_NS);
        rtt_ns + rtt_ns / 4 + ANSWER_MARGIN_NS
    }

    /// The time from the first request to its repetition; none if there is none.
    fn echo_ns(self) -> Option<u64> {
        let rtt_ns = self.rtt_ns.filter(|_| self.asks_twice)?;
        let echo_ns = (rtt_ns / 4).clamp(ECHO_NS_MIN, ECHO_NS_MAX);
        (2 * echo_ns < rtt_ns).then_some(echo_ns)
    }

    /// The time that others wait for a missing one; zero if its retransmission would come too late.
    fn max_wait_ns(self) -> u64 {
        let needed_ns = self.late_ns() + self.pause_ns + self.answer_ns();
        if needed_ns <= self.order_wait_ns { needed_ns } else { 0 }
    }
}

/// The numbers of missing datagrams, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReorderCounts {
    /// Came when they were sent again.
    pub(crate) recovered: u64,
    /// Did not come.
    pub(crate) given_up: u64,
    /// Sent again although they had come.
    pub(crate) needless: u64,
}

/// The datagrams received in one session, in order.
#[derive(Debug, Default)]
pub(crate) struct ReorderBuffer {
    /// The peer keeps what it sends: only then it makes sense to ask.
    active: bool,
    /// The number of the next datagram to be handed on, and of the highest seen.
    next: u64,
    highest: u64,
    missing: BTreeMap<u64, Miss>,
    /// Datagrams that wait for their turn; none for a datagram that holds nothing.
    held: BTreeMap<u64, Option<Vec<u8>>>,
    held_bytes: usize,
    reorders_until: Instant,
    /// When requests may be sent again, and how many were in this turn.
    may_ask_at: Instant,
    asked: u8,
    pub(crate) counts: ReorderCounts,
}

impl ReorderBuffer {
    /// Nothing of this session is waited for any more: [`Self::ready`] gives all that is held.
    pub(crate) fn release(&mut self) {
        if self.active {
            self.counts.given_up += self.missing.len() as u64;
        }
        self.missing.clear();
    }

    /// Nothing waits for what is missing any more: [`Self::ready`] gives all that is held. It may yet come.
    pub(crate) fn stop_waiting(&mut self) {
        self.missing.values_mut().for_each(|miss| miss.awaited = false);
    }

    /// A new session begins. Returns what is known of the one before.
    pub(crate) fn begin_session(&mut self) -> Self {
        let Self { counts, reorders_until, .. } = *self;
        let next = Self { counts, reorders_until, ..Self::default() };
        let before = std::mem::replace(self, next);
        Self { counts: ReorderCounts::default(), ..before }
    }

    /// Adds what became of datagrams of the session before.
    pub(crate) fn count(&mut self, before: &mut Self) {
        let ReorderCounts { recovered, given_up, needless } = std::mem::take(&mut before.counts);
        self.counts.recovered += recovered;
        self.counts.given_up += given_up;
        self.counts.needless += needless;
    }

    /// The peer said that it keeps what it sends. What was missing before, perhaps because this
    /// was, is asked for too.
    pub(crate) fn activate(&mut self, now: Instant) {
        if self.active {
            return;
        }
        self.active = true;
        self.next = self.highest + 1;
        self.missing.retain(|_, miss| {
            (miss.ask_at, miss.awaited) = (now, false);
            now < miss.since + FORGET_NS
        });
    }

    /// A datagram came that has its place by its number. True if it is to be handed on at once;
    /// otherwise a copy is kept. In either case [`Self::ready`] may have more.
    pub(crate) fn take(&mut self, now: Instant, number: u64, body: &[u8], waits: Waits) -> bool {
        self.notice(now, number, waits);
        self.came(now, number);
        !self.active || self.place(number, Some(body))
    }

    /// A datagram came that holds nothing which has its place by its number.
    pub(crate) fn pass(&mut self, now: Instant, number: u64, waits: Waits) {
        self.notice(now, number, waits);
        self.came(now, number);
        if self.active {
            self.place(number, None);
        }
    }

    /// Notes that a datagram came; one that was missed was only late, so that the path reorders.
    fn came(&mut self, now: Instant, number: u64) {
        if self.missing.remove(&number).is_some() {
            self.reorders_until = now + REORDERS_NS;
        }
    }

    /// Returns true if it knows each datagram that is missing.
    pub(crate) fn is_active(&self) -> bool {
        self.active
    }

    /// Returns true if any datagram is missing, and may yet come.
    pub(crate) fn is_missing_any(&self) -> bool {
        self.active && !self.missing.is_empty()
    }

    /// Returns true if a datagram is missing, and may yet come, up to this one.
    pub(crate) fn is_missing_before(&self, number: u64) -> bool {
        self.missing.range(..=number).next().is_some()
    }

    /// Takes the content of a missing datagram that came with another one. None if it is not
    /// missing any more; otherwise as [`Self::take`], and the datagram itself must not be taken if
    /// it yet comes.
    pub(crate) fn resent(&mut self, number: u64, body: &[u8]) -> Option<bool> {
        if self.missing.remove(&number).is_none() {
            self.counts.needless += 1;
            return None;
        }
        self.counts.recovered += 1;
        Some(!self.active || self.place(number, Some(body)))
    }

    /// The peer is not going to send this one again.
    pub(crate) fn gone(&mut self, number: u64) {
        if self.missing.remove(&number).is_some() {
            self.counts.given_up += 1;
            self.place(number, None);
        }
    }

    /// The number and the body of the next datagram whose turn has come.
    pub(crate) fn ready(&mut self) -> Option<(u64, Vec<u8>)> {
        // From one that is held to the next: what lies between may be billions of numbers.
        while let Some((&first, _)) = self.held.first_key_value() {
            let before = self.next.min(first)..first;
            if self.missing.range(before).any(|(_, miss)| miss.awaited) {
                return None;
            }
            self.next = first + 1;
            if let Some(Some(body)) = self.held.remove(&first) {
                self.held_bytes -= body.len();
                return Some((first, body));
            }
        }
        None
    }

    /// Gives up datagrams that were waited for too long, and returns those to ask for now, if any: to be
    /// called until there are none.
    pub(crate) fn ask(&mut self, now: Instant, waits: Waits) -> Option<Numbers> {
        let max_wait_ns = waits.max_wait_ns();
        let mut numbers = Numbers::default();
        let before = self.missing.len();
        let asks_max = waits.asks_max();
        let may_ask = now >= self.may_ask_at && self.asked < ASKS_TOGETHER;
        self.missing.retain(|&number, miss| {
            let expired = now >= miss.since + max_wait_ns;
            if expired {
                miss.awaited = false;
            }
            let is_kept = now < miss.since + FORGET_NS;
            let is_due = may_ask && now >= miss.ask_at && miss.asks < asks_max;
            if is_kept && is_due && numbers.add(number) {
                miss.asks += 1;
                let echo_ns = waits.echo_ns().filter(|_| miss.asks == 1);
                miss.ask_at = now + echo_ns.unwrap_or(waits.answer_ns());
            }
            is_kept
        });
        self.counts.given_up += (before - self.missing.len()) as u64;
        if numbers.bits != 0 {
            self.asked += 1;
            return Some(numbers);
        }
        if self.asked > 0 {
            self.may_ask_at = now + u64::from(std::mem::take(&mut self.asked)) * waits.pause_ns;
        }
        None
    }

    /// When [`Self::ask`] has something to do.
    pub(crate) fn deadline(&self, waits: Waits) -> Instant {
        if !self.active {
            return Instant::FAR_FUTURE;
        }
        let max_wait_ns = waits.max_wait_ns();
        let of = |miss: &Miss| {
            let asks = miss.asks < waits.asks_max();
            let forget_at = miss.since + FORGET_NS;
            let ask_at = miss.ask_at.max(self.may_ask_at).min(forget_at);
            let ask_at = if asks { ask_at } else { forget_at };
            if miss.awaited { ask_at.min(miss.since + max_wait_ns) } else { ask_at }
        };
        self.missing.values().map(of).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Notices which datagrams before this one have not come.
    fn notice(&mut self, now: Instant, number: u64, waits: Waits) {
        if number <= self.highest {
            return;
        }
        let gap = self.highest + 1..number;
        self.highest = number;
        if (gap.end - gap.start) as usize + self.missing.len() > waits.missing_max() {
            if self.active {
                // What the numbers jumped over was never sent.
                let lost = Some(gap.end - gap.start).filter(|&gap| gap < JUMP_MIN).unwrap_or(0);
                self.counts.given_up += lost + self.missing.len() as u64;
            }
            self.missing.clear();
            return;
        }
        let awaited = self.active && waits.max_wait_ns() > 0;
        // Where nothing comes late it is asked for at once, if others can't do without it.
        let may_be_late = !waits.has_contexts || now < self.reorders_until;
        let ask_at = if may_be_late { now + waits.late_ns() } else { now };
        let miss = Miss { since: now, ask_at, asks: 0, awaited };
        self.missing.extend(gap.map(|missing| (missing, miss)));
    }

    /// Puts a datagram in its place; true if it is to be handed on at once.
    fn place(&mut self, number: u64, body: Option<&[u8]>) -> bool {
        if number < self.next {
            return true; // nobody waits for it any more
        }
        let mut first = self.missing.range(self.next..number).filter(|(_, miss)| miss.awaited);
        if first.next().is_none() && self.held.range(..number).next().is_none() {
            self.next = number + 1;
            return true;
        }
        self.held_bytes += body.map_or(0, <[u8]>::len);
        let replaced = self.held.insert(number, body.map(<[u8]>::to_vec));
        self.held_bytes -= replaced.flatten().map_or(0, |body| body.len());
        // Timers come too late for a fast link.
        if self.held_bytes > HELD_BYTES_MAX || self.held.len() > HELD_MAX {
            self.missing.values_mut().for_each(|miss| miss.awaited = false);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITS: Waits = Waits {
        rtt_ns: Some(10 * MILLI_NS),
        order_wait_ns: 50 * MILLI_NS,
        has_contexts: false,
        pause_ns: 0,
        asks_twice: false,
    };

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * MILLI_NS)
    }

    /// Hands a datagram in, and gives what comes out.
    fn come(order: &mut ReorderBuffer, ms: u64, number: u64) -> Vec<u64> {
        let mut out = Vec::new();
        if order.take(at(ms), number, &number.to_be_bytes(), WAITS) {
            out.push(number);
        }
        drain(order, &mut out);
        out
    }

    fn drain(order: &mut ReorderBuffer, out: &mut Vec<u64>) {
        while let Some((number, body)) = order.ready() {
            assert_eq!(number.to_be_bytes()[..], body[..]);
            out.push(u64::from_be_bytes(body.try_into().unwrap()));
        }
    }

    fn active() -> ReorderBuffer {
        let mut order = ReorderBuffer::default();
        order.activate(at(0));
        order
    }

    #[test]
    fn what_comes_after_a_missing_one_waits_for_it() {
        let mut order = active();
        assert_eq!(come(&mut order, 0, 1), [1]);
        assert_eq!(come(&mut order, 0, 3), [0; 0]);
        assert_eq!(order.ask(at(0), WAITS), None, "it may be late");
        assert_eq!(come(&mut order, 1, 5), [0; 0]);
        assert_eq!(order.deadline(WAITS), Instant::from_ns(1_250_000));
        let asked = order.ask(at(3), WAITS).expect("two are missing");
        assert_eq!(asked.iter().collect::<Vec<_>>(), [2, 4]);
        assert_eq!(order.ask(at(3), WAITS), None, "not twice");
        assert_eq!(order.resent(2, &2u64.to_be_bytes()), Some(true));
        let mut out = Vec::new();
        drain(&mut order, &mut out);
        assert_eq!(out, [3]);
        order.gone(4);
        drain(&mut order, &mut out);
        assert_eq!(out, [3, 5]);
        assert_eq!(order.resent(2, &[]), None, "once is enough");
        let counts = ReorderCounts { recovered: 1, given_up: 1, needless: 1 };
        assert_eq!(order.counts, counts);
        assert_eq!(order.deadline(WAITS), Instant::FAR_FUTURE);
    }

    #[test]
    fn requests_are_apart_however_much_is_missing() {
        let waits = Waits { has_contexts: true, pause_ns: 3 * MILLI_NS, ..WAITS };
        let mut order = active();
        let mut asked = Vec::new();
        // Every other datagram is lost, and ten come in a millisecond.
        for count in 1..=300 {
            let now = Instant::from_ns(count * MILLI_NS / 10);
            order.take(now, 2 * count, &[], waits);
            while now >= order.deadline(waits) {
                let Some(numbers) = order.ask(now, waits) else { break };
                asked.push((now, numbers));
            }
        }
        assert!((5..=12).contains(&asked.len()), "{} requests in 30 ms", asked.len());
        let first = |it: &(Instant, Numbers)| it.1.iter().next();
        assert_eq!(
            asked.iter().map(first).filter(|it| *it == Some(1)).count(),
            2,
            "it is not forgotten"
        );
        // Nothing is asked for in vain, nor forgotten in silence.
        let late = Instant::from_ns(10 * SECOND_NS);
        assert!(order.deadline(waits) <= Instant::from_ns(31 * MILLI_NS + 3 * SECOND_NS));
        assert_eq!(order.ask(late, waits).map(|it| it.bits), None);
        assert_eq!(order.deadline(waits), Instant::FAR_FUTURE);
    }

    #[test]
    fn what_others_need_is_asked_for_twice_within_a_round_trip() {
        // A quarter of the round trip, 8 ms at most; none where the next request comes soon anyway.
        for (rtt_ms, asks_twice, expected) in [
            (40, true, vec![0, 8, 63, 118]),
            (12, true, vec![0, 3, 23, 43]),
            (12, false, vec![0, 20, 40, 60]),
            (3, true, vec![0, 8, 17, 26]),
        ] {
            let rtt_ns = Some(rtt_ms * MILLI_NS);
            let waits = Waits { has_contexts: true, asks_twice, rtt_ns, ..WAITS };
            let mut order = active();
            order.take(at(0), 2, &[], waits);
            let asked = |ms: &u64| {
                let is_due = order.deadline(waits) < at(ms + 1);
                is_due && order.ask(at(ms + 1), waits).is_some()
            };
            let asked: Vec<u64> = (0..120).filter(asked).take(4).collect();
            let near = |(asked, expected): (&u64, &u64)| asked.abs_diff(*expected) <= 3;
            assert!(asked.iter().zip(&expected).all(near), "{rtt_ms}: {asked:?}, {expected:?}");
        }
    }

    #[test]
    fn a_late_one_takes_its_place() {
        let mut order = active();
        assert_eq!(come(&mut order, 0, 2), [0; 0]);
        assert_eq!(come(&mut order, 1, 1), [1, 2]);
        assert_eq!(order.ask(at(9), WAITS), None);
    }

    #[test]
    fn waiting_ends_and_what_comes_later_is_handed_on() {
        let mut order = active();
        assert_eq!(come(&mut order, 0, 2), [0; 0]);
        assert!(order.ask(at(2), WAITS).is_some());
        order.ask(at(40), WAITS);
        let mut out = Vec::new();
        drain(&mut order, &mut out);
        assert_eq!(out, [2]);
        assert_eq!(order.resent(1, &[]), Some(true), "late is better than never");
        // A round trip that is too long makes no one wait.
        let far = Waits { rtt_ns: Some(SECOND_NS), ..WAITS };
        let mut order = active();
        assert!(order.take(at(0), 2, &[], far));
        assert!(order.ask(at(6), far).is_some());
        assert_eq!(order.resent(1, &[]), Some(true));
    }

    #[test]
    fn a_number_far_ahead_takes_no_time() {
        let mut order = active();
        let far = 1 << 40; // as many steps would take hours
        assert_eq!(come(&mut order, 0, 2), [0; 0]);
        assert_eq!(come(&mut order, 0, far), [2, far]);
        assert_eq!(order.counts.given_up, 1, "a jump is no loss");
        assert_eq!(come(&mut order, 0, far + 2), [0; 0]);
        assert_eq!(come(&mut order, 0, far + 1), [far + 1, far + 2]);
    }

    #[test]
    fn a_session_that_ends_gives_what_it_holds() {
        let mut order = active();
        assert_eq!(come(&mut order, 0, 2), [0; 0]);
        assert_eq!(come(&mut order, 0, 5), [0; 0]);
        order.release();
        let mut out = Vec::new();
        drain(&mut order, &mut out);
        assert_eq!((out, order.counts.given_up, order.held_bytes), (vec![2, 5], 3, 0));
        order.begin_session();
        assert_eq!(order.counts.given_up, 3);
    }

    #[test]
    fn what_is_missing_of_a_session_is_asked_for_after_it() {
        let mut order = active();
        assert_eq!(come(&mut order, 0, 2), [0; 0]);
        order.stop_waiting();
        let mut out = Vec::new();
        drain(&mut order, &mut out);
        assert_eq!(out, [2], "nothing waits");
        let mut before = order.begin_session();
        assert!(before.is_missing_any() && !order.is_missing_any());
        let asked = before.ask(at(3), WAITS).expect("it is missing yet");
        assert_eq!(asked.iter().collect::<Vec<_>>(), [1]);
        assert_eq!(before.resent(1, &[]), Some(true));
        order.count(&mut before);
        assert_eq!((order.counts.recovered, before.counts.recovered), (1, 0));
        assert!(!before.is_missing_any());
    }

    #[test]
    fn what_waits_is_bounded_whatever_the_timers_do() {
        for body in [&[0; 0][..], &[7; 40_000]] {
            let mut order = active();
            let mut handed_on = 0;
            for number in 2..20_000 {
                handed_on += u64::from(order.take(at(0), number, body, WAITS));
                while order.ready().is_some() {
                    handed_on += 1;
                }
                assert!(order.held.len() <= HELD_MAX && order.held_bytes <= HELD_BYTES_MAX);
            }
            assert_eq!(handed_on, 20_000 - 2);
            assert_eq!(order.held_bytes, 0);
        }
    }

    #[test]
    fn one_that_was_given_up_and_comes_all_the_same_is_counted_once() {
        let mut order = active();
        assert_eq!(come(&mut order, 0, 4), [0; 0]);
        order.gone(3);
        assert_eq!(come(&mut order, 0, 3), [0; 0]);
        assert_eq!(order.held_bytes, 16);
        order.place(3, Some(&3u64.to_be_bytes()));
        assert_eq!(order.held_bytes, 16);
        order.gone(2);
        assert_eq!(come(&mut order, 1, 1), [1, 3, 4]);
        assert_eq!(order.held_bytes, 0);
    }

    #[test]
    fn nothing_is_asked_of_who_keeps_nothing_or_has_gone() {
        let mut order = ReorderBuffer::default();
        assert!(order.take(at(0), 5, &[], WAITS));
        assert_eq!(order.deadline(WAITS), Instant::FAR_FUTURE);
        // Once it is known to be kept, what was missing before is asked for too.
        order.activate(at(9));
        let asked = order.ask(at(9), WAITS).expect("four are missing");
        assert_eq!(asked.iter().collect::<Vec<_>>(), [1, 2, 3, 4]);
        let mut order = active();
        assert_eq!(come(&mut order, 0, 1_000), [1_000], "a gap that is too wide");
        assert_eq!(order.counts.given_up, 999);
        assert_eq!(come(&mut order, 0, 1_002), [0; 0]);
        for ms in 0..4_000 {
            order.ask(at(ms), WAITS);
        }
        assert_eq!(order.deadline(WAITS), Instant::FAR_FUTURE, "in the end it is given up");
    }
}
