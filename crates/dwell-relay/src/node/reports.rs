//! Reports of what was received: ours to a peer, and the peer's to us.

use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_base::{Instant, Rate};
use dwell_report::status::{PeerReport, RecentLoss, RxStatus};
use dwell_wire::arrivals::GAPS_MAX;
use dwell_wire::{Arrivals, Report};

use super::arrivals::Arrived;
use super::loss::{LATE_NS, Loss, WINDOW_NS};
use super::unheard::Unheard;

/// While packets come in, the peer is notified so this often, ...
const REPORT_NS: u64 = SECOND_NS;
/// ... or more often, if it asked for that, within these limits.
const REPORT_NS_MIN: u64 = 20 * MILLI_NS;
/// What the peer may not have heard is repeated no more often than this.
const REPORT_AGAIN_NS: u64 = 2 * MILLI_NS;
/// So much must have come for an earlier report: it takes about a hundredth of that.
const REPORT_AFTER_BYTES: u64 = 12_500;
/// And it takes no more than this part of our own link to the peer, if its rate is known.
const REPORT_LINK_PART: u64 = 50;
const REPORT_LINK_BYTES: u64 = 160;
/// The same with arrivals.
const ARRIVALS_LINK_BYTES: u64 = 260;
/// The interval asked of a peer whose reports are to show a bottleneck.
const WANTED_MS: u16 = 50;
/// Until it has answered, it is asked again after this.
pub(super) const ASK_AGAIN_NS: u64 = 250 * MILLI_NS;

/// The counts when the session began: reports count from there.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    datagrams: u64,
    bytes: u64,
    replayed: u64,
    records: u64,
}

/// Counts over all sessions; they never go down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path {
    /// Datagrams that the peer got, and that it lost, by its reports.
    pub(crate) got: u64,
    pub(crate) lost: u64,
}

/// The reports to and from a peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reports {
    reported_at: Instant,
    /// The counts in the latest report.
    reported_data: u64,
    reported_bytes: u64,
    /// The rate of delivery in it, and when that was measured.
    delivery_bps: u64,
    measured_at: Instant,
    measured_bytes: u64,
    before: Before,
    came: Loss,
    lost_before: u64,
    jumps_before: u64,
    /// The interval at which the peer wants reports.
    wanted_ns: Option<u64>,
    /// What came lately, if the peer wants to know it one by one.
    arrived: Option<Arrived>,
    /// True if we want reports often, and the interval that the peer was sent.
    wants: bool,
    reported_ms: u16,
    session_at: Instant,
    latest: Option<(Instant, Report)>,
    unheard: Unheard,
    excused: Option<Excused>,
    has_excused: bool,
    /// When the peer last reported a recent loss.
    lost_there_at: Option<Instant>,
    /// Datagrams that the peer got since then, by its reports.
    clean: u64,
    path_before: Path,
}

/// What was lost because more was sent than the link carries, before that was known: it says nothing of the path.
#[derive(Clone, Copy, Debug)]
struct Excused {
    /// What is reported until then was sent before.
    until: Instant,
    /// What was lost lately, by the latest report until then.
    recent_lost: u64,
}

/// A path on which something was lost passes for one that loses some for so long.
const LOSES_NS: u64 = 60 * SECOND_NS;

impl Reports {
    /// A session begins.
    pub(crate) fn begin_session(
        &mut self,
        now: Instant,
        rx: &RxStatus,
        (records, data): (u64, u64),
    ) {
        self.end_session();
        self.came.begin(now);
        self.reported_data = data;
        (self.reported_bytes, self.measured_bytes) = (rx.bytes, rx.bytes);
        self.before =
            Before { datagrams: rx.datagrams, bytes: rx.bytes, replayed: rx.replayed, records };
        (self.wanted_ns, self.arrived) = (None, None);
        self.reported_ms = 0;
        self.session_at = now;
        (self.excused, self.has_excused) = (None, false);
        self.unheard = Unheard::default();
    }

    /// A session ends: what is missing is not going to come.
    pub(crate) fn end_session(&mut self) {
        self.lost_before += self.came.unfound();
        self.jumps_before += self.came.jumps();
        self.came = Loss::default();
        self.path_before = self.path();
        if let Some((_, report)) = self.latest.take() {
            self.path_before.lost = self.path_before.lost.saturating_add(report.missing);
        }
    }

