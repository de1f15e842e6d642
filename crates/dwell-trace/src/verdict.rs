//! Would dwell help on this link? An answer in sentences, from a replay.
//!
//! The thresholds are those below which nobody should go to the trouble of two relays, or which
//! another hour of the same traffic could turn around; each says why it is where it is.

mod traffic;

use dwell_report::{Column, Table, human};
use serde::{Deserialize, Serialize};

use crate::replay::nature::{Composition, Nature};
use crate::replay::report::{LaneReport, ReplayReport};

pub use traffic::judge_traffic;

/// Fewer bytes on the link by this share are worth something. A tunnel costs 2 to 4 % of full
/// packets, and the same link differs by as much from one day to the next.
pub const SAVING_MIN: f64 = 0.05;
/// More bytes on the link by this share do harm, if bytes count: the tunnel's own overhead.
pub const GROWTH_MAX: f64 = 0.02;
/// Fewer or more drops by this share of all bytes matter: TCP feels half a percent
/// (throughput goes with one over the root of the loss; Mathis et al., 1997) ...
pub const DROPS_MIN: f64 = 0.005;
/// ... if it is also this share of the drops themselves.
pub const DROPS_CHANGE_MIN: f64 = 0.1;
/// From this share of bytes dropped without dwell on, the sources would have sent otherwise: a
/// replay says little about such a link.
pub const DROPS_CREDIBLE_MAX: f64 = 0.1;
/// The mean delay must change by this share to matter ...
pub const DELAY_SHARE_MIN: f64 = 0.1;
/// ... and by this much: less is lost in any path.
pub const DELAY_NS_MIN: f64 = 1e6;
/// More of a core than this is too much for what a relay may take beside other work.
pub const CPU_SHARE_MAX: f64 = 0.5;
/// If the capture lacks more than this share of the bytes, a "no" is none: what is lacking
/// counted as incompressible.
pub const MISSING_SHARE_MAX: f64 = 0.2;
/// From this share of bytes on that are closed to any codec, they are the reason for a "no".
pub const CLOSED_SHARE_MIN: f64 = 0.5;
/// Below either of these a capture is a glimpse.
const SPAN_NS_MIN: u64 = 10_000_000_000;
const PACKETS_MIN: u64 = 1_000;

/// What is asked beside the capture.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// What a megabyte on the link costs, in any currency; then bytes come before delay.
    pub cost_per_mb: Option<f64>,
    /// The schemes that can be had; all of the report's, without.
    pub schemes: Vec<String>,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It helps, and harms nothing.
    Yes,
    /// It helps in one way and harms in another.
    Depends,
    /// It does not help.
    No,
    /// The capture does not tell.
    Unknown,
}

impl Answer {
    /// As a heading.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Yes => "Yes: dwell would help on this link.",
            Self::Depends => "It depends: dwell would help in one way and harm in another.",
            Self::No => "No: dwell would not help on this link.",
            Self::Unknown => "The capture does not tell whether dwell would help on this link.",
        }
    }
}

/// What a scheme would change, against the link without dwell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The scheme.
    pub scheme: String,
    /// The share of bytes saved on the link for each byte that arrives at its end; negative
    /// if there are more.
    pub saving: f64,
    /// The share of bytes dropped, without dwell and with it.
    pub drops: (f64, f64),
    /// The mean delay in nanoseconds, without dwell and with it.
    pub delay_ns: (u64, u64),
    /// The 99th percentile of the delay in nanoseconds, without dwell and with it.
    pub delay_p99_ns: (u64, u64),
    /// The share of one core that pressing takes.
    pub cpu_share: f64,
    /// What 30 days of the same traffic cost on the link, without dwell and with it.
    pub cost_month: Option<(f64, f64)>,
}

/// The verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// In a word.
    pub answer: Answer,
    /// The best scheme, whether it helps or not. `None` if there is none to judge.
    pub best: Option<Change>,
    /// In sentences.
    pub sentences: Vec<String>,
}

