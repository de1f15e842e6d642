//! Would dwell help on this link? An answer in sentences, from a replay.
//!
//! The answer has three parts, since the same scheme can be worth its money on one link and nothing
//! on another: where bytes cost ([`Verdict::metered`]), where the link is full
//! ([`Verdict::congested`]), and where it is idle ([`Verdict::idle`]). The limits from which on
//! something matters are in [`thresholds`].

mod change;
#[cfg(test)]
mod tests;
pub mod thresholds;
mod traffic;

use dwell_policy::{PRESETS, Scheme};
use dwell_report::{Column, Table, human};
use serde::{Deserialize, Serialize};

use self::thresholds::{
    BACK_NS_MAX, CLOSED_SHARE_MIN, DROPS_CREDIBLE_MAX, DROPS_MIN, GROWTH_MAX, IDLE_LOAD_MAX,
    MISSING_SHARE_MAX, PACKETS_JUDGED_MIN, PACKETS_MIN, SAVING_MIN, SESSION_SHARE_MIN, SPAN_NS_MIN,
};
use crate::replay::WITH_DICTIONARIES;
use crate::replay::content::{Composition, ContentClass};
use crate::replay::report::{LaneReport, ReplayReport};
use crate::sides::Rule;

pub use change::Change;
pub use traffic::{TrafficVerdict, judge_traffic};

/// The question to a replay, beside its capture.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// The cost of a megabyte on the link, in any currency.
    pub cost_per_mb: Option<f64>,
    /// The schemes to consider; all of the report's if empty.
    pub schemes: Vec<String>,
}

impl Question {
    /// Asks about what relays can do: all schemes, with dictionaries those whose contexts begin from one.
    pub fn about_relays(cost_per_mb: Option<f64>) -> Self {
        let has_contexts = |name: &&str| Scheme::preset(name).is_ok_and(|it| it.has_contexts());
        let with = PRESETS.into_iter().filter(has_contexts);
        let with = with.map(|name| format!("{name}{WITH_DICTIONARIES}"));
        Self { cost_per_mb, schemes: PRESETS.map(str::to_owned).into_iter().chain(with).collect() }
    }
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It helps, and harms nothing.
    Yes,
    /// It helps in one way and harms in another, or only on some links.
    Depends,
    /// It does not help.
    No,
    /// The capture is not enough for an answer.
    Unknown,
}

/// One part of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The answer in a word.
    pub answer: PartAnswer,
    /// The scheme of the answer.
    pub scheme: Option<String>,
    /// The answer in a sentence.
    pub sentence: String,
}

/// The answer of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartAnswer {
    /// There is a gain.
    Yes,
    /// There is none.
    No,
    /// The link is not in this state at this rate.
    DoesNotApply,
    /// The capture is not enough for an answer.
    Unknown,
}

/// The verdict on one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The answer in a word.
    pub answer: Answer,
    /// The answer in a sentence.
    pub headline: String,
    /// The answer where bytes cost.
    pub metered: Part,
    /// The answer for a full link.
    pub congested: Part,
    /// The answer for an idle link.
    pub idle: Part,
    /// The best scheme, even if it does not help. `None` if there is none to judge.
    pub best: Option<Change>,
    /// Further sentences.
    pub sentences: Vec<String>,
}

/// The utilization of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The link drops packets.
    Congested,
    /// The link carries everything, and is in use.
    Busy,
    /// The link is hardly used.
    Idle,
}

/// A reason why nothing is judged.
struct Refusal {
    answer: Answer,
    headline: &'static str,
    sentences: Vec<String>,
}

