//! What a stream has sent and the other end has not confirmed: where one message ends and the next one begins.
//!
//! A message is what is sent over a connection that had nothing to send and nothing on its way, until all of it is confirmed. An
//! answer that a server makes piece by piece would be as many of them over a fast link, each too short to be compressed: so
//! what follows soon, and before anything was heard, is a part of the same one.

use dwell_base::Instant;
use dwell_base::time::MILLI_NS;
use dwell_stream::{Advice, Confirmed, SenderStats};

/// What is longer is no message, but as much as there is, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: u64 = 1 << 20;
/// What follows so soon after the latest write is a part of the same message, ...
const PART_NS: u64 = 4 * MILLI_NS;
/// ... unless the message has begun so long ago: who only sends, a little at a time, is one who sends messages.
const PARTS_NS_MAX: u64 = 64 * MILLI_NS;

/// What was said of a link and a path that are known well counts for so many messages more, and so long.
const SETTLED_MESSAGES: u32 = 7;
const SETTLED_NS: u64 = 5 * MILLI_NS;

/// The part of a sender's account that is compared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    pub(crate) framed_bytes: u64,
    pub(crate) wire_bytes: u64,
    pub(crate) compress_ns: u64,
}

impl Account {
    pub(crate) const fn of(stats: &SenderStats) -> Self {
        let &SenderStats { framed_bytes, wire_bytes, compress_ns, .. } = stats;
        Self { framed_bytes, wire_bytes, compress_ns }
    }

    /// Returns true if nothing was written in between.
    const fn has_written_as(&self, before: &Self) -> bool {
        self.wire_bytes == before.wire_bytes
    }

    /// Returns the bytes of the application that were framed since.
    const fn since(&self, before: &Self) -> u64 {
        self.framed_bytes - before.framed_bytes
    }
}

/// What was sent on a connection that had nothing to send and nothing on its way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Message {
    pub(crate) begun_at: Instant,
    /// The bytes that were known of it then, and what it was to expect.
    pub(crate) len: usize,
    pub(crate) advice: Advice,
    /// The shortest round trip, in nanoseconds.
    pub(crate) round_trip_ns: u64,
    /// The account before it.
    pub(crate) before: Account,
}

/// The message that is under way, and what is known of the latest ones.
#[derive(Debug)]
pub(crate) struct Unconfirmed {
    message: Option<Message>,
    /// When something was written last, and whether anything has come from the other end since the message has begun.
    wrote_at: Instant,
    has_heard: bool,
    /// TCP need not be asked for so many messages, until then.
    settled: (u32, Instant),
    /// The messages for which it was not asked since it was last, and those before the message that is under way.
    unseen: u32,
    unseen_before: u32,
}

impl Unconfirmed {
    pub(crate) const fn new() -> Self {
        Self {
            message: None,
            wrote_at: Instant::ZERO,
            has_heard: false,
            settled: (0, Instant::ZERO),
            unseen: 0,
            unseen_before: 0,
        }
    }

    /// Notes that the connection has taken something.
    pub(crate) const fn wrote(&mut self, now: Instant) {
        self.wrote_at = now;
    }

    /// Notes that something has come from the other end, and returns the message of which that may be an answer.
    pub(crate) const fn heard(&mut self) -> Option<&Message> {
        self.has_heard = true;
        self.message.as_ref()
    }

    /// Returns true if a message begins for which the link need not be looked at, as it was lately and is known well.
    pub(crate) fn passes(&mut self, now: Instant) -> bool {
        let (left, until) = self.settled;
        let passes = left > 0 && now < until;
        if passes {
            (self.settled, self.message) = ((left - 1, until), None);
            self.unseen = self.unseen.saturating_add(1);
        }
        passes
    }

    /// Notes that a link was looked at, and how well it is known.
    pub(crate) fn looked(&mut self, now: Instant, advice: Advice) {
        let left = if advice.is_settled { SETTLED_MESSAGES } else { 0 };
        self.settled = (left, now + SETTLED_NS);
        self.unseen = 0;
    }

    /// Returns what the message expects to which that belongs which is to be sent now; none if it belongs to none that is known. The connection
    /// `is_clear` if nothing is on its way; `account` is what was sent before.
    pub(crate) fn goes_on(&self, now: Instant, is_clear: bool, account: Account) -> Option<Advice> {
        let message = self.message.filter(|it| !is_clear || self.is_same(now, it, account))?;
        // What has so much behind it is not alone.
        let is_long = account.since(&message.before) > MESSAGE_BYTES_MAX;
        Some(if is_long { Advice::default() } else { message.advice })
    }

    fn is_same(&self, now: Instant, message: &Message, account: Account) -> bool {
        let is_part = !self.has_heard
            && now.since_ns(self.wrote_at) < PART_NS
            && now.since_ns(message.begun_at) < PARTS_NS_MAX;
        // One of which nothing was written yet is being compressed.
        message.len > 0 && (is_part || account.has_written_as(&message.before))
    }

    /// Notes that a message begins.
    pub(crate) const fn begin(&mut self, message: Message) {
        (self.message, self.has_heard) = (Some(message), false);
        self.unseen_before = self.unseen;
    }

