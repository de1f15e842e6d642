//! The contenders: no tunnel at all, dwell in its variants, and other tunnels.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use dwell_policy::{Gather, Scheme};
use serde::{Deserialize, Serialize};

use super::like::Like;
use super::peers::Peer;
use super::workload::Workload;

/// Something that carries packets over the link.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Contender {
    /// No tunnel.
    Off,
    Dwell(Dwell),
    OpenVpn(OpenVpnVariant),
    WireGuardGo,
    Peer(Peer),
}

/// A variant of dwell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Dwell {
    pub(super) scheme: String,
    /// The scheme `none` needs none.
    pub(super) codec: Option<String>,
    /// The number of packets in a block; without it, as many as wait.
    pub(super) block_packets: Option<u32>,
    pub(super) security: Security,
    /// True if its name says how it is protected, because others are otherwise.
    pub(super) tells_security: bool,
    /// True if lost blocks are sent again, as is usual.
    pub(super) retransmit: bool,
    /// More keys of the relays' configuration, in TOML: `history = "flow"`.
    pub(super) keys: Option<Box<str>>,
    /// A configuration that says how it is, its scheme and codec too.
    pub(super) like: Option<Box<Like>>,
}

/// The protection of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Security {
    /// Encrypted and authenticated; the relays know each other's public keys
    Keys,
    /// Encrypted and authenticated with a fresh key that both have
    Psk,
    /// In the clear
    None,
}

impl Security {
    /// As it is written on the command line.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Psk => "psk",
            Self::None => "none",
        }
    }
}

/// A variant of OpenVPN: `gcm`, `gcm+lz4`, `none+lzo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct OpenVpnVariant {
    /// AES-256-GCM, or neither cipher nor authentication.
    pub(super) sealed: bool,
    pub(super) compression: OpenVpnCompression,
}

/// The codec of OpenVPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum OpenVpnCompression {
    None,
    Lz4,
    Lzo,
}

/// Every scheme with every codec, where it needs one, each once.
pub(super) fn dwell_variants(
    schemes: &[String],
    codecs: &[String],
    security: Security,
    tells_security: bool,
) -> Vec<Contender> {
    let variant = |scheme: &String, codec: Option<&String>| {
        let (scheme, codec) = (scheme.clone(), codec.cloned());
        let block_packets = None;
        let retransmit = true;
        Contender::Dwell(Dwell {
            scheme,
            codec,
            block_packets,
            security,
            tells_security,
            retransmit,
            keys: None,
            like: None,
        })
    };
    let mut all = Vec::new();
    for scheme in schemes {
        if scheme == "none" {
            all.push(variant(scheme, None));
        } else {
            all.extend(codecs.iter().map(|codec| variant(scheme, Some(codec))));
        }
    }
    let mut seen = std::collections::HashSet::new();
    all.retain(|contender| seen.insert(contender.clone()));
    all
}

/// Every scheme of blocks also with blocks of a fixed number of packets, behind the one that takes as many as
/// wait.
pub(super) fn with_block_packets(contenders: Vec<Contender>, packets: &[u32]) -> Vec<Contender> {
    let mut all = Vec::new();
    for contender in contenders {
        let sized = match &contender {
            Contender::Dwell(dwell) if makes_blocks(&dwell.scheme) => packets,
            _ => &[],
        };
        all.push(contender.clone());
        for &packets in sized {
            let Contender::Dwell(dwell) = &contender else { continue };
            let block_packets = Some(packets);
            all.push(Contender::Dwell(Dwell { block_packets, ..dwell.clone() }));
        }
    }
    all
}

/// Every scheme that compresses also with more keys in its configuration, behind the one without them.
pub(super) fn with_keys(contenders: Vec<Contender>, keys: &[String]) -> Vec<Contender> {
    let mut all = Vec::new();
    for contender in contenders {
        let variants = match &contender {
            Contender::Dwell(dwell) if dwell.codec.is_some() => keys,
            _ => &[],
        };
        all.push(contender.clone());
        for keys in variants {
            let Contender::Dwell(dwell) = &contender else { continue };
            let keys = Some(keys.as_str().into());
            all.push(Contender::Dwell(Dwell { keys, ..dwell.clone() }));
        }
    }
    all
}

/// A variant for each configuration, behind all others.
pub(super) fn with_likes(
    mut contenders: Vec<Contender>,
    likes: &[Like],
    (security, tells_security): (Security, bool),
) -> Vec<Contender> {
    contenders.extend(likes.iter().map(|like| {
        Contender::Dwell(Dwell {
            scheme: like.scheme.clone().unwrap_or_else(|| "auto".to_owned()),
            codec: Some(like.codec.clone().unwrap_or_else(|| "auto".to_owned())),
            block_packets: None,
            security,
            tells_security,
            retransmit: true,
            keys: None,
            like: Some(Box::new(like.clone())),
        })
    }));
    contenders
}

