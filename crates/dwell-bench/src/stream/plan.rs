//! The plan: fields, in each of which contenders take turns over the same link.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use dwell_base::Rate;
use dwell_codec::CodecSpec;
use dwell_stream::Strategy;

use super::super::file;
use super::super::link_rate::LinkRate;
use super::contender::Contender;
use super::content::Workload;
use super::pipes;
use super::record::{Place, Setting};
use super::transfer::Times;

/// A part of the whole measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Part {
    /// Everything raw, everything compressed, mixing with one codec and hull mixing: all rates, all
    /// workloads
    Mixing,
    /// Simple switching and mixing with two threads, on text at all rates
    Strategies,
    /// `zstd --adapt` and `ssh -C`, at three rates
    Others,
    /// Blocks of 4 to 64 KiB, at two rates
    Blocks,
    /// Buffers of 32 KiB to 1 MiB, at two rates
    Buffers,
    /// Another stream takes half of the link
    Competing,
    /// Units in segments over 6 Mbit/s and 50 ms each way
    Units,
}

/// The contenders that take turns with a workload over a link.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) rate: LinkRate,
    pub(super) workload: Source,
    pub(super) setting: Setting,
    /// Plain TCP first.
    pub(super) contenders: Vec<Contender>,
}

/// The source of the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Made(Workload),
    File(PathBuf),
}

impl Source {
    /// Returns its name in records.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Made(workload) => workload.name().to_owned(),
            Self::File(path) => file::name(path),
        }
    }
}

/// The shape of a plan: every rate with every source in every setting.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) rates: Vec<LinkRate>,
    pub(super) sources: Vec<Source>,
    pub(super) settings: Vec<Setting>,
    pub(super) strategies: Vec<Strategy>,
    pub(super) codecs: Vec<CodecSpec>,
    pub(super) others: bool,
}

/// In Mbit/s.
const FULL_MBIT: [u64; 7] = [5, 20, 50, 100, 200, 500, 1000];
const QUICK_MBIT: [u64; 2] = [20, 200];
/// Before a run is watched, besides the time that a buffer takes on the link.
const WARM_UP: Duration = Duration::from_millis(600);
/// Starting and stopping.
const AROUND: Duration = Duration::from_millis(250);
/// Of links of unknown rate it is known that they are fast.
const UNLIMITED_BPS: u64 = 10_000_000_000;

impl Part {
    pub(super) const ALL: [Self; 7] = [
        Self::Mixing,
        Self::Strategies,
        Self::Others,
        Self::Blocks,
        Self::Buffers,
        Self::Competing,
        Self::Units,
    ];

    /// Returns the fields of the part; if `quick`, one or two points of each axis.
    pub(super) fn shape(self, quick: bool) -> Shape {
        let text = vec![Source::Made(Workload::Text)];
        let all_rates = || full_rates(quick);
        let two_rates = if quick { rates(&[100]) } else { rates(&[50, 200]) };
        let usual = Setting::default();
        let codecs = usual_codecs();
        let shape = |rates, sources, settings, strategies: &[Strategy]| Shape {
            rates,
            sources,
            settings,
            strategies: strategies.to_vec(),
            codecs: codecs.clone(),
            others: false,
        };
        let mixing = [Strategy::All, Strategy::Mix, Strategy::Hull];
        match self {
            Self::Mixing => {
                let mut shape = shape(all_rates(), made(quick), vec![usual], &mixing);
                // The strongest that hull mixing has: on slow links it alone may be best.
                shape.codecs.extend("zstd:9".parse::<CodecSpec>().ok());
                shape
            }
            Self::Strategies => {
                let more = [Strategy::Switch, Strategy::MixInOrder, Strategy::MixOutOfOrder];
                let strategies = [Strategy::Raw].into_iter().chain(mixing).chain(more);
                let strategies: Vec<_> = strategies.collect();
                let mut shape = shape(all_rates(), text, vec![usual], &strategies);
                // Only to compare with publications, and slow.
                let more =
                    ["lzo", "bzip2"].into_iter().filter_map(|name| name.parse::<CodecSpec>().ok());
                shape.codecs.extend(more);
                shape
            }
            Self::Others => Shape {
                others: true,
                ..shape(
                    if quick { rates(&[100]) } else { rates(&[20, 100, 500]) },
                    if quick { text } else { sources(&[Workload::Text, Workload::Sources]) },
                    vec![usual],
                    &[Strategy::Hull],
                )
            },
            Self::Blocks => {
                let lens: &[usize] = if quick { &[4, 32] } else { &[4, 8, 16, 32, 64] };
                let setting = |&len: &usize| Setting { block_bytes: len << 10, ..usual };
                shape(two_rates, text, lens.iter().map(setting).collect(), &mixing[1..])
            }
            Self::Buffers => {
                // Two blocks of 16 KiB fit into the least of them, as in the paper.
                let lens: &[usize] = if quick { &[32, 1024] } else { &[32, 64, 128, 256, 1024] };
                let setting = |&len: &usize| Setting {
                    block_bytes: 16 << 10,
                    buffer_bytes: len << 10,
                    ..usual
                };
                shape(two_rates, text, lens.iter().map(setting).collect(), &mixing[1..])
            }
            Self::Competing => {
                let rates = if quick { rates(&[100]) } else { rates(&[20, 50, 100, 200, 500]) };
                let setting = Setting { competing: true, ..usual };
                shape(rates, text, vec![setting], &mixing)
            }
            Self::Units => {
                let setting = Setting { delay_ns: 50_000_000, ..usual };
                let workloads = [Workload::Text, Workload::Hybrid, Workload::Film];
                let sources = if quick { text } else { sources(&workloads) };
                let strategies = [Strategy::TcpComp, Strategy::KernelLevel];
                let mut shape = shape(rates(&[6]), sources, vec![setting], &strategies);
                shape.codecs = vec![CodecSpec::with_default_level(dwell_codec::CodecId::Deflate)];
                shape
            }
        }
    }
}