impl Change {
    fn of(report: &ReplayReport, lane: &LaneReport, question: &Question) -> Option<Self> {
        let without = report.without()?;
        let saving = 1.0 - lane.tx().link_ratio()? / without.tx().link_ratio()?;
        let span_ns = report.span_ns.max(1) as f64;
        let month = |bytes: f64, cost: f64| bytes / 1e6 * cost * MONTH_NS / span_ns;
        Some(Self {
            scheme: lane.name.clone(),
            saving,
            drops: (without.drop_share_bytes(), lane.drop_share_bytes()),
            delay_ns: (without.delay.mean_ns, lane.delay.mean_ns),
            delay_p99_ns: (without.delay.p99_ns, lane.delay.p99_ns),
            cpu_share: lane.tx().press_ns as f64 / span_ns,
            // For the same packets: what is dropped costs nothing and brings nothing.
            cost_month: question.cost_per_mb.map(|cost| {
                let bytes = without.tx().link_bytes as f64;
                (month(bytes, cost), month(bytes * (1.0 - saving), cost))
            }),
        })
    }

    fn helps(&self) -> Vec<String> {
        let mut helps = Vec::new();
        if self.saving >= SAVING_MIN {
            helps.push(format!("{} fewer bytes on the link", percent(self.saving)));
        }
        if drops_less(self.drops.0, self.drops.1) {
            let (from, to) = (percent(self.drops.0), percent(self.drops.1));
            helps.push(format!("{to} of the bytes dropped in place of {from}"));
        }
        // A queue whose packets were dropped is short, and that is no help.
        let more_drops = self.drops.1 - self.drops.0 >= DROPS_MIN;
        if falls(self.delay_ns.0, self.delay_ns.1) && !more_drops {
            let (from, to) = (time(self.delay_ns.0), time(self.delay_ns.1));
            helps.push(format!("a mean delay of {to} in place of {from}"));
        }
        helps
    }

    fn harms(&self) -> Vec<String> {
        let mut harms = Vec::new();
        if self.saving < -GROWTH_MAX {
            harms.push(format!(
                "{} more bytes on the link, which are the relays' headers",
                percent(-self.saving)
            ));
        }
        if drops_less(self.drops.1, self.drops.0) {
            let (from, to) = (percent(self.drops.0), percent(self.drops.1));
            harms.push(format!("{to} of the bytes dropped in place of {from}"));
        }
        // If fewer packets are dropped, those that live wait longer, and that is no harm.
        let excused = drops_less(self.drops.0, self.drops.1);
        if falls(self.delay_ns.1, self.delay_ns.0) && !excused {
            let (from, to) = (time(self.delay_ns.0), time(self.delay_ns.1));
            harms.push(format!("a mean delay of {to} in place of {from}"));
        }
        if self.cpu_share > CPU_SHARE_MAX {
            harms.push(format!("{} of a core for pressing", percent(self.cpu_share)));
        }
        harms
    }

    /// Lower is better. Drops first, in steps of a thousandth; then what is asked for.
    fn rank(&self, question: &Question) -> [i64; 4] {
        let step = |value: f64, step: f64| (value / step).round() as i64;
        let drops = step(self.drops.1, 0.001);
        let saving = -step(self.saving, 0.01);
        let delay = step(self.delay_ns.1 as f64, DELAY_NS_MIN / 2.0);
        let cpu = step(self.cpu_share, 0.001);
        match question.cost_per_mb {
            Some(_) => [drops, saving, delay, cpu],
            None => [drops, delay, saving, cpu],
        }
    }
}

/// Whether going from one mean delay to the other is a fall that matters.
fn falls(from_ns: u64, to_ns: u64) -> bool {
    let fall_ns = from_ns as f64 - to_ns as f64;
    fall_ns >= DELAY_NS_MIN && fall_ns >= DELAY_SHARE_MIN * from_ns as f64
}

/// Whether going from one share of drops to the other is a fall that matters.
fn drops_less(from: f64, to: f64) -> bool {
    from - to >= DROPS_MIN && from - to >= DROPS_CHANGE_MIN * from
}

const MONTH_NS: f64 = 30.0 * 86_400.0 * 1e9;

