//! Whether messages over a path are there sooner compressed or as they are, by how long both took.

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;

use super::LinkReport;

/// Messages are compared with others of about their length: up to these, in bytes, and beyond.
const LENGTHS: [usize; 4] = [1_000, 4 << 10, 16 << 10, 64 << 10];
const CLASSES: usize = LENGTHS.len() + 1;
/// Beyond, nobody knows how long they are when they begin, as that much is read at once: their times are compared as if all had so many
/// bytes, but for the round trip, which is the same for all of them.
const LONG_BYTES: f64 = 131_072.0;
/// So many of the latest messages count, of each way.
const SAMPLES: usize = 32;
/// The rate that is assumed of a path is what messages show that it carries at least, between these: the least lets
/// them be compressed well, and over a path of the most it would take longer to send them as they are than to compress
/// them. In bytes a second.
const RATE_MIN: f64 = 1.25e6;
const RATE_MAX: f64 = 12.5e6;
/// A trial begins after so many compressed messages, after each that failed four times as many, up to these.
const WAIT_FIRST: u32 = 16;
const WAIT_FACTOR: u32 = 4;
const WAIT_MAX: u32 = 1 << 14;
/// There is none if more may be lost by it than so many times what may be won: if all of the transport's round trip were
/// due to what a message has on the link, it would grow with that; and so would all that long ones took beside compressing and a round trip.
/// If it is known what the path carries, what is not compressed takes its time there.
const LOST_MAX: f64 = 12.0;
/// And up to so many times as much as more messages than these were compressed since the last one: what one trial loses is next to nothing
/// of what all of these might win, and round trips also grow with what else the processors do, which says nothing of a link.
const PATIENCE_MAX: f64 = 12.0;
/// A trial that takes more patience than that is bold: there more is lost if it is won by chance than if it is never made, so messages have to
/// take no longer at all, and no longer than `BEGIN` from then on.
const PATIENCE_USUAL: f64 = 3.0;
const PATIENT_AFTER: f64 = 256.0;
/// What compressing takes besides the codec, in nanoseconds, and what restoring takes beside that.
const AROUND_NS: f64 = 10_000.0;
const RESTORING: f64 = 0.3;
/// The messages of a trial, one after the other on a connection, of which the first don't count: a transport that paces
/// itself has to learn that it may send so much.
const TRIAL_SKIPPED: u32 = 4;
const TRIAL_COUNTED: u32 = 8;
/// It is over at once if so many of the first took so many times as long as compressed ones.
const LATE_MAX: u32 = 2;
const LATE: f64 = 2.0;
/// A trial whose connection sends nothing while others send so many messages is given up.
const TRIAL_IDLE_MAX: u32 = 256;
/// Messages go as they are if they take no longer than so many times the time of compressed ones: that of a single one varies.
const BEGIN: f64 = 1.125;
/// And if eight of them take no longer than so many times that, more are looked at: of messages that vary by half, eight are as often as not
/// later by chance.
const PROMISING: f64 = 1.3;
/// If they take so many times as long, or so many in a row so much longer, the path is another one, or who waits for them: then half
/// of them are compressed until so many have gone either way, which decides.
const END: f64 = 1.25;
const ROW_MAX: u32 = 4;
const ROW: f64 = 2.0;
const ROW_NS: f64 = 100_000.0;
const DOUBTED_COUNTED: u32 = 8;
const DOUBTED_SENT_MAX: u32 = 4 * SAMPLES as u32;
/// One in so many of those that are looked at is compressed meanwhile, or of more of them if that takes `END` times as long.
const OTHER_EVERY: u32 = 32;
const OTHER_EVERY_LATER: u32 = 128;
/// What is known is forgotten after this time without a message, in nanoseconds.
const FORGOTTEN_NS: u64 = 10 * SECOND_NS;

