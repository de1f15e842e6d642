//! `./x bench stream`: compressed TCP streams over a link, strategy against strategy.

mod contender;
mod content;
mod fresh;
mod matrix;
mod overview;
mod pipes;
mod plan;
mod pump;
mod record;
mod results;
mod rival;
mod speed;
mod table;
mod transfer;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use clap::builder::ArgPredicate;
use dwell_base::time::parse_duration_ns;
use dwell_codec::CodecSpec;
use dwell_stream::Strategy;

use self::content::Workload;
use self::plan::{Field, Part, Shape, Source};
use self::record::{Conditions, Found, Place, Setting, StreamRun};
use super::link_rate::LinkRate;
use super::options::{Records, Rounds, Watch};
use super::record::Bench;
use dwell_cli::terminal;

pub(super) use self::table::numbers as table_of_numbers;

const AFTER_HELP: &str = "\
Examples:
  ./x bench stream --quick                                 a little of everything: four minutes
  ./x bench stream --json runs.jsonl                       everything: about an hour and a half
  ./x bench stream --json runs.jsonl --resume              go on where it was interrupted
  ./x bench stream --part mixing --workload text,xml       hull mixing against the others
  ./x bench stream --rate 50mbit --strategy mix,hull --codec deflate --file data.tar
  ./x bench stream --rate 6mbit --delay 50ms --strategy tcpcomp,kernel-level --codec deflate
  ./x bench stream --json runs.jsonl --report              only print what is in the file

For each rate and workload every contender sends for a while in each round, each round in another
order. `plain` is TCP as it is, and always takes part: what it carries is the link's rate in the
bounds. `/best` is the share of the best of plain, raw, and everything compressed or mixed with one
codec; `/est` that of the Estimated Maximum of Pu and Singaravelu, for the contender's one codec and
raw; `/bound` that of the linear programme with all codecs; `/bound+tx` the same, where sending takes
the processor the time that it takes plain TCP. They are made of what the codecs take and give on
this machine, which is measured before.

Exit codes:
  0    all runs are done
  1    some are not
  2    the command line is wrong
  130  it was interrupted; what there is has been printed";

/// Measure compressed TCP streams against plain ones, bounds and other programs
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
#[command(mut_arg("runs", |arg| {
    arg.default_value("3").default_value_if("quick", ArgPredicate::IsPresent, "1")
}))]
#[command(mut_arg("seconds", |arg| {
    arg.default_value("1")
        .default_value_if("quick", ArgPredicate::IsPresent, "0.5")
        .help("Seconds for which each run is measured at least, after a warm-up")
}))]
pub(super) struct Stream {
    /// Parts of the whole [default: all, unless options below choose something else]
    #[arg(long, value_name = "PART,...", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["strategy", "codec", "delay", "competing", "block", "buffer"])]
    part: Vec<Part>,
    /// Strategies; docs/streams.md describes them [default: all, switch, mix, mix-2in,
    /// mix-2out, hull]
    #[arg(long, value_name = "STRATEGY,...", value_delimiter = ',')]
    strategy: Option<Vec<Strategy>>,
    /// Codecs, for the strategies that have one [default: lz4, zstd:1, deflate:6]
    #[arg(long, value_name = "CODEC,...", value_delimiter = ',')]
    codec: Option<Vec<CodecSpec>>,
    /// Contents to send, made here
    #[arg(long, value_name = "WORKLOAD,...", value_delimiter = ',')]
    workload: Option<Vec<Workload>>,
    /// Files to be sent, over and over, as further workloads
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Rates of the link, or `unlimited` for a plain cable
    #[arg(long, value_name = "RATE,...", value_delimiter = ',')]
    rate: Option<Vec<LinkRate>>,
    /// Delay of the link, each way
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    delay: Option<u64>,
    /// Another stream takes half of the link
    #[arg(long)]
    competing: bool,
    /// `zstd --adapt` and `ssh -C` do not take part
    #[arg(long)]
    no_others: bool,
    /// Bytes that are compressed at once [default: 65536]
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',')]
    block: Option<Vec<usize>>,
    /// Bytes that wait in the sender at most [default: 262144]
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',')]
    buffer: Option<Vec<usize>>,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    watch: Watch,
    /// Seed of texts and random bytes
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Fewer of everything, one round of half a second
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    records: Records,
}

