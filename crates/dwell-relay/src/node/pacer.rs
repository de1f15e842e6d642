//! When the link of a peer can take the next frame.
//!
//! The queue must be ours: what waits in the kernel can't be compressed any more. With a
//! configured rate the pacer hands out frames at that rate. Without one it watches the
//! socket: while the kernel refuses datagrams the link is busy, and what the kernel takes
//! between refusals is the link's rate. If [`bottleneck`](super::bottleneck) found the slowest link
//! from what the peer reports, frames are handed out at that link's rate.

use dwell_base::time::{MICRO_NS, MILLI_NS, SECOND_NS};
use dwell_base::{Instant, Rate};

use super::bottleneck::Found;

/// The method that finds out when a link is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// The link's rate is configured.
    Fixed(Rate),
    /// By back-pressure of the socket, and from what the peer reports.
    Auto,
    /// The link is never busy.
    Unlimited,
}

/// Frames may leave this much ahead of their time: it saves a wake-up for each of them on
/// fast links, and is less than one frame on links below 12 Mbit/s.
const AHEAD_NS: u64 = 500 * MICRO_NS;
/// Full frames of which this many fit into that time leave in bursts: the next begins when half of it is
/// over, with the link still busy. A wake-up and a system call for each cost more than all else.
const BURST_FRAMES_MIN: u64 = 4;
const FULL_FRAME_BYTES: u64 = 1_500;
/// The same if packets have deadlines: what left ahead of its time waits in the link, where nobody
/// sees it.
const AHEAD_EXACT_NS: u64 = 50 * MICRO_NS;
/// For how long a link was busy lately is counted up to this.
const BUSY_NS_MAX: u64 = 10 * MILLI_NS;
/// A wake-up that comes late may be made up for, up to this much of the link's time.
const CATCH_UP_NS: u64 = 2 * MILLI_NS;
/// The same if packets have deadlines: a part of the shortest time that they are held back for, since
/// what is made up for waits in the link. Less would be more exact, but on a machine that wakes us late
/// now and then the link would lose that time for good, and all that waits would be late for it.
const CATCH_UP_EXACT_PART: u64 = 4;
const CATCH_UP_EXACT_NS_MIN: u64 = 50 * MICRO_NS;
const CATCH_UP_EXACT_NS_MAX: u64 = MILLI_NS;
/// Of a written rate this part is left out, one in so many. It is no reserve for what is not counted, since
/// all is: two clocks may differ by 200 millionths, so that a queue would grow in front of a link of just that rate for
/// as long as it is busy; and what has left ahead of its time, or later and then at once, has to leave that queue again,
/// 2.5 ms of it in a second.
const LEFT_OUT_PART: u64 = 400;
/// The link is never believed to be busy for longer than this, or than one frame takes.
const DEBT_NS_MAX: u64 = SECOND_NS;
/// The rate is measured over at least this long.
const SAMPLE_NS: u64 = 40 * MILLI_NS;
/// ... and over at least this many bytes.
const SAMPLE_BYTES: u64 = 6_000;
/// The bytes that a link takes are compared with its measured rate over at least this long.
const FLOW_NS: u64 = 100 * MILLI_NS;
/// A link that refused nothing for this long pushes nobody back at present. Its rate stays what it
/// was measured to be: a TCP that keeps queues short (BBR) fills a link without being refused.
const FORGET_NS: u64 = 2 * SECOND_NS;
/// The kernel may hold this much of the link's time, as long as that keeps the link busy, ...
const BUFFER_NS_MIN: u64 = 2 * MILLI_NS;
/// ... and more if our wake-ups come late, up to this much.
const BUFFER_NS_MAX: u64 = 32 * MILLI_NS;
/// It has room for this much of it if it is paced.
const BUFFER_PACED_NS: u64 = 20 * MILLI_NS;
/// Less would let the link idle between a wake-up and the next datagram: a full packet goes
/// out while two are in the buffer.
const BUFFER_BYTES_MIN: u64 = 3_456;
const BUFFER_BYTES_MAX: u64 = 1 << 20;
/// Late wake-ups double what the kernel may hold. As long as no rate is known that has to become less again, or a TCP that
/// keeps queues short (BBR) fills the link without ever being refused, and its rate is never known: half of it after this
/// time in which so many times as much was sent, and nothing refused.
const SHRINK_NS: u64 = 100 * MILLI_NS;
const SHRINK_TIMES: u64 = 4;
/// The most bytes in one system call.
const BURST_BYTES_MAX: u64 = 64 << 10;
/// To look further ahead costs more than it brings: fast links have room for late compressions.
const AT_ONCE_BYTES_MAX: u64 = 256 << 10;