/// The two ways of messages over a path, as all connections over it have found them: as they are, and compressed.
///
/// No transport says what a link carries that is idle most of the time. What counts is known all the same: how long it takes from when a message
/// is there to when the other end has confirmed all of it, with compressing, waiting, and whatever else. That includes what the other end does
/// before it says something, which is the same for both ways. So messages are compressed, with the codec for a link that carries what they show
/// at least; now and then, where compressing is a part of the time that is worth mentioning, a few in a row go as they are,
/// and if those take no longer, so do all others, as long as that holds.
///
/// To compress in vain costs some processor time; not to compress where that is wrong, many times the time of a message. So all doubts are in favour of
/// compressing: what nobody confirms soon is never tried otherwise.
///
/// ```
/// use dwell_base::Instant;
/// use dwell_policy::rate::{Arms, Confirmed, LinkReport};
///
/// let (mut arms, mut now) = (Arms::default(), Instant::from_ns(1));
/// let mut went_raw = 0;
/// for _ in 0..200 {
///     let report = LinkReport { round_trip_ns: 90_000, ..LinkReport::default() };
///     let advice = arms.begin(now, 1, 10_000, &report);
///     // Compressing takes 40 µs, and nothing else takes any longer for four times the bytes.
///     let (wire_bytes, compress_ns) = if advice.goes_raw { (10_009, 0) } else { (2_500, 40_000) };
///     let took_ns = 100_000 + compress_ns;
///     let (begun_len, bytes, round_trip_ns) = (10_000, 10_000, 90_000);
///     let message = Confirmed { begun_len, bytes, wire_bytes, compress_ns, took_ns, round_trip_ns, unseen: 0 };
///     arms.confirmed(now, 1, &message);
///     now = now + took_ns;
///     went_raw += u32::from(advice.goes_raw);
/// }
/// assert!(went_raw > 130);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Arms {
    classes: [Class; CLASSES],
}

/// A message that the other end has confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confirmed {
    /// The length with which [`Arms::begin`] was called, in bytes.
    pub begun_len: usize,
    /// All of its bytes.
    pub bytes: u64,
    /// Those that were sent for them.
    pub wire_bytes: u64,
    /// The time that compressing took, in nanoseconds.
    pub compress_ns: u64,
    /// The time from when it was there to when it was known to be confirmed, in nanoseconds.
    pub took_ns: u64,
    /// What any message takes of that, however short it is: the shortest round trip, in nanoseconds.
    pub round_trip_ns: u64,
    /// The messages of its connection before it that nobody looked at, as [`Advice::is_settled`] allows.
    pub unseen: u32,
}

impl Confirmed {
    const fn is_raw(&self) -> bool {
        self.wire_bytes >= self.bytes
    }
}

/// What a message had better expect.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Advice {
    /// The rate of the path, in bytes a second, as long as nothing better is known.
    pub prudent_rate: f64,
    /// True if it should go as it is.
    pub goes_raw: bool,
    /// True if the same can be expected of some messages more, without asking again.
    pub is_settled: bool,
}

impl Advice {
    /// Adds it to what the transport says.
    pub fn add_to(self, report: &mut LinkReport) {
        (report.prudent_rate, report.goes_raw) = (self.prudent_rate, self.goes_raw);
    }
}

impl Arms {
    /// Returns what a message of which so many bytes are known, over the connection with this number, had better expect, by this report of
    /// its transport. It is to be sent alone, so that [`Arms::confirmed`] can be called for it.
    pub fn begin(
        &mut self,
        now: Instant,
        connection: u64,
        len: usize,
        report: &LinkReport,
    ) -> Advice {
        let class = self.class(now, len);
        let goes_raw = class.begins_raw(connection, report);
        Advice {
            prudent_rate: class.prudent_rate(),
            goes_raw,
            is_settled: class.is_settled(goes_raw),
        }
    }

    /// Returns the same for one that follows others that are on their way.
    pub fn advice(&mut self, now: Instant, len: usize) -> Advice {
        let class = self.class(now, len);
        let goes_raw = matches!(class.way, Way::Raw { .. } | Way::Doubted { .. });
        Advice { prudent_rate: class.prudent_rate(), goes_raw, is_settled: false }
    }

    /// Learns from a message.
    pub fn confirmed(&mut self, now: Instant, connection: u64, message: &Confirmed) {
        let class = self.class(now, message.begun_len);
        class.at = now;
        if message.is_raw() {
            class.raw_confirmed(connection, message);
        } else {
            class.compressed_confirmed(message);
        }
    }

    fn class(&mut self, now: Instant, len: usize) -> &mut Class {
        let class = &mut self.classes[LENGTHS.iter().filter(|&&most| len >= most).count()];
        if now.since_ns(class.at) >= FORGOTTEN_NS {
            *class = Class { at: now, wait: class.wait, ..Class::default() };
        }
        class.is_long = LENGTHS.iter().all(|&most| len >= most);
        class
    }
}

