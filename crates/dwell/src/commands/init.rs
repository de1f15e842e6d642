//! `dwell init`: makes this machine a node, and prints the line for the other end.

use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context as _, bail};
use dwell_relay::config::{Endpoint, PORT, RateConfig, is_name};
use dwell_relay::pairing::Line;
use dwell_relay::pairing::address::DEFAULT_ADDRESS;
use dwell_relay::pairing::edit::{self, NewNode};
use ipnet::IpNet;
use serde_json::json;

use super::site::{DEFAULT_CONFIG, OPEN_DAYS, Site, new_node};
use dwell_cli::terminal;

const AFTER_HELP: &str = "\
Examples:
  sudo dwell init                               asks what it must know
  sudo dwell init --name site-a --prefix 10.1.0.0/24 --endpoint 203.0.113.10:7733
  sudo dwell init --endpoint '[2001:db8::7]:7733' --address fd77::1/64
  dwell init --config ./relay.toml --name test  elsewhere than in /etc/dwell

It prints one line. At the other end: sudo dwell join LINE
That prints a line, too. Here again: sudo dwell join THAT-LINE

Exit codes:
  0  the node has a key and a configuration
  1  it has not, for instance because there is one already
  2  the command line is wrong";

/// Make this machine a node, and print the line to paste at the other end
///
/// Makes a private key and a configuration. What is not given is asked on a terminal, and has a default
/// otherwise.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Init {
    #[command(flatten)]
    own: Own,
    /// Replace a configuration that is there. Its key stays
    #[arg(long)]
    force: bool,
    /// Print JSON: the line, the public key and the file
    #[arg(long)]
    json: bool,
}

/// What a node says of itself, for `init` and `join`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Own {
    /// The node's name [default: the host name]
    #[arg(long, value_parser = name)]
    pub(super) name: Option<String>,
    /// A network behind this node, such as 10.1.0.0/24; may be repeated
    #[arg(long = "prefix", value_name = "PREFIX", value_delimiter = ',', value_parser = prefix)]
    pub(super) prefixes: Vec<IpNet>,
    /// The address and UDP port at which the other end reaches this node, the best first; may be repeated. Leave
    /// it out behind a NAT
    #[arg(long = "endpoint", value_name = "HOST:PORT", value_delimiter = ',')]
    #[arg(value_parser = endpoint)]
    pub(super) endpoints: Vec<Endpoint>,
    /// The rate of the link from here, such as 10mbit [default: auto, it is found out]
    #[arg(long, value_parser = rate)]
    pub(super) rate: Option<RateConfig>,
    /// The node's own address in the tunnel, with its prefix length; may be repeated [default: 10.77.0.1/24, or
    /// what the other end suggests]
    #[arg(long = "address", value_name = "ADDRESS/LENGTH", value_delimiter = ',')]
    #[arg(value_parser = address)]
    pub(super) addresses: Vec<IpNet>,
    /// The local address and UDP port that it listens at [default: 0.0.0.0:7733, or of the endpoint's family]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) listen: Option<SocketAddr>,
    /// The configuration file
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    pub(super) config: PathBuf,
}

fn name(text: &str) -> Result<String, String> {
    let why = "use 1 to 63 letters, digits, dots, hyphens and underscores, with a letter or a digit first";
    if is_name(text) { Ok(text.to_owned()) } else { Err(why.to_owned()) }
}

fn prefix(text: &str) -> Result<IpNet, String> {
    let net: IpNet =
        text.trim().parse().map_err(|_| "write a network such as 10.1.0.0/24".to_owned())?;
    match net.trunc() == net {
        true => Ok(net),
        false => Err(format!("{net} has host bits: the network is {}", net.trunc())),
    }
}

fn address(text: &str) -> Result<IpNet, String> {
    text.trim().parse().map_err(|_| "write an address such as 10.77.0.1/24".to_owned())
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    // A port is nothing that people think of first, and brackets go with ports.
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let with_port = match bare.parse::<std::net::IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, PORT).to_string(),
        Err(_) if text.contains(':') => text.to_owned(),
        Err(_) => format!("{text}:{PORT}"),
    };
    Endpoint::from_str(&with_port).map_err(|error| error.to_string())
}