/// The pacing state of one link.
#[derive(Clone, Debug)]
pub struct Pacer {
    pacing: Pacing,
    /// When the link will have sent what it was given, if its rate is configured or was found
    /// beyond the next hop.
    free_at: Instant,
    /// The present burst is over.
    is_full: bool,
    /// Auto: when the local device will have sent what the kernel holds, if its rate is known.
    drained_at: Instant,
    /// The same when the relay last began to send. What it has added since goes at once, and says
    /// nothing about how far the link is behind.
    standing_until: Instant,
    /// Auto: the bottleneck beyond the next hop, if it is there.
    found: Option<Found>,
    /// Auto: the rate of a link beyond that was not found yet.
    assumed: Option<Rate>,
    /// Its part of a link that all peers share: it is given no more. And what that was of late, on the average.
    share: Option<Rate>,
    lasting_share: Option<Rate>,
    /// All that was ever given to the link.
    given_bytes: u64,
    /// Auto: the socket refused a datagram and has not become writable since.
    blocked: bool,
    blocked_at: Option<Instant>,
    sample_start: Option<Instant>,
    sample_bytes: u64,
    /// The bytes sent since a time, refused or not: the link is at least that fast.
    flow_start: Instant,
    flow_bytes: u64,
    measured: Option<Rate>,
    buffer_ns: u64,
    buffer_bytes: u64,
    /// When that became what it is, or was last full, and what had been given until then.
    fitted_at: Instant,
    fitted_given: u64,
    ahead_ns: u64,
    catch_up_ns: u64,
    /// Since when the thread that sends has not slept, if it hardly sleeps.
    busy_since: Option<Instant>,
    /// For how long the link, whose rate is known, has idled meanwhile, and for how long it was busy.
    idled_ns: u64,
    busy_ns: u64,
}

impl Pacer {
    /// A link that is idle.
    pub fn new(pacing: Pacing) -> Self {
        Self {
            pacing,
            free_at: Instant::ZERO,
            is_full: false,
            drained_at: Instant::ZERO,
            standing_until: Instant::ZERO,
            found: None,
            assumed: None,
            share: None,
            lasting_share: None,
            given_bytes: 0,
            blocked: false,
            blocked_at: None,
            sample_start: None,
            sample_bytes: 0,
            flow_start: Instant::ZERO,
            flow_bytes: 0,
            measured: None,
            buffer_ns: BUFFER_NS_MIN,
            buffer_bytes: BUFFER_BYTES_MIN,
            fitted_at: Instant::ZERO,
            fitted_given: 0,
            ahead_ns: AHEAD_NS,
            catch_up_ns: CATCH_UP_NS,
            busy_since: None,
            idled_ns: 0,
            busy_ns: 0,
        }
    }

    /// The shortest time that packets are held back for, if they have deadlines: more wake-ups are
    /// worth it then, and less is made up for.
    pub fn set_exact(&mut self, deadline_min_ns: Option<u64>) {
        (self.ahead_ns, self.catch_up_ns) = match deadline_min_ns {
            Some(deadline_ns) => {
                let part_ns = deadline_ns / CATCH_UP_EXACT_PART;
                (AHEAD_EXACT_NS, part_ns.clamp(CATCH_UP_EXACT_NS_MIN, CATCH_UP_EXACT_NS_MAX))
            }
            None => (AHEAD_NS, CATCH_UP_NS),
        };
    }