/// Judges a replay.
pub fn judge(report: &ReplayReport, question: &Question) -> Verdict {
    let can_be_had = |lane: &&LaneReport| {
        !lane.is_without() && (question.schemes.is_empty() || question.schemes.contains(&lane.name))
    };
    let changes = |lanes: &mut dyn Iterator<Item = &LaneReport>| {
        lanes
            .filter_map(|lane| Change::of(report, lane, question))
            .min_by_key(|change| (!change.harms().is_empty(), change.rank(question)))
    };
    let best = changes(&mut report.lanes.iter().filter(can_be_had));
    if is_timeless(report) {
        let sentence = "All packets have the same time: nothing can be said of a link.".to_owned();
        let sentences = std::iter::once(sentence).chain(composition_sentence(&report.composition));
        return Verdict { answer: Answer::Unknown, best: None, sentences: sentences.collect() };
    }
    let mut sentences = Vec::new();
    let answer = match &best {
        None => Answer::Unknown,
        Some(best) => {
            let (helps, harms) = (best.helps(), best.harms());
            sentences.extend(what_changes(best, &helps, &harms));
            answer_of(report, &helps, &harms)
        }
    };
    sentences.extend(composition_sentence(&report.composition));
    sentences.extend(load_sentence(report));
    sentences.extend(credible_sentence(report));
    if answer == Answer::Unknown || missing_share(report) > MISSING_SHARE_MAX {
        sentences.extend(missing_sentence(report));
    }
    sentences.extend(best.as_ref().and_then(money_sentence));
    let all = changes(&mut report.lanes.iter().filter(|lane| !lane.is_without()));
    sentences.extend(other_sentence(best.as_ref(), all.as_ref(), question));
    sentences.extend(glimpse_sentence(report));
    Verdict { answer, best, sentences }
}

/// Some captures don't tell when packets came: in a moment without length any load, and any cost,
/// is without bounds.
fn is_timeless(report: &ReplayReport) -> bool {
    report.input.selected.packets > 0 && report.span_ns == 0
}

fn answer_of(report: &ReplayReport, helps: &[String], harms: &[String]) -> Answer {
    let missing = missing_share(report) > MISSING_SHARE_MAX;
    match (helps.is_empty(), harms.is_empty()) {
        (false, true) => Answer::Yes,
        (false, false) => Answer::Depends,
        (true, _) if missing => Answer::Unknown,
        (true, _) => Answer::No,
    }
}

fn what_changes(best: &Change, helps: &[String], harms: &[String]) -> Option<String> {
    let scheme = &best.scheme;
    let cpu = format!("Pressing takes {} of one core.", percent(best.cpu_share));
    Some(match (helps.is_empty(), harms.is_empty()) {
        (false, true) => format!("Scheme `{scheme}`: {}. {cpu}", list(helps)),
        (false, false) => {
            format!("Scheme `{scheme}`: {}, but {}. {cpu}", list(helps), list(harms))
        }
        (true, false) => format!("The best of the schemes, `{scheme}`, brings {}.", list(harms)),
        (true, true) => format!(
            "The best of the schemes, `{scheme}`, changes next to nothing: {} of the bytes on \
             the link, {} of them dropped in place of {}, a mean delay of {} in place of \
             {}.",
            signed(-best.saving),
            percent(best.drops.1),
            percent(best.drops.0),
            time(best.delay_ns.1),
            time(best.delay_ns.0)
        ),
    })
}

/// What the traffic is made of; for a capture that was not replayed, too.
pub fn composition_sentence(composition: &Composition) -> Option<String> {
    if composition.total().bytes == 0 {
        return None;
    }
    let closed = composition.closed_share();
    let mut parts: Vec<(f64, Nature)> = Nature::ALL
        .into_iter()
        .filter(|nature| nature.is_closed())
        .map(|nature| (composition.share_of(nature), nature))
        .filter(|(share, _)| *share >= 0.01)
        .collect();
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let named: Vec<String> = parts
        .iter()
        .map(|(share, nature)| format!("{} {}", percent(*share), nature.words()))
        .collect();
    Some(match parts.len() {
        0 => format!("No codec is locked out: {} of the bytes are closed.", percent(closed)),
        1 => format!("{} of the bytes are {}.", percent(closed), parts[0].1.words()),
        _ if closed >= CLOSED_SHARE_MIN => {
            format!("{} of the bytes are closed to any codec: {}.", percent(closed), list(&named))
        }
        _ => {
            format!("{} of the bytes are closed to any codec ({}).", percent(closed), list(&named))
        }
    })
}

