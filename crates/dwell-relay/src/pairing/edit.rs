//! Changes of configuration files that people have written: everything else in them stays as it is, with
//! its comments.
//!
//! A peer is appended, or its lines are taken out. So there is no need for a second model of TOML, which
//! keeps comments; and that nothing else has changed is verified by whoever reads the result with
//! [`Config::load_text`](crate::config::Config::load_text).

use std::fmt::Write as _;
use std::path::PathBuf;

use dwell_base::text::printable;
use ipnet::IpNet;
use thiserror::Error;
use toml::de::DeTable;

use crate::config::{Endpoint, PublicKey, RateConfig};

/// A node that is to have a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct NewNode {
    /// Its name.
    pub name: String,
    /// Its tunnel addresses.
    pub addresses: Vec<IpNet>,
    /// The address at which it listens, if it is not the default one.
    pub listen: Option<std::net::SocketAddr>,
    /// The name of the file with its private key.
    pub private_key_file: PathBuf,
    /// The addresses at which peers reach it.
    pub endpoints: Vec<Endpoint>,
    /// The networks behind it.
    pub prefixes: Vec<IpNet>,
    /// The rate of its link.
    pub rate: Option<RateConfig>,
}

/// A peer that is to be in a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct NewPeer {
    /// Its name.
    pub name: String,
    /// Its public key.
    pub public_key: PublicKey,
    /// The address at which it listens.
    pub endpoint: Option<Endpoint>,
    /// What is routed to it.
    pub prefixes: Vec<IpNet>,
    /// The file with the key that both share, if they share one.
    pub psk_file: Option<PathBuf>,
    /// The rate of the link to it, if it is another one than for the other peers.
    pub rate: Option<RateConfig>,
}

/// The reason why a file can't be changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EditError {
    /// It is not TOML.
    #[error("the configuration is not TOML: run `dwell check` on it first")]
    NotToml,
    /// The peers are not written as tables.
    #[error("the peers of this file are not written as [[peer]]: change it by hand")]
    OtherShape,
    /// There is no such peer.
    #[error(
        "there is no peer \"{0}\" in the configuration: `dwell peer list` names those there are"
    )]
    NoSuchPeer(String),
}

/// A value as TOML writes it.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn list(items: &[impl ToString]) -> String {
    let items: Vec<_> = items.iter().map(|item| quoted(&item.to_string())).collect();
    format!("[{}]", items.join(", "))
}

fn rate_text(rate: RateConfig) -> String {
    match rate {
        RateConfig::Auto => quoted("auto"),
        RateConfig::Local => quoted("local"),
        RateConfig::Unlimited => quoted("unlimited"),
        RateConfig::Fixed(rate) => quoted(&format!("{rate:#}")),
    }
}

/// Returns the file of the private key that a configuration names, valid or not otherwise; none if it names none.
pub fn private_key_file(text: &str) -> Option<PathBuf> {
    let table = DeTable::parse(text).ok()?;
    let node = table.get_ref().get("node")?.get_ref().as_table()?;
    Some(node.get("private_key_file")?.get_ref().as_str()?.into())
}

/// Returns the configuration of a node without peers.
pub fn new_config(node: &NewNode) -> String {
    let mut out = format!(
        "# Made by `dwell init` or `dwell join`; `dwell check FILE` reads it. Every key: dwell check --sample\n\n\
         [node]\nname = {}\naddresses = {}\n",
        quoted(&node.name),
        list(&node.addresses)
    );
    // Writing to a string can't fail.
    if let Some(listen) = node.listen {
        let _ = writeln!(out, "listen = {}", quoted(&listen.to_string()));
    }
    let key = quoted(&node.private_key_file.to_string_lossy());
    let _ = writeln!(out, "private_key_file = {key}");
    out += "\n# What `dwell invite` and `dwell join` say of this node to others.\n[pairing]\n";
    let _ = writeln!(out, "endpoints = {}", list(&node.endpoints));
    let _ = writeln!(out, "prefixes = {}", list(&node.prefixes));
    out += "\n[defaults]\n";
    out += "# The rate of the link from here. \"auto\" finds it out where it can.\n";
    let _ = writeln!(out, "rate = {}", rate_text(node.rate.unwrap_or(RateConfig::Auto)));
    out
}

/// Returns the configuration with one peer more, at its end.
///
/// # Errors
/// If the file's peers are written in another way.
pub fn add_peer(text: &str, peer: &NewPeer) -> Result<String, EditError> {
    peer_headers(text)?;
    let mut out = text.trim_end().to_owned();
    let begin = if out.is_empty() { "" } else { "\n\n" };
    let name = quoted(&peer.name);
    // Writing to a string can't fail.
    let _ = writeln!(out, "{begin}[[peer]]\nname = {name}");
    if let Some(endpoint) = &peer.endpoint {
        let _ = writeln!(out, "endpoint = {}", quoted(&endpoint.to_string()));
    }
    let _ = writeln!(out, "prefixes = {}", list(&peer.prefixes));
    let _ = writeln!(out, "public_key = {}", quoted(&peer.public_key.to_string()));
    if let Some(file) = &peer.psk_file {
        let _ = writeln!(out, "psk_file = {}", quoted(&file.to_string_lossy()));
    }
    if let Some(rate) = peer.rate {
        let _ = writeln!(out, "rate = {}", rate_text(rate));
    }
    Ok(out)
}

