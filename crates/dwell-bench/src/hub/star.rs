//! A hub, and the hosts around it:
//!
//! ```text
//! spoke1 ─── eth0 10.0.1.1 ═╗
//! spoke2 ─── eth0 10.0.1.2 ═╬═ bridge 10.0.0.1  hub
//!   ⋮                       ║
//! ```
//!
//! In the tunnel they are 10.77.1.1, 10.77.1.2, …, and 10.77.0.1. More hosts behind a spoke are more addresses of it:
//! 10.77.2.1, 10.77.3.1.

use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dwell_base::Rate;
use dwell_lab::lab::{Host, Lab, Shape};
use dwell_lab::relays::{Relay, write_secret};
use dwell_report::Status;
use dwell_report::status::PeerState;
use rustix::process::{Pid, Signal};
use rustix::thread::{CpuSet, sched_setaffinity};

pub(crate) use super::Setting;
use crate::program;

/// The most spokes: their numbers are part of addresses.
pub(crate) const SPOKES_MAX: usize = 250;
const HUB: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The hub's address in the tunnel.
pub(crate) const HUB_IN_TUNNEL: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const BRIDGE: &str = "bridge";
/// All are up after this, or something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// The hosts.
pub(crate) struct Hosts {
    pub(crate) hub: Host,
    pub(crate) spokes: Vec<Host>,
    directory: PathBuf,
}

/// The relays of one run.
pub(crate) struct Star<'a> {
    pub(crate) hosts: &'a Hosts,
    pub(crate) hub: Relay,
    spokes: Vec<Relay>,
}

/// Returns a spoke's address in the tunnel, or that of a host behind it.
pub(crate) fn in_tunnel(n: usize, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 1 + host, n as u8 + 1)
}

fn name(n: usize) -> String {
    format!("spoke{}", n + 1)
}

impl Hosts {
    pub(crate) fn build(lab: &mut Lab, spokes: usize) -> anyhow::Result<Self> {
        ensure!(spokes <= SPOKES_MAX, "{spokes} spokes are too many: up to {SPOKES_MAX}");
        let hub = lab.host("hub")?;
        hub.output("ip", &["link", "add", BRIDGE, "type", "bridge"])?;
        hub.up(BRIDGE)?;
        hub.address(BRIDGE, &format!("{HUB}/16"))?;
        let mut hosts = Vec::new();
        for n in 0..spokes {
            let (spoke, port) = (lab.host(&name(n))?, format!("port{}", n + 1));
            lab.veth((&spoke, "eth0"), (&hub, &port))?;
            hub.output("ip", &["link", "set", &port, "master", BRIDGE])?;
            spoke.address("eth0", &format!("10.0.1.{}/16", n + 1))?;
            hosts.push(spoke);
        }
        let directory = lab.directory().join("hub");
        fs::create_dir_all(&directory)?;
        for n in 0..spokes {
            write_secret(&directory.join(format!("{}.psk", name(n))))?;
        }
        Ok(Self { hub, spokes: hosts, directory })
    }

    /// Gives the hub's own device this rate, and a queue of a tenth of a second.
    pub(crate) fn slow_down(&self, rate: Rate) -> anyhow::Result<()> {
        Ok(self.hub.shape(BRIDGE, &Shape::new(rate))?)
    }

    /// Starts the relays of a run, with so many hosts behind each spoke, these lines under `[defaults]`, and in the hub's configuration these under `[node]` and more
    /// tables.
    pub(crate) fn start(
        &self,
        (setting, behind): (Setting, u8),
        defaults: &str,
        of_hub: (&str, &str),
    ) -> anyhow::Result<Star<'_>> {
        let spokes = setting.spokes();
        self.configure((setting, behind), defaults, of_hub)?;
        let hub = self.start_one("hub", self.hub.clone())?;
        let mut star = Star { hosts: self, hub, spokes: Vec::new() };
        if let Some(cores) = setting.cores {
            star.pin_hub(cores)?;
        }
        for n in 0..spokes {
            star.spokes.push(self.start_one(&name(n), self.spokes[n].clone())?);
        }
        star.wait_until_up(spokes)?;
        Ok(star)
    }

    fn start_one(&self, name: &str, host: Host) -> anyhow::Result<Relay> {
        let config = self.directory.join(format!("{name}.toml"));
        Ok(Relay::start(name, host, &program::dwell()?, config, &self.directory)?)
    }

    fn configure(
        &self,
        (setting, behind): (Setting, u8),
        defaults: &str,
        (of_node, of_hub): (&str, &str),
    ) -> anyhow::Result<()> {
        let directory = self.directory.display();
        // A pinned process would count the processors before it is pinned.
        let threads = setting.cores.map_or_else(String::new, |n| format!("threads = {n}\n"));
        let mut hub = format!(
            "[node]\nname = \"hub\"\naddresses = [\"{HUB_IN_TUNNEL}/32\"]\n\
             status = \"{directory}/hub.sock\"\n{threads}{of_node}\n[savings]\nfile = \"none\"\n\
             {of_hub}[defaults]\n{defaults}\n"
        );
        for n in 0..setting.spokes() {
            let name = name(n);
            let each = (0..behind).map(|host| format!("\"{}/32\"", in_tunnel(n, host)));
            let addresses = each.collect::<Vec<_>>().join(", ");
            let peer = format!("psk_file = \"{name}.psk\"\n");
            write!(
                hub,
                "[[peer]]\nname = \"{name}\"\nendpoint = \"10.0.1.{}:7733\"\nprefixes = [{addresses}]\n\
                 {peer}",
                n + 1
            )?;
            let spoke = format!(
                "[node]\nname = \"{name}\"\naddresses = [{addresses}]\n\
                 status = \"{directory}/{name}.sock\"\n[savings]\nfile = \"none\"\n\
                 [defaults]\n{defaults}\n[[peer]]\nname = \"hub\"\nendpoint = \"{HUB}:7733\"\n\
                 prefixes = [\"{HUB_IN_TUNNEL}/32\"]\n{peer}"
            );
            fs::write(self.directory.join(format!("{name}.toml")), spoke)?;
        }
        Ok(fs::write(self.directory.join("hub.toml"), hub)?)
    }
}

impl Star<'_> {
    /// The hub, and the threads that it is going to start, run on the first processors only.
    fn pin_hub(&mut self, cores: usize) -> anyhow::Result<()> {
        let mut set = CpuSet::new();
        (0..cores).for_each(|core| set.set(core));
        let pid = Pid::from_raw(self.hub.process().id() as i32);
        sched_setaffinity(pid, &set).context("the hub can't be pinned to processors")
    }

    pub(crate) fn status(&self) -> anyhow::Result<Status> {
        Ok(self.hub.status()?)
    }

    fn wait_until_up(&self, spokes: usize) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let peers = self.hub.status().map(|status| status.peers).unwrap_or_default();
            let up = peers.iter().filter(|peer| peer.state == PeerState::Up).count();
            if up == spokes {
                return Ok(());
            }
            ensure!(
                Instant::now() < until,
                "{up} of {spokes} spokes are up; the hub's log ends with:\n{}",
                self.hub.log().lines().rev().take(12).collect::<Vec<_>>().join("\n")
            );
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Star<'_> {
    fn drop(&mut self) {
        // Together, so that they are not waited for one after another.
        for relay in self.spokes.iter_mut().chain([&mut self.hub]) {
            let process = relay.process();
            if let Ok(None) = process.try_wait() {
                let _ = process.signal(Signal::KILL);
            }
        }
    }
}
