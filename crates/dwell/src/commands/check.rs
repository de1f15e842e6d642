//! `dwell check`: reads a configuration and reports what is wrong with it.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use dwell_base::{FileError, FileErrors};
use dwell_relay::config::{Config, FailMode, MtuConfig, PeerConfig, RateConfig, Security, sample};
use dwell_report::{Column, Table, human};
use serde::Serialize;

use dwell_cli::terminal;

use crate::memory;

const AFTER_HELP: &str = "\
Examples:
  dwell check --sample > site-a.toml   a configuration to begin with
  dwell check site-a.toml              its values, and what is wrong with it
  dwell check --json site-a.toml       the same for programs
  dwell check --no-routes site-a.toml  on another machine than the relay's

Exit codes:
  0  the configuration is valid, perhaps with warnings
  1  it is not, or a file could not be read
  2  the command line is wrong";

/// Read a configuration and report what is wrong with it
///
/// Secrets that the configuration names are read too, so that their permissions are checked. The
/// routes of this machine are checked for those that would lead packets past the tunnel, its memory for what
/// contexts may take, and whether the interface can be made.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Check {
    /// The configuration file
    #[arg(required_unless_present = "sample", conflicts_with = "sample")]
    file: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long, conflicts_with = "sample")]
    json: bool,
    /// Do not check routes, memory and interfaces of this machine: the configuration is for another one
    #[arg(long, conflicts_with = "sample")]
    no_routes: bool,
    /// Print a commented configuration with every key and its default value
    #[arg(long)]
    sample: bool,
}

impl Check {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Some(file) = self.file else {
            terminal::print(sample())?;
            return Ok(ExitCode::SUCCESS);
        };
        let result = Config::load(&file);
        let mut warnings = result.as_ref().map_or_else(|_| Vec::new(), Config::warnings);
        if let (Ok(config), false) = (&result, self.no_routes) {
            warnings.extend(start_warning(config));
            warnings.extend(dwell_relay::route_warnings(config));
            warnings.extend(config.memory_warning(memory::machine_bytes()));
        }
        if self.json {
            let mut json = serde_json::to_string_pretty(&Report::of(&result, warnings))?;
            json.push('\n');
            terminal::print(&json)?;
        } else {
            match &result {
                Ok(config) => report(&file.display().to_string(), config, &warnings)?,
                Err(errors) => complain(errors),
            }
        }
        Ok(if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// What would keep a relay with this configuration from starting here. The file is valid all the same, since it may
/// be for another machine.
fn start_warning(config: &Config) -> Option<String> {
    let obstacle = dwell_relay::io::tun::obstacle(&config.node.tun)?;
    Some(format!("on this machine a relay that is started as this check was {obstacle}"))
}

/// Tells everything that is wrong with a configuration.
pub(super) fn complain(errors: &FileErrors) {
    terminal::note(&errors.to_string());
    let count = match errors.errors.len() {
        1 => "1 error".to_owned(),
        count => format!("{count} errors"),
    };
    terminal::complain(
        "dwell",
        &format!("{} has {count}: correct it and check again", errors.file),
    );
}

fn report(file: &str, config: &Config, warnings: &[String]) -> anyhow::Result<()> {
    terminal::print(&summary(file, config))?;
    for warning in warnings {
        terminal::complain("warning", warning);
    }
    Ok(())
}

fn summary(file: &str, config: &Config) -> String {
    let node = &config.node;
    let mtu = match node.mtu {
        MtuConfig::Auto => "auto".to_owned(),
        MtuConfig::Fixed(bytes) => bytes.to_string(),
    };
    let mut out = format!("{file} is valid.\n\n");
    // Writing to a string can't fail.
    let _ = writeln!(
        out,
        "node {}: interface {} {}, MTU {mtu}, listens on {}\n",
        node.name,
        node.tun,
        list(&node.addresses),
        node.listen
    );
    let mut table = Table::new([
        Column::left("peer"),
        Column::left("endpoint"),
        Column::left("security"),
        Column::left("while down"),
        Column::left("scheme"),
        Column::left("codec"),
        Column::right("rate"),
        Column::left("prefixes"),
    ]);
    for peer in &config.peers {
        table.row([
            peer.name.clone(),
            endpoint(peer).unwrap_or_else(|| "waits to be contacted".to_owned()),
            peer.security.name().to_owned(),
            match peer.on_dead {
                FailMode::Closed => "refuses packets".to_owned(),
                FailMode::Open => "sends them unprotected".to_owned(),
            },
            peer.scheme_name.to_owned(),
            peer.codec_name(),
            rate(peer.rate),
            list(&peer.prefixes),
        ]);
    }
    out + &table.to_text()
}

fn list(items: &[impl ToString]) -> String {
    match items {
        [] => human::NOTHING.to_owned(),
        items => items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    }
}

fn endpoint(peer: &PeerConfig) -> Option<String> {
    peer.endpoint.as_ref().map(ToString::to_string)
}

fn rate(rate: RateConfig) -> String {
    match rate {
        RateConfig::Auto => "auto".to_owned(),
        RateConfig::Local => "local".to_owned(),
        RateConfig::Unlimited => "unlimited".to_owned(),
        RateConfig::Fixed(rate) => rate.to_string(),
    }
}

/// The document that `--json` prints.
#[derive(Serialize)]
struct Report {
    valid: bool,
    errors: Vec<Problem>,
    warnings: Vec<String>,
    node: Option<String>,
    peers: Vec<Peer>,
}

#[derive(Serialize)]
struct Problem {
    line: Option<usize>,
    place: Option<String>,
    message: String,
}

#[derive(Serialize)]
struct Peer {
    name: String,
    endpoint: Option<String>,
    prefixes: Vec<String>,
    encrypted: bool,
    on_dead: &'static str,
    scheme: &'static str,
    codec: String,
    rate: String,
    rate_bps: Option<u64>,
}

impl Report {
    fn of(result: &Result<Config, FileErrors>, warnings: Vec<String>) -> Self {
        match result {
            Ok(config) => Self {
                valid: true,
                errors: Vec::new(),
                warnings,
                node: Some(config.node.name.clone()),
                peers: config.peers.iter().map(Peer::of).collect(),
            },
            Err(errors) => Self {
                valid: false,
                errors: errors.errors.iter().map(Problem::of).collect(),
                warnings: Vec::new(),
                node: None,
                peers: Vec::new(),
            },
        }
    }
}

impl Problem {
    fn of(error: &FileError) -> Self {
        Self { line: error.line, place: error.place.clone(), message: error.message.clone() }
    }
}

impl Peer {
    fn of(peer: &PeerConfig) -> Self {
        Self {
            name: peer.name.clone(),
            endpoint: endpoint(peer),
            prefixes: peer.prefixes.iter().map(ToString::to_string).collect(),
            encrypted: peer.security != Security::None,
            on_dead: peer.on_dead.name(),
            scheme: peer.scheme_name,
            codec: peer.codec_name(),
            rate: rate(peer.rate),
            rate_bps: match peer.rate {
                RateConfig::Fixed(rate) => Some(rate.as_bps()),
                RateConfig::Auto | RateConfig::Local | RateConfig::Unlimited => None,
            },
        }
    }
}