impl Bench for Stream {
    const NAME: &'static str = "stream";
    type Conditions = Conditions;
    type Place = Place;
    type Measured = Found;

    fn place(place: &Place) -> String {
        let Place { setting, rate, workload } = place;
        let shares = if setting.competing { " shared" } else { "" };
        let (block, buffer) = (setting.block_bytes >> 10, setting.buffer_bytes >> 10);
        format!("{rate}{shares}, {workload}, {block}/{buffer} KiB")
    }

    fn line(_place: &Place, found: &Found) -> String {
        format!("{:.1} Mbit/s", found.transfer.goodput_bps() / 1e6)
    }

    fn report(runs: &[StreamRun]) -> String {
        table::all(runs)
    }
}

impl Stream {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let conditions = Conditions { seconds: self.watch.seconds, seed: self.seed };
        self.records.run::<Self>(conditions, |lab, series| {
            let fields = self.fields()?;
            matrix::fill(lab, series, (&fields, self.rounds.runs), conditions)
        })
    }

    /// Returns the fields to be measured, in this order.
    fn fields(&self) -> anyhow::Result<Vec<Field>> {
        let mut shapes = if self.chooses() {
            vec![self.own_shape()]
        } else {
            let parts = if self.part.is_empty() { &Part::ALL[..] } else { &self.part };
            parts.iter().map(|part| part.shape(self.quick)).collect()
        };
        let mut fields = Vec::new();
        for shape in &mut shapes {
            if let Some(rates) = &self.rate {
                shape.rates.clone_from(rates);
            }
            if self.workload.is_some() || !self.file.is_empty() {
                shape.sources = self.sources();
            }
            shape.others &= !self.no_others;
            ensure!(
                !shape.sources.is_empty(),
                "there is nothing to send: name a workload or a file"
            );
            fields.extend(shape.fields()?);
        }
        if shapes.iter().any(|shape| shape.others) {
            for complaint in pipes::complaints() {
                terminal::note(&complaint);
            }
        }
        Ok(plan::merge(fields))
    }

    /// Returns true if something is to be measured that is not one of the parts.
    fn chooses(&self) -> bool {
        let matters = self.strategy.is_some() || self.codec.is_some() || self.delay.is_some();
        let sizes = self.block.is_some() || self.buffer.is_some();
        let what = self.rate.is_some() || self.workload.is_some() || !self.file.is_empty();
        matters || sizes || self.competing || (what && self.part.is_empty())
    }

    /// Returns the shape that the options choose, and otherwise the usual one.
    fn own_shape(&self) -> Shape {
        let usual = Setting::default();
        let delay_ns = self.delay.unwrap_or(0);
        let blocks = self.block.clone().unwrap_or_else(|| vec![usual.block_bytes]);
        let buffers = self.buffer.clone().unwrap_or_else(|| vec![usual.buffer_bytes]);
        let setting = |block_bytes: usize| {
            let of = move |buffer_bytes| Setting {
                delay_ns,
                competing: self.competing,
                block_bytes,
                buffer_bytes,
            };
            buffers.iter().copied().map(of).collect::<Vec<_>>()
        };
        let strategies = [
            Strategy::All,
            Strategy::Switch,
            Strategy::Mix,
            Strategy::MixInOrder,
            Strategy::MixOutOfOrder,
            Strategy::Hull,
        ];
        Shape {
            rates: plan::full_rates(self.quick),
            sources: plan::made(self.quick),
            settings: blocks.into_iter().flat_map(setting).collect(),
            strategies: self.strategy.clone().unwrap_or_else(|| strategies.to_vec()),
            codecs: self.codec.clone().unwrap_or_else(plan::usual_codecs),
            others: true,
        }
    }

    fn sources(&self) -> Vec<Source> {
        let workloads = self.workload.iter().flatten().filter(|&&it| it != Workload::None);
        let made = workloads.map(|&workload| Source::Made(workload));
        made.chain(self.file.iter().cloned().map(Source::File)).collect()
    }
}
