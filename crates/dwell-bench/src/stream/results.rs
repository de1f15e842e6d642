//! The results of the runs of one field.

use dwell_base::share;
use dwell_stream::{Bound, CodecPoint};

use super::super::link_rate::LinkRate;
use super::super::statistics::{Summary, median};
use super::record::{Measured, Place, Setting, StreamAccounts, StreamRun};

/// The runs of a workload at a rate in a setting.
#[derive(Debug)]
pub(super) struct Results<'a> {
    pub(super) workload: &'a str,
    pub(super) rate: LinkRate,
    pub(super) setting: Setting,
    runs: Vec<&'a StreamRun>,
}

/// Returns true if a contender of this name compresses nothing, everything, or mixes with one codec in one
/// thread: what hull mixing must not fall behind.
fn is_simple(contender: &str) -> bool {
    ["plain", "raw"].contains(&contender) || contender.starts_with("all/") || is_mixing(contender)
}

/// Returns true if it mixes with one codec in one thread.
pub(super) fn is_mixing(contender: &str) -> bool {
    contender.starts_with("mix/")
}

/// All fields, in the order in which they were run.
pub(super) fn fields(runs: &[StreamRun]) -> Vec<Results<'_>> {
    let mut fields: Vec<Results<'_>> = Vec::new();
    for run in runs {
        let same = |field: &&mut Results<'_>| {
            let Place { setting, rate, workload } = &run.place;
            (field.rate, field.setting) == (*rate, *setting) && field.workload == workload
        };
        match fields.iter_mut().find(same) {
            Some(field) => field.runs.push(run),
            None => fields.push(Results {
                workload: &run.place.workload,
                rate: run.place.rate,
                setting: run.place.setting,
                runs: vec![run],
            }),
        }
    }
    for field in &mut fields {
        field.runs.sort_by_key(|run| run.round);
    }
    fields
}

