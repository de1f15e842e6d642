//! The verdict of an analysis before a link is known: the most bytes that could be saved.

use serde::Serialize;

use super::thresholds::{MISSING_SHARE_MAX, SAVING_MIN, SESSION_SHARE_MIN};
use super::{Answer, composition_sentence, percent};
use crate::analysis::{Analysis, DirectionSums};

/// The verdict of an analysis. It knows no link, so that it is about the data: never "yes".
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrafficVerdict {
    /// "No" if no link would gain, "depends" if the link decides.
    pub answer: Answer,
    /// The answer in a sentence.
    pub headline: String,
    /// The direction of the verdict: the busier one.
    pub direction: String,
    /// The largest share of that direction's bytes on an Ethernet that could be saved if packets
    /// wait, 0 to 1. No scheme of a replay saves more.
    pub saving_max: Option<f64>,
    /// The share of that direction's bytes that are encrypted or compressed already, 0 to 1.
    pub closed_share: Option<f64>,
    /// Further sentences.
    pub sentences: Vec<String>,
}

/// Judges an analysis.
pub fn judge_traffic(analysis: &Analysis) -> TrafficVerdict {
    let directions = &analysis.directions;
    let busier = directions.busier();
    let (sums, other) = (&directions.sums[busier], &directions.sums[1 - busier]);
    let saving_max = sums.saving_max();
    let missing = missing_share(analysis);
    let sessions = sums.composition.session_share();
    let (answer, headline) = match saving_max {
        None if analysis.settings.is_without_bound => {
            (Answer::Unknown, "The most that could be saved was not asked for.".to_owned())
        }
        None => (
            Answer::Unknown,
            "Nothing was compressed, so that nothing is known of what could be saved.".to_owned(),
        ),
        Some(_) if sessions >= SESSION_SHARE_MIN => (
            Answer::No,
            format!(
                "No: {} of what the packets carry is of sessions that encrypt.",
                percent(sessions)
            ),
        ),
        Some(_) if missing > MISSING_SHARE_MAX => (
            Answer::Unknown,
            "The capture does not tell how many of its bytes could go.".to_owned(),
        ),
        Some(most) if most < SAVING_MIN => (
            Answer::No,
            format!("No: at most {} of the bytes could go, on whatever link.", percent(most)),
        ),
        Some(most) => (
            Answer::Depends,
            format!(
                "It depends on the link: at most {} of the bytes could go, if packets wait.",
                percent(most)
            ),
        ),
    };
    let mut sentences = Vec::new();
    let is_known = answer != Answer::Unknown;
    if let (Some(most), true) = (saving_max, answer != Answer::Depends) {
        let lacking = if missing > 0.0 { ", what the capture lacks as incompressible" } else { "" };
        sentences.push(format!(
            "At most {} of the bytes could go, if packets wait{lacking}.",
            percent(most)
        ));
    }
    sentences.extend(direction_sentence(analysis, busier, other));
    sentences.extend(composition_sentence(&sums.composition));
    if missing > MISSING_SHARE_MAX {
        sentences.push(format!(
            "{} of the bytes are of packets that were cut off in the capture: capture whole \
             packets (`tcpdump -s 0`) to know more.",
            percent(missing)
        ));
    }
    sentences.extend(times_sentence(analysis));
    if is_known && answer != Answer::No {
        sentences.push(
            "How much of it goes, and what that does to delays and drops, depends on the link: \
             `dwell trace replay FILE --rate RATE` shows."
                .to_owned(),
        );
    }
    let closed_share =
        (sums.composition.total().bytes > 0).then(|| sums.composition.closed_share());
    let direction = directions.name(busier);
    TrafficVerdict { answer, headline, direction, saving_max, closed_share, sentences }
}

impl TrafficVerdict {
    /// Returns the headline and all sentences.
    pub fn paragraphs(&self) -> impl Iterator<Item = &str> {
        [self.headline.as_str()].into_iter().chain(self.sentences.iter().map(String::as_str))
    }
}

fn direction_sentence(analysis: &Analysis, busier: usize, other: &DirectionSums) -> Option<String> {
    let directions = &analysis.directions;
    let rule = directions.rule?;
    let agreed = percent(directions.agreed);
    let own = directions.sums[busier].bytes;
    let all = (own + other.bytes + directions.neither.bytes).max(1) as f64;
    let share = percent(own as f64 / all);
    let how = format!("by {}, which explain {agreed} of the bytes", rule.words());
    let back = match other.saving_max() {
        Some(most) if other.packets > 0 => {
            format!("; in the other direction at most {} could go", percent(most))
        }
        _ => String::new(),
    };
    (other.packets + directions.neither.packets > 0).then(|| {
        format!(
            "That is {}, the busier direction with {share} of the bytes ({how}){back}.",
            directions.name(busier)
        )
    })
}