/// Messages of about the same length.
#[derive(Clone, Debug)]
struct Class {
    /// True if they may be of any length.
    is_long: bool,
    compressed: Times,
    raw: Times,
    /// The averages of what compressing took, of the round trips, and of the lengths.
    compress_ns: f64,
    round_trip_ns: f64,
    bytes: f64,
    way: Way,
    /// Those in a row that could not be compressed, or were not worth it.
    uncompressed: u32,
    /// Compressed messages since the last trial, and those that nobody looked at, and how many there have to be before the next.
    since: u32,
    wait: u32,
    /// True if the last trial was.
    is_bold: bool,
    /// The time of the last one.
    at: Instant,
}

impl Default for Class {
    fn default() -> Self {
        Self {
            is_long: false,
            compressed: Times::default(),
            raw: Times::default(),
            compress_ns: 0.0,
            round_trip_ns: 0.0,
            bytes: 0.0,
            way: Way::Compressed,
            uncompressed: 0,
            since: 0,
            wait: WAIT_FIRST,
            is_bold: false,
            at: Instant::ZERO,
        }
    }
}

/// How messages go.
#[derive(Clone, Copy, Debug)]
enum Way {
    Compressed,
    Trial(Trial),
    /// As they are; with the number of them, and of those in a row that took too long.
    Raw {
        sent: u32,
        row: u32,
    },
    /// Half of them; with the number of them, whether a trial is to be confirmed by that, and by how many of each way.
    Doubted {
        sent: u32,
        is_trial: bool,
        needed: u32,
    },
}

/// Some messages of one connection that go as they are.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    connection: u64,
    sent: u32,
    confirmed: u32,
    late: u32,
    /// The messages of others.
    idle: u32,
}

impl Class {
    /// The rate to assume, in bytes a second.
    fn prudent_rate(&self) -> f64 {
        let shown = self.compressed.wire_bytes() * 1e9 / self.compressed_took_ns();
        if shown.is_finite() { shown.clamp(RATE_MIN, RATE_MAX) } else { RATE_MIN }
    }

    /// The time of a compressed message of average length, in nanoseconds.
    fn compressed_took_ns(&self) -> f64 {
        self.at_average_ns(self.compressed.took_ns())
    }

    /// The time of a message of average length, if messages as they are compared take so long, in nanoseconds. (How many times as long
    /// one way takes is that of such a message: of a short one a round trip is so much that it hides the rest.)
    fn at_average_ns(&self, compared_ns: f64) -> f64 {
        match self.is_long {
            true => scaled_ns(compared_ns, self.round_trip_ns, self.bytes / LONG_BYTES),
            false => compared_ns,
        }
    }

    /// The time of a message as it is compared with that of others, in nanoseconds.
    fn compared_ns(&self, message: &Confirmed) -> u64 {
        match self.is_long {
            true => {
                let (took_ns, round_trip_ns) =
                    (message.took_ns as f64, message.round_trip_ns as f64);
                scaled_ns(took_ns, round_trip_ns, LONG_BYTES / message.bytes.max(1) as f64) as u64
            }
            false => message.took_ns,
        }
    }

    fn begins_raw(&mut self, connection: u64, report: &LinkReport) -> bool {
        let patience = self.patience_for_a_trial(report).filter(|_| self.since >= self.wait);
        let is_time = patience.is_some();
        let other_every =
            if self.raw_is_within(1.0 / END) { OTHER_EVERY_LATER } else { OTHER_EVERY };
        match &mut self.way {
            Way::Compressed if is_time => {
                self.raw = Times::default();
                self.is_bold = patience.is_some_and(|patience| patience > PATIENCE_USUAL);
                self.way = Way::Trial(Trial { connection, sent: 1, ..Trial::default() });
                true
            }
            Way::Compressed => false,
            Way::Trial(trial) if trial.connection == connection => {
                trial.sent += 1;
                trial.idle = 0;
                // Some may never be confirmed alone.
                let is_over = trial.sent > 2 * (TRIAL_SKIPPED + TRIAL_COUNTED);
                if is_over {
                    self.failed();
                }
                !is_over
            }
            Way::Trial(trial) => {
                trial.idle += 1;
                if trial.idle > TRIAL_IDLE_MAX {
                    self.failed();
                }
                false
            }
            Way::Raw { sent, .. } => {
                *sent = sent.wrapping_add(1);
                !sent.is_multiple_of(other_every)
            }
            Way::Doubted { sent, is_trial, .. } => {
                *sent += 1;
                if *sent > DOUBTED_SENT_MAX {
                    let is_trial = *is_trial;
                    self.refuted(is_trial);
                    return false;
                }
                sent.is_multiple_of(2)
            }
        }
    }

