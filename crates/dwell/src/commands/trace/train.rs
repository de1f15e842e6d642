//! `dwell trace train`: dictionaries for small packets.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use dwell_base::ByteSize;
use dwell_codec::{CodecSpec, DictionaryFile};
use dwell_report::human;
use dwell_trace::document::OfTraining;
use dwell_trace::train::{ContextTraining, TrainSettings, Trained, Trainer};

use super::captures::Captures;
use super::replay::Monotonic;
use super::survey::Survey;
use crate::commands::interrupt::{self, INTERRUPTED};
use crate::commands::whole_file::replace;
use dwell_cli::terminal;

const AFTER_HELP: &str = "\
Examples:
  dwell trace train site.pcap                       what dictionaries would gain, class by class
  dwell trace train site.pcap --out dictionaries    and write those that are worth it
  dwell trace train *.pcap --codec lz4 --size 4KiB --max 256
  dwell trace replay later.pcap --rate 512kbit --dictionary dictionaries/all.dict

For relays, copy all.dict to both ends and name it under `dictionary` of the peer. It holds pieces
of the packets that it was made of: keep it as you keep the capture.

The samples of each class are split in time: the dictionary is made of the earlier ones, and its
gain is measured on the later ones.

Exit codes:
  0    dictionaries were trained, or none is worth it
  1    the capture could not be read, or a file not be written
  2    the command line is wrong
  130  it was interrupted; nothing was written";

/// Train dictionaries for small packets, and measure what they gain
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Train {
    /// Captures (pcap, pcapng), or directories of them, merged by time; "-" is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Codec that the dictionaries are for: lz4 or zstd, with a level
    #[arg(long, default_value = "zstd:1")]
    codec: CodecSpec,
    /// The most bytes of a dictionary
    #[arg(long, value_name = "SIZE", default_value = "16KiB")]
    size: ByteSize,
    /// Shortest packets to train with, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    min: u16,
    /// Longest packets to train with, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    max: u16,
    /// The share of packets, from the first on, that is trained on
    #[arg(long, value_name = "SHARE", default_value_t = 0.7)]
    share: f64,
    /// Write the dictionaries to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Train {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let stop = interrupt::stop_flag()?;
        let mut trainer = Trainer::new(TrainSettings {
            codec: self.codec,
            dictionary_bytes: usize::try_from(self.size.0).unwrap_or(usize::MAX),
            packet_bytes_min: usize::from(self.min),
            packet_bytes_max: usize::from(self.max),
            trained_share: self.share,
        })?;
        let survey = Survey::of(&self.files, None, &stop)?;
        let mut captures = Captures::open(survey, stop)?;
        captures.each(|input| trainer.packet(input.packet));
        captures.complain();
        if captures.is_interrupted() {
            terminal::note("interrupted: nothing was trained");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        let trained = trainer.finish(&mut Monotonic)?;
        let files = match &self.out {
            Some(directory) => write(directory, &trained.dictionaries)?,
            None => Vec::new(),
        };
        if self.json {
            let document = OfTraining::new(self.codec, &trained, Some(&files));
            terminal::print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
        } else {
            terminal::print(&self.text(&trained, &files))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn text(&self, trained: &Trained, files: &[String]) -> String {
        let used = trained.packets - trained.left_out;
        let mut text = format!(
            "{}, {} of them of {} to {} bytes; codec {}\n",
            human::counted(trained.packets, "packet"),
            human::count(used),
            self.min,
            self.max,
            self.codec
        );
        if trained.classes.is_empty() {
            text.push_str("No class has enough packets to train on.\n");
            return text;
        }
        text.push('\n');
        text.push_str(&trained.to_table().to_text());
        text.push_str(
            "\nRatios are compressed / original, of later packets than those trained on.\n",
        );
        if let Some(contexts) = &trained.contexts {
            text.push_str(&of_contexts(contexts));
        }
        if trained.dictionaries.is_empty() {
            text.push_str("No dictionary is worth it.\n");
        }
        for file in files {
            text.push_str(&format!("wrote {file}\n"));
        }
        if let Some(joined) = files.last() {
            text.push_str(&format!(
                "\nRelays begin their contexts from it (scheme = \"auto\", or another one with history): copy \
                 {joined} to both ends, and write under each [[peer]]\n  dictionary = \"{ALL}\"\n\
                 It holds pieces of the packets that it was made of: keep it as you keep the capture.\n"
            ));
        }
        text
    }
}

/// What a dictionary brings to contexts.
fn of_contexts(contexts: &ContextTraining) -> String {
    let ContextTraining { tried_on, ratio_without, ratio_with, dictionary_bytes, is_worth } =
        contexts;
    format!(
        "Contexts (scheme = \"auto\"): the next {} packets become {} of their size, {} if contexts begin from the {} \
         before{}.\n",
        human::count(*tried_on),
        human::ratio(Some(*ratio_without)),
        human::ratio(Some(*ratio_with)),
        human::bytes(*dictionary_bytes as u64),
        if *is_worth { "" } else { ", which is not worth it" },
    )
}

/// The file with all dictionaries, for relays.
const ALL: &str = "all.dict";

/// Writes each dictionary to `CLASS.dict`, and all of them to [`ALL`], which is the last that is named.
fn write(directory: &Path, dictionaries: &[DictionaryFile]) -> anyhow::Result<Vec<String>> {
    fs::create_dir_all(directory)
        .with_context(|| format!("{} can't be made", directory.display()))?;
    let (mut files, mut all) = (Vec::new(), Vec::new());
    for dictionary in dictionaries {
        let path = directory.join(format!("{}.dict", dictionary.class.replace('/', "-")));
        let bytes = dictionary.to_bytes()?;
        replace(&path, &bytes)?;
        files.push(path.display().to_string());
        all.extend(bytes);
    }
    if !all.is_empty() {
        let path = directory.join(ALL);
        replace(&path, &all)?;
        files.push(path.display().to_string());
    }
    Ok(files)
}