fn load_sentence(report: &ReplayReport) -> Option<String> {
    let load = report.load();
    let rate = human::rate(report.rate_bps);
    let drops = report.without().map_or(0.0, LaneReport::drop_share_bytes);
    (report.span_ns > 0).then(|| match load {
        ..1.0 if drops >= DROPS_MIN => format!(
            "The traffic comes in bursts: it takes {} of the link's {rate} on average, and without \
             dwell {} of the bytes are dropped.",
            percent(load),
            percent(drops)
        ),
        1.0.. => format!("The traffic would take {} of the link's {rate}.", percent(load)),
        0.3.. => format!("The traffic takes {} of the link's {rate}.", percent(load)),
        _ => format!(
            "The link is idle for most of the time ({} of {rate} used), so that little waits.",
            percent(load)
        ),
    })
}

/// A link on which so much is lost is not the one that was captured.
fn credible_sentence(report: &ReplayReport) -> Option<String> {
    let drops = report.without().map_or(0.0, LaneReport::drop_share_bytes);
    (drops >= DROPS_CREDIBLE_MAX).then(|| {
        format!(
            "Without dwell {} of the bytes would be dropped, and most sources would slow down at \
             that, which a replay can't show: these packets were captured on a faster link.",
            percent(drops)
        )
    })
}

fn missing_share(report: &ReplayReport) -> f64 {
    let bytes = report.input.selected.bytes;
    if bytes == 0 { 0.0 } else { report.input.missing.bytes as f64 / bytes as f64 }
}

fn missing_sentence(report: &ReplayReport) -> Option<String> {
    if report.input.selected.packets == 0 {
        return Some("No packet of the capture goes over the link.".to_owned());
    }
    let missing = missing_share(report);
    (missing > 0.0).then(|| {
        format!(
            "The capture lacks {} of the bytes (its packets were cut off), and these counted as \
             incompressible: capture whole packets (`tcpdump -s 0`) to know more.",
            percent(missing)
        )
    })
}

fn money_sentence(best: &Change) -> Option<String> {
    let (without, with) = best.cost_month?;
    Some(format!(
        "A month of it costs {} in place of {}, for the same packets.",
        money(with),
        money(without)
    ))
}

fn other_sentence(
    best: Option<&Change>,
    all: Option<&Change>,
    question: &Question,
) -> Option<String> {
    let (best, all) = (best?, all?);
    (all.rank(question) < best.rank(question) && all.harms().is_empty()).then(|| {
        format!(
            "Scheme `{}` would do better ({} of the bytes on the link, {} dropped, a mean delay \
             of {}), but relays don't run it yet.",
            all.scheme,
            signed(-all.saving),
            percent(all.drops.1),
            time(all.delay_ns.1)
        )
    })
}

fn glimpse_sentence(report: &ReplayReport) -> Option<String> {
    let packets = report.input.selected.packets;
    (packets > 0 && (report.span_ns < SPAN_NS_MIN || packets < PACKETS_MIN)).then(|| {
        format!(
            "This is a glimpse ({} packets in {}): capture for longer, at the busiest time, \
             before you decide.",
            human::count(packets),
            human::duration(report.span_ns)
        )
    })
}