    /// Returns true if one message more shows little.
    fn is_settled(&self, goes_raw: bool) -> bool {
        match self.way {
            Way::Compressed => {
                let is_known = self.compressed.count >= SAMPLES as u32;
                let is_decided = self.wait > WAIT_FIRST || self.since > 2 * WAIT_FIRST;
                (is_known && is_decided) || self.uncompressed >= SAMPLES as u32
            }
            Way::Trial(_) | Way::Doubted { .. } => false,
            // One that goes the other way.
            Way::Raw { .. } => goes_raw,
        }
    }

    /// Returns how many times `LOST_MAX` a trial may lose; none if it is not worth that.
    fn patience_for_a_trial(&self, report: &LinkReport) -> Option<f64> {
        let is_known = self.compressed.count >= SAMPLES as u32 / 2;
        let won_ns = (1.0 + RESTORING) * self.compress_ns + AROUND_NS;
        let round_trip_ns = (report.round_trip_ns + report.queue_ns) as f64;
        let wire_bytes = self.compressed.wire_bytes();
        let mut lost_ns = round_trip_ns * (self.bytes / wire_bytes - 1.0);
        if report.path_rate > 0.0 {
            lost_ns = lost_ns.max((self.bytes - wire_bytes) / report.path_rate * 1e9);
        }
        if self.is_long {
            // A transport that paces itself has no queue that would show it.
            let other_ns = report.round_trip_ns as f64 + won_ns;
            let on_link_ns = self.compressed_took_ns() - other_ns;
            lost_ns = lost_ns.max(on_link_ns * (self.bytes / wire_bytes - 1.0));
        }
        let patience = (f64::from(self.since) / PATIENT_AFTER).clamp(1.0, PATIENCE_MAX);
        let wanted = lost_ns / (LOST_MAX * won_ns);
        (is_known && wanted <= patience).then_some(wanted)
    }

    fn failed(&mut self) {
        self.wait = self.wait.saturating_mul(WAIT_FACTOR).min(WAIT_MAX);
        (self.way, self.since) = (Way::Compressed, 0);
    }

    /// Ends that messages go as they are.
    fn compresses(&mut self) {
        (self.way, self.since, self.wait) = (Way::Compressed, 0, WAIT_FIRST);
    }

    fn compressed_confirmed(&mut self, message: &Confirmed) {
        let gain = 1.0 / f64::from(self.compressed.count + 1).min(SAMPLES as f64);
        self.compress_ns += gain * (message.compress_ns as f64 - self.compress_ns);
        self.round_trip_ns += gain * (message.round_trip_ns as f64 - self.round_trip_ns);
        self.bytes += gain * (message.bytes as f64 - self.bytes);
        self.compressed.push(message, self.compared_ns(message));
        self.since = self.since.saturating_add(1).saturating_add(message.unseen);
        self.uncompressed = 0;
        self.decide_doubted();
    }

    fn raw_confirmed(&mut self, connection: u64, message: &Confirmed) {
        let compared_ns = self.compared_ns(message);
        let (took_ns, compressed_ns) =
            (self.at_average_ns(compared_ns as f64), self.compressed_took_ns());
        match &mut self.way {
            // That says nothing of others.
            Way::Compressed => self.uncompressed = self.uncompressed.saturating_add(1),
            Way::Trial(trial) if trial.connection == connection => {
                trial.confirmed += 1;
                trial.late += u32::from(took_ns > LATE * compressed_ns);
                let trial = *trial;
                if trial.confirmed > TRIAL_SKIPPED {
                    self.raw.push(message, compared_ns);
                }
                if trial.confirmed <= TRIAL_SKIPPED && trial.late >= LATE_MAX {
                    self.failed();
                } else if trial.confirmed >= TRIAL_SKIPPED + TRIAL_COUNTED {
                    self.decide();
                }
            }
            Way::Trial(_) => {}
            Way::Raw { row, .. } => {
                *row = if took_ns > ROW * compressed_ns + ROW_NS { *row + 1 } else { 0 };
                let is_another = *row >= ROW_MAX;
                self.raw.push(message, compared_ns);
                let end = if self.is_bold { BEGIN } else { END };
                if is_another || self.at_average_ns(self.raw.took_ns()) > end * compressed_ns {
                    self.doubt(false);
                }
            }
            Way::Doubted { .. } => {
                self.raw.push(message, compared_ns);
                self.decide_doubted();
            }
        }
    }