/// Returns a warning if time stamps go back, since statements about times don't hold then.
fn times_sentence(analysis: &Analysis) -> Option<String> {
    let timing = &analysis.timing;
    (timing.backward > 0).then(|| {
        format!(
            "Time stamps go back {}: what is said of bursts and waiting times does not hold. \
             `reordercap IN OUT` puts packets in order, `mergecap` merges captures by time.",
            dwell_report::human::counted(timing.backward, "time")
        )
    })
}

/// Returns the share of the bytes that no codec saw, since their packets were cut off. It is by
/// bytes, as long packets are cut, and short ones are whole whatever the capture's limit was.
fn missing_share(analysis: &Analysis) -> f64 {
    let ip = analysis.ip();
    if ip.bytes == 0 || analysis.settings.codecs.is_empty() {
        return 0.0;
    }
    let lacking: u64 = analysis.files.iter().map(|file| file.missing_bytes).sum();
    lacking as f64 / ip.bytes as f64
}

#[cfg(test)]
mod tests {
    use dwell_base::Rng;

    use super::*;
    use crate::replay::samples::{pcap, tcp_v4};
    use crate::{Accounts, Analyzer, Batch, Capture, Clock, Settings};

    struct Stopped;

    impl Clock for Stopped {
        fn now_ns(&mut self) -> u64 {
            0
        }
    }

    fn judged(port: u16, bytes: usize, captured: usize, is_noise: bool) -> TrafficVerdict {
        let spec = "zstd:1".parse().unwrap();
        let settings =
            Settings { codecs: vec![spec], block_codec: Some(spec), ..Settings::default() };
        judged_with(&settings, port, bytes, captured, is_noise)
    }

    /// Packets of `bytes`, of which the first `captured` were captured, each with an
    /// acknowledgement.
    fn judged_with(
        settings: &Settings,
        port: u16,
        bytes: usize,
        captured: usize,
        is_noise: bool,
    ) -> TrafficVerdict {
        let mut rng = Rng::from_seed(3);
        let packets: Vec<_> = (0..2000)
            .flat_map(|n| {
                let mut body = b"nobody expects the Spanish inquisition; ".repeat(40);
                body.truncate(bytes);
                if is_noise {
                    rng.fill(&mut body);
                }
                let packet = tcp_v4(port, 5000, n as u32, &body);
                let answer = tcp_v4(5000, port, n as u32, &[]);
                [(n, packet[..captured.min(packet.len())].to_vec()), (n, answer)]
            })
            .collect();
        let file = pcap(&packets);
        let mut capture = Capture::open(&file[..]).unwrap();
        let mut accounts = Accounts::new(settings);
        accounts.begin("test", capture.format());
        let mut compress = Analyzer::new(settings, Stopped).unwrap();
        let mut batch = Batch::default();
        while accounts.fill(&mut capture, &mut batch) {
            compress.batch(&batch).unwrap();
        }
        compress.batch(&batch).unwrap();
        accounts.end_with(None);
        let mut analysis = accounts.finish();
        analysis.merge(compress.finish()).unwrap();
        judge_traffic(&analysis)
    }

    fn said(verdict: &TrafficVerdict) -> String {
        verdict.paragraphs().collect::<Vec<_>>().join("\n")
    }

    /// An analysis knows no link, so that it never says yes.
    #[test]
    fn text_depends_on_the_link_and_ciphers_are_a_no() {
        let text = judged(80, 1000, 9999, false);
        assert_eq!(text.answer, Answer::Depends, "{}", said(&text));
        assert!(text.saving_max.unwrap() > 0.8, "{}", said(&text));
        assert!(text.headline.contains("could go, if packets wait"), "{}", said(&text));
        assert!(said(&text).contains("dwell trace replay"), "{}", said(&text));
        let cipher = judged(443, 1000, 9999, true);
        assert_eq!(cipher.answer, Answer::No, "{}", said(&cipher));
        assert!(cipher.closed_share.unwrap() > 0.95, "{}", said(&cipher));
    }

    #[test]
    fn headers_with_whole_acknowledgements_give_no_answer() {
        let verdict = judged(80, 1000, 96, false);
        assert_eq!(verdict.answer, Answer::Unknown, "{}", said(&verdict));
        assert!(said(&verdict).contains("tcpdump -s 0"), "{}", said(&verdict));
    }

    /// The bound is that of whole packets, whatever the tables are about.
    #[test]
    fn payloads_alone_have_the_same_bound() {
        let spec = "zstd:1".parse().unwrap();
        let settings =
            Settings { codecs: vec![spec], over: crate::Over::Payload, ..Settings::default() };
        let verdict = judged_with(&settings, 80, 1000, 9999, false);
        assert_eq!(verdict.saving_max, judged(80, 1000, 9999, false).saving_max);
    }

    #[test]
    fn nothing_compressed_is_no_answer() {
        let verdict = judged_with(&Settings::default(), 80, 1000, 9999, false);
        assert_eq!((verdict.answer, verdict.saving_max), (Answer::Unknown, None));
    }
}
