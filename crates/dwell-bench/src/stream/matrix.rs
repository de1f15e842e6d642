//! Fields are filled run by run, each run noted as it ends.

use std::collections::HashMap;

use dwell_base::Rate;
use dwell_lab::lab::Lab;

use super::super::bed::Bed;
use super::super::runner::Series;
use super::content::Content;
use super::plan::{Field, Source};
use super::record::{Conditions, Found};
use super::speed::{self, Speed};
use super::{Stream, rival, transfer};

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

/// Does what is missing of these fields.
///
/// # Errors
/// If nothing can be measured at all; single runs that fail are complained of and counted.
pub(super) fn fill(
    lab: &mut Lab,
    series: &mut Series<Stream>,
    (fields, rounds): (&[Field], u32),
    conditions: Conditions,
) -> anyhow::Result<()> {
    let missing = |series: &Series<Stream>, field: &Field| {
        series.missing(&field.place(), &field.contenders, rounds)
    };
    let part = |field| (missing(series, field), field.run_time(conditions.seconds));
    let parts: Vec<_> = fields.iter().map(part).collect();
    series.plan(parts);
    let mut known = Known::default();
    for field in fields {
        if missing(series, field) > 0 {
            fill_one(lab, series, (field, rounds), (conditions, &mut known))?;
        }
    }
    Ok(())
}

fn fill_one(
    lab: &mut Lab,
    series: &mut Series<Stream>,
    (field, rounds): (&Field, u32),
    (conditions, known): (Conditions, &mut Known),
) -> anyhow::Result<()> {
    let directory = lab.directory();
    let bed = Bed::new(lab, field.rate, field.setting.delay_ns)?;
    let content = known.content(&field.workload, conditions.seed)?;
    let speeds = known.speeds(field, &content);
    let times = field.times(conditions.seconds);
    let length = (rounds, field.run_time(conditions.seconds));
    let is_interrupted = || bed.check().is_err();
    series.rounds(&field.place(), &field.contenders, length, is_interrupted, |contender| {
        bed.check()?;
        let rival = rival(&bed, field)?;
        let transfer = transfer::run(&bed, contender, &content, &directory, times)?;
        rival.map_or(Ok(()), rival::Rival::finish)?;
        Ok(Found { codec: contender.codec(), speeds: speeds.clone(), transfer })
    })
}

/// Starts the rival that takes half of the link, if there is to be one.
fn rival(bed: &Bed<'_>, field: &Field) -> anyhow::Result<Option<rival::Rival>> {
    let half = field.rate.bps().filter(|_| field.setting.competing).map(|bps| bps / 2);
    half.map(|bps| rival::Rival::start(bed, Rate::clamped_bps(bps))).transpose()
}
