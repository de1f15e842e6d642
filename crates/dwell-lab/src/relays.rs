//! Two relays at the ends of a thin link: their configuration, their processes, their counters.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dwell_base::Rate;
use dwell_report::Status;
use dwell_report::status::PeerState;
use rustix::process::Signal;
use thiserror::Error;

use crate::lab::topology::Pair;
use crate::lab::{Host, Lab, LabError, Process};

/// The rate of the link in the relays' configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayRate {
    /// Measured by back-pressure and by reports.
    Auto,
    /// Measured by back-pressure only.
    Local,
    /// Never busy.
    Unlimited,
    /// Configured.
    Fixed(Rate),
}

impl fmt::Display for RelayRate {
    /// Writes it as in a configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Local => f.write_str("local"),
            Self::Unlimited => f.write_str("unlimited"),
            Self::Fixed(rate) => write!(f, "{}bit", rate.as_bps()),
        }
    }
}

/// The settings that the two relays have in common.
#[derive(Clone, Debug)]
pub struct RelaySettings {
    /// A preset.
    pub scheme: String,
    /// The codec in the syntax of `dwell check`: `lz4`, `zstd:1`.
    pub codec: String,
    /// The link's rate.
    pub rate: RelayRate,
    /// True if datagrams are sealed with a fresh key, false if they are in the clear.
    pub sealed: bool,
    /// True if sealed sessions use key pairs instead of a pre-shared key.
    pub keyed: bool,
    /// True if relays between others forward compressed packets without decompression.
    pub transit: bool,
    /// True if the kernel may hand over uncut packets.
    pub offload: bool,
    /// More lines for `[defaults]`; a `rate` among them goes before the other one.
    pub extra: String,
    /// More lines for `[node]`.
    pub node: String,
}

impl Default for RelaySettings {
    fn default() -> Self {
        Self {
            scheme: "packet".to_owned(),
            codec: "zstd:1".to_owned(),
            rate: RelayRate::Auto,
            sealed: true,
            keyed: false,
            transit: false,
            offload: true,
            extra: String::new(),
            node: String::new(),
        }
    }
}

/// The reason why the relays don't run.
#[derive(Debug, Error)]
pub enum RelayError {
    /// An error of the lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// An error of a file or a socket.
    #[error("{what}: {source}")]
    Io {
        /// The attempted action.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// A relay ended, or never found its peer.
    #[error("{what}; its log says:\n{log}")]
    Relay {
        /// The failure.
        what: String,
        /// The end of its log.
        log: String,
    },
}

/// One relay.
#[derive(Debug)]
pub struct Relay {
    name: String,
    dwell: PathBuf,
    host: Host,
    process: Process,
    status: PathBuf,
    log: PathBuf,
    config: PathBuf,
    /// The directory of its journals, if it keeps some.
    journal: Option<PathBuf>,
}

/// A relay at each end of the thin link.
#[derive(Debug)]
pub struct Relays {
    /// At the clients' end.
    pub ingress: Relay,
    /// At the servers' end.
    pub egress: Relay,
}

impl Relays {
    /// Starts two relays with the program `dwell` and waits until each receives datagrams from the
    /// other.
    ///
    /// # Errors
    /// If one does not start, or they don't find each other within ten seconds.
    pub fn start(
        lab: &Lab,
        pair: &Pair,
        dwell: &Path,
        settings: &RelaySettings,
    ) -> Result<Self, RelayError> {
        let directory = lab.directory().join("relays");
        let io = |what: &str| {
            let what = what.to_owned();
            move |source| RelayError::Io { what, source }
        };
        std::fs::create_dir_all(&directory).map_err(io("make a directory for the relays"))?;
        let psk = directory.join("pair.psk");
        write_secret(&psk).map_err(io("write the key"))?;
        let mut public = BTreeMap::new();
        if settings.sealed && settings.keyed {
            for name in ["ingress", "egress"] {
                let key = directory.join(format!("{name}.key"));
                let made = make_keys(dwell, &key).map_err(io("make a pair of keys"))?;
                public.insert(name, made);
            }
        }
        let start = |side: &Side<'_>| -> Result<Relay, RelayError> {
            let config = directory.join(format!("{}.toml", side.name));
            let text = side.config(&directory, (&psk, &public), settings);
            std::fs::write(&config, text).map_err(io("write a configuration"))?;
            Relay::start(side.name, side.host.clone(), dwell, config, &directory)
        };
        let ingress = start(&Side::ingress(pair))?;
        let egress = start(&Side::egress(pair))?;
        let mut relays = Self { ingress, egress };
        relays.wait_until_up()?;
        Ok(relays)
    }

