//! The network of an attack: an honest site, a hub with a server behind it, and an attacker.
//!
//! ```text
//! client ── good ══ router ══ hub ── server
//!                     │
//!                    evil
//! ```
//!
//! `good` and `hub` have a thin link each, shaped where they send. The attacker's link is as fast as
//! the machine. Relays or proxies run on `good` and `hub`.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use dwell_base::Rate;
use dwell_lab::lab::{Host, Lab, Shape};
use dwell_lab::relays::Relay;
use dwell_relay::config::{PublicKey, Secret, Security, base64_of};
use dwell_relay::trust::public_key;

use crate::context::random_bytes;

pub(crate) const GOOD: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
pub(crate) const HUB: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
pub(crate) const EVIL: Ipv4Addr = Ipv4Addr::new(10, 0, 3, 2);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
/// The address at which the client finds the ingress proxy.
pub(crate) const INGRESS: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
pub(crate) const RELAY_PORT: u16 = 7733;
pub(crate) const PROXY_PORT: u16 = 7734;
pub(crate) const GOOD_RELAY: SocketAddrV4 = SocketAddrV4::new(GOOD, RELAY_PORT);
pub(crate) const HUB_RELAY: SocketAddrV4 = SocketAddrV4::new(HUB, RELAY_PORT);
pub(crate) const HUB_PROXY: SocketAddrV4 = SocketAddrV4::new(HUB, PROXY_PORT);
/// The device towards the router, on every host that has one.
pub(crate) const OUTER: &str = "thin0";

/// The hosts.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) client: Host,
    pub(crate) good: Host,
    pub(crate) hub: Host,
    pub(crate) server: Host,
    pub(crate) evil: Host,
    _router: Host,
    pub(crate) directory: PathBuf,
}

impl Site {
    /// Builds the network. `link_mbps` is what the links of `good` and `hub` carry, in Mbit/s.
    pub(crate) fn build(lab: &mut Lab, link_mbps: u64) -> anyhow::Result<Self> {
        let directory = lab.directory().join("attack");
        fs::create_dir_all(&directory)?;
        let [client, good, hub] = [lab.host("client")?, lab.host("good")?, lab.host("hub")?];
        let [server, evil, router] = [lab.host("server")?, lab.host("evil")?, lab.host("router")?];
        for host in [&good, &hub, &evil, &router] {
            // Forged sources are not stopped on the path.
            host.sysctl("net/ipv4/conf/all/rp_filter", "0")?;
            host.sysctl("net/ipv4/conf/default/rp_filter", "0")?;
        }
        lab.veth((&client, "eth0"), (&good, "eth0"))?;
        lab.veth((&server, "eth0"), (&hub, "eth0"))?;
        for (number, host) in [(1, &good), (2, &hub), (3, &evil)] {
            let port = format!("port{number}");
            lab.veth((&router, &port), (host, OUTER))?;
            router.address(&port, &format!("10.0.{number}.1/24"))?;
            host.address(OUTER, &format!("10.0.{number}.2/24"))?;
            host.route("10.0.0.0/16", Ipv4Addr::new(10, 0, number, 1).into())?;
        }
        for host in [&good, &hub, &router] {
            host.forwarding(true)?;
        }
        for (host, end) in [(&good, 1), (&hub, 2)] {
            host.address("eth0", &format!("10.{end}.0.1/24"))?;
            host.shape(OUTER, &Shape::new(Rate::from_mbps(link_mbps)))?;
        }
        for (host, end) in [(&client, 1), (&server, 2)] {
            host.address("eth0", &format!("10.{end}.0.2/24"))?;
            host.route("default", Ipv4Addr::new(10, end, 0, 1).into())?;
        }
        // Spoofed sources: answers to them must not look for neighbours.
        hub.route("default", Ipv4Addr::new(10, 0, 2, 1).into())?;
        Ok(Self { client, good, hub, server, evil, _router: router, directory })
    }

    /// Returns the path of this relay's file.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// A pair of keys for one end, and a key that both ends share.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    private: Secret,
    pub(crate) public: PublicKey,
}

impl Keys {
    pub(crate) fn make() -> anyhow::Result<Self> {
        let private = Secret::new(random_bytes());
        let public = public_key(&private).context("32 bytes are a private key")?;
        Ok(Self { private, public })
    }

    /// Writes the private key where a relay finds it.
    fn write(&self, path: &Path) -> anyhow::Result<()> {
        write_private(path, &base64_of(self.private.bytes()))
    }

    /// Returns the security that the holder of these keys uses with the holder of `other`.
    pub(crate) fn towards(&self, other: &PublicKey) -> Security {
        Security::Keys { private: self.private.clone(), peer: *other, psk: None }
    }
}

fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, format!("{text}\n"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(())
}

/// The method by which peers are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// By key pairs.
    Keys,
    /// By a key of their own that the hub has too.
    Psk,
}

