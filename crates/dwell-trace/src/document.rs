//! Documents for other programs: what `--json` prints, and Python returns.

use dwell_codec::CodecSpec;
use serde::Serialize;

use crate::analysis::Analysis;
use crate::replay::report::ReplayReport;
use crate::summary::Summary;
use crate::train::{ClassTraining, ContextTraining, Trained};
use crate::verdict::{Question, TrafficVerdict, Verdict, judge, judge_traffic};

/// An analysis: the sums, and the figures that follow from them.
#[derive(Serialize)]
pub struct OfAnalysis<'a> {
    /// On the traffic.
    pub verdict: TrafficVerdict,
    /// The figures.
    pub summary: &'a Summary,
    /// The sums.
    #[serde(flatten)]
    pub analysis: &'a Analysis,
}

impl<'a> OfAnalysis<'a> {
    /// Judges an analysis, of which this is the summary.
    pub fn new(analysis: &'a Analysis, summary: &'a Summary) -> Self {
        Self { verdict: judge_traffic(analysis), summary, analysis }
    }
}

/// A replay.
#[derive(Serialize)]
pub struct OfReplay<'a> {
    /// What each scheme made of the packets.
    #[serde(flatten)]
    pub report: &'a ReplayReport,
    /// The number of frames that were read.
    pub frames: u64,
    /// Of these, the number without an IP packet.
    pub not_ip_frames: u64,
    /// True if it ended before the captures did.
    pub is_interrupted: bool,
    /// On the direction that all the rest is about: the busier one.
    pub verdict: Verdict,
    /// On the other direction.
    pub other_verdict: Option<Verdict>,
}

impl<'a> OfReplay<'a> {
    /// Judges a replay. `frames`: the number of frames, and of those without an IP packet.
    pub fn new(report: &'a ReplayReport, question: &Question, frames: (u64, u64)) -> Self {
        let other = report.other_direction.as_deref();
        Self {
            report,
            frames: frames.0,
            not_ip_frames: frames.1,
            is_interrupted: false,
            verdict: judge(report, question),
            other_verdict: other.map(|other| judge(other, question)),
        }
    }
}

/// A training of dictionaries.
#[derive(Serialize)]
pub struct OfTraining<'a> {
    /// The codec that they are for.
    pub codec: CodecSpec,
    /// The number of packets that were read.
    pub packets: u64,
    /// Of these, the number with no suitable size.
    pub left_out: u64,
    /// What was gained, by class.
    pub classes: &'a [ClassTraining],
    /// What contexts gain, if any was trained for them.
    pub contexts: Option<&'a ContextTraining>,
    /// The names of the files that were written, by who writes some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<&'a [String]>,
}

impl<'a> OfTraining<'a> {
    /// Shows what was trained for a codec, and the files that were written.
    pub fn new(codec: CodecSpec, trained: &'a Trained, files: Option<&'a [String]>) -> Self {
        Self {
            codec,
            packets: trained.packets,
            left_out: trained.left_out,
            classes: &trained.classes,
            contexts: trained.contexts.as_ref(),
            files,
        }
    }
}