    /// A datagram of the present session came then, with this number, and is read now.
    #[inline]
    pub(crate) fn came(&mut self, now: Instant, came_at: Instant, number: u64) {
        self.came.came(now, number);
        if let Some(arrived) = &mut self.arrived {
            arrived.came(came_at, number);
        }
    }

    /// The datagram with this number, which was missing, came in another one.
    pub(crate) fn on_retransmission(&mut self, number: u64) {
        self.came.on_retransmission(number);
    }

    /// Datagrams from the peer that never came, in all sessions.
    pub(crate) fn lost(&self, now: Instant) -> u64 {
        self.lost_before + self.came.lost(now)
    }

    /// Returns the recent loss on the path from the peer.
    pub(crate) fn recent(&self, now: Instant) -> Option<RecentLoss> {
        self.came.recent(now)
    }

    /// Returns the recent loss on the path to the peer, by its latest report.
    pub(crate) fn recent_there(&self, now: Instant) -> Option<RecentLoss> {
        let (at, report) = self.latest.as_ref()?;
        let is_late = now.since_ns(*at) > WINDOW_NS;
        RecentLoss::of(report.recent_sent, self.recent_lost(*at, report)).filter(|_| !is_late)
    }

    /// Returns what the path to the peer carries at most, if more than half of what was sent lately is lost there: what comes of it.
    pub(crate) fn carried_there(&self) -> Option<Rate> {
        let (at, report) = self.latest.as_ref()?;
        let is_flooded = self.recent_lost(*at, report) > report.recent_sent / 2;
        is_flooded.then(|| Rate::clamped_bps(report.delivery_bps))
    }

    /// Returns what was lost lately by a report that comes then, and is no doing of ours: at least what is more than that was.
    fn recent_lost(&self, at: Instant, report: &Report) -> u64 {
        let excused = self.excused.filter(|excused| at < excused.until + WINDOW_NS);
        report.recent_lost.saturating_sub(excused.map_or(0, |excused| excused.recent_lost))
    }

    /// The rate of the link was found for the first time on this path: what was lost before was more than it carries. It is reported a round
    /// trip later at most, and once it is not expected any more. Only once: what is found again and again is no beginning.
    pub(crate) fn excuse(&mut self, now: Instant, rtt_ns: u64) {
        if self.has_excused {
            return;
        }
        self.has_excused = true;
        let until = now + rtt_ns.saturating_add(LATE_NS).saturating_add(REPORT_NS);
        let recent_lost = self.latest.as_ref().map_or(0, |(_, report)| report.recent_lost);
        self.excused = Some(Excused { until, recent_lost });
    }

    /// Returns true if the path to the peer loses some, as far as is known: little traffic loses nothing for
    /// many seconds on a path that loses some.
    pub(crate) fn loses_there(&self, now: Instant) -> bool {
        self.lost_there_at.is_some_and(|at| now < at + LOSES_NS)
    }

    /// Returns how many datagrams have come to the peer since it has lost any.
    pub(crate) fn clean(&self) -> u64 {
        self.clean
    }

    /// The path to the peer may be another one.
    pub(crate) fn moved(&mut self) {
        self.clean = 0;
        (self.excused, self.has_excused) = (None, false);
    }

    /// Returns how often the peer's numbers jumped, over all sessions.
    pub(crate) fn jumps(&self) -> u64 {
        self.jumps_before + self.came.jumps()
    }

    /// The peer asks for reports this often, with this many arrivals.
    pub(crate) fn wanted(&mut self, every_ms: u16, arrivals_max: u8) {
        self.arrived = (arrivals_max > 0).then(|| {
            let arrived = self.arrived.take().unwrap_or_default();
            arrived.with_max(arrivals_max)
        });
        let every_ns = u64::from(every_ms) * MILLI_NS;
        self.wanted_ns = (every_ms > 0).then(|| every_ns.clamp(REPORT_NS_MIN, REPORT_NS));
    }

    /// Returns true if we want reports often.
    pub(crate) fn want(&mut self, often: bool) {
        self.wants = often;
    }

    /// Returns the interval to ask for in probes.
    pub(crate) fn wish_ms(&self) -> u16 {
        if self.wants { WANTED_MS } else { 0 }
    }