    /// Ends a doubt, if enough has gone either way.
    fn decide_doubted(&mut self) {
        let counted = self.raw.count.min(self.compressed.count);
        let begin = if self.is_bold { 1.0 } else { BEGIN };
        let is_begun = self.raw_is_within(begin);
        let is_promising = self.raw_is_within(PROMISING);
        let Way::Doubted { is_trial, needed, .. } = &mut self.way else { return };
        if counted < *needed {
            return;
        }
        if is_begun {
            let wait = if self.is_bold { self.wait } else { WAIT_FIRST };
            (self.way, self.wait) = (Way::Raw { sent: 0, row: 0 }, wait);
        } else if is_promising && *needed < SAMPLES as u32 {
            // Once: who looks after each waits for chance.
            *needed = SAMPLES as u32;
        } else {
            let is_trial = *is_trial;
            self.refuted(is_trial);
        }
    }

    /// Messages as they are take longer: those of a trial, which comes later the next time, or all that did until now.
    fn refuted(&mut self, is_trial: bool) {
        if is_trial || self.is_bold { self.failed() } else { self.compresses() }
    }

    /// Ends a trial. The compressed messages were before it, when there may have been more of them at once, for which each took
    /// longer: so it is decided by others.
    fn decide(&mut self) {
        if self.raw_is_within(PROMISING) {
            self.doubt(true);
        } else {
            self.failed();
        }
    }

    /// Has half of the messages go either way, until there are enough to decide.
    fn doubt(&mut self, is_trial: bool) {
        self.way = Way::Doubted { sent: 0, is_trial, needed: DOUBTED_COUNTED };
        (self.compressed, self.raw) = (Times::default(), Times::default());
    }

    /// Returns true if messages as they are take at most so many times as long as compressed ones.
    fn raw_is_within(&self, times: f64) -> bool {
        self.at_average_ns(self.raw.took_ns()) <= times * self.compressed_took_ns()
    }
}

/// Returns the time that a message of so many times the bytes would take: a round trip, and so many times more beyond it.
fn scaled_ns(took_ns: f64, round_trip_ns: f64, times: f64) -> f64 {
    let round_trip_ns = round_trip_ns.min(took_ns);
    round_trip_ns + times * (took_ns - round_trip_ns)
}

/// The latest messages that went one way.
#[derive(Clone, Debug)]
struct Times {
    took_ns: [u32; SAMPLES],
    wire_bytes: [u32; SAMPLES],
    /// All that there were.
    count: u32,
    /// The median of the time, and the average of the bytes, as they were lately.
    median_ns: f64,
    average_bytes: f64,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            took_ns: [0; SAMPLES],
            wire_bytes: [0; SAMPLES],
            count: 0,
            median_ns: 0.0,
            average_bytes: 0.0,
        }
    }
}

/// The median is looked for again after so many messages; with fewer than that after each.
const MEDIAN_EVERY: u32 = 4;

impl Times {
    fn push(&mut self, message: &Confirmed, took_ns: u64) {
        let at = self.count as usize % SAMPLES;
        self.took_ns[at] = took_ns.try_into().unwrap_or(u32::MAX);
        self.wire_bytes[at] = message.wire_bytes.try_into().unwrap_or(u32::MAX);
        self.count = match self.count.checked_add(1) {
            Some(count) => count,
            None => SAMPLES as u32,
        };
        if self.count < SAMPLES as u32 / 2 || self.count.is_multiple_of(MEDIAN_EVERY) {
            self.look();
        }
    }

    fn look(&mut self) {
        let len = (self.count as usize).min(SAMPLES);
        let mut sorted = self.took_ns;
        sorted[..len].sort_unstable();
        self.median_ns = f64::from(sorted[len / 2]);
        let sum: f64 = self.wire_bytes[..len].iter().map(|&bytes| f64::from(bytes)).sum();
        self.average_bytes = sum / len as f64;
    }

    /// The median of the time of messages, in nanoseconds; zero without any.
    const fn took_ns(&self) -> f64 {
        self.median_ns
    }

    const fn wire_bytes(&self) -> f64 {
        self.average_bytes
    }
}

#[cfg(test)]
mod tests;