/// All rates, and none.
pub(super) fn full_rates(quick: bool) -> Vec<LinkRate> {
    if quick {
        return rates(&QUICK_MBIT);
    }
    rates(&FULL_MBIT).into_iter().chain([LinkRate(None)]).collect()
}

fn rates(mbit: &[u64]) -> Vec<LinkRate> {
    mbit.iter().map(|&mbit| LinkRate(Some(Rate::from_mbps(mbit)))).collect()
}

fn sources(workloads: &[Workload]) -> Vec<Source> {
    workloads.iter().map(|&workload| Source::Made(workload)).collect()
}

/// Everything that can be made but what is not in the papers.
pub(super) fn made(quick: bool) -> Vec<Source> {
    let mut all = Workload::ALL.to_vec();
    all.retain(|&workload| workload != Workload::Telemetry && workload != Workload::Film);
    if quick {
        all = vec![Workload::Text, Workload::Xml, Workload::Random];
    }
    sources(&all)
}

/// Those of the paper that are here always, and one of today.
pub(super) fn usual_codecs() -> Vec<CodecSpec> {
    ["lz4", "zstd:1", "deflate:6"].iter().filter_map(|text| text.parse().ok()).collect()
}

impl Shape {
    /// Its fields, the slowest link first.
    ///
    /// # Errors
    /// Returns the fields of the shape, or an error for what can't be measured.
    pub(super) fn fields(&self) -> anyhow::Result<Vec<Field>> {
        let mut fields = Vec::new();
        for source in &self.sources {
            for &setting in &self.settings {
                for &rate in &self.rates {
                    ensure!(
                        !setting.competing || rate.bps().is_some(),
                        "half of an unlimited link is not known: name rates with --competing"
                    );
                    let contenders = self.contenders(setting)?;
                    fields.push(Field { rate, workload: source.clone(), setting, contenders });
                }
            }
        }
        Ok(fields)
    }

    /// Every strategy, with every codec if it has one; plain TCP first.
    fn contenders(&self, setting: Setting) -> anyhow::Result<Vec<Contender>> {
        let in_segments = self.strategies.iter().any(|strategy| strategy.is_segmented());
        let mut all = vec![match in_segments {
            true => Contender::plain_in_segments(setting),
            false => Contender::Tcp(setting),
        }];
        for &strategy in self.strategies.iter().filter(|&&it| it != Strategy::Plain) {
            let has_codec = !matches!(strategy, Strategy::Hull | Strategy::Raw);
            let codecs =
                if has_codec { self.codecs.iter().map(Some).collect() } else { vec![None] };
            for codec in codecs {
                let mut config = setting.config(strategy);
                config.codec = *codec.unwrap_or(&config.codec);
                config.check()?;
                all.push(Contender::Stream(Box::new(config)));
            }
        }
        if self.others {
            all.extend(pipes::installed().into_iter().map(Contender::Pipe));
        }
        Ok(all)
    }
}