    /// Returns the number of arrivals to ask for in probes.
    pub(crate) fn wish_arrivals(&self) -> u8 {
        if self.wants { GAPS_MAX as u8 } else { 0 }
    }

    /// True if the peer does not know yet what we want.
    pub(crate) fn must_ask(&self) -> bool {
        self.reported_ms != self.wish_ms()
    }

    /// The peer answered a probe of this time; what was asked for in it has not changed since.
    pub(crate) fn answered(&mut self, probed_at: Instant) {
        if probed_at >= self.session_at {
            self.reported_ms = self.wish_ms();
        }
    }

    /// Packets were sent to the peer, in a datagram that takes this of the link.
    #[inline]
    pub(crate) fn sent_packets(&mut self, now: Instant, link_bytes: u64) {
        self.unheard.sent_packets(now, link_bytes);
    }

    /// When the latest report is due once more; none if nothing ever came.
    fn again_at(&self, rx: &RxStatus) -> Option<Instant> {
        let silent_at =
            self.unheard.repeat_at().map(|at| at.max(self.reported_at + REPORT_AGAIN_NS));
        let lossy_at = self.unheard.is_lossy().then(|| self.reported_at + REPORT_NS_MIN);
        let has_any = rx.datagrams > self.before.datagrams;
        silent_at.into_iter().chain(lossy_at).min().filter(|_| has_any)
    }

    /// When the next report is due; none if nothing came that is worth one.
    pub(crate) fn due_at(&self, rx: &RxStatus, data: u64, rate: Option<Rate>) -> Option<Instant> {
        let news_at = self.news_at(rx, data, rate);
        news_at.into_iter().chain(self.again_at(rx)).min()
    }

    fn news_at(&self, rx: &RxStatus, data: u64, rate: Option<Rate>) -> Option<Instant> {
        if data <= self.reported_data {
            return None;
        }
        let early = self.wanted_ns.filter(|_| rx.bytes - self.reported_bytes >= REPORT_AFTER_BYTES);
        let bytes = if self.arrived.is_some() { ARRIVALS_LINK_BYTES } else { REPORT_LINK_BYTES };
        let affordable = |rate: Rate| rate.transmission_ns(bytes * REPORT_LINK_PART).min(REPORT_NS);
        let every_ns = early.map_or(REPORT_NS, |every_ns| every_ns.max(rate.map_or(0, affordable)));
        Some(self.reported_at + every_ns)
    }

    /// The report that goes out now: what was received in this session, and the rate at which
    /// it came since the last report.
    pub(crate) fn report(
        &mut self,
        now: Instant,
        rx: &RxStatus,
        (records, data): (u64, u64),
    ) -> Report {
        self.unheard.reported();
        self.measure_delivery(now, rx.bytes, data > self.reported_data);
        self.reported_at = now;
        self.reported_data = data;
        self.reported_bytes = rx.bytes;
        let (highest, highest_at) = self.came.highest();
        let recent = self.came.recent(now).unwrap_or_default();
        Report {
            datagrams: rx.datagrams - self.before.datagrams,
            bytes: rx.bytes - self.before.bytes,
            records: records - self.before.records,
            lost: self.came.lost(now),
            duplicates: rx.replayed - self.before.replayed,
            highest_sequence: highest,
            delivery_bps: self.delivery_bps,
            highest_at_ns: highest_at.as_ns(),
            missing: self.came.missing(now),
            recent_sent: recent.datagrams,
            recent_lost: recent.lost,
            ..Report::default()
        }
    }

    /// What is only repeated says nothing new of the rate.
    fn measure_delivery(&mut self, now: Instant, all_bytes: u64, is_news: bool) {
        let took_ns = now.since_ns(self.measured_at).max(1);
        if !is_news && took_ns < REPORT_NS {
            return;
        }
        let bytes = all_bytes - self.measured_bytes;
        let bps = u128::from(bytes) * 8 * u128::from(SECOND_NS) / u128::from(took_ns);
        self.delivery_bps = u64::try_from(bps).unwrap_or(u64::MAX);
        (self.measured_at, self.measured_bytes) = (now, all_bytes);
    }

    /// The arrivals that go out with a report; none if the peer does not want them, or nothing came.
    pub(crate) fn arrivals(&mut self) -> Option<Arrivals> {
        self.arrived.as_mut()?.take()
    }

