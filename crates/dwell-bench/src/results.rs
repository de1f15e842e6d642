//! All runs together, by rate, workload and contender.

use super::link::Link;
use super::link_rate::LinkRate;
use super::record::{Measured, Run};
use super::statistics::{Summary, median};
use super::workload::Workload;

/// Runs that may be compared.
#[derive(Debug)]
pub(super) struct Results<'a> {
    runs: &'a [Run<Link>],
}

impl<'a> Results<'a> {
    pub(super) fn new(runs: &'a [Run<Link>]) -> Self {
        Self { runs }
    }

    /// The rates and workloads that have runs, slow links first.
    pub(super) fn fields(&self) -> Vec<(LinkRate, Workload)> {
        let mut fields = Vec::new();
        for run in self.runs {
            let field = (run.place.rate, run.place.workload);
            if !fields.contains(&field) {
                fields.push(field);
            }
        }
        fields.sort_by_key(|(rate, workload)| (rate.bps().unwrap_or(u64::MAX), workload.name()));
        fields
    }

    /// Returns all of them.
    pub(super) fn runs(&self) -> &'a [Run<Link>] {
        self.runs
    }

    /// The codecs with which this scheme has runs there.
    pub(super) fn codecs(&self, rate: LinkRate, workload: Workload, scheme: &str) -> Vec<&'a str> {
        let codec = |run: &'a Run<Link>| run.contender.strip_prefix(scheme)?.strip_prefix('/');
        let mut codecs: Vec<&str> = self.of(rate, workload).filter_map(codec).collect();
        codecs.sort_unstable();
        codecs.dedup();
        codecs
    }

    /// One number of every run of a contender there.
    pub(super) fn values(
        &self,
        rate: LinkRate,
        workload: Workload,
        contender: &str,
        value: impl Fn(&Measured) -> Option<f64>,
    ) -> Vec<f64> {
        self.of(rate, workload)
            .filter(|run| run.contender == contender)
            .filter_map(|run| value(&run.measured))
            .collect()
    }

    /// Returns the goodput.
    pub(super) fn goodput(
        &self,
        rate: LinkRate,
        workload: Workload,
        contender: &str,
    ) -> Option<Summary> {
        Summary::of(self.values(rate, workload, contender, |m| Some(m.per_second())))
    }

    /// The median of some number.
    pub(super) fn median(
        &self,
        rate: LinkRate,
        workload: Workload,
        contender: &str,
        value: impl Fn(&Measured) -> Option<f64>,
    ) -> Option<f64> {
        median(self.values(rate, workload, contender, value))
    }

    /// The better of the schemes `none` and `all` with this codec.
    pub(super) fn better_of_none_and_all(
        &self,
        rate: LinkRate,
        workload: Workload,
        codec: &str,
    ) -> Option<(String, Summary)> {
        ["none".to_owned(), format!("all/{codec}")]
            .into_iter()
            .filter_map(|name| self.goodput(rate, workload, &name).map(|summary| (name, summary)))
            .max_by(|(_, a), (_, b)| a.median.total_cmp(&b.median))
    }

    fn of(&self, rate: LinkRate, workload: Workload) -> impl Iterator<Item = &'a Run<Link>> {
        self.runs.iter().filter(move |run| run.place.rate == rate && run.place.workload == workload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::run;

    #[test]
    fn runs_are_found_by_their_place() {
        let text = Workload::Text;
        let runs = [
            run("unlimited", text, "off", 0, 9),
            run("10mbit", text, "none", 1, 3),
            run("10mbit", text, "off", 0, 1),
            run("10mbit", text, "none", 0, 2),
            run("10mbit", text, "all/lz4", 0, 5),
        ];
        let results = Results::new(&runs);
        let ten: LinkRate = "10mbit".parse().unwrap();
        assert_eq!(results.fields(), [(ten, text), (LinkRate(None), text)]);
        let rows = crate::runner::rows(results.runs(), &runs[1].place);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["off", "none", "all/lz4"]);
        assert_eq!(results.codecs(ten, text, "all"), ["lz4"]);
        assert_eq!(results.goodput(ten, text, "none").unwrap().median, 2.5);
        assert_eq!(results.goodput(ten, text, "packet/lz4"), None);
        assert_eq!(results.better_of_none_and_all(ten, text, "lz4").unwrap().0, "all/lz4");
        assert_eq!(results.better_of_none_and_all(ten, text, "zstd:1").unwrap().0, "none");
    }
}
