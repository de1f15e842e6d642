//! The options that both ends have.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use dwell_base::ByteSize;
use dwell_base::time::parse_duration_ns;
use dwell_cli::terminal;
use dwell_codec::CodecSpec;
use dwell_confine::privilege::{self, User};
use dwell_proxy::security::{Certificates, Security, read_psk};
use dwell_proxy::{
    Bound, Common, Compression, ConfigError, EarlierStreams, Limits, StreamLog, default_status,
    is_framed,
};
use dwell_stream::{Objective, Strategy};

use crate::descriptors;
use crate::logging::Unblocking;

const SECURITY: &str = "Security";
const COMPRESSION: &str = "Compression";
const LIMITS: &str = "Limits";

/// The protection of the connection between two ends.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::commands) struct Protection {
    /// The key that both ends share, in a file that only its owner may read (`dwell genpsk`)
    #[arg(long, value_name = "FILE", help_heading = SECURITY)]
    #[arg(conflicts_with_all = ["cert", "insecure"])]
    psk: Option<PathBuf>,
    /// This end's certificate in PEM form, with those between it and the authority
    #[arg(long, value_name = "FILE", requires = "cert_key", requires = "ca", help_heading = SECURITY)]
    cert: Option<PathBuf>,
    /// The private key of the certificate, in a file that only its owner may read
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = SECURITY)]
    cert_key: Option<PathBuf>,
    /// The authority that the other end's certificate must be signed by
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = SECURITY)]
    ca: Option<PathBuf>,
    /// Neither encrypt nor authenticate, though it is not on this machine: something else does
    #[arg(long, conflicts_with = "cert", help_heading = SECURITY)]
    insecure: bool,
}

impl Protection {
    /// Returns true if any of it was chosen.
    pub(in crate::commands) const fn is_chosen(&self) -> bool {
        self.psk.is_some() || self.cert.is_some() || self.insecure
    }

    /// Returns true if it is by a key that both ends keep.
    pub(in crate::commands) const fn has_shared_key(&self) -> bool {
        self.psk.is_some()
    }

    /// Returns the options that the other end needs to match.
    pub(in crate::commands) fn like_this(&self) -> String {
        match (&self.psk, &self.cert) {
            (Some(_), _) => "--psk KEYFILE".to_owned(),
            (_, Some(_)) => "--cert FILE --cert-key FILE --ca FILE".to_owned(),
            _ => "--insecure".to_owned(),
        }
    }

    /// Returns the security that was asked for; none if the other end can only be on this machine. `name` is what
    /// the other end's certificate must bear.
    pub(in crate::commands) fn security(
        &self,
        place: &str,
        is_loopback: bool,
        name: Option<String>,
    ) -> anyhow::Result<Security> {
        if let Some(psk) = &self.psk {
            return Ok(Security::Psk(read_psk(psk)?));
        }
        if let (Some(certificate), Some(key), Some(ca)) = (&self.cert, &self.cert_key, &self.ca) {
            return Ok(Security::Certificates(Certificates {
                certificate: certificate.clone(),
                key: key.clone(),
                authorities: ca.clone(),
                name,
            }));
        }
        if !is_loopback && !self.insecure {
            return Err(ConfigError::Unprotected(place.to_owned()).into());
        }
        if !is_loopback {
            tracing::warn!("what passes {place} is neither encrypted nor authenticated");
        }
        Ok(Security::None)
    }
}