    /// Writes another rate where this one is in both configurations, and lets the relays read them.
    ///
    /// # Errors
    /// If a configuration can't be changed, or a relay can't be signalled.
    pub fn set_rate(&mut self, from: Rate, to: Rate) -> Result<(), RelayError> {
        let line = |rate| format!("rate = \"{}\"\n", RelayRate::Fixed(rate));
        for relay in [&mut self.ingress, &mut self.egress] {
            let failed = |source| RelayError::Io { what: "change a rate".to_owned(), source };
            let text = std::fs::read_to_string(&relay.config).map_err(failed)?;
            std::fs::write(&relay.config, text.replace(&line(from), &line(to))).map_err(failed)?;
            relay.process.signal(Signal::HUP)?;
        }
        Ok(())
    }

    /// Waits until each receives something from the other.
    ///
    /// # Errors
    /// If one ends, or they don't find each other within ten seconds.
    pub fn wait_until_up(&mut self) -> Result<(), RelayError> {
        self.ingress.wait_for_peer(Duration::from_secs(10))?;
        self.egress.wait_for_peer(Duration::from_secs(10))
    }

    /// Stops both by SIGTERM, and waits for them.
    ///
    /// # Errors
    /// If one can't be waited for.
    pub fn stop(&mut self) -> Result<(), RelayError> {
        self.ingress.process.stop()?;
        self.egress.process.stop()?;
        Ok(())
    }
}

impl Relay {
    /// Starts a relay with the program `dwell` and this configuration, whose status socket must be
    /// `directory/name.sock`. It logs to `directory/name.log`.
    ///
    /// # Errors
    /// If it can't be started.
    pub fn start(
        name: &str,
        host: Host,
        dwell: &Path,
        config: PathBuf,
        directory: &Path,
    ) -> Result<Self, RelayError> {
        let log = directory.join(format!("{name}.log"));
        let failed = |source| RelayError::Io { what: format!("start {name}"), source };
        let errors = std::fs::File::create(&log).map_err(failed)?;
        let process = spawn(&host, dwell, &config, None, errors.into())?;
        let status = directory.join(format!("{name}.sock"));
        let (name, dwell) = (name.to_owned(), dwell.to_owned());
        Ok(Self { name, dwell, host, process, status, log, config, journal: None })
    }

    /// Ends it by SIGKILL, without a farewell to its peer, like a power failure.
    ///
    /// # Errors
    /// If it can't be signalled, or does not end.
    pub fn kill(&mut self) -> Result<(), RelayError> {
        self.process.signal(Signal::KILL)?;
        match self.process.wait_timeout(Duration::from_secs(10))? {
            Some(_) => Ok(()),
            None => Err(self.failed(format!("{} outlives SIGKILL", self.name))),
        }
    }

    /// Starts it again, once it has ended, with its present configuration. It logs to `errors`, or
    /// else appends to its log.
    ///
    /// # Errors
    /// If it can't be started.
    pub fn restart(&mut self, errors: Option<Stdio>) -> Result<(), RelayError> {
        let failed = |source| RelayError::Io { what: format!("restart {}", self.name), source };
        let errors = match errors {
            Some(errors) => errors,
            None => std::fs::File::options().append(true).open(&self.log).map_err(failed)?.into(),
        };
        self.process =
            spawn(&self.host, &self.dwell, &self.config, self.journal.as_deref(), errors)?;
        Ok(())
    }

    /// Lets it be another program from the next start on: an older one, or a newer.
    pub fn set_program(&mut self, dwell: PathBuf) {
        self.dwell = dwell;
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Lets it keep journals in this directory from the next start on.
    pub fn keep_journals(&mut self, directory: PathBuf) {
        self.journal = Some(directory);
    }

    /// Returns the host on which it runs.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Returns its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Returns the path of its status socket.
    #[must_use]
    pub fn status_path(&self) -> &Path {
        &self.status
    }

    /// Returns its configuration file: change it, and send SIGHUP.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Returns its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns its state and counters.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn status(&self) -> Result<Status, RelayError> {
        let failed = |source| RelayError::Io { what: format!("ask {}", self.name), source };
        let mut text = String::new();
        let mut stream = UnixStream::connect(&self.status).map_err(failed)?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(failed)?;
        stream.read_to_string(&mut text).map_err(failed)?;
        serde_json::from_str(&text).map_err(|error| failed(error.into()))
    }

