//! `dwell send`: sends a file, or what comes through a pipe, to a `dwell recv`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use dwell_codec::CodecSpec;
use dwell_proxy::security::Security;
use dwell_proxy::target::{Host, Target};
use dwell_proxy::transfer::{FILE_PORT, OneTimeKey, Send, TransferError, send};
use dwell_proxy::{Compression, is_loopback};

use super::proxy::{Protection, duration, strategy, target_with_port};
use super::transfer::{INTERRUPTED, Meter, done, hide};
use dwell_cli::terminal;

const AFTER_HELP: &str = "\
Examples:
  dwell recv                                    on the other machine: prints what to type here
  dwell send backup.img 192.0.2.7:7735 --key 1jz0...
  tar c photos | dwell send - 192.0.2.7 --key 1jz0...
  dwell send backup.img hub.example --psk transfer.psk

The key is for one transfer. Other users of this machine may see it in the list of processes: where
that matters, set the variable DWELL_KEY instead, or use --psk.

Exit codes:
  0    the receiver has it all, and it is what was sent
  1    it has nothing, or could not say that it has it all
  2    the command line is wrong
  130  it was interrupted";

/// Send a file or a pipe to a `dwell recv`
///
/// It is compressed where that is faster, encrypted, and verified at the end.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct SendCommand {
    /// The file, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Address of the waiting `dwell recv` [default port: 7735]
    #[arg(value_name = "HOST[:PORT]", value_parser = receiver)]
    to: Target,
    /// The key that `dwell recv` has printed [also: the variable DWELL_KEY]
    #[arg(long, conflicts_with_all = ["psk", "cert", "insecure"])]
    key: Option<OneTimeKey>,
    #[command(flatten)]
    protection: Protection,
    /// The name that the receiver's certificate must bear [default: its host]
    #[arg(long, value_name = "NAME", requires = "cert")]
    receiver_name: Option<String>,
    /// Strategy: raw, all, switch, mix, mix-2in or hull (mix-2out is taken for mix-2in)
    /// [default: hull]
    #[arg(long, value_parser = strategy)]
    strategy: Option<dwell_stream::Strategy>,
    /// The codecs to use, as lz4,zstd:3 [default: lz4, zstd from -5 to 9, deflate]
    #[arg(long, value_name = "CODECS", value_delimiter = ',')]
    codec: Vec<CodecSpec>,
    /// The longest time to connect
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    connect_time: Duration,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

const KEY_VARIABLE: &str = "DWELL_KEY";

fn receiver(text: &str) -> Result<Target, String> {
    target_with_port(text, FILE_PORT)
}

impl SendCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        hide();
        let security = self.security()?;
        let (source, bytes) = open(&self.file)?;
        let name = match self.file.file_name() {
            Some(name) if !is_pipe(&self.file) => name.to_string_lossy().into_owned(),
            _ => String::new(),
        };
        let what = if is_pipe(&self.file) {
            "standard input".to_owned()
        } else {
            self.file.display().to_string()
        };
        let mut meter = Meter::new(self.quiet);
        let job = Send {
            source,
            what: what.clone(),
            name,
            bytes,
            to: self.to,
            security,
            compressing: Compression { strategy: self.strategy, codecs: self.codec, wish: None },
            connect: self.connect_time,
        };
        let sent = send(job, |progress| meter.show(progress));
        meter.clear();
        match sent {
            Ok(summary) => {
                if !self.quiet {
                    terminal::note(&format!("sent {what}: {}", done(&summary)));
                }
                Ok(ExitCode::SUCCESS)
            }
            Err(TransferError::Interrupted) => Ok(ExitCode::from(INTERRUPTED)),
            Err(error) => Err(error.into()),
        }
    }

    fn security(&self) -> anyhow::Result<Security> {
        let given = match (&self.key, std::env::var(KEY_VARIABLE)) {
            (Some(key), _) => Some(key.clone()),
            (None, Ok(text)) if !self.protection.is_chosen() => {
                Some(text.parse().with_context(|| format!("the variable {KEY_VARIABLE}"))?)
            }
            _ => None,
        };
        if let Some(key) = given {
            return Ok(Security::Psk(key.secret()));
        }
        if !self.protection.is_chosen() {
            bail!(
                "the receiver's key is missing: add --key with what `dwell recv` has printed there"
            );
        }
        let host = match &self.to.host {
            Host::Ip(ip) => ip.to_string(),
            Host::Name(name) => name.clone(),
        };
        let name = self.receiver_name.clone().or(Some(host));
        self.protection.security(&self.to.to_string(), is_loopback(&self.to.host), name)
    }
}

fn is_pipe(file: &Path) -> bool {
    file == Path::new("-")
}

fn open(file: &Path) -> anyhow::Result<(Box<dyn Read + std::marker::Send>, Option<u64>)> {
    if is_pipe(file) {
        return Ok((Box::new(io::stdin()), None));
    }
    let shown = file.display();
    let source = File::open(file).with_context(|| format!("{shown} can't be read"))?;
    let metadata = source.metadata().with_context(|| format!("{shown} can't be read"))?;
    ensure!(
        !metadata.is_dir(),
        "{shown} is a directory: send it as an archive, `tar c {shown} | dwell send - HOST`"
    );
    let bytes = metadata.is_file().then_some(metadata.len());
    Ok((Box::new(source), bytes))
}