pub(super) fn rate(text: &str) -> Result<RateConfig, String> {
    match text {
        "auto" => Ok(RateConfig::Auto),
        "local" => Ok(RateConfig::Local),
        "unlimited" => Ok(RateConfig::Unlimited),
        text => text
            .parse()
            .map(RateConfig::Fixed)
            .map_err(|error: dwell_base::rate::ParseRateError| error.to_string()),
    }
}

impl Own {
    /// The settings of a new node, with defaults for what was not given.
    pub(super) fn node(&self) -> anyhow::Result<NewNode> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host = if is_name(&host) { host } else { "dwell".to_owned() };
        let name = self.name.clone().unwrap_or(host);
        let addresses = self.addresses.clone();
        let (prefixes, endpoints) = (self.prefixes.clone(), self.endpoints.clone());
        let listen = self.listen.or_else(|| listen_for(&endpoints));
        let new = new_node(name, &self.config);
        Ok(NewNode { addresses, prefixes, endpoints, listen, rate: self.rate, ..new })
    }

    /// Asks on a terminal for what was not given.
    pub(super) fn ask(&mut self, asks_endpoint: bool) -> anyhow::Result<()> {
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Ok(());
        }
        if self.name.is_none() {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            let shown = format!("Name of this node [{host}]: ");
            self.name = question(&shown, |text| name(text).map(Some))?.flatten();
        }
        if self.prefixes.is_empty() {
            let shown = "Networks behind this node, with commas between (10.1.0.0/24) [none]: ";
            let read = |text: &str| text.split(',').map(prefix).collect::<Result<Vec<_>, _>>();
            self.prefixes = question(shown, read)?.unwrap_or_default();
        }
        if self.endpoints.is_empty() && asks_endpoint {
            let shown = "Address at which the other end reaches this node (203.0.113.10:7733) [none: it waits \
                         behind a NAT]: ";
            self.endpoints = question(shown, endpoint)?.into_iter().collect();
        }
        if self.rate.is_none() {
            self.rate = question("Rate of the link from here (10mbit) [auto]: ", rate)?;
        }
        Ok(())
    }
}

