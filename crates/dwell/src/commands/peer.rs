//! `dwell peer`: the peers of this machine's node, while it runs or not.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use dwell_relay::config::{Endpoint, PeerConfig, PublicKey, RateConfig, Security};
use dwell_relay::pairing::Line;
use dwell_relay::pairing::edit::{self, NewPeer};
use dwell_report::{Column, Table, human};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::init::rate;
use super::join::{Joining, Options, add_by_hand, next_step};
use super::node;
use super::site::{DEFAULT_CONFIG, Site};
use dwell_cli::terminal;

const AFTER_HELP: &str = "\
Examples:
  sudo dwell peer list                 the peers, and whether they are up
  sudo dwell peer add LINE             as `dwell join LINE`, at a node that is there
  sudo dwell peer add --as hub --public-key KEY --prefix 10.0.0.0/8 --endpoint hub.example.net:7733
  sudo dwell peer remove site-b        it is gone at once, with its routes

Comments and everything else in the configuration stay as they are. A relay that runs takes the
change without losing packets to other peers.

Exit codes:
  0  the job is done
  1  the job failed; the configuration is as it was
  2  the command line is wrong";

/// List, add and remove the peers of this machine's node
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Peer {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the peers
    List(List),
    /// Add a peer, by its line or by its values
    Add(Box<Add>),
    /// Remove peers
    Remove(Remove),
}

#[derive(Debug, clap::Args)]
struct List {
    /// The configuration file
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    config: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Add {
    /// The line of the other end
    #[arg(required_unless_present = "public_key", conflicts_with = "public_key")]
    line: Vec<String>,
    /// The configuration file
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    config: PathBuf,
    #[command(flatten)]
    options: Options,
    /// The peer's public key, if there is no line
    #[arg(long, value_name = "KEY", requires = "alias", requires = "prefixes")]
    public_key: Option<PublicKey>,
    /// A network behind the peer; may be repeated
    #[arg(long = "prefix", value_name = "PREFIX", value_delimiter = ',', requires = "public_key")]
    prefixes: Vec<IpNet>,
    /// The address and port at which the peer listens
    #[arg(long, value_name = "HOST:PORT", requires = "public_key")]
    endpoint: Option<Endpoint>,
    /// The rate of the link to it
    #[arg(long, value_parser = rate, requires = "public_key")]
    rate: Option<RateConfig>,
}

#[derive(Debug, clap::Args)]
struct Remove {
    /// The peers' names
    #[arg(required = true)]
    names: Vec<String>,
    /// The configuration file
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    config: PathBuf,
}

impl Peer {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::List(list) => list.run()?,
            Command::Add(add) => add.run()?,
            Command::Remove(remove) => remove.run()?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Add {
    fn run(self) -> anyhow::Result<()> {
        let mut site = Site::existing(&self.config)?;
        let Some(public_key) = self.public_key else {
            let line: Line = self.line.concat().parse()?;
            let joining = Joining { site, line, options: self.options, rate: self.rate };
            joining.options.fit(&joining.line)?;
            let (joining, outcome) = joining.check()?.add()?;
            terminal::note(&outcome);
            joining.site.reload()?;
            if let Some((answer, code)) = joining.answer()? {
                terminal::note(&next_step(&answer, &code));
            }
            return Ok(());
        };
        let new = NewPeer {
            name: self.options.alias.unwrap_or_default(),
            public_key,
            endpoint: self.endpoint,
            prefixes: self.prefixes,
            psk_file: self.options.psk,
            rate: self.rate,
        };
        if self.options.force && site.config.peers.iter().any(|peer| peer.name == new.name) {
            site.text = edit::remove_peer(&site.text, &new.name)?;
        }
        add_by_hand(&mut site, &new)?;
        terminal::note(&format!("added the peer \"{}\" in {}", new.name, self.config.display()));
        site.reload()?;
        Ok(())
    }
}

impl Remove {
    fn run(self) -> anyhow::Result<()> {
        let mut site = Site::existing(&self.config)?;
        let mut text = site.text.clone();
        for name in &self.names {
            text = edit::remove_peer(&text, name)?;
        }
        let left = site.config.peers.len().saturating_sub(self.names.len());
        let config = site.checked(&text)?;
        ensure!(config.peers.len() == left, "other peers would go with it: report this");
        site.change(text)?;
        terminal::note(&format!(
            "removed {} from {}",
            self.names.join(", "),
            self.config.display()
        ));
        site.reload()?;
        Ok(())
    }
}

impl List {
    fn run(self) -> anyhow::Result<()> {
        let site = Site::existing(&self.config)?;
        let running =
            site.config.node.status.as_deref().and_then(|socket| node::relay_status(socket).ok());
        let state = |name: &str| {
            let peers = running.iter().flat_map(|status| &status.peers);
            peers.into_iter().find(|peer| peer.name == name).map(|peer| peer.state.name())
        };
        if self.json {
            let peers: Vec<Value> =
                site.config.peers.iter().map(|peer| document(peer, state(&peer.name))).collect();
            return Ok(terminal::print(&format!("{:#}\n", json!({ "peers": peers })))?);
        }
        if site.config.peers.is_empty() {
            return Ok(terminal::print("no peers: `dwell invite` prints a line for one\n")?);
        }
        let columns = ["peer", "state", "endpoint", "prefixes", "public key"].map(Column::left);
        let mut table = Table::new(columns);
        for peer in &site.config.peers {
            table.row([
                peer.name.clone(),
                state(&peer.name).unwrap_or("not running").to_owned(),
                peer.endpoint
                    .as_ref()
                    .map_or_else(|| human::NOTHING.to_owned(), ToString::to_string),
                words(&peer.prefixes),
                key(peer).unwrap_or_else(|| human::NOTHING.to_owned()),
            ]);
        }
        Ok(terminal::print(&table.to_text())?)
    }
}

fn words(items: &[IpNet]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn key(peer: &PeerConfig) -> Option<String> {
    match &peer.security {
        Security::Keys { peer, .. } => Some(peer.to_string()),
        Security::Psk(_) | Security::None => None,
    }
}

fn document(peer: &PeerConfig, state: Option<&str>) -> Value {
    json!({
        "name": peer.name,
        "state": state,
        "endpoint": peer.endpoint.as_ref().map(ToString::to_string),
        "prefixes": peer.prefixes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "security": peer.security.name(),
        "public_key": key(peer),
    })
}