impl Verdict {
    /// The answer and its sentences, as paragraphs.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}\n", self.answer.words());
        for sentence in &self.sentences {
            text.push_str("  ");
            text.push_str(sentence);
            text.push('\n');
        }
        text
    }

    /// What the best scheme changes, as a table.
    pub fn to_table(&self) -> Option<Table> {
        let best = self.best.as_ref()?;
        let mut table = Table::new([
            Column::left(""),
            Column::right("without dwell"),
            Column::right(&best.scheme),
        ]);
        let bytes = 1.0 - best.saving;
        table.row(["bytes on the link".into(), "100 %".into(), percent(bytes)]);
        table.row(["bytes dropped".into(), percent(best.drops.0), percent(best.drops.1)]);
        table.row(["delay, mean".into(), time(best.delay_ns.0), time(best.delay_ns.1)]);
        let p99 = best.delay_p99_ns;
        table.row(["delay, 99th percentile".into(), time(p99.0), time(p99.1)]);
        table.row(["of one core".into(), "0 %".into(), percent(best.cpu_share)]);
        if let Some((without, with)) = best.cost_month {
            table.row(["cost of 30 days".into(), money(without), money(with)]);
        }
        Some(table)
    }
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        0.0 => "0 %".to_owned(),
        0.0..0.1 => "<0.1 %".to_owned(),
        99.95..100.05 => "100 %".to_owned(),
        _ => format!("{percent:.1} %"),
    }
}

