//! What carries TCP connections from the client's site to the server's: nothing, a pair of proxies, `ssh -C -L`,
//! or a pair of stunnel or HAProxy with TLS.
//!
//! Each has an address of its own at the receiver's router, at which it listens on the server's ports, so that all
//! can be there at once: who is not asked for anything does nothing.

mod tls;

use std::fmt;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use dwell_lab::lab::{Host, Process};

use super::bed::Bed;
use super::ends::Ends;
use super::peers::{ENTRANCE, listens, ssh};
use super::program;
use super::tunnel::{server, spawn_logged};

/// The ports at which carriers listen at the sender's router, as the kernel reads them: 7734 is the proxies'.
pub(super) const PORTS_BETWEEN: &str = "7734,26379,36379";
/// The time in which each must be ready.
const PATIENCE: Duration = Duration::from_secs(10);

/// A carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Carrier {
    /// The client connects to the server itself
    Plain,
    /// A pair of dwell's proxies with a shared key
    Proxy,
    /// `ssh -C -L`
    Ssh,
    /// A pair of stunnel with a shared key
    Stunnel,
    /// A pair of HAProxy with TLS and certificates
    #[value(name = "haproxy")]
    HaProxy,
}

impl Carrier {
    /// Returns the address that clients connect to in place of the server's.
    pub(super) fn entrance(self) -> IpAddr {
        match self {
            Self::Plain => server(0).ip(),
            Self::Proxy => ENTRANCE,
            Self::Ssh => IpAddr::from([10, 1, 0, 11]),
            Self::Stunnel => IpAddr::from([10, 1, 0, 12]),
            Self::HaProxy => IpAddr::from([10, 1, 0, 13]),
        }
    }

    /// Returns the address at which clients find this port of the server.
    pub(super) fn address(self, port: u16) -> SocketAddr {
        SocketAddr::from((self.entrance(), port))
    }

    /// The programs that it needs, and Debian's packages of them.
    const fn programs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Plain | Self::Proxy => &[],
            Self::Ssh => &ssh::PROGRAMS,
            Self::Stunnel => &[("stunnel4", "stunnel4")],
            Self::HaProxy => &[("haproxy", "haproxy"), ("openssl", "openssl")],
        }
    }

    /// Fails if one of its programs is missing, and names the package.
    pub(super) fn ensure_installed(self) -> anyhow::Result<()> {
        program::ensure_installed(self.programs())
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Proxy => "dwell proxy",
            Self::Ssh => "ssh -C -L",
            Self::Stunnel => "stunnel",
            Self::HaProxy => "haproxy",
        })
    }
}

/// Those that need processes, running.
#[derive(Debug)]
pub(super) struct Carriers(Vec<(Carrier, Ends)>);

impl Carriers {
    /// Starts them for these ports of the server, with more options for the proxies, and waits until they are ready:
    /// for that the last port gets a connection more.
    pub(super) fn start(
        bed: &Bed<'_>,
        which: &[Carrier],
        ports: &[u16],
        options: &[String],
    ) -> anyhow::Result<Self> {
        // Others than the server's TCP cross the link, too.
        bed.congest_link()?;
        let mut this = Self(Vec::new());
        for &carrier in which {
            let prefix = format!("{}/32", carrier.entrance());
            let replace = ["address", "replace", &prefix, "dev", "eth0"];
            let own = || bed.pair.ingress.output("ip", &replace);
            let ends = match carrier {
                Carrier::Plain => continue,
                Carrier::Proxy => proxy(bed, ports, options)?,
                Carrier::Ssh => {
                    own()?;
                    let both = |&port| (carrier.address(port), server(port));
                    ssh::forward_to(bed, &ports.iter().map(both).collect::<Vec<_>>())?
                }
                Carrier::Stunnel => own().map(|_| tls::stunnel(bed, ports))??,
                Carrier::HaProxy => own().map(|_| tls::haproxy(bed, ports))??,
            };
            this.0.push((carrier, ends));
        }
        let end = Instant::now() + PATIENCE;
        for (carrier, ends) in &mut this.0 {
            // They are opened one after the other.
            let last = *ports.last().context("a carrier needs a port")?;
            while !listens(&bed.pair.ingress, carrier.address(last))? {
                ends.still_hopeful(bed, end)?;
            }
        }
        Ok(this)
    }

    /// Returns its processes, if it has any and they were started.
    pub(super) fn ends(&self, carrier: Carrier) -> Option<&Ends> {
        self.0.iter().find(|(one, _)| *one == carrier).map(|(_, ends)| ends)
    }

    pub(super) fn stop(self) -> anyhow::Result<()> {
        self.0.into_iter().try_for_each(|(_, mut ends)| ends.stop())
    }
}

/// Starts a pair of proxies.
fn proxy(bed: &Bed<'_>, ports: &[u16], options: &[String]) -> anyhow::Result<Ends> {
    let directory = bed.lab.directory().join("proxy");
    fs::create_dir_all(&directory).context("a directory for the proxies can't be made")?;
    let key = directory.join("key").to_string_lossy().into_owned();
    if !directory.join("key").exists() {
        bed.pair.egress.output(&program::dwell()?.to_string_lossy(), &["genpsk", "--out", &key])?;
    }
    let start = |host: &Host, role: &str, what: &[String]| -> anyhow::Result<(Process, _)> {
        let log = directory.join(format!("{role}.log"));
        let mut arguments = vec!["proxy", role, "--psk", &key, "--no-status", "--user", "none"];
        arguments.extend(what.iter().chain(options).map(String::as_str));
        Ok((spawn_logged(host, &program::dwell()?, &arguments, &log, &[])?, log))
    };
    let allow = ports.iter().flat_map(|&port| ["--allow".to_owned(), server(port).to_string()]);
    let (sender, sender_log) = start(&bed.pair.egress, "egress", &allow.collect::<Vec<_>>())?;
    let forward = |&port: &u16| {
        let forward = format!("{}={}", Carrier::Proxy.address(port), server(port));
        ["--forward".to_owned(), forward]
    };
    let mut what = vec!["--egress".to_owned(), "10.0.0.2".to_owned()];
    what.extend(ports.iter().flat_map(forward));
    let (receiver, receiver_log) = start(&bed.pair.ingress, "ingress", &what)?;
    Ok(Ends { sender, receiver, logs: [sender_log, receiver_log] })
}