/// Returns the configuration without the peer of this name, and without the comment right above it.
///
/// # Errors
/// If there is no such peer, or the file's peers are written in another way.
pub fn remove_peer(text: &str, name: &str) -> Result<String, EditError> {
    let headers = peer_headers(text)?;
    let no_such = || EditError::NoSuchPeer(printable(name));
    let (start, _) = headers.iter().find(|(_, of)| of == name).ok_or_else(no_such)?;
    let starts = table_starts(text)?;
    let end = starts.into_iter().filter(|at| at > start).min().unwrap_or(text.len());
    let from = before_comment(text, *start);
    let to = if end == text.len() { end } else { before_comment(text, end) };
    let (before, after) = (&text[..from], &text[to.max(from)..]);
    Ok(match after.trim().is_empty() {
        true => format!("{}\n", before.trim_end()),
        false => format!("{before}{after}"),
    })
}

/// Returns where the line begins on which `at` is, and before it those that are comments: they belong to what
/// follows.
fn before_comment(text: &str, at: usize) -> usize {
    let line_start = |end: usize| text[..end].rfind('\n').map_or(0, |newline| newline + 1);
    let mut from = line_start(at);
    while from > 0 {
        let above = line_start(from - 1);
        if !text[above..from].trim_start().starts_with('#') {
            break;
        }
        from = above;
    }
    from
}

/// The tables of the peers: where each begins, and its name.
fn peer_headers(text: &str) -> Result<Vec<(usize, String)>, EditError> {
    let document = DeTable::parse(text).map_err(|_| EditError::NotToml)?;
    let Some(peers) = document.get_ref().get("peer") else { return Ok(Vec::new()) };
    let peers = peers.get_ref().as_array().ok_or(EditError::OtherShape)?;
    let header = |item: &toml::Spanned<toml::de::DeValue<'_>>| {
        let start = item.span().start;
        let is_header = text.get(start..).is_some_and(|rest| rest.starts_with("[["));
        let table = item.get_ref().as_table().filter(|_| is_header)?;
        let name = table.get("name").and_then(|name| name.get_ref().as_str());
        Some((start, name.unwrap_or_default().to_owned()))
    };
    peers.iter().map(header).collect::<Option<_>>().ok_or(EditError::OtherShape)
}