    /// Waits until its peer answers.
    ///
    /// # Errors
    /// If the relay ends, or the peer stays silent for `patience`.
    pub fn wait_for_peer(&mut self, patience: Duration) -> Result<(), RelayError> {
        let end = Instant::now() + patience;
        while Instant::now() < end {
            if let Ok(Some(exit)) = self.process.try_wait() {
                return Err(self.failed(format!("{} ended with {exit}", self.name)));
            }
            let up = |status: Status| status.peers.iter().all(|p| p.state == PeerState::Up);
            if self.status().is_ok_and(up) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(self.failed(format!("{} receives nothing from its peer", self.name)))
    }

    fn failed(&self, what: String) -> RelayError {
        let log = self.log();
        let from = log.len().saturating_sub(2000);
        RelayError::Relay { what, log: log.get(from..).unwrap_or(&log).to_owned() }
    }
}

fn spawn(
    host: &Host,
    dwell: &Path,
    config: &Path,
    journal: Option<&Path>,
    errors: Stdio,
) -> Result<Process, LabError> {
    let mut command = host.command(dwell);
    command.arg("relay").arg("--config").arg(config).stdout(Stdio::null()).stderr(errors);
    if let Some(directory) = journal {
        command.arg("--journal").arg(directory);
    }
    Process::spawn(&mut command)
}

/// The differences between the two ends.
struct Side<'a> {
    name: &'static str,
    host: &'a Host,
    address: &'static str,
    endpoint: &'static str,
    prefixes: &'static str,
}

impl<'a> Side<'a> {
    fn ingress(pair: &'a Pair) -> Self {
        Self {
            name: "ingress",
            host: &pair.ingress,
            address: r#""10.77.0.1/30", "fd77::1/126""#,
            endpoint: "10.0.0.2:7733",
            prefixes: r#""10.2.0.0/24", "fd00:2::/64", "10.77.0.2/32", "fd77::2/128""#,
        }
    }

    fn egress(pair: &'a Pair) -> Self {
        Self {
            name: "egress",
            host: &pair.egress,
            address: r#""10.77.0.2/30", "fd77::2/126""#,
            endpoint: "10.0.0.1:7733",
            prefixes: r#""10.1.0.0/24", "fd00:1::/64", "10.77.0.1/32", "fd77::1/128""#,
        }
    }

    fn config(
        &self,
        directory: &Path,
        (psk, public): (&Path, &BTreeMap<&str, String>),
        settings: &RelaySettings,
    ) -> String {
        let RelaySettings { scheme, codec, offload, extra, node, .. } = settings;
        let is_rate = |line: &str| line.split('=').next().is_some_and(|key| key.trim() == "rate");
        let rate = match extra.lines().any(is_rate) {
            true => String::new(),
            false => format!("rate = \"{}\"\n", settings.rate),
        };
        let other = if self.name == "ingress" { "egress" } else { "ingress" };
        let mut private = String::new();
        let security = if let Some(key) = public.get(other) {
            private = format!("private_key_file = \"{}.key\"\n", self.name);
            format!("public_key = {key:?}")
        } else if settings.sealed {
            format!("psk_file = {:?}", psk.display().to_string())
        } else {
            "security = \"none\"".to_owned()
        };
        let mut text = String::new();
        let _ = write!(
            text,
            "[savings]\nfile = \"none\"\n[node]\nname = \"{name}\"\naddresses = [{address}]\noffload = {offload}\n\
             status = \"{directory}/{name}.sock\"\n{private}{node}\n\
             [defaults]\nscheme = \"{scheme}\"\ncodec = \"{codec}\"\n{rate}{extra}\n\n\
             [[peer]]\nname = \"other\"\nendpoint = \"{endpoint}\"\nprefixes = [{prefixes}]\n\
             {security}\n",
            name = self.name,
            address = self.address,
            directory = directory.display(),
            endpoint = self.endpoint,
            prefixes = self.prefixes,
        );
        text
    }
}

/// Makes a private key with the program; returns its public key.
fn make_keys(dwell: &Path, file: &Path) -> io::Result<String> {
    let _ = std::fs::remove_file(file); // of relays before
    let run = |command: &mut Command| {
        let output = command.output()?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        } else {
            Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
        }
    };
    run(Command::new(dwell).arg("genkey").arg("--out").arg(file))?;
    run(Command::new(dwell).arg("pubkey").arg(file))
}

/// Writes a key of the lab's own: random enough for two namespaces on one machine.
///
/// # Errors
/// If the file can't be written.
pub fn write_secret(path: &Path) -> io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt;
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    writeln!(file, "{hex}")
}
