//! `dwell send`: sends files and directories, or what comes through a pipe, to a `dwell recv`.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use clap::error::ErrorKind;
use dwell_base::ByteSize;
use dwell_codec::CodecSpec;
use dwell_proxy::security::Security;
use dwell_proxy::target::{Host, Target};
use dwell_proxy::transfer::{
    Code, CodeError, FILE_PORT, OneTimeKey, SILENCE_MAX, Send, Source, TransferError, send,
};
use dwell_proxy::{Compression, is_loopback};
use dwell_stream::{Objective, Strategy};

use super::proxy::{Protection, duration, objective, strategy, target_with_port};
use super::transfer::{INTERRUPTED, LEFT_OUT, Meter, done, prepare, printable, show_left_out};
use dwell_cli::terminal;

const USAGE: &str = "dwell send [OPTIONS] <FILE>... <CODE|HOST[:PORT]>";

const AFTER_HELP: &str = "\
Examples:
  dwell recv                                    on the other machine: prints what to type here
  dwell send backup.img 60g0-41zh-...           to the receiver that has printed this code
  dwell send photos notes.txt 60g0-41zh-...     a directory and a file
  tar c photos | dwell send - 60g0-41zh-...     what comes through a pipe
  dwell send backup.img 192.0.2.7:7735 --key 1jz0...
  dwell send backup.img hub.example --psk transfer.psk

Directories come with all that is in them, with permissions, times, symbolic and hard links; owners,
extended attributes and devices don't. Files are compressed where that is faster, encrypted, and
verified at the end. After an interruption the same commands go on where it stopped: what the
receiver has is compared by its hashes.

The code, or the key, is for one receiver. Other users of this machine may see it in the list of
processes: where that matters, set the variable DWELL_KEY instead, or use --psk.

Exit codes:
  0    the receiver has it all, and it is what was sent
  1    it does not, or could not say that it does
  2    the command line is wrong
  3    it has all but what is named
  130  it was interrupted";

/// Send files, directories or a pipe to a `dwell recv`
///
/// They are compressed where that is faster, encrypted, and verified at the end.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, override_usage = USAGE, allow_missing_positional = true)]
pub(crate) struct SendCommand {
    /// The files and directories, or - for standard input
    // If one of the two is missing, clap takes what is there for the code: which it is, is found out here.
    #[arg(value_name = "FILE", num_args = 1..)]
    files: Vec<PathBuf>,
    /// The code that `dwell recv` has printed, or its address [default port: 7735]
    #[arg(value_name = "CODE|HOST[:PORT]", value_parser = receiver)]
    to: Receiver,
    /// The key that `dwell recv` has printed [also: the variable DWELL_KEY]
    #[arg(long, value_parser = key, conflicts_with_all = ["psk", "cert", "insecure"])]
    key: Option<OneTimeKey>,
    /// Send what symbolic links lead to, and not the links
    #[arg(short = 'L', long)]
    follow: bool,
    /// Take files for the same if their length and time are the receiver's, without comparing their bytes
    #[arg(long)]
    quick: bool,
    /// The memory for finding what repeats: a quarter for zstd's window of up to 8 MiB and for models, the rest for a long distance, as
    /// `zstd --long` has it (all of it for 128 MiB of distance); 0 to look for nothing
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    memory_max: ByteSize,
    #[command(flatten)]
    protection: Protection,
    /// The name that the receiver's certificate must bear [default: its host]
    #[arg(long, value_name = "NAME", requires = "cert")]
    receiver_name: Option<String>,
    /// Strategy: raw, all, switch, mix, mix-2in or hull (mix-2out is taken for mix-2in)
    /// [default: hull]
    #[arg(long, value_parser = strategy)]
    strategy: Option<Strategy>,
    /// What hull is to save: time; or bytes, on a link that is paid for, though it may take up to four times as long
    /// [default: time]
    #[arg(long, value_name = "WHAT", value_parser = objective, conflicts_with = "strategy")]
    objective: Option<Objective>,
    /// The codecs to use, as lz4,zstd:3 [default: lz4, zstd from -5 to 19, deflate, ppm; to save bytes mix, too]
    #[arg(long, value_name = "CODECS", value_delimiter = ',', value_parser = CodecSpec::of_stream)]
    codec: Vec<CodecSpec>,
    /// Whether the first 64 KiB at most, of what is no longer than 64 MiB, go a round trip sooner where that is 5 ms or more; who
    /// records these and gets the key later can read them: auto (with --psk, as codes are kept in chats), always (with a code, too), or never
    #[arg(long, value_name = "WHEN", default_value = "auto", conflicts_with_all = ["cert", "insecure"])]
    early_data: EarlyData,
    /// The longest time to connect
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    connect_time: Duration,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// When something goes before TLS's handshake has ended.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum EarlyData {
    Auto,
    Always,
    Never,
}