impl<'a> Results<'a> {
    /// Their names, as they ran in the first round.
    pub(super) fn contenders(&self) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !names.contains(&run.contender.as_str()) {
                names.push(&run.contender);
            }
        }
        names
    }

    /// Returns the speeds and ratios of codecs on these data.
    pub(super) fn speeds(&self) -> impl Iterator<Item = (&'a str, CodecPoint)> {
        // Those of the run that knows most: fields may have been run in parts.
        let most = self.runs.iter().max_by_key(|run| run.measured.speeds.len());
        most.into_iter()
            .flat_map(|run| &run.measured.speeds)
            .map(|speed| (speed.codec.as_str(), speed.point))
    }

    fn of(&self, contender: &str) -> impl Iterator<Item = &&'a StreamRun> {
        self.runs.iter().filter(move |run| run.contender == contender)
    }

    /// The median of a figure of its runs.
    pub(super) fn figure(
        &self,
        contender: &str,
        figure: impl Fn(&Measured) -> Option<f64>,
    ) -> Option<f64> {
        median(self.of(contender).filter_map(|run| figure(&run.measured.transfer)))
    }

    /// The same of what a sender says of itself.
    pub(super) fn account(
        &self,
        contender: &str,
        figure: impl Fn(&StreamAccounts) -> Option<f64>,
    ) -> Option<f64> {
        self.figure(contender, |measured| measured.stream.as_ref().and_then(&figure))
    }

    /// Bits per second of the application.
    pub(super) fn goodput(&self, contender: &str) -> Option<Summary> {
        Summary::of(self.of(contender).map(|run| run.measured.transfer.goodput_bps()))
    }

    /// The median of that.
    pub(super) fn rate_of(&self, contender: &str) -> Option<f64> {
        self.goodput(contender).map(|summary| summary.median)
    }

    /// The codec of a contender that has one.
    pub(super) fn codec_of(&self, contender: &str) -> Option<&'a str> {
        self.of(contender).find_map(|run| run.measured.codec.as_deref())
    }

    /// The best of these contenders, in bit/s.
    pub(super) fn best_of(&self, takes_part: impl Fn(&str) -> bool) -> Option<(&'a str, f64)> {
        self.contenders()
            .into_iter()
            .filter(|contender| takes_part(contender))
            .filter_map(|contender| Some((contender, self.rate_of(contender)?)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The best of what compresses nothing, everything, or mixes with one codec; none if only the
    /// first was measured.
    pub(super) fn best_simple(&self) -> Option<(&'a str, f64)> {
        let others = self.contenders().into_iter().any(|it| is_simple(it) && it.contains('/'));
        self.best_of(is_simple).filter(|_| others)
    }

    /// The best possible rate in bit/s with one codec, or all, and raw.
    pub(super) fn bound(&self, codec: Option<&str>) -> Option<f64> {
        self.bound_at(codec, 0.0)
    }

    /// The same, where each byte that is sent takes the processor what it takes plain TCP.
    pub(super) fn bound_with_sending(&self) -> Option<f64> {
        let of_plain = |s: &StreamAccounts| share(s.thread_cpu_ns, s.wire_bytes);
        self.bound_at(None, self.account("plain", of_plain)?)
    }

    fn bound_at(&self, codec: Option<&str>, send_ns: f64) -> Option<f64> {
        let wanted = self.speeds().filter(|(name, _)| codec.is_none_or(|codec| codec == *name));
        let mut points = vec![CodecPoint::RAW];
        points.extend(wanted.map(|(_, point)| point));
        for point in &mut points {
            point.cost_ns += send_ns * point.ratio;
        }
        Some(Bound::of(self.rate_of("plain")? / 8.0, &points).rate * 8.0)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::record::tests::record;
    use super::super::Stream;
    use super::super::record::{Conditions, Found};
    use super::super::speed::Speed;
    use super::*;

    /// A run on a link of 100 Mbit/s, of a second, with a codec of 88 Mbit/s that halves and one of
    /// 1000 Mbit/s that takes off two fifths; everything else is invented.
    pub(crate) fn run(contender: &str, mbit: u64) -> StreamRun {
        let speed = |codec: &str, mbit: f64, ratio| Speed {
            codec: codec.to_owned(),
            point: CodecPoint::new(8e3 / mbit, ratio),
        };
        let place = Place {
            setting: Setting::default(),
            rate: "100mbit".parse().unwrap(),
            workload: "text".to_owned(),
        };
        let transfer = Measured {
            window_ns: 1_000_000_000,
            application_bytes: mbit * 125_000,
            stream: Some(StreamAccounts {
                wire_bytes: 1_000_000,
                thread_cpu_ns: 8_000_000,
                segments: mbit,
                efficiency: 1.0,
                ..StreamAccounts::default()
            }),
            ..Measured::default()
        };
        let found = Found {
            codec: contender.split_once('/').map(|(_, codec)| codec.to_owned()),
            speeds: vec![speed("deflate", 88.0, 0.5), speed("lz4", 1000.0, 0.6)],
            transfer,
        };
        record::<Stream>(Conditions { seconds: 1.0, seed: 1 }, place, (contender, 0), found)
    }

    #[test]
    fn the_bounds_are_those_of_the_papers() {
        let runs = [run("plain", 100), run("mix/deflate", 144), run("hull", 160)];
        let [field] = &fields(&runs)[..] else { panic!("one field") };
        // 88 in, 44 out, and 56 raw, as in figure 5.
        let estimated = field.bound(Some("deflate")).unwrap();
        assert!((estimated - 144e6).abs() < 1.0, "{estimated}");
        let all = field.bound(None).unwrap();
        assert!(all > 166e6, "{all}");
        // Sending takes a tenth of the processor, and so a tenth of what lz4 does.
        let sending = field.bound_with_sending().unwrap();
        assert!(sending <= all && sending > 0.85 * all, "{sending} of {all}");
        assert_eq!(field.best_simple(), Some(("mix/deflate", 144e6)));
    }

    #[test]
    fn what_was_run_otherwise_is_another_field() {
        let mut shared = run("plain", 50);
        shared.place.setting.competing = true;
        let runs = [run("plain", 100), shared, run("hull", 160)];
        let fields = fields(&runs);
        assert_eq!(fields.len(), 2);
        assert_eq!(fields[0].contenders(), ["plain", "hull"]);
        assert_eq!(fields[0].best_simple(), None);
    }
}