    /// Returns the method that finds readiness.
    pub fn pacing(&self) -> Pacing {
        self.pacing
    }

    /// Changes how readiness is found.
    pub fn set_pacing(&mut self, pacing: Pacing) {
        if pacing != self.pacing {
            *self = self.forgotten(pacing);
        }
    }

    /// True if a frame can be given to the link now.
    pub fn ready(&self, now: Instant) -> bool {
        !self.blocked && now >= self.ready_at()
    }

    /// When the link will have sent what it was given, as far as is known.
    pub(super) fn idle_at(&self) -> Instant {
        if self.is_paced() { self.ready_at() } else { self.drained_at }
    }

    /// When the link will be ready, if time alone decides.
    pub fn ready_at(&self) -> Instant {
        if !self.is_paced() {
            return Instant::ZERO;
        }
        self.free_at.before_ns(if self.is_full { self.ahead_ns / 2 } else { self.ahead_ns })
    }

    /// The thread that sends has not slept since then, if it hardly sleeps. Returns for how long the link has
    /// idled since this was last said, beyond what can be made up for: at most for as long as it was busy, for a
    /// link that carries little idles because there is little.
    pub(super) fn busy_since(&mut self, since: Option<Instant>) -> u64 {
        let idled_ns = self.idled_ns.min(self.busy_ns);
        self.busy_ns = (self.busy_ns - idled_ns).min(BUSY_NS_MAX);
        (self.busy_since, self.idled_ns) = (since, 0);
        if since.is_some() { idled_ns } else { 0 }
    }

    /// True if frames are handed out at a rate, so that time decides.
    pub fn is_paced(&self) -> bool {
        self.share.is_some()
            || match self.pacing {
                Pacing::Fixed(_) => true,
                Pacing::Auto => self.found.is_some(),
                Pacing::Unlimited => false,
            }
    }

    /// The peer's part of a link that all share, if they do, and what that was of late. With more of it, what the link
    /// was given leaves sooner.
    pub(super) fn set_share(&mut self, now: Instant, share: Option<Rate>, lasting: Option<Rate>) {
        let before = self.pace();
        (self.share, self.lasting_share) = (share, lasting);
        if let Some((before, after)) = before.zip(self.pace()).filter(|(was, is)| was < is) {
            let left_ns = self.free_at.since_ns(now) as f64;
            let left_ns = left_ns * before.as_bps() as f64 / after.as_bps() as f64;
            self.free_at = self.free_at.min(now + left_ns as u64);
        }
    }

    /// True if it is that part which limits.
    pub(super) fn is_shared(&self) -> bool {
        self.share.is_some() && self.rate() == self.share
    }

    /// When the link will have sent what it was given, if that leaves at a rate.
    pub(super) fn free_at(&self) -> Instant {
        self.free_at
    }

    /// All that was ever given to the link.
    pub(super) fn all_bytes(&self) -> u64 {
        self.given_bytes
    }

    /// There is a slower link beyond the next hop, or none any more.
    pub(super) fn set_found(&mut self, found: Option<Found>) {
        self.found = found;
    }

    /// Nothing was found, but this may be.
    pub(super) fn set_assumed(&mut self, assumed: Option<Rate>) {
        self.assumed = assumed;
    }

    /// The rate of a slower link beyond the next hop, if there is one.
    pub(super) fn found(&self) -> Option<Found> {
        self.found.filter(|_| self.pacing == Pacing::Auto)
    }

    /// When the socket last refused a datagram.
    pub(super) fn blocked_at(&self) -> Option<Instant> {
        self.blocked_at
    }