/// Judges a replay: its own direction, not the other one.
pub fn judge(report: &ReplayReport, question: &Question) -> Verdict {
    let state = State::of(report);
    let is_full = state == State::Congested;
    let can_be_had = |lane: &&LaneReport| {
        !lane.is_without() && (question.schemes.is_empty() || question.schemes.contains(&lane.name))
    };
    let best_of = |lanes: &mut dyn Iterator<Item = &LaneReport>| {
        lanes
            .filter_map(|lane| Change::of(report, lane, question))
            .min_by_key(|change| (!change.harms().is_empty(), change.rank(is_full)))
    };
    let refusal = refusal(report);
    let is_refused = refusal.as_ref().is_some_and(|refusal| refusal.answer == Answer::Unknown);
    let best = best_of(&mut report.lanes.iter().filter(can_be_had)).filter(|_| !is_refused);
    let [metered, congested, idle] = match (&refusal, &best) {
        (None, Some(best)) => parts(report, best, state),
        (refusal, _) => refused(refusal.as_ref()),
    };
    let mut sentences = Vec::new();
    let (answer, headline) = match (refusal, &best) {
        (Some(refusal), _) => {
            sentences.extend(refusal.sentences);
            (refusal.answer, refusal.headline)
        }
        (None, None) => (Answer::Unknown, UNKNOWN),
        (None, Some(best)) => {
            let found = answer_of(report, best, state, question);
            if found.0 == Answer::Unknown {
                sentences.extend(few_sentence(report));
            }
            sentences.extend(changes_sentence(best));
            found
        }
    };
    if !is_refused {
        sentences.extend(load_sentence(report));
        sentences.extend(credible_sentence(report));
    }
    sentences.extend(composition_sentence(&report.composition));
    if answer == Answer::Unknown || missing_share(report) > MISSING_SHARE_MAX {
        sentences.extend(missing_sentence(report));
    }
    sentences.extend(best.as_ref().and_then(money_sentence));
    let all = best_of(&mut report.lanes.iter().filter(|lane| !lane.is_without()));
    sentences.extend(other_sentence(best.as_ref(), all.as_ref(), is_full));
    sentences.extend(guess_sentence(report));
    sentences.extend(glimpse_sentence(report).filter(|_| !is_refused));
    let headline = headline.to_owned();
    Verdict { answer, headline, metered, congested, idle, best, sentences }
}

const YES: &str = "Yes: dwell would help on this link.";
const NO: &str = "No: dwell would not help on this link.";
const UNKNOWN: &str = "The capture does not tell whether dwell would help on this link.";

impl State {
    fn of(report: &ReplayReport) -> Self {
        let drops = report.without().map_or(0.0, LaneReport::drop_share_bytes);
        match report.load() {
            _ if drops >= DROPS_MIN => Self::Congested,
            ..IDLE_LOAD_MAX => Self::Idle,
            _ => Self::Busy,
        }
    }
}

/// Returns the reason why a direction can't be judged by the results of its schemes.
fn refusal(report: &ReplayReport) -> Option<Refusal> {
    let input = &report.input;
    let unknown = |sentence: String| Refusal {
        answer: Answer::Unknown,
        headline: UNKNOWN,
        sentences: vec![sentence],
    };
    if input.back_ns_max > BACK_NS_MAX {
        return Some(unknown(format!(
            "Time stamps go back {}, by up to {}, so that nobody knows when packets came. If the \
             packets of one capture are out of order, put them in order first (`reordercap IN OUT`); \
             if captures were put one behind the other, merge them by time (`mergecap -w OUT IN...`) \
             or give them as files of their own.",
            human::counted(input.unordered, "time"),
            time(input.back_ns_max)
        )));
    }
    let sessions = report.composition.session_share();
    if input.selected.packets > 0 && sessions >= SESSION_SHARE_MIN {
        let sentence = format!(
            "{} of what the packets carry is of sessions that encrypt, and no codec makes anything \
             of it. Whatever a replay saves there are handshakes and bare headers.{}",
            percent(sessions),
            clear_part(&report.composition)
        );
        return Some(Refusal { answer: Answer::No, headline: NO, sentences: vec![sentence] });
    }
    if input.selected.packets > 0 && report.span_ns == 0 {
        let sentence = "All packets have the same time: nothing can be said of a link.";
        return Some(unknown(sentence.to_owned()));
    }
    None
}

/// What the part of sessions that is in the clear weighs here, if that is much: then a "no" needs to say it.
fn clear_part(composition: &Composition) -> String {
    let handshakes = composition.share_of(ContentClass::Handshake);
    if composition.closed_share() >= CLOSED_SHARE_MIN || handshakes < SAVING_MIN {
        return String::new();
    }
    format!(
        " Connections are so short here that handshakes are {} of the bytes; if they are as short at any \
         time, the table of schemes says what that brings.",
        percent(handshakes)
    )
}

/// Returns true if there are too few packets to judge by: neither a gain nor that there is none can be
/// seen in them.
fn is_few(report: &ReplayReport) -> bool {
    report.input.selected.packets < PACKETS_JUDGED_MIN
}

fn few_sentence(report: &ReplayReport) -> Option<String> {
    is_few(report).then(|| {
        let packets = report.input.selected.packets;
        let are = if packets == 1 { "is" } else { "are" };
        format!(
            "There {are} {} in this direction, and fewer than {PACKETS_JUDGED_MIN} are too few to judge by: \
             capture for minutes, at the busiest time.",
            human::counted(packets, "packet")
        )
    })
}

