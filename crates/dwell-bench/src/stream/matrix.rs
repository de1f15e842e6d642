//! Fields are filled run by run, each run noted as it ends.

use std::collections::HashMap;

use anyhow::ensure;
use dwell_base::Rate;
use dwell_lab::lab::Lab;

use super::super::Outcome;
use super::super::bed::Bed;
use super::super::record::{Journal, Origin, unix_seconds};
use super::contender::Contender;
use super::content::Content;
use super::plan::{Field, Source};
use super::record::{Conditions, StreamRun};
use super::speed::{self, Speed};
use super::{rival, transfer};
use dwell_cli::progress::Progress;

/// The runs to do, and those that are done.
pub(super) struct Matrix {
    pub(super) origin: Origin,
    pub(super) conditions: Conditions,
    pub(super) rounds: u32,
    pub(super) runs: Vec<StreamRun>,
    pub(super) journal: Journal,
    pub(super) outcome: Outcome,
}

/// The contents, made when they are needed, and the codecs' speeds with them.
#[derive(Default)]
struct Known {
    /// The last one only: they are long.
    content: Option<(Source, Content)>,
    speeds: HashMap<(String, usize), Vec<Speed>>,
}

impl Known {
    fn content(&mut self, source: &Source, seed: u64) -> anyhow::Result<Content> {
        if let Some((_, content)) = self.content.as_ref().filter(|(known, _)| known == source) {
            return Ok(content.clone());
        }
        let content = match source {
            Source::Made(workload) => Content::made(*workload, seed)?,
            Source::File(path) => Content::read(path, seed)?,
        };
        self.content = Some((source.clone(), content.clone()));
        Ok(content)
    }

    fn speeds(&mut self, field: &Field, content: &Content) -> Vec<Speed> {
        let block_len = field.setting.block_bytes;
        let speeds = self.speeds.entry((content.name.clone(), block_len)).or_default();
        speed::measure_missing(speeds, &field.contenders, block_len, &content.body);
        speeds.clone()
    }
}

impl Matrix {
    /// Does what is missing.
    ///
    /// # Errors
    /// If nothing can be measured at all; single runs that fail are complained of and counted.
    pub(super) fn fill(&mut self, lab: &mut Lab, fields: &[Field]) -> anyhow::Result<()> {
        for run in &self.runs {
            ensure!(
                run.conditions == self.conditions && run.origin == self.origin,
                "the runs in the file were done otherwise ({:?}, {:?}); choose another file",
                run.conditions,
                run.origin
            );
        }
        let seconds = self.conditions.seconds;
        let (mut count, mut time) = (0, std::time::Duration::ZERO);
        for field in fields {
            let missing = self.missing(field).len();
            count += missing;
            time += field.run_time(seconds) * missing as u32;
        }
        let mut progress = Progress::new(count, time);
        let mut known = Known::default();
        for field in fields {
            let each = field.run_time(seconds);
            self.fill_field(lab, field, &mut known, &mut |what| progress.done(each, what))?;
            if self.outcome.is_interrupted {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the contenders that have still to run, with their rounds, in the order of running.
    fn missing(&self, field: &Field) -> Vec<(u32, Contender)> {
        let (count, workload) = (field.contenders.len(), field.workload.name());
        let is_done = |round: u32, contender: &Contender| {
            let name = contender.to_string();
            self.runs.iter().any(|run| {
                (run.rate, run.setting, run.round) == (field.rate, field.setting, round)
                    && run.workload == workload
                    && run.contender == name
            })
        };
        (0..self.rounds)
            .flat_map(|round| (0..count).map(move |at| (round, (at + round as usize) % count)))
            .map(|(round, at)| (round, field.contenders[at].clone()))
            .filter(|(round, contender)| !is_done(*round, contender))
            .collect()
    }

    fn fill_field(
        &mut self,
        lab: &mut Lab,
        field: &Field,
        known: &mut Known,
        done: &mut dyn FnMut(&str),
    ) -> anyhow::Result<()> {
        let missing = self.missing(field);
        if missing.is_empty() {
            return Ok(());
        }
        let directory = lab.directory();
        let bed = Bed::new(lab, field.rate, field.setting.delay_ns)?;
        let content = known.content(&field.workload, self.conditions.seed)?;
        let speeds = known.speeds(field, &content);
        let times = field.times(self.conditions.seconds);
        for (round, contender) in missing {
            let what = format!("{}, {contender}, round {}", shown(field), round + 1);
            let run = || -> anyhow::Result<_> {
                bed.check()?;
                let rival = rival(&bed, field)?;
                let measured = transfer::run(&bed, &contender, &content, &directory, times);
                let measured = measured?;
                rival.map_or(Ok(()), rival::Rival::finish)?;
                Ok(measured)
            };
            match run() {
                Ok(measured) => {
                    done(&format!("{what}: {:.1} Mbit/s", measured.goodput_bps() / 1e6));
                    let run = StreamRun {
                        at_unix_seconds: unix_seconds(),
                        origin: self.origin.clone(),
                        conditions: self.conditions,
                        setting: field.setting,
                        rate: field.rate,
                        workload: content.name.clone(),
                        contender: contender.to_string(),
                        codec: contender.codec(),
                        round,
                        speeds: speeds.clone(),
                        measured,
                    };
                    self.journal.add(&run)?;
                    self.runs.push(run);
                }
                Err(error) => {
                    let is_interrupted = bed.check().is_err();
                    if !self.outcome.goes_on_after(&error, &what, is_interrupted) {
                        return Ok(());
                    }
                    done(&format!("{what}: failed"));
                }
            }
        }
        Ok(())
    }
}

/// A field in few words.
fn shown(field: &Field) -> String {
    let setting = field.setting;
    let shares = if setting.competing { " shared" } else { "" };
    let (block, buffer) = (setting.block_bytes >> 10, setting.buffer_bytes >> 10);
    format!("{}{shares}, {}, {block}/{buffer} KiB", field.rate, field.workload.name())
}

/// Starts the rival that takes half of the link, if there is to be one.
fn rival(bed: &Bed<'_>, field: &Field) -> anyhow::Result<Option<rival::Rival>> {
    let half = field.rate.bps().filter(|_| field.setting.competing).map(|bps| bps / 2);
    half.map(|bps| rival::Rival::start(bed, Rate::clamped_bps(bps))).transpose()
}