    /// Notes that the other end has all of it, and returns what that has shown.
    pub(crate) fn confirmed(&mut self, now: Instant, after: Account) -> Option<Confirmed> {
        let message = self.message.take()?;
        let before = message.before;
        Some(Confirmed {
            begun_len: message.len,
            bytes: after.since(&before),
            wire_bytes: after.wire_bytes - before.wire_bytes,
            compress_ns: after.compress_ns - before.compress_ns,
            took_ns: now.since_ns(message.begun_at),
            round_trip_ns: message.round_trip_ns,
            unseen: self.unseen_before,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Instant = Instant::from_ns(1_000_000_000);

    /// Returns a time so many tenths of a millisecond after the beginning.
    fn at(tenths: u64) -> Instant {
        BEGIN + tenths * MILLI_NS / 10
    }

    fn written(bytes: u64) -> Account {
        Account { framed_bytes: bytes, wire_bytes: bytes, compress_ns: 0 }
    }

    /// A message that begins after so many bytes, and of which 1,000 bytes are written at once.
    fn begun(bytes: u64) -> Unconfirmed {
        let mut unconfirmed = Unconfirmed::new();
        let (advice, before) = (Advice::default(), written(bytes));
        unconfirmed.begin(Message {
            begun_at: BEGIN,
            len: 1000,
            advice,
            round_trip_ns: 100,
            before,
        });
        unconfirmed.wrote(BEGIN);
        unconfirmed
    }

    fn goes_on(unconfirmed: &Unconfirmed, now: Instant, is_clear: bool, bytes: u64) -> bool {
        unconfirmed.goes_on(now, is_clear, written(bytes)).is_some()
    }

    #[test]
    fn what_follows_soon_is_a_part_of_the_same_message() {
        let unconfirmed = begun(500);
        assert!(goes_on(&unconfirmed, at(39), true, 1500));
        assert!(!goes_on(&unconfirmed, at(40), true, 1500), "4 ms later it is another one");
        assert!(goes_on(&unconfirmed, at(5000), false, 1500), "not while it is on its way");
    }

    #[test]
    fn what_follows_something_heard_is_another_message() {
        let mut unconfirmed = begun(500);
        assert!(unconfirmed.heard().is_some());
        assert!(!goes_on(&unconfirmed, at(1), true, 1500));
        assert!(goes_on(&unconfirmed, at(1), false, 1500), "unless the first is on its way");
    }

    /// One direction is used only, in small steps: it is not one message for ever.
    #[test]
    fn a_message_of_parts_ends() {
        let mut unconfirmed = begun(0);
        let lasts = (1..).find(|&step| {
            let (now, bytes) = (at(step * 20), 1000 * step);
            let goes_on = goes_on(&unconfirmed, now, true, bytes);
            unconfirmed.wrote(now);
            !goes_on
        });
        assert_eq!(lasts, Some(32), "after 64 ms in steps of 2");
    }

    #[test]
    fn what_is_compressed_for_long_is_one_message() {
        let unconfirmed = begun(500);
        assert!(goes_on(&unconfirmed, at(5000), true, 500), "nothing was written of it yet");
    }

    #[test]
    fn what_has_much_behind_it_is_no_message() {
        let mut unconfirmed = begun(0);
        let advice = Advice { is_settled: true, ..Advice::default() };
        unconfirmed.begin(Message { advice, ..*unconfirmed.message.as_ref().unwrap() });
        let is_settled =
            |bytes| unconfirmed.goes_on(at(1), false, written(bytes)).unwrap().is_settled;
        assert!(is_settled(MESSAGE_BYTES_MAX));
        assert!(!is_settled(MESSAGE_BYTES_MAX + 1));
    }

    #[test]
    fn a_message_shows_what_it_took() {
        let mut unconfirmed = begun(500);
        let confirmed = unconfirmed.confirmed(at(20), written(2500)).unwrap();
        assert_eq!((confirmed.bytes, confirmed.took_ns), (2000, 2 * MILLI_NS));
        assert!(unconfirmed.confirmed(at(21), written(2500)).is_none(), "it does so once");
        assert!(!goes_on(&unconfirmed, at(21), false, 2500));
    }

    #[test]
    fn a_link_that_is_known_well_is_passed_for_a_while() {
        let mut unconfirmed = begun(0);
        assert!(!unconfirmed.passes(at(0)), "nothing is known");
        unconfirmed.looked(at(0), Advice { is_settled: true, ..Advice::default() });
        let passed = (0..20).filter(|_| unconfirmed.passes(at(10))).count();
        assert_eq!(passed, SETTLED_MESSAGES as usize);
        // The next one that is looked at says how many, and the one after it has none before it.
        for unseen in [SETTLED_MESSAGES, 0] {
            unconfirmed.begin(Message { begun_at: BEGIN, len: 9, ..Message::default() });
            unconfirmed.looked(at(0), Advice::default());
            assert_eq!(unconfirmed.confirmed(at(1), written(9)).unwrap().unseen, unseen);
        }
        unconfirmed.looked(at(0), Advice { is_settled: true, ..Advice::default() });
        assert!(!unconfirmed.passes(at(50)), "that was 5 ms ago");
        unconfirmed.looked(at(50), Advice::default());
        assert!(!unconfirmed.passes(at(51)));
    }
}