/// Returns the parts of an answer that is not about the results of schemes.
fn refused(refusal: Option<&Refusal>) -> [Part; 3] {
    let (answer, sentence) = match refusal.map(|refusal| refusal.answer) {
        Some(Answer::No) => {
            (PartAnswer::No, "what sessions that encrypt carry can't be compressed")
        }
        _ => (PartAnswer::Unknown, "not judged"),
    };
    [(); 3].map(|()| Part { answer, scheme: None, sentence: sentence.to_owned() })
}

fn parts(report: &ReplayReport, best: &Change, state: State) -> [Part; 3] {
    let scheme = Some(best.scheme.clone());
    let part = |answer, sentence| Part { answer, scheme: scheme.clone(), sentence };
    let yes_if = |is_so| if is_so { PartAnswer::Yes } else { PartAnswer::No };
    let is_missing = missing_share(report) > MISSING_SHARE_MAX;
    let unless_unseen = |answer| match answer {
        PartAnswer::No if is_missing => PartAnswer::Unknown,
        _ if is_few(report) => PartAnswer::Unknown,
        other => other,
    };
    let (from, to) = best.link_bytes;
    let bytes = format!("{} on the link in place of {}", human::bytes(to), human::bytes(from));
    let metered = match (best.saves(), state) {
        (true, State::Congested) if best.goodput >= 0.0 => {
            format!("{bytes}, while no less gets through")
        }
        (true, _) => format!("{bytes}, {} fewer", percent(best.saving)),
        (false, State::Congested) => {
            format!("{bytes}: what is gained carries more, and is paid for")
        }
        (false, _) if best.saving < -GROWTH_MAX => {
            format!("{bytes}, {} more", percent(-best.saving))
        }
        (false, _) => format!("{bytes}, which is next to the same"),
    };
    let metered = part(unless_unseen(yes_if(best.saves())), metered);
    let drops = format!(
        "{} of the bytes dropped in place of {}",
        percent(best.drops.1),
        percent(best.drops.0)
    );
    let congested = match state {
        State::Congested => part(
            unless_unseen(yes_if(best.relieves())),
            format!("{}, with {drops}", through(best.goodput)),
        ),
        _ => part(PartAnswer::DoesNotApply, "at this rate next to nothing is dropped".to_owned()),
    };
    let used = percent(report.load());
    let idle = match state {
        State::Idle => part(
            PartAnswer::No,
            format!(
                "{used} of the link is in use, so that next to nothing waits: the mean delay is {} \
                 in place of {}, which nobody notices",
                time(best.delay_ns.1),
                time(best.delay_ns.0)
            ),
        ),
        _ => part(PartAnswer::DoesNotApply, format!("{used} of the link is asked for")),
    };
    [metered, congested, idle]
}

fn answer_of(
    report: &ReplayReport,
    best: &Change,
    state: State,
    question: &Question,
) -> (Answer, &'static str) {
    let helps = best.saves() || (state == State::Congested && best.relieves());
    let is_missing = missing_share(report) > MISSING_SHARE_MAX;
    match (helps, best.harms().is_empty(), state) {
        _ if is_few(report) => (Answer::Unknown, UNKNOWN),
        (true, true, State::Idle) if question.cost_per_mb.is_none() => (
            Answer::Depends,
            "It depends: dwell would save bytes, and on this idle link nothing else.",
        ),
        (true, true, _) => (Answer::Yes, YES),
        (true, false, _) => {
            (Answer::Depends, "It depends: dwell would help in one way and harm in another.")
        }
        (false, ..) if is_missing => (Answer::Unknown, UNKNOWN),
        (false, ..) => (Answer::No, NO),
    }
}

fn changes_sentence(best: &Change) -> Option<String> {
    let (scheme, harms) = (&best.scheme, best.harms());
    let cpu = format!("Compressing takes {} of one core.", percent(best.cpu_share));
    Some(match harms.is_empty() {
        true => format!("The best of the schemes is `{scheme}`. {cpu}"),
        false => format!("The best of the schemes, `{scheme}`, brings {}. {cpu}", list(&harms)),
    })
}