/// The options that both ends of a pair have.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    #[command(flatten)]
    pub(super) protection: Protection,
    /// The name for `dwell status` [default: ingress, or egress]
    #[arg(long)]
    name: Option<String>,
    /// Path of the status socket [default: where `dwell status` looks]
    #[arg(long, value_name = "PATH", conflicts_with = "no_status")]
    status: Option<PathBuf>,
    /// Have no status socket
    #[arg(long)]
    no_status: bool,
    /// If root starts it: the user to become once sockets are bound and keys are read; none: to
    /// remain root, without its capabilities [default: nobody]
    #[arg(long, value_name = "NAME", help_heading = SECURITY)]
    user: Option<String>,
    /// Write a line on standard output about each stream when it has ended: from where to where, how it ended,
    /// and its bytes; as a sentence, or as JSON
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "text")]
    log_streams: Option<LogForm>,
    /// Do not limit the process to the system calls that it needs
    #[arg(long, help_heading = SECURITY)]
    no_seccomp: bool,
    /// Strategy of this end: raw, all, switch, mix, mix-2in or hull (mix-2out is taken for
    /// mix-2in) [default: what the other end wishes, or hull]
    #[arg(long, value_parser = strategy, help_heading = COMPRESSION)]
    strategy: Option<Strategy>,
    /// Strategy proposed to the other end, which uses it unless it has one of its own
    #[arg(long, value_name = "STRATEGY", value_parser = strategy, help_heading = COMPRESSION)]
    wish: Option<Strategy>,
    /// What hull is to save: time; or bytes, on a link that is paid for, though it may take up to four times as long.
    /// Proposed to the other end, too [default: what the other end wishes, or time]
    #[arg(long, value_name = "WHAT", value_parser = objective, help_heading = COMPRESSION)]
    #[arg(conflicts_with = "strategy")]
    objective: Option<Objective>,
    /// The codecs that this end may use, as lz4,zstd:3 [default: lz4, zstd from -5 to 9, deflate]
    #[arg(long, value_name = "CODECS", value_delimiter = ',', help_heading = COMPRESSION)]
    codec: Vec<CodecSpec>,
    /// What a stream may refer to: only to what came on it (stream), also to what came before on streams of the same
    /// client, by its address and the name that it gave to SOCKS, to the same target (client), or to what came on any (all).
    /// An egress takes client and all alike: the ingress knows clients
    #[arg(long, value_name = "WHAT", default_value = "client", help_heading = COMPRESSION)]
    refer_to: ReferTo,
    /// Streams at once [default: as many as memory and file descriptors allow]
    #[arg(long, value_name = "COUNT", help_heading = LIMITS)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    streams_max: Option<u32>,
    /// Memory that all streams together may hold; about 1.4 MB each at most while it moves something, and
    /// hardly any while it is idle
    #[arg(long, value_name = "SIZE", default_value = "1536MiB", help_heading = LIMITS)]
    memory_max: ByteSize,
    /// A stream on which nothing has moved for this long is given up
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration)]
    #[arg(help_heading = LIMITS)]
    idle: Duration,
    /// While others wait for room: a stream whose program has not read for this long is given up
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    #[arg(help_heading = LIMITS)]
    stall_time: Duration,
    /// The longest time to connect to a target
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    #[arg(help_heading = LIMITS)]
    connect_time: Duration,
    /// The longest time that the other end, or a SOCKS client, has to say what it wants
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    #[arg(help_heading = LIMITS)]
    handshake_time: Duration,
}

/// What a stream may refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ReferTo {
    Stream,
    Client,
    All,
}

impl From<ReferTo> for EarlierStreams {
    fn from(what: ReferTo) -> Self {
        match what {
            ReferTo::Stream => Self::None,
            ReferTo::Client => Self::Client,
            ReferTo::All => Self::All,
        }
    }
}

/// The form of lines about streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LogForm {
    Text,
    Json,
}

/// Writes a line about each stream to standard output, if that takes it at once.
fn stream_log(form: LogForm) -> StreamLog {
    let out = Mutex::new(Unblocking::new(io::stdout()));
    StreamLog::new(move |record| {
        let line = match form {
            LogForm::Text => format!("{record}\n"),
            LogForm::Json => record.to_json() + "\n",
        };
        // What can't be written is counted there.
        let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = out.write_all(line.as_bytes());
    })
}

/// What is to be saved.
pub(in crate::commands) fn objective(text: &str) -> Result<Objective, String> {
    text.parse()
}

/// A strategy that a proxy can use.
pub(in crate::commands) fn strategy(text: &str) -> Result<Strategy, String> {
    let strategy: Strategy =
        text.parse().map_err(|error: dwell_stream::ParseStrategyError| error.to_string())?;
    if !is_framed(strategy) {
        return Err(format!(
            "{strategy} does not say where a stream ends: it is there to be compared with, not \
             for a proxy"
        ));
    }
    Ok(strategy)
}

/// A time from a second to a year, for instance `90s`, `5min` or `24h`.
pub(in crate::commands) fn duration(text: &str) -> Result<Duration, String> {
    const SECONDS: std::ops::RangeInclusive<u64> = 1..=366 * 24 * 3600;
    let time = Duration::from_nanos(parse_duration_ns(text)?);
    if SECONDS.contains(&time.as_secs()) {
        Ok(time)
    } else {
        Err("it must be from a second to a year".to_owned())
    }
}

/// Says where a proxy listens: a line for each place.
pub(super) fn listening(places: &[String]) {
    places.iter().for_each(|place| terminal::note(&format!("listening at {place}")));
}

/// The user that a proxy becomes by default, and the numbers of that user everywhere.
const NOBODY: (&str, User) = ("nobody", User { uid: 65_534, gid: 65_534 });

/// The user to become; none to remain who started it.
fn user(
    name: Option<&str>,
    is_root: bool,
    can_become: impl Fn(User) -> bool,
) -> anyhow::Result<Option<User>> {
    match name {
        Some("none") => Ok(None),
        Some(name) if !is_root => {
            tracing::warn!("only root can become \"{name}\": this goes on as it is");
            Ok(None)
        }
        Some(name) => {
            let found = User::named(name).with_context(|| format!("--user {name}"))?;
            Ok(Some(found))
        }
        None if is_root => {
            let nobody = User::named(NOBODY.0).unwrap_or(NOBODY.1);
            if can_become(nobody) {
                return Ok(Some(nobody));
            }
            tracing::warn!("this process can't become \"nobody\": it remains root");
            Ok(None)
        }
        None => Ok(None),
    }
}