fn signed(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

fn money(amount: f64) -> String {
    format!("{amount:.2}")
}

fn time(ns: u64) -> String {
    human::duration(ns)
}

/// `a, b and c`
fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::{Rate, Rng};

    use super::*;
    use crate::replay::input::Input;
    use crate::replay::link::Link;
    use crate::replay::press::{Cost, GivenCost};
    use crate::replay::samples::tcp_v4;
    use crate::replay::{Replay, Settings};

    /// `bps` of packets of `bytes` for 12 seconds over a link of 2 Mbit/s.
    fn replay(bps: u64, bytes: usize, port: u16, captured: usize, noise: bool) -> ReplayReport {
        let mut rng = Rng::from_seed(1);
        let text = "it was the best of times, it was the worst of times, ".repeat(40);
        let settings = Settings::new(Link::ethernet(Rate::from_mbps(2)));
        let cost = || Cost::Given(GivenCost { unit_ns: 3000, byte_ps: 3000 });
        let mut replay = Replay::new(settings, cost).unwrap();
        let mean_ns = bytes as f64 * 8e9 / bps as f64;
        let mut at_ns = 0;
        while at_ns < 12_000_000_000 {
            at_ns += rng.exponential(mean_ns) as u64;
            let payload = bytes - 40;
            let mut body = text.as_bytes()[..payload].to_vec();
            if noise {
                rng.fill(&mut body);
            } else {
                let word = rng.next_u64().to_le_bytes();
                body[..8].copy_from_slice(&word);
            }
            let packet = tcp_v4(port, 5000 + rng.below(4) as u16, 1, &body);
            let packet = &packet[..packet.len().min(captured)];
            replay.packet(Input { at_ns: Some(at_ns), packet, wire_len: Some(bytes as u32) });
        }
        replay.finish("test")
    }

    fn asked(report: &ReplayReport) -> Verdict {
        judge(report, &Question { cost_per_mb: Some(0.1), ..Question::default() })
    }

    #[test]
    fn text_over_a_link_that_is_too_slow_is_a_yes() {
        let verdict = asked(&replay(2_600_000, 1200, 80, 9999, false));
        assert_eq!(verdict.answer, Answer::Yes, "{}", verdict.to_text());
        let best = verdict.best.as_ref().unwrap();
        assert!(best.saving > 0.5 && best.drops.0 > 0.1 && best.drops.1 < 0.01, "{best:?}");
        let (without, with) = best.cost_month.unwrap();
        assert!(with < without / 2.0 && without > 1000.0, "{without} {with}");
        assert!(verdict.to_text().contains("No codec is locked out"));
        assert!(verdict.to_table().unwrap().to_text().contains("cost of 30 days"));
    }

    #[test]
    fn tls_is_a_no_and_says_why() {
        let verdict = asked(&replay(2_600_000, 1200, 443, 9999, true));
        assert_eq!(verdict.answer, Answer::No, "{}", verdict.to_text());
        assert!(verdict.to_text().contains("100 % of the bytes are TLS."), "{}", verdict.to_text());
    }

    #[test]
    fn what_is_compressed_already_is_a_no() {
        let verdict = asked(&replay(1_500_000, 1200, 80, 9999, true));
        assert_eq!(verdict.answer, Answer::No, "{}", verdict.to_text());
        assert!(verdict.to_text().contains("compressed or encrypted by something else"));
    }

    #[test]
    fn a_capture_of_headers_does_not_tell() {
        let verdict = asked(&replay(2_600_000, 1200, 80, 68, false));
        assert_eq!(verdict.answer, Answer::Unknown, "{}", verdict.to_text());
        assert!(verdict.to_text().contains("tcpdump -s 0"));
    }

    #[test]
    fn a_capture_without_times_does_not_tell() {
        let settings = Settings::new(Link::ethernet(Rate::from_mbps(2)));
        let cost = || Cost::Given(GivenCost { unit_ns: 3000, byte_ps: 3000 });
        for at_ns in [None, Some(1_700_000_000_000_000_000)] {
            let mut replay = Replay::new(settings.clone(), cost).unwrap();
            for n in 0..2000 {
                let packet = &tcp_v4(80, 5000, n, &[b'x'; 1000]);
                replay.packet(Input { at_ns, packet, wire_len: None });
            }
            let report = replay.finish("test");
            let (verdict, said) = (asked(&report), asked(&report).to_text());
            assert_eq!((verdict.answer, &verdict.best), (Answer::Unknown, &None), "{said}");
            assert!(said.contains("All packets have the same time"), "{said}");
            assert!(!said.contains("month") && !said.contains("would take"), "{said}");
            assert!(!crate::replay::view::summary(&report).contains("load"));
        }
    }

    #[test]
    fn packets_without_times_come_with_those_before() {
        let settings = Settings::new(Link::ethernet(Rate::from_mbps(2)));
        let cost = || Cost::Given(GivenCost { unit_ns: 3000, byte_ps: 3000 });
        let mut replay = Replay::new(settings, cost).unwrap();
        let packet = &tcp_v4(80, 5000, 1, &[b'x'; 1000]);
        let at = 1_700_000_000_000_000_000;
        for at_ns in [None, Some(at), None, Some(at + 5_000_000_000), None] {
            replay.packet(Input { at_ns, packet, wire_len: None });
        }
        let report = replay.finish("test");
        assert_eq!((report.span_ns, report.input.unordered), (5_000_000_000, 0));
    }

    #[test]
    fn nothing_is_no_answer() {
        let settings = Settings::new(Link::ethernet(Rate::from_mbps(2)));
        let cost = || Cost::Given(GivenCost { unit_ns: 0, byte_ps: 0 });
        let verdict = asked(&Replay::new(settings, cost).unwrap().finish("test"));
        assert_eq!((verdict.answer, verdict.best), (Answer::Unknown, None));
    }

    #[test]
    fn only_schemes_that_can_be_had_are_recommended() {
        let report = replay(2_600_000, 200, 80, 9999, false);
        let schemes = vec!["none".to_owned(), "packet".to_owned()];
        let verdict = judge(&report, &Question { cost_per_mb: None, schemes });
        assert!(["none", "packet"].contains(&verdict.best.unwrap().scheme.as_str()));
    }

    #[test]
    fn a_longer_delay_is_no_harm_if_fewer_are_dropped() {
        let change = Change {
            scheme: "x".into(),
            saving: 0.0,
            drops: (0.2, 0.0),
            delay_ns: (50_000_000, 80_000_000),
            delay_p99_ns: (0, 0),
            cpu_share: 0.0,
            cost_month: None,
        };
        assert!(change.harms().is_empty() && change.helps().len() == 1);
        let worse = Change { drops: (0.0, 0.0), ..change.clone() };
        assert_eq!(worse.harms().len(), 1);
        let better = Change { delay_ns: (80_000_000, 50_000_000), ..worse };
        assert_eq!((better.helps().len(), better.harms().len()), (1, 0));
        let emptier = Change { drops: (0.5, 0.51), ..better };
        assert_eq!((emptier.helps().len(), emptier.harms().len()), (0, 0));
    }
}