/// Where a receiver waits, and the key if a code says it.
#[derive(Clone, Debug)]
struct Receiver {
    target: Target,
    key: Option<OneTimeKey>,
    /// True if its text is also the name of a file here.
    is_file: bool,
}

const KEY_VARIABLE: &str = "DWELL_KEY";
const CODE_MISSING: &str = "the receiver's code is missing: run `dwell recv` on the other machine, which prints it, and \
                            write it last";

fn receiver(text: &str) -> Result<Receiver, String> {
    let is_file = is_pipe(Path::new(text)) || Path::new(text).symlink_metadata().is_ok();
    match text.parse::<Code>() {
        Ok(Code { at, key }) => {
            let target = Target { host: Host::Ip(at.ip()), port: at.port() };
            Ok(Receiver { target, key: Some(key), is_file })
        }
        Err(error @ CodeError::Mistaken) => Err(error.to_string()),
        Err(CodeError::Other) => {
            let target = target_with_port(text, FILE_PORT).map_err(|error| match is_file {
                true => format!("this is a file here, and {CODE_MISSING}"),
                false => error,
            })?;
            Ok(Receiver { target, key: None, is_file })
        }
    }
}

/// A key. The receiver prints it without dashes; whoever copies it by hand may group it as a code.
fn key(text: &str) -> Result<OneTimeKey, String> {
    let bare: String = text.chars().filter(|it| *it != '-' && !it.is_whitespace()).collect();
    bare.parse().map_err(|_| {
        let found = match text.parse::<Code>() {
            Ok(_) | Err(CodeError::Mistaken) => "this looks like a code".to_owned(),
            Err(CodeError::Other) if bare.bytes().all(|it| it.is_ascii_alphanumeric()) => {
                let (count, has_u) = (bare.len(), bare.contains(['u', 'U']));
                format!(
                    "this has {count} letters and digits{}",
                    if has_u { ", a u among them" } else { "" }
                )
            }
            Err(CodeError::Other) => "this has more than letters and digits".to_owned(),
        };
        format!(
            "{found}. A key of `dwell recv` is 16 letters and digits, none of them u, as \
             1jz0c3k8m2v5x7aq or 1jz0-c3k8-m2v5-x7aq. A code, as 1800-00hv-39rw-wegm-36vk-8p7k, \
             stands in the place of the receiver's address, without a key"
        )
    })
}

/// The key in the variable's text, if there is any: one that is empty is as good as none.
fn key_of_variable(text: &OsStr) -> anyhow::Result<Option<OneTimeKey>> {
    let text = text.to_string_lossy();
    if text.trim().is_empty() {
        return Ok(None);
    }
    key(&text).map(Some).map_err(|why| anyhow!("the variable {KEY_VARIABLE}: {why}"))
}

/// Returns what went wrong, and what to do where the other end may be able to say nothing.
fn failure(error: &TransferError) -> String {
    match error {
        TransferError::Connection(_) => format!(
            "{error}. Start the receiver again in the same directory and send again: what has come there stays, and \
             is not sent twice"
        ),
        _ => error.to_string(),
    }
}