    /// True while the socket refuses datagrams.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// The rate to plan with: configured or measured, or a part of a link that all share.
    pub fn rate(&self) -> Option<Rate> {
        [self.own_rate(), self.share].into_iter().flatten().min()
    }

    /// The rate to pick codecs for: what changes from moment to moment, as others begin and end, would have them take
    /// turns.
    pub(super) fn lasting_rate(&self) -> Option<Rate> {
        [self.own_rate(), self.lasting_share].into_iter().flatten().min()
    }

    /// The same without that part.
    fn own_rate(&self) -> Option<Rate> {
        match self.pacing {
            Pacing::Fixed(rate) => Some(rate),
            Pacing::Auto => {
                let local = self.measured;
                let beyond = self.found.map(|found| found.rate);
                [local, beyond].into_iter().flatten().min()
            }
            Pacing::Unlimited => None,
        }
    }

    /// The rate to compress for: that, or what is assumed as long as nothing is known.
    pub(super) fn rate_to_compress_for(&self) -> Option<Rate> {
        self.rate().or(self.assumed.filter(|_| self.pacing == Pacing::Auto))
    }

    /// The rate at which frames are handed out, if they are.
    fn pace(&self) -> Option<Rate> {
        [self.own_pace(), self.share].into_iter().flatten().min()
    }

    /// The same if nothing is shared.
    pub(super) fn own_pace(&self) -> Option<Rate> {
        match self.pacing {
            Pacing::Fixed(rate) => {
                let bps = rate.as_bps();
                Some(Rate::clamped_bps(bps - bps / LEFT_OUT_PART))
            }
            Pacing::Auto => self.found.map(|found| found.pace),
            Pacing::Unlimited => None,
        }
    }

    /// The most bytes that the kernel should be given in one go.
    pub fn burst_bytes(&self) -> u64 {
        match self.pacing {
            Pacing::Auto if self.blocked_at.is_some() => {
                (self.buffer_bytes / 2).min(BURST_BYTES_MAX)
            }
            _ => BURST_BYTES_MAX,
        }
    }

    /// Returns the number of bytes that the link can take at once when it is ready again: with
    /// back-pressure, all that find room in the kernel's send buffer.
    pub fn at_once_bytes(&self) -> u64 {
        match self.pacing {
            Pacing::Auto if self.blocked_at.is_some() => self.buffer_bytes.min(AT_ONCE_BYTES_MAX),
            _ => 0,
        }
    }

    /// The bytes that the link was given and has not sent yet: what is sent now waits for them.
    /// Nothing is believed to wait in a link whose rate is unknown.
    pub fn ahead_bytes(&self, now: Instant) -> u64 {
        let Some(rate) = self.rate() else { return 0 };
        if self.is_paced() {
            return rate.bytes_in_ns(self.free_at.since_ns(now));
        }
        let until = if self.blocked { self.drained_at } else { self.standing_until };
        rate.bytes_in_ns(until.since_ns(now)).min(self.buffer_bytes)
    }

    /// The bytes that the link was given and has not sent yet, with all that it was given at once.
    pub(super) fn given_bytes(&self, now: Instant) -> u64 {
        let Some(rate) = self.measured.filter(|_| !self.is_paced()) else {
            return self.ahead_bytes(now);
        };
        rate.bytes_in_ns(self.drained_at.since_ns(now)).min(self.buffer_bytes)
    }

    /// The relay begins to send what has come.
    pub(super) fn begin(&mut self) {
        self.standing_until = self.drained_at;
    }

    /// True if the link takes whatever it is given: nothing of it waits at the relay.
    pub(super) fn takes_all(&self) -> bool {
        !self.blocked && !self.is_paced()
    }