/// Where the tables of the document begin.
fn table_starts(text: &str) -> Result<Vec<usize>, EditError> {
    let document = DeTable::parse(text).map_err(|_| EditError::NotToml)?;
    let mut starts = Vec::new();
    for value in document.get_ref().values() {
        match value.get_ref() {
            toml::de::DeValue::Array(items) => {
                starts.extend(items.iter().map(|it| it.span().start));
            }
            _ => starts.push(value.span().start),
        }
    }
    Ok(starts)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dwell_base::Rate;

    use super::*;
    use crate::config::{Config, Secret};

    fn parse(text: &str) -> Config {
        let secret = |_: &Path| Ok(Secret::new([1; 32]));
        Config::parse(text, "relay.toml", &secret).unwrap()
    }

    fn fixed(bps: u64) -> RateConfig {
        RateConfig::Fixed(Rate::from_bps(bps).unwrap())
    }

    fn node() -> NewNode {
        NewNode {
            name: "hub".to_owned(),
            addresses: vec!["10.77.0.1/24".parse().unwrap()],
            listen: Some("0.0.0.0:7744".parse().unwrap()),
            private_key_file: "private.key".into(),
            endpoints: vec!["hub.example.net:7744".parse().unwrap()],
            prefixes: vec!["10.1.0.0/24".parse().unwrap()],
            rate: Some(fixed(9_500_000)),
        }
    }

    fn peer(number: u8) -> NewPeer {
        NewPeer {
            name: format!("site-{number}"),
            public_key: PublicKey::new([number; 32]),
            endpoint: Some(format!("192.0.2.{number}:7733").parse().unwrap()),
            prefixes: vec![format!("10.2.{number}.0/24").parse().unwrap()],
            psk_file: (number == 2).then(|| "site-2.psk".into()),
            rate: None,
        }
    }

    #[test]
    fn a_new_configuration_says_what_it_was_given() {
        let config = parse(&new_config(&node()));
        assert_eq!((&*config.node.name, config.node.listen.port()), ("hub", 7744));
        assert_eq!(config.node.addresses, node().addresses);
        assert_eq!(config.pairing.endpoints, node().endpoints);
        assert_eq!(config.pairing.prefixes, node().prefixes);
        assert!(config.peers.is_empty());
        let with_peer = parse(&add_peer(&new_config(&node()), &peer(2)).unwrap());
        let added = &with_peer.peers[0];
        assert_eq!((&added.endpoint, &added.prefixes), (&peer(2).endpoint, &peer(2).prefixes));
        assert_eq!(added.security.name(), "keys");
        assert_eq!(added.rate, fixed(9_500_000), "of [defaults]");
    }

    #[test]
    fn rates_are_written_as_they_are_read() {
        for rate in [1, 999, 64_000, 9_500_000, 9_512_345, 1_000_000_000] {
            let rate = Some(fixed(rate));
            let text = add_peer(&new_config(&node()), &NewPeer { rate, ..peer(1) }).unwrap();
            assert_eq!(Some(parse(&text).peers[0].rate), rate, "{text}");
        }
    }

    /// As people write: with comments everywhere, and tables behind the peers.
    const WRITTEN: &str = "\
# Ours.
[node] # the hub
private_key_file = \"k\"

# The first.
# It is slow.
[[peer]]
name = \"a\" # not b
prefixes = [
  \"10.1.0.0/16\", # [[peer]] of old
]
public_key = \"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"

  # The second.
  [[peer]]
  name = \"b\"
  prefixes = [\"10.2.0.0/16\"]
  public_key = \"AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=\"

# Voice.
[[class]]
name = \"voice\"
dscp = [46]
";

    #[test]
    fn comments_of_others_stay() {
        let without_a = remove_peer(WRITTEN, "a").unwrap();
        let first = WRITTEN.find("# The first.").unwrap();
        let second = WRITTEN.find("  # The second.").unwrap();
        assert_eq!(without_a, [&WRITTEN[..first], &WRITTEN[second..]].concat());
        let without_b = remove_peer(WRITTEN, "b").unwrap();
        let voice = WRITTEN.find("# Voice.").unwrap();
        assert_eq!(without_b, [&WRITTEN[..second], &WRITTEN[voice..]].concat());
        for (text, left) in [(&without_a, "b"), (&without_b, "a")] {
            let config = parse(text);
            assert_eq!((config.peers.len(), &*config.peers[0].name), (1, left));
            assert_eq!(config.classes.len(), 1);
        }
        assert!(parse(&remove_peer(&without_a, "b").unwrap()).peers.is_empty());
    }

    #[test]
    fn the_key_of_a_configuration_is_found() {
        let text = new_config(&NewNode { private_key_file: "other.key".into(), ..node() });
        assert_eq!(private_key_file(&text), Some("other.key".into()));
        for text in ["", "[node]\nname = \"a\"", "[node]\nprivate_key_file = 3", "no = toml ="] {
            assert_eq!(private_key_file(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_added_can_be_removed_again() {
        let mut text = new_config(&node());
        let before = text.clone();
        for number in 1..=3 {
            text = add_peer(&text, &peer(number)).unwrap();
        }
        assert_eq!(parse(&text).peers.len(), 3);
        for name in ["site-2", "site-1", "site-3"] {
            text = remove_peer(&text, name).unwrap();
        }
        assert_eq!(text, before);
    }

    #[test]
    fn files_of_another_shape_are_left_alone() {
        let inline = "peer = [{ name = \"a\" }]";
        assert_eq!(add_peer(inline, &peer(1)), Err(EditError::OtherShape));
        assert_eq!(remove_peer(inline, "a"), Err(EditError::OtherShape));
        assert_eq!(add_peer("peer = 1", &peer(1)), Err(EditError::OtherShape));
        assert_eq!(add_peer("[[[", &peer(1)), Err(EditError::NotToml));
        let missing = remove_peer(WRITTEN, "c").unwrap_err();
        assert_eq!(missing, EditError::NoSuchPeer("c".to_owned()));
    }

    /// As many sites as nobody wants to type: each has its own address, and the file stays valid.
    #[test]
    fn a_hub_takes_a_hundred_sites() {
        let mut text = new_config(&node());
        for number in 1..=100 {
            let config = parse(&text);
            let addresses = super::super::address::suggest(&config, 0);
            let tunnel = super::super::address::host(&addresses[0]);
            let mut new = peer(number);
            new.prefixes.push(tunnel);
            text = add_peer(&text, &new).unwrap();
        }
        let config = parse(&text);
        assert_eq!(config.peers.len(), 100);
        assert_eq!(config.peers[99].prefixes[1], "10.77.0.101/32".parse().unwrap());
        for number in (1..=100).step_by(2) {
            text = remove_peer(&text, &format!("site-{number}")).unwrap();
        }
        assert_eq!(parse(&text).peers.len(), 50);
    }
}