impl Options {
    /// For the end `role`, which is protected so, and needs some of this many file descriptors for
    /// something else than streams.
    pub(super) fn common(
        self,
        role: &str,
        security: Security,
        descriptors_besides: impl FnOnce(u64) -> u64,
    ) -> anyhow::Result<Common> {
        let name = self.name.unwrap_or_else(|| role.to_owned());
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        ensure!(
            !name.is_empty()
                && name.len() <= 64
                && name.bytes().all(plain)
                && !name.starts_with('.'),
            "--name {name}: use up to 64 letters, digits, hyphens, dots and underscores"
        );
        let status = match (self.status, self.no_status) {
            (_, true) => None,
            (Some(path), _) => Some(path),
            (None, _) => default_status(&name),
        };
        let descriptors_max = descriptors::raise();
        let wanted = self.streams_max.map(usize::try_from).transpose()?;
        let limits = Limits {
            streams_max: wanted.unwrap_or(usize::MAX),
            memory_bytes_max: self.memory_max.0,
            descriptors_max,
            descriptors_besides: descriptors_besides(descriptors_max),
            handshake: self.handshake_time,
            connect: self.connect_time,
            idle: self.idle,
            stall: self.stall_time,
        };
        if let Some(warning) = shortage(&limits, wanted) {
            tracing::warn!("{warning}");
        }
        let compressing = Compression {
            strategy: self.strategy,
            codecs: self.codec,
            wish: self.wish,
            objective: self.objective,
            earlier: self.refer_to.into(),
        };
        let user = user(self.user.as_deref(), privilege::is_root(), privilege::can_become)?;
        let stream_log = self.log_streams.map(stream_log);
        let seccomp = !self.no_seccomp;
        Ok(Common { name, status, security, compressing, limits, user, seccomp, stream_log })
    }
}

/// A proxy that may have fewer streams than that says why.
const FEW_STREAMS: usize = 1000;

/// Returns a warning if there may be fewer streams than was asked for, or than memory allows.
fn shortage(limits: &Limits, wanted: Option<usize>) -> Option<String> {
    let (bound, streams) = limits.bound();
    let most = wanted.map_or_else(String::new, |wanted| format!(", not {wanted}"));
    match bound {
        Bound::Descriptors if wanted.is_some() || streams < FEW_STREAMS => Some(format!(
            "at most {streams} streams at once{most}: this process may have {} file descriptors, and \
             each stream takes two; raise the hard limit (`ulimit -Hn`, or LimitNOFILE= in a systemd \
             unit)",
            limits.descriptors_max
        )),
        Bound::Memory if wanted.is_some() => Some(format!(
            "at most {streams} streams at once{most}: --memory-max {} leaves no room for more",
            ByteSize(limits.memory_bytes_max)
        )),
        Bound::Descriptors | Bound::Memory | Bound::Streams => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bounds_streams_is_named() {
        let limits = Limits::default();
        assert_eq!(shortage(&limits, None), None);
        let few = Limits { descriptors_max: 1024, ..limits.clone() };
        let said = shortage(&few, None).unwrap();
        assert!(
            said.starts_with("at most 480 streams at once: this process may have 1024"),
            "{said}"
        );
        let wanted = Limits { streams_max: 20_000, ..limits };
        let said = shortage(&wanted, Some(20_000)).unwrap();
        assert!(
            said.contains("16384 streams at once, not 20000: --memory-max 1610.6 MB"),
            "{said}"
        );
        let wanted = Limits { streams_max: 100, ..few };
        assert_eq!(shortage(&wanted, Some(100)), None);
    }

    #[test]
    fn times_have_units_and_bounds() {
        assert_eq!(duration("24h"), Ok(Duration::from_secs(86_400)));
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        for bad in ["0s", "1ns", "h", "99999h", "soon"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_root_becomes_somebody_else() {
        let user = |name, is_root, can: bool| super::user(name, is_root, |_| can);
        assert_eq!(user(None, true, true).unwrap(), Some(NOBODY.1));
        assert_eq!(user(None, true, false).unwrap(), None);
        assert_eq!(user(Some("none"), true, true).unwrap(), None);
        assert_eq!(user(Some("root"), true, true).unwrap(), Some(User { uid: 0, gid: 0 }));
        assert!(user(Some("no such user"), true, true).is_err());
        assert_eq!(user(None, false, true).unwrap(), None);
        assert_eq!(user(Some("nobody"), false, true).unwrap(), None);
    }

    #[test]
    fn strategies_must_say_their_end() {
        assert_eq!(strategy("hull"), Ok(Strategy::Hull));
        assert!(strategy("plain").unwrap_err().contains("not for a proxy"));
    }
}