    /// The peer's report on the present session. False if a later one came before.
    pub(crate) fn on_report(&mut self, now: Instant, report: &Report) -> bool {
        let is_later = |last: &Report| {
            report.highest_sequence >= last.highest_sequence
                && report.datagrams >= last.datagrams
                && report.lost >= last.lost
        };
        let is_news = self.latest.as_ref().is_none_or(|(_, last)| is_later(last));
        if is_news {
            let before = self.latest.map_or(0, |(_, last)| last.datagrams);
            self.clean = self.clean.saturating_add(report.datagrams - before);
            self.latest = Some((now, *report));
            self.unheard.on_report(report);
            if let Some(excused) = self.excused.as_mut().filter(|excused| now < excused.until) {
                excused.recent_lost = report.recent_lost;
            }
            if self.recent_lost(now, report) > 0 {
                (self.lost_there_at, self.clean) = (Some(now), 0);
            }
        }
        is_news
    }

    /// Returns the counts of what the peer received and lost over all sessions.
    pub(crate) fn path(&self) -> Path {
        let Path { got, lost } = self.path_before;
        let latest = self.latest.map(|(_, report)| report).unwrap_or_default();
        Path { got: got.saturating_add(latest.datagrams), lost: lost.saturating_add(latest.lost) }
    }

    /// Returns the rate at which the peer has time to decode what models make, if it says so.
    pub(crate) fn model_rate(&self) -> Option<Rate> {
        let bps = self.latest.map_or(0, |(_, report)| report.model_bps);
        Rate::from_bps(bps)
    }