    /// Returns the bytes of packets that the kernel's send buffer should hold, if the rate is found
    /// by back-pressure: little, because what waits there can't be compressed any more, but enough
    /// to keep the link busy until we are woken. More finds room if the rate was found by reports, so that it is the pace
    /// that holds back and not the kernel.
    pub fn buffer_bytes(&self) -> Option<u64> {
        let pace = self.found.map(|found| found.rate).or(self.share);
        let paced = pace.map_or(0, |rate| rate.bytes_in_ns(BUFFER_PACED_NS));
        (self.pacing == Pacing::Auto).then_some(self.buffer_bytes.max(paced.min(BUFFER_BYTES_MAX)))
    }

    /// A frame was given to the link that might have had it this much earlier. Only for a time in which
    /// something waited for it can a wake-up have come late: an idle link saves nothing up, or small
    /// packets that come to it one by one would never wait for each other. Returns for how much longer than can be made up for
    /// the link was free while something waited.
    pub fn sent(&mut self, now: Instant, link_bytes: u64, waited_ns: u64) -> u64 {
        self.sample_bytes += link_bytes;
        self.given_bytes += link_bytes;
        let mut lost_ns = 0;
        if self.pacing == Pacing::Auto && self.measured.is_none() {
            self.shrink_buffer(now);
        }
        if let Some(rate) = self.measured.filter(|_| self.pacing == Pacing::Auto) {
            let full_at = now + rate.transmission_ns(self.buffer_bytes.max(link_bytes));
            let drained_at = self.drained_at.max(now) + rate.transmission_ns(link_bytes);
            // The kernel holds no more than finds room in its buffer.
            self.drained_at = drained_at.min(full_at);
            self.note_flow(now, link_bytes, rate);
        }
        if let Some(rate) = self.pace() {
            let made_up_ns = self.catch_up_ns.min(waited_ns);
            let start = self.free_at.max(now.before_ns(made_up_ns));
            lost_ns = start.since_ns(self.free_at).min(waited_ns - made_up_ns);
            if let Some(since) = self.busy_since {
                self.idled_ns += start.since_ns(self.free_at.max(since));
                self.busy_ns += rate.transmission_ns(link_bytes);
            }
            // Control datagrams don't wait for the link. However many there are, packets get
            // their turn.
            let frame_ns = rate.transmission_ns(link_bytes);
            let still_full = self.is_full && start.since_ns(now) > self.ahead_ns / 2;
            self.free_at = (start + frame_ns).min(now + DEBT_NS_MAX.max(frame_ns));
            let full_ns = rate.transmission_ns(FULL_FRAME_BYTES);
            let is_burst = full_ns * BURST_FRAMES_MIN <= self.ahead_ns;
            let is_ahead = self.free_at.since_ns(now) > self.ahead_ns;
            self.is_full = is_burst && (still_full || is_ahead);
        }
        lost_ns
    }

    /// The socket refused a datagram.
    pub fn blocked(&mut self, now: Instant) {
        self.blocked = true;
        self.blocked_at = Some(now);
        (self.fitted_at, self.fitted_given) = (now, self.given_bytes);
        // Its buffer is full.
        if let Some(rate) = self.measured {
            self.drained_at = now + rate.transmission_ns(self.buffer_bytes);
        }
        if self.pacing != Pacing::Auto {
            return;
        }
        if self.sample_start.is_none() {
            self.sample_start = Some(now);
            self.sample_bytes = 0;
        }
        self.take_sample(now);
    }

    /// The socket takes datagrams again.
    pub fn writable(&mut self) {
        self.blocked = false;
    }

    /// The socket takes datagrams again, and the kernel had nothing left to send: we were woken
    /// too late, and the link idled. What was taken since says nothing about the link's rate,
    /// and the kernel needs more at a time.
    pub fn ran_dry(&mut self, now: Instant) {
        self.drained_at = now;
        self.sample_start = None;
        self.buffer_ns = (self.buffer_ns * 2).min(BUFFER_NS_MAX);
        (self.fitted_at, self.fitted_given) = (now, self.given_bytes);
        self.fit_buffer();
    }