impl SendCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        prepare();
        if self.files.is_empty() {
            let mut command = <Self as clap::Args>::augment_args(clap::Command::new("dwell send"));
            command.error(ErrorKind::MissingRequiredArgument, self.missing()).exit();
        }
        let security = self.security()?;
        let goes_early = match self.early_data {
            EarlyData::Auto => self.protection.has_shared_key(),
            EarlyData::Always => true,
            EarlyData::Never => false,
        };
        let source = self.source()?;
        let what = source.what.clone();
        let mut meter = Meter::new(self.quiet);
        let job = Send {
            source,
            is_quick: self.quick,
            memory_bytes_max: self.memory_max.0,
            to: self.to.target,
            security,
            goes_early,
            compressing: Compression {
                strategy: self.strategy,
                codecs: self.codec,
                objective: self.objective,
                ..Compression::default()
            },
            connect: self.connect_time,
            silence: SILENCE_MAX,
        };
        let sent = send(job, |progress| meter.show(progress));
        meter.clear();
        let summary = match sent {
            Ok(summary) => summary,
            Err(TransferError::Interrupted) => return Ok(ExitCode::from(INTERRUPTED)),
            Err(error) => bail!(printable(&failure(&error))),
        };
        if !self.quiet {
            terminal::note(&format!("sent {}: {}", printable(&what), done(&summary)));
        }
        show_left_out(&summary);
        let all = summary.left_out == 0 && summary.left_out_there == 0;
        Ok(if all { ExitCode::SUCCESS } else { ExitCode::from(LEFT_OUT) })
    }

    /// Says which one is missing, if there is only a receiver or a file.
    fn missing(&self) -> &'static str {
        let has_key = self.to.key.is_some()
            || self.key.is_some()
            || self.protection.is_chosen()
            || std::env::var_os(KEY_VARIABLE).is_some();
        match has_key && !self.to.is_file {
            true => {
                "what is to be sent is missing: name files or directories before the receiver, or - for standard input"
            }
            false => CODE_MISSING,
        }
    }

    fn source(&self) -> anyhow::Result<Source> {
        if let [file] = &self.files[..]
            && is_pipe(file)
        {
            return Ok(Source::pipe(Box::new(io::stdin()), "", "standard input"));
        }
        ensure!(
            !self.files.iter().any(|file| is_pipe(file)),
            "standard input can't be sent beside files: send one after the other"
        );
        Ok(Source::files(&self.files, self.follow)?)
    }

    fn security(&self) -> anyhow::Result<Security> {
        if self.to.key.is_some() && (self.key.is_some() || self.protection.is_chosen()) {
            bail!("a code bears the key: write the receiver's address in its place, or no key");
        }
        let key = self.to.key.as_ref().or(self.key.as_ref());
        let given = match (key, std::env::var_os(KEY_VARIABLE)) {
            (Some(key), _) => Some(key.clone()),
            (None, Some(text)) if !self.protection.is_chosen() => key_of_variable(&text)?,
            _ => None,
        };
        if let Some(key) = given {
            return Ok(Security::Psk(key.secret()));
        }
        if !self.protection.is_chosen() {
            ensure!(!self.to.is_file, "{} is a file here, and {CODE_MISSING}", self.to.target.host);
            bail!(
                "the receiver's key is missing: write the code that `dwell recv` has printed there, or add \
                 --key, or set {KEY_VARIABLE}"
            );
        }
        let host = match &self.to.target.host {
            Host::Ip(ip) => ip.to_string(),
            Host::Name(name) => name.clone(),
        };
        let name = self.receiver_name.clone().or(Some(host));
        self.protection.security(
            &self.to.target.to_string(),
            is_loopback(&self.to.target.host),
            name,
        )
    }
}

fn is_pipe(file: &Path) -> bool {
    file == Path::new("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_and_spaces_in_a_key_do_not_count() {
        let plain = key("1jz0c3k8m2v5x7aq").unwrap();
        for text in ["1jz0-c3k8-m2v5-x7aq", " 1JZ0 C3K8 M2V5 X7AQ\n", "ljzO-c3k8m2v5-x7aq"] {
            let read = key(text).unwrap();
            assert_eq!(read.reveal().as_str(), plain.reveal().as_str(), "{text}");
        }
        assert!(key("0000-0000-0000-0000").is_ok());
    }

    #[test]
    fn what_is_no_key_is_said_with_what_one_looks_like() {
        for (text, expected) in [
            ("0000-0000-0000-000", "this has 15 letters and digits. A key"),
            ("", "this has 0 letters and digits. A key"),
            ("1jz0c3k8m2v5x7au", "16 letters and digits, a u among them. A key"),
            ("1jz0c3k8m2v5x7a!", "more than letters and digits. A key"),
            ("1800-00hv-39rw-wegm-36vk-8p7k", "looks like a code. A key"),
        ] {
            let why = key(text).unwrap_err();
            assert!(why.contains(expected), "{text}: {why}");
        }
    }

    #[test]
    fn an_empty_variable_is_none() {
        assert!(key_of_variable(OsStr::new("")).unwrap().is_none());
        assert!(key_of_variable(OsStr::new(" \n")).unwrap().is_none());
        assert!(key_of_variable(OsStr::new("0000-0000-0000-0000")).unwrap().is_some());
        let why = key_of_variable(OsStr::new("000")).unwrap_err().to_string();
        assert!(why.contains("the variable DWELL_KEY: this has 3 "), "{why}");
    }
}