    /// For reports to people.
    pub(crate) fn reported(report: &Report) -> PeerReport {
        PeerReport {
            datagrams: report.datagrams,
            bytes: report.bytes,
            records: report.records,
            lost: report.lost,
            duplicates: report.duplicates,
            delivery_bps: report.delivery_bps,
            waiting_bytes: report.waiting_bytes,
            waiting_ns: report.waiting_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant::from_ns(ms * MILLI_NS)
    }

    #[test]
    fn losses_are_counted_over_sessions() {
        let (mut reports, rx) = (Reports::default(), RxStatus::default());
        reports.begin_session(at_ms(0), &rx, (0, 0));
        for number in [1, 2, 5] {
            reports.came(at_ms(number), at_ms(number), number);
        }
        let report = reports.report(at_ms(9), &rx, (0, 0));
        assert_eq!((report.highest_sequence, report.missing, report.lost), (5, 2, 0));
        assert_eq!(report.highest_at_ns, 5 * MILLI_NS);
        let report = reports.report(at_ms(5_000), &rx, (0, 0));
        assert_eq!((report.missing, report.lost), (0, 2));
        reports.on_retransmission(3);
        reports.begin_session(at_ms(5_010), &rx, (0, 0));
        assert_eq!(reports.lost(at_ms(5_010)), 1, "4 is not going to come any more");
        reports.came(at_ms(5_020), at_ms(5_020), 901);
        assert_eq!(reports.lost(at_ms(5_030)), 1, "the others may yet come");
        assert_eq!(reports.lost(at_ms(9_030)), 901);
    }

    #[test]
    fn both_ends_tell_the_same_loss() {
        let (mut here, mut there) = (Reports::default(), Reports::default());
        let rx = RxStatus::default();
        here.begin_session(at_ms(0), &rx, (0, 0));
        there.begin_session(at_ms(0), &rx, (0, 0));
        for number in (1..=10_000).filter(|number| number % 5 > 1) {
            here.came(at_ms(number), at_ms(number), number);
        }
        let own = here.recent(at_ms(10_000)).expect("much came");
        assert!((39..=40).contains(&(own.ppm / 10_000)), "{own:?}");
        let report = here.report(at_ms(10_000), &rx, (0, 0));
        there.on_report(at_ms(10_050), &report);
        assert_eq!(there.recent_there(at_ms(11_000)), Some(own));
        assert_eq!(there.recent_there(at_ms(16_000)), None, "that is too long ago");
    }

    #[test]
    fn what_the_peer_tells_is_added_up() {
        let (mut reports, rx) = (Reports::default(), RxStatus::default());
        let reported = |datagrams, lost, missing| Report {
            datagrams,
            lost,
            missing,
            highest_sequence: datagrams,
            ..Report::default()
        };
        assert!(reports.on_report(at_ms(1), &reported(100, 3, 2)));
        assert!(!reports.on_report(at_ms(1), &reported(90, 3, 1)), "it was overtaken");
        assert_eq!(reports.path(), Path { got: 100, lost: 3 });
        reports.begin_session(at_ms(0), &rx, (0, 0));
        assert_eq!(reports.path(), Path { got: 100, lost: 5 });
        reports.on_report(at_ms(1), &reported(10, 0, 0));
        assert_eq!(reports.path(), Path { got: 110, lost: 5 });
        reports.on_report(at_ms(1), &reported(u64::MAX, u64::MAX, 0));
        assert_eq!(reports.path(), Path { got: u64::MAX, lost: u64::MAX });
    }

    #[test]
    fn reports_come_as_often_as_the_peer_wants_if_there_is_enough_to_tell() {
        let (mut reports, mut rx) = (Reports::default(), RxStatus::default());
        reports.begin_session(at_ms(0), &rx, (0, 0));
        reports.report(at_ms(1_000), &rx, (0, 0));
        assert_eq!(reports.due_at(&rx, 0, None), None, "nothing came");
        rx.bytes = 20_000;
        assert_eq!(reports.due_at(&rx, 1, None), Some(at_ms(2_000)));
        reports.wanted(50, 0);
        assert_eq!(reports.due_at(&rx, 1, None), Some(at_ms(1_050)));
        reports.wanted(1, 0);
        assert_eq!(reports.due_at(&rx, 1, None), Some(at_ms(1_020)));
        // 160 bytes are a fiftieth of what 100 kbit/s carry in 640 ms.
        let thin = Rate::from_bps(100_000);
        assert_eq!(reports.due_at(&rx, 1, thin), Some(at_ms(1_640)));
        rx.bytes = 5_000;
        assert_eq!(reports.due_at(&rx, 1, None), Some(at_ms(2_000)), "too little to report");
    }

    #[test]
    fn a_wish_is_reported_in_every_session() {
        let (mut reports, rx) = (Reports::default(), RxStatus::default());
        assert!(!reports.must_ask());
        reports.want(true);
        reports.begin_session(at_ms(10), &rx, (0, 0));
        assert!(reports.must_ask());
        reports.answered(at_ms(9));
        assert!(reports.must_ask(), "the answer was to a probe of the session before");
        reports.answered(at_ms(11));
        assert!(!reports.must_ask());
        reports.want(false);
        assert!(reports.must_ask());
    }

    /// A datagram comes each millisecond, but for half of them from second 1 to 2, and one in twenty from second 12 on. Returns what the other
    /// end takes for lost lately, each tenth of a second.
    fn lost_there(finds_at: &[u64]) -> Vec<u64> {
        let (mut here, mut there) = (Reports::default(), Reports::default());
        let rx = RxStatus::default();
        here.begin_session(at_ms(0), &rx, (0, 0));
        there.begin_session(at_ms(0), &rx, (0, 0));
        let mut lost = Vec::new();
        for ms in 1..20_000 {
            let is_lost = match ms {
                1_000..2_000 => ms % 2 == 0,
                12_000.. => ms % 20 == 0,
                _ => false,
            };
            if !is_lost {
                here.came(at_ms(ms), at_ms(ms), ms);
            }
            if ms % 100 == 0 {
                there.on_report(at_ms(ms + 150), &here.report(at_ms(ms), &rx, (0, 0)));
                lost.push(there.recent_there(at_ms(ms + 150)).map_or(0, |recent| recent.lost));
            }
            if finds_at.contains(&ms) {
                there.excuse(at_ms(ms), 300 * MILLI_NS);
            }
        }
        lost
    }

    #[test]
    fn what_was_lost_before_the_rate_was_known_says_nothing_of_the_path() {
        let [without, with] = [lost_there(&[]), lost_there(&[2_200])];
        assert!(without[25] > 400 && without[60] > 400 && without[80] == 0, "{without:?}");
        assert!(with[22..].iter().take(95).all(|&lost| lost == 0), "{with:?}");
        // What is lost later counts as soon, and all of it: the rate was found before.
        assert!(without[135] > 20 && with[120..] == without[120..], "{with:?}");
        assert_eq!(with, lost_there(&[2_200, 6_000, 12_000, 14_000]));
    }
}