    /// Nothing waits for the link any more: what follows says nothing about its rate.
    pub fn idle(&mut self, now: Instant) {
        self.sample_start = None;
        if self.blocked_at.is_some_and(|at| now.since_ns(at) > FORGET_NS) {
            self.blocked_at = None;
        }
    }

    /// A link that takes more than it was measured to send, beyond what the kernel has room for, is
    /// faster than that.
    fn note_flow(&mut self, now: Instant, link_bytes: u64, measured: Rate) {
        let took_ns = now.since_ns(self.flow_start);
        if took_ns >= FLOW_NS {
            let sent_bytes = self.flow_bytes.saturating_sub(self.buffer_bytes);
            // A pause at the end makes the rate seem lower, never higher.
            if sent_bytes > measured.bytes_in_ns(took_ns) {
                let bps = u128::from(sent_bytes) * 8 * u128::from(SECOND_NS) / u128::from(took_ns);
                self.measured = Some(Rate::clamped_bps(u64::try_from(bps).unwrap_or(u64::MAX)));
                self.fit_buffer();
            }
            (self.flow_start, self.flow_bytes) = (now, 0);
        }
        self.flow_bytes += link_bytes;
    }

    /// The peer is somewhere else: nothing is known of the link to it.
    pub(super) fn moved(&mut self) {
        *self = self.forgotten(self.pacing);
    }

    /// Returns one to which nothing is known of the link, but what the link was given, and what does not depend on it.
    fn forgotten(&self, pacing: Pacing) -> Self {
        let Self { free_at, blocked, ahead_ns, catch_up_ns, .. } = *self;
        let Self { share, lasting_share, given_bytes, .. } = *self;
        Self {
            free_at,
            blocked,
            ahead_ns,
            catch_up_ns,
            share,
            lasting_share,
            given_bytes,
            ..Self::new(pacing)
        }
    }

    /// Between two refusals the kernel took as much as the link sent: its own buffer is full
    /// at both of them.
    fn take_sample(&mut self, now: Instant) {
        let Some(start) = self.sample_start else { return };
        let took_ns = now.since_ns(start);
        if took_ns < SAMPLE_NS || self.sample_bytes < SAMPLE_BYTES {
            return;
        }
        let bps = u128::from(self.sample_bytes) * 8 * u128::from(SECOND_NS) / u128::from(took_ns);
        let sample = u64::try_from(bps).unwrap_or(u64::MAX);
        let smoothed = match self.measured {
            Some(old) => old.as_bps() / 2 + sample / 2,
            None => sample,
        };
        let rate = Rate::clamped_bps(smoothed);
        self.measured = Some(rate);
        self.sample_start = Some(now);
        self.sample_bytes = 0;
        self.buffer_ns = (self.buffer_ns - self.buffer_ns / 16).max(BUFFER_NS_MIN);
        self.fit_buffer();
    }

    /// The link's rate is not known: what the kernel may hold becomes less until that is refused, but not less than what is
    /// sent in the least time that it should hold.
    #[inline]
    fn shrink_buffer(&mut self, now: Instant) {
        let given = self.given_bytes - self.fitted_given;
        let since_ns = now.since_ns(self.fitted_at);
        if since_ns < SHRINK_NS || given < SHRINK_TIMES * self.buffer_bytes {
            return;
        }
        let least = u128::from(given) * u128::from(BUFFER_NS_MIN) / u128::from(since_ns);
        let least = u64::try_from(least).unwrap_or(u64::MAX).max(BUFFER_BYTES_MIN);
        self.buffer_bytes = self.buffer_bytes.min(least.max(self.buffer_bytes / 2));
        (self.fitted_at, self.fitted_given) = (now, self.given_bytes);
    }

    fn fit_buffer(&mut self) {
        let bytes = match self.measured {
            Some(rate) => rate.bytes_in_ns(self.buffer_ns),
            None => self.buffer_bytes * 2,
        };
        self.buffer_bytes = bytes.clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX);
    }
}

#[cfg(test)]
mod tests;