/// Returns true if a scheme compresses packets together.
pub(super) fn makes_blocks(scheme: &str) -> bool {
    Scheme::preset(scheme).is_ok_and(|scheme| scheme.gather() != Gather::Packet)
}

impl Contender {
    /// Returns true if it can carry this.
    pub(super) fn carries(&self, workload: Workload) -> bool {
        match self {
            Self::Peer(peer) => peer.carries(workload),
            Self::Off | Self::Dwell(_) | Self::OpenVpn(_) | Self::WireGuardGo => true,
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Dwell(dwell) => dwell.fmt(f),
            Self::OpenVpn(variant) => write!(f, "openvpn {variant}"),
            Self::WireGuardGo => f.write_str("wireguard-go"),
            Self::Peer(peer) => peer.fmt(f),
        }
    }
}

impl fmt::Display for Dwell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.scheme)?;
        if let Some(packets) = self.block_packets {
            write!(f, " of {packets}")?;
        }
        if let Some(codec) = &self.codec {
            write!(f, "/{codec}")?;
        }
        if !self.retransmit {
            f.write_str(" once")?;
        }
        if let Some(keys) = &self.keys {
            write!(f, " with {keys}")?;
        }
        if let Some(like) = &self.like {
            write!(f, " as in {}", like.name)?;
        }
        match self.security {
            _ if !self.tells_security => Ok(()),
            Security::Keys => f.write_str(" keyed"),
            Security::Psk => f.write_str(" sealed"),
            Security::None => f.write_str(" plain"),
        }
    }
}

impl fmt::Display for OpenVpnVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.sealed { "gcm" } else { "none" })?;
        match self.compression {
            OpenVpnCompression::None => Ok(()),
            OpenVpnCompression::Lz4 => f.write_str("+lz4"),
            OpenVpnCompression::Lzo => f.write_str("+lzo"),
        }
    }
}

impl FromStr for OpenVpnVariant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (cipher, compression) = text.split_once('+').unwrap_or((text, ""));
        let sealed = match cipher {
            "gcm" => true,
            "none" => false,
            other => return Err(format!("\"{other}\" is no cipher here: use gcm or none")),
        };
        let compression = match compression {
            "" => OpenVpnCompression::None,
            "lz4" => OpenVpnCompression::Lz4,
            "lzo" => OpenVpnCompression::Lzo,
            other => return Err(format!("\"{other}\" is no compression here: use lz4 or lzo")),
        };
        Ok(Self { sealed, compression })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_takes_part_once_and_others_with_each_codec() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let all = dwell_variants(
            &words("none all packet none"),
            &words("lz4 zstd:1"),
            Security::Psk,
            false,
        );
        let names: Vec<_> = all.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["none", "all/lz4", "all/zstd:1", "packet/lz4", "packet/zstd:1"]);
    }

    #[test]
    fn blocks_can_have_a_number_of_packets() {
        let schemes = ["none", "packet", "edge", "chumq"].map(str::to_owned);
        let all = dwell_variants(&schemes, &["lz4".to_owned()], Security::Psk, false);
        let all = with_block_packets(all, &[5, 10]);
        let names: Vec<_> = all.iter().map(ToString::to_string).collect();
        let edges = ["edge/lz4", "edge of 5/lz4", "edge of 10/lz4"];
        assert_eq!(names[..2], ["none", "packet/lz4"]);
        assert_eq!(names[2..5], edges);
        assert_eq!(names.len(), 6, "{names:?}");
    }

    #[test]
    fn what_compresses_can_have_more_keys() {
        let schemes = ["none", "auto"].map(str::to_owned);
        let all = dwell_variants(&schemes, &["lz4".to_owned()], Security::Psk, false);
        let all = with_keys(all, &[r#"history = "flow""#.to_owned()]);
        let names: Vec<_> = all.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["none", "auto/lz4", r#"auto/lz4 with history = "flow""#]);
    }

    #[test]
    fn security_is_reported_where_it_differs() {
        let dwell =
            |security| dwell_variants(&["none".to_owned()], &[], security, true)[0].to_string();
        let names = [Security::Keys, Security::Psk, Security::None].map(dwell);
        assert_eq!(names, ["none keyed", "none sealed", "none plain"]);
    }

    #[test]
    fn variants_of_openvpn_are_read_as_they_are_written() {
        for text in ["gcm", "gcm+lz4", "none", "none+lzo"] {
            assert_eq!(text.parse::<OpenVpnVariant>().unwrap().to_string(), text);
        }
        for text in ["", "aes", "gcm+zip", "lz4"] {
            assert!(text.parse::<OpenVpnVariant>().is_err(), "{text}");
        }
    }
}