/// Returns a sentence about the composition of the traffic, also for a capture that was not
/// replayed.
pub fn composition_sentence(composition: &Composition) -> Option<String> {
    if composition.total().bytes == 0 {
        return None;
    }
    let closed = composition.closed_share();
    let mut parts: Vec<(f64, ContentClass)> = ContentClass::ALL
        .into_iter()
        .filter(|content| content.is_closed())
        .map(|content| (composition.share_of(content), content))
        .filter(|(share, _)| *share >= 0.01)
        .collect();
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let named: Vec<String> = parts
        .iter()
        .map(|(share, content)| format!("{} {}", percent(*share), content.words()))
        .collect();
    Some(match parts.len() {
        0 => format!(
            "Next to nothing is encrypted or compressed already: {} of the bytes.",
            percent(closed)
        ),
        1 => format!(
            "{} of the bytes are encrypted or compressed already: {}.",
            percent(closed),
            parts[0].1.words()
        ),
        _ if closed >= CLOSED_SHARE_MIN => {
            format!(
                "{} of the bytes are encrypted or compressed already: {}.",
                percent(closed),
                list(&named)
            )
        }
        _ => {
            format!(
                "{} of the bytes are encrypted or compressed already ({}).",
                percent(closed),
                list(&named)
            )
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
        IDLE_LOAD_MAX.. => format!("The traffic takes {} of the link's {rate}.", percent(load)),
        _ => format!(
            "The link is idle for most of the time ({} of {rate} used), so that little waits.",
            percent(load)
        ),
    })
}

/// Returns a warning if so much is lost that the link can't be the one that was captured.
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
    let carried = match best.goodput {
        ..-0.005 => format!(" and carries {} less", percent(-best.goodput)),
        0.005.. => format!(" and carries {} more", percent(best.goodput)),
        _ => String::new(),
    };
    let costs =
        format!("A month of the link's bytes costs {} in place of {}", money(with), money(without));
    Some(format!("{costs}{carried}."))
}

/// Returns a sentence about a better scheme that relays don't have yet.
fn other_sentence(best: Option<&Change>, all: Option<&Change>, is_full: bool) -> Option<String> {
    let (best, all) = (best?, all?);
    (all.rank(is_full) < best.rank(is_full) && all.harms().is_empty()).then(|| {
        format!(
            "Scheme `{}` would do better ({} of the bytes saved, {} dropped, a mean delay of {}), but \
             relays can't do that yet, and it does not count.",
            all.scheme,
            percent(all.saving),
            percent(all.drops.1),
            time(all.delay_ns.1)
        )
    })
}

fn guess_sentence(report: &ReplayReport) -> Option<String> {
    (report.direction.rule == Rule::Ports).then(|| {
        "Which packets go in which direction is a guess: capture on the link itself, or say what is \
         on the near side of it (`--inside PREFIX`)."
            .to_owned()
    })
}

fn glimpse_sentence(report: &ReplayReport) -> Option<String> {
    let packets = report.input.selected.packets;
    (packets > 0 && (report.span_ns < SPAN_NS_MIN || packets < PACKETS_MIN)).then(|| {
        format!(
            "This is a glimpse ({} in {}): capture for longer, at the busiest time, \
             before you decide.",
            human::counted(packets, "packet"),
            human::duration(report.span_ns)
        )
    })
}

impl Part {
    fn line(&self, name: &str, of: &str) -> String {
        let answer = match self.answer {
            PartAnswer::Yes => "yes",
            PartAnswer::No => "no",
            PartAnswer::DoesNotApply => "does not apply",
            PartAnswer::Unknown => "unknown",
        };
        format!("  {name} ({of}): {answer}: {}.\n", self.sentence)
    }
}

impl Verdict {
    /// Returns the answer, its parts and its sentences, as paragraphs.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}\n", self.headline);
        if self.best.is_some() {
            text.push_str(&self.metered.line("Metered", "bytes cost"));
            text.push_str(&self.congested.line("Congested", "the link is full"));
            text.push_str(&self.idle.line("Idle", "the link has nothing to do"));
        }
        for sentence in &self.sentences {
            text.push_str("  ");
            text.push_str(sentence);
            text.push('\n');
        }
        text
    }

    /// Returns the changes by the best scheme, as a table.
    pub fn to_table(&self) -> Option<Table> {
        let best = self.best.as_ref()?;
        let mut table = Table::new([
            Column::left(""),
            Column::right("without dwell"),
            Column::right(&best.scheme),
        ]);
        let bytes = best.link_bytes;
        table.row(["bytes on the link".into(), human::bytes(bytes.0), human::bytes(bytes.1)]);
        table.row(["bytes dropped".into(), percent(best.drops.0), percent(best.drops.1)]);
        let through = "gets through, of that without dwell";
        table.row([through.into(), "100 %".into(), percent(1.0 + best.goodput)]);
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

/// `31 % more of the user's bytes get through than without dwell`
fn through(share: f64) -> String {
    let (much, than) = match share {
        ..-0.0005 => (format!("{} less", percent(-share)), "than"),
        0.0005.. => (format!("{} more", percent(share)), "than"),
        _ => ("as much".to_owned(), "as"),
    };
    format!("{much} of the user's bytes get through {than} without dwell")
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