/// The specification of the relays.
#[derive(Clone, Debug)]
pub(crate) struct TunnelSpec {
    pub(crate) method: Method,
    /// Peers of the hub beside the honest one: they have the prefixes 10.3.0.0/24, 10.3.1.0/24, ...
    pub(crate) others: usize,
    /// A scheme's name.
    pub(crate) scheme: &'static str,
    /// The codec, and the rate, as a configuration writes them.
    pub(crate) codec: &'static str,
    pub(crate) rate: String,
    /// Another rate, for the hub's other peers.
    pub(crate) others_rate: Option<&'static str>,
}

/// Two relays, and the keys of the hub's other peers.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) good: Relay,
    pub(crate) hub: Relay,
    /// The security of each of the others with the hub.
    pub(crate) others: Vec<Security>,
    pub(crate) hub_public: PublicKey,
}

impl Tunnel {
    /// Starts both relays and waits until they know each other.
    pub(crate) fn start(site: &Site, dwell: &Path, spec: &TunnelSpec) -> anyhow::Result<Self> {
        let (hub_keys, good_keys) = (Keys::make()?, Keys::make()?);
        hub_keys.write(&site.file("hub.key"))?;
        good_keys.write(&site.file("good.key"))?;
        let mut hub = node_table(site, "hub", "10.77.0.1/32", spec);
        let mut good = node_table(site, "good", "10.77.0.2/32", spec);
        let secure = |name: &str, other: &PublicKey| match spec.method {
            Method::Keys => format!("public_key = \"{other}\""),
            Method::Psk => format!("psk_file = \"{name}.psk\""),
        };
        write_private(&site.file("good.psk"), &base64_of(&random_bytes()))?;
        let to_good = (&format!("endpoint = \"{GOOD_RELAY}\""), secure("good", &good_keys.public));
        peer_table(&mut hub, "good", "\"10.1.0.0/24\", \"10.77.0.2/32\"", (to_good.0, &to_good.1));
        let to_hub = (&format!("endpoint = \"{HUB_RELAY}\""), secure("good", &hub_keys.public));
        peer_table(&mut good, "hub", "\"10.2.0.0/24\", \"10.77.0.1/32\"", (to_hub.0, &to_hub.1));
        let mut others = Vec::new();
        for number in 0..spec.others {
            let (name, keys) = (format!("other{number}"), Keys::make()?);
            let psk = random_bytes();
            write_private(&site.file(&format!("{name}.psk")), &base64_of(&psk))?;
            let prefix = format!("\"10.3.{number}.0/24\"");
            let rate = spec.others_rate.map(|rate| format!("rate = \"{rate}\""));
            let secure = secure(&name, &keys.public);
            peer_table(&mut hub, &name, &prefix, (&rate.unwrap_or_default(), &secure));
            others.push(match spec.method {
                Method::Keys => keys.towards(&hub_keys.public),
                Method::Psk => Security::Psk(Secret::new(psk)),
            });
        }
        let start = |name: &str, host: &Host, text: &str| {
            let config = site.file(&format!("{name}.toml"));
            fs::write(&config, text)?;
            Ok::<_, anyhow::Error>(Relay::start(
                name,
                host.clone(),
                dwell,
                config,
                &site.directory,
            )?)
        };
        let hub = start("hub", &site.hub, &hub)?;
        let mut good = start("good", &site.good, &good)?;
        good.wait_for_peer(Duration::from_secs(15))?;
        Ok(Self { good, hub, others, hub_public: hub_keys.public })
    }
}

fn node_table(site: &Site, name: &str, address: &str, spec: &TunnelSpec) -> String {
    let TunnelSpec { method, scheme, codec, rate, .. } = spec;
    let mut text = format!(
        "[defaults]\nscheme = \"{scheme}\"\ncodec = \"{codec}\"\nrate = \"{rate}\"\n\n\
         [savings]\nfile = \"none\"\n[node]\nname = \"{name}\"\naddresses = [\"{address}\"]\n\
         status = \"{directory}/{name}.sock\"\n",
        directory = site.directory.display(),
    );
    if *method == Method::Keys {
        let _ = writeln!(text, "private_key_file = \"{name}.key\"");
    }
    text
}

fn peer_table(text: &mut String, name: &str, prefixes: &str, (more, security): (&str, &str)) {
    let _ = write!(
        text,
        "\n[[peer]]\nname = \"{name}\"\nprefixes = [{prefixes}]\n{more}\n{security}\n"
    );
}

/// An address in the prefix of the hub's other peer with this number.
pub(crate) fn other_address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 3, number as u8, 2)
}

/// Returns the address at which the server listens for honest traffic.
pub(crate) fn at(ip: Ipv4Addr, port: u16) -> SocketAddr {
    SocketAddr::new(ip.into(), port)
}
