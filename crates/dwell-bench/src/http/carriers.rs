//! What carries the connections: nothing, a pair of proxies, `ssh -C -L`.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use dwell_lab::lab::{Host, Process};

use super::super::bed::Bed;
use super::super::ends::Ends;
use super::super::peers::{ENTRANCE, listens, ssh};
use super::super::program;
use super::super::tunnel::{server, spawn_logged};

/// The port of the server.
pub(super) const PORT: u16 = 8000;
/// The ports at which proxy and ssh take connections for it.
const PROXY_PORT: u16 = 8001;
const SSH_PORT: u16 = 8002;
/// The time in which each must be ready.
const PATIENCE: Duration = Duration::from_secs(10);

/// A carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// The client connects to the server itself.
    Plain,
    Proxy,
    Ssh,
}

impl Carrier {
    pub(super) const ALL: [Self; 3] = [Self::Plain, Self::Proxy, Self::Ssh];

    /// Returns the address at which clients find the server.
    pub(super) fn address(self) -> SocketAddr {
        match self {
            Self::Plain => server(PORT),
            Self::Proxy => SocketAddr::from((ENTRANCE, PROXY_PORT)),
            Self::Ssh => SocketAddr::from((ENTRANCE, SSH_PORT)),
        }
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Proxy => "dwell proxy",
            Self::Ssh => "ssh -C -L",
        })
    }
}

/// Those that need processes, running at once: who is not asked for anything does nothing.
#[derive(Debug)]
pub(super) struct Carriers {
    proxy: Ends,
    ssh: Ends,
}

impl Carriers {
    /// Starts them with more options for the proxies, and waits until they are ready.
    pub(super) fn start(bed: &Bed<'_>, options: &[String]) -> anyhow::Result<Self> {
        let mut this = Self {
            proxy: proxy(bed, options)?,
            ssh: ssh::forward_to(bed, &[(Carrier::Ssh.address(), server(PORT))])?,
        };
        let end = Instant::now() + PATIENCE;
        for (carrier, ends) in [(Carrier::Proxy, &mut this.proxy), (Carrier::Ssh, &mut this.ssh)] {
            while !listens(&bed.pair.ingress, carrier.address())? {
                ends.still_hopeful(bed, end)?;
            }
        }
        Ok(this)
    }

    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        self.proxy.stop()?;
        self.ssh.stop()
    }
}

fn proxy(bed: &Bed<'_>, options: &[String]) -> anyhow::Result<Ends> {
    let directory = bed.lab.directory().join("proxy");
    fs::create_dir_all(&directory).context("a directory for the proxies can't be made")?;
    let key = directory.join("key").to_string_lossy().into_owned();
    if !directory.join("key").exists() {
        bed.pair.egress.output(&program::dwell()?.to_string_lossy(), &["genpsk", "--out", &key])?;
    }
    let start = |host: &Host, role: &str, what: &[&str]| -> anyhow::Result<(Process, _)> {
        let log = directory.join(format!("{role}.log"));
        let mut arguments = vec!["proxy", role, "--psk", &key, "--no-status", "--user", "none"];
        arguments.extend_from_slice(what);
        arguments.extend(options.iter().map(String::as_str));
        Ok((spawn_logged(host, &program::dwell()?, &arguments, &log, &[])?, log))
    };
    let target = server(PORT).to_string();
    let (sender, sender_log) = start(&bed.pair.egress, "egress", &["--allow", &target])?;
    let forward = format!("{}={target}", Carrier::Proxy.address());
    let what = ["--egress", "10.0.0.2", "--forward", &forward];
    let (receiver, receiver_log) = start(&bed.pair.ingress, "ingress", &what)?;
    Ok(Ends { sender, receiver, logs: [sender_log, receiver_log] })
}