/// Asks until the answer can be read; an empty one is none.
pub(super) fn question<T>(
    text: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> anyhow::Result<Option<T>> {
    loop {
        write!(io::stderr(), "{text}")?;
        let mut answer = String::new();
        if io::stdin().read_line(&mut answer)? == 0 {
            bail!("the questions were not answered: nothing was written");
        }
        match answer.trim() {
            "" => return Ok(None),
            answer => match read(answer) {
                Ok(value) => return Ok(Some(value)),
                Err(why) => terminal::note(&why),
            },
        }
    }
}

/// Where a node must listen to be reached there; none if that is the default.
pub(super) fn listen_for(endpoints: &[Endpoint]) -> Option<SocketAddr> {
    let endpoint = endpoints.first()?;
    let is_v6 = endpoint.ip().is_some_and(|ip| ip.is_ipv6());
    let any = if is_v6 { "::".parse().ok()? } else { "0.0.0.0".parse().ok()? };
    let listen = SocketAddr::new(any, endpoint.port());
    (is_v6 || endpoint.port() != PORT).then_some(listen)
}

impl Init {
    pub(crate) fn run(mut self) -> anyhow::Result<ExitCode> {
        let path = self.own.config.clone();
        if path.exists() && !self.force {
            bail!(
                "{} exists and is left as it is: `dwell invite` prints its line again; --force replaces it",
                path.display()
            );
        }
        self.own.ask(true)?;
        let mut new = self.own.node()?;
        // Whoever has this node as a peer knows its key.
        let before = std::fs::read_to_string(&path).ok();
        if let Some(key) = before.as_deref().and_then(edit::private_key_file) {
            new.private_key_file = key;
        }
        if new.addresses.is_empty() {
            new.addresses = vec![DEFAULT_ADDRESS.parse().context("the default is an address")?];
        }
        let site = Site::create(&path, &new)?;
        if self.force {
            site.reload()?;
        }
        let line = site.invite(0, 1, OPEN_DAYS)?.remove(0);
        print_line(&line, &path, None, self.json)?;
        if !self.json {
            terminal::note(&next_step(&line, &path));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints a line alone on standard output, so that it can be piped; JSON has its code, too.
pub(super) fn print_line(
    line: &Line,
    config: &Path,
    code: Option<&str>,
    json: bool,
) -> anyhow::Result<()> {
    let text = line.to_string();
    if !json {
        return Ok(terminal::print(&format!("{text}\n"))?);
    }
    let mut document = json!({
        "line": text,
        "name": line.name,
        "public_key": line.public_key.to_string(),
        "config": config,
    });
    if let Some(code) = code {
        document["code"] = code.into();
    }
    Ok(terminal::print(&format!("{document:#}\n"))?)
}

/// The option by which another command finds this configuration, with a space before it; nothing if it does anyhow.
pub(super) fn config_option(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,@%".contains(c);
    match text.chars().all(is_plain) {
        _ if path == Path::new(DEFAULT_CONFIG) => String::new(),
        true => format!(" --config {text}"),
        false => format!(" --config '{}'", text.replace('\'', r"'\''")),
    }
}

fn next_step(line: &Line, config: &Path) -> String {
    let reach = match line.endpoints.is_empty() {
        true => "This node has no endpoint: it initiates, and the other end must have one.\n",
        false => "",
    };
    let (quoted, config) = (line.quoted(), config_option(config));
    format!(
        "\nAt the other end:  sudo dwell join {quoted}\nThen here, with the line that it prints:  sudo dwell \
         join{config} LINE\n{reach}The line is good for one answer within {OPEN_DAYS} days. Bring it over a channel that nobody \
         else can write to, and better none that others read."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_people_write_them() {
        let read = |text: &str| endpoint(text).map(|endpoint| endpoint.to_string());
        assert_eq!(read("203.0.113.10").as_deref(), Ok("203.0.113.10:7733"));
        assert_eq!(read("2001:db8::7").as_deref(), Ok("[2001:db8::7]:7733"));
        assert_eq!(read("[2001:db8::7]").as_deref(), Ok("[2001:db8::7]:7733"));
        assert_eq!(read("hub.example.net").as_deref(), Ok("hub.example.net:7733"));
        assert_eq!(read("hub.example.net:9").as_deref(), Ok("hub.example.net:9"));
        assert!(read("0.0.0.0").is_err());
        assert_eq!(
            prefix("10.1.0.7/24"),
            Err("10.1.0.7/24 has host bits: the network is 10.1.0.0/24".into())
        );
        assert_eq!(rate("auto"), Ok(RateConfig::Auto));
        assert!(rate("250KB").unwrap_err().contains("250kbit"));
    }

    #[test]
    fn what_is_next_is_done_with_the_same_file() {
        let option = |path: &str| config_option(Path::new(path));
        assert_eq!(option(DEFAULT_CONFIG), "");
        assert_eq!(option("./test.toml"), " --config ./test.toml");
        assert_eq!(option("/tmp/my site's.toml"), r" --config '/tmp/my site'\''s.toml'");
    }

    #[test]
    fn a_node_listens_where_it_is_reached() {
        let listens = |text: &str| listen_for(&[endpoint(text).unwrap()]).map(|at| at.to_string());
        assert_eq!(listens("203.0.113.10"), None);
        assert_eq!(listens("203.0.113.10:7744").as_deref(), Some("0.0.0.0:7744"));
        assert_eq!(listens("[2001:db8::7]:7733").as_deref(), Some("[::]:7733"));
        assert_eq!(listen_for(&[]), None);
    }
}