/// All of these, with the contenders of those that are the same together, so that they take turns.
pub(super) fn merge(fields: impl IntoIterator<Item = Field>) -> Vec<Field> {
    let mut merged: Vec<Field> = Vec::new();
    for field in fields {
        let same = |known: &&mut Field| {
            (known.rate, &known.workload, known.setting)
                == (field.rate, &field.workload, field.setting)
        };
        let Some(known) = merged.iter_mut().find(same) else {
            merged.push(field);
            continue;
        };
        for contender in field.contenders {
            if !known.contenders.contains(&contender) {
                known.contenders.push(contender);
            }
        }
    }
    merged
}

impl Field {
    /// Returns what is noted of it in records.
    pub(super) fn place(&self) -> Place {
        Place { setting: self.setting, rate: self.rate, workload: self.workload.name() }
    }

    /// Returns the times of a run that is to be measured for `seconds`.
    pub(super) fn times(&self, seconds: f64) -> Times {
        let bps = self.rate.bps().unwrap_or(UNLIMITED_BPS).max(1);
        let buffer = Duration::from_secs_f64(self.setting.buffer_bytes as f64 * 8.0 / bps as f64);
        // TCP needs a few round trips.
        let round_trips = Duration::from_nanos(self.setting.delay_ns) * 20;
        let warm_up = WARM_UP + buffer + round_trips;
        // With a delay, a second is but a few windows of TCP.
        let watched = Duration::from_secs_f64(seconds) + round_trips;
        Times { warm_up, watched }
    }

    /// Returns the time that a run takes in all.
    pub(super) fn run_time(&self, seconds: f64) -> Duration {
        let Times { warm_up, watched } = self.times(seconds);
        warm_up + watched + AROUND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(parts: &[Part], quick: bool) -> Vec<Field> {
        merge(parts.iter().flat_map(|part| part.shape(quick).fields().unwrap()))
    }

    /// Each field has the contenders that a comparison needs.
    #[test]
    fn every_field_has_what_others_are_compared_with() {
        for quick in [true, false] {
            for field in fields(&Part::ALL, quick) {
                assert_eq!(field.contenders[0].to_string(), "plain");
                let mut names: Vec<_> = field.contenders.iter().map(ToString::to_string).collect();
                names.sort();
                names.dedup();
                assert_eq!(names.len(), field.contenders.len());
                let has = |name: &str| names.iter().any(|n| n.starts_with(name));
                let has_others = has("mix") || has("tcpcomp") || has("zstd --adapt");
                assert!(has_others || pipes::installed().is_empty(), "{names:?}");
                assert_eq!(has("tcpcomp"), has("kernel-level"), "{names:?}");
            }
        }
    }

    #[test]
    fn the_whole_has_every_rate_and_workload_and_takes_its_time() {
        let all = fields(&Part::ALL, false);
        let usual = Setting::default();
        let with_hull = all.iter().filter(|field| {
            field.setting == usual && field.contenders.iter().any(|it| it.to_string() == "hull")
        });
        assert_eq!(with_hull.count(), 8 * 7);
        let time = |all: &[Field], seconds| {
            all.iter()
                .map(|field| field.run_time(seconds) * field.contenders.len() as u32)
                .sum::<Duration>()
        };
        let hours = time(&all, 1.0).as_secs_f64() * 3.0 / 3600.0;
        assert!((0.8..2.0).contains(&hours), "{hours}");
        let quick = time(&fields(&Part::ALL, true), 0.5).as_secs();
        assert!(quick < 300, "{quick}");
    }

    /// docs/streams.md says how many runs each part adds to those before it.
    #[test]
    fn the_documentation_counts_right() {
        if ["lzo", "bzip2"].into_iter().any(|name| name.parse::<CodecSpec>().is_ok()) {
            return;
        }
        let runs = |parts: &[Part]| {
            fields(parts, false).iter().map(|field| field.contenders.len()).sum::<usize>()
        };
        let parts = 1..=Part::ALL.len();
        let added = parts.map(|count| runs(&Part::ALL[..count]) - runs(&Part::ALL[..count - 1]));
        let others = 6 * pipes::installed().len();
        assert_eq!(added.collect::<Vec<_>>(), [560, 80, others, 40, 40, 40, 9]);
    }

    #[test]
    fn the_same_field_of_two_parts_is_one() {
        let two = [Part::Mixing, Part::Strategies];
        let sum: usize = two.iter().map(|part| part.shape(true).fields().unwrap().len()).sum();
        let merged = fields(&two, true);
        assert!(merged.len() < sum);
        let text = merged.iter().find(|field| field.workload.name() == "text").unwrap();
        let plain = text.contenders.iter().filter(|it| it.to_string() == "plain").count();
        assert_eq!(plain, 1);
    }
}
