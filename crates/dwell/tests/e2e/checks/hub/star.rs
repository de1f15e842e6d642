//! The hosts and the relays.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use dwell_lab::corpus;
use dwell_lab::http::{self, Contents};
use dwell_lab::lab::{Host, Lab};
use dwell_lab::relays::{Relay, write_secret};
use rustix::process::Signal;

use super::{CONTEXTS, WINDOW_BYTES};
use crate::site::{DWELL, resident_bytes};

/// The most spokes: their numbers are part of addresses.
const SPOKES_MAX: usize = 250;
/// The addresses of the server, each of which is a host to the relays.
pub(super) const SERVERS: [Ipv4Addr; 3] =
    [Ipv4Addr::new(10, 2, 0, 2), Ipv4Addr::new(10, 2, 0, 3), Ipv4Addr::new(10, 2, 0, 4)];
const HUB: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const HUB_IN_TUNNEL: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const BRIDGE: &str = "bridge";
/// What both ends have in common.
const DEFAULTS: &str =
    "[defaults]\nscheme = \"auto\"\ncodec = \"zstd:1\"\nrate = \"1mbit\"\nhistory = \"auto\"\n";

const FILE: &str = "/text";
const FILE_BYTES: usize = 20_000;

/// Spokes, a hub, and a server behind it:
///
/// ```text
/// spoke1 ─── eth0 10.0.1.1 ═╗
/// spoke2 ─── eth0 10.0.1.2 ═╬═ bridge 10.0.0.1  hub  10.2.0.1 eth0 ─── eth0  server
///   ⋮                       ║                                          10.2.0.2, .3, .4
/// ```
///
/// In the tunnel they are 10.77.1.1, 10.77.1.2, …, and 10.77.0.1.
pub(super) struct Star {
    // The relays end before their hosts.
    pub(super) hub: Relay,
    pub(super) spokes: Vec<Relay>,
    pub(super) hosts: Vec<Host>,
    pub(super) server: Host,
    pub(super) directory: PathBuf,
    /// The hub's memory before any spoke was there.
    pub(super) idle: u64,
    contents: Arc<Contents>,
    _web: http::Server,
}

/// Returns the name of a spoke: their numbers begin with 1.
pub(super) fn name(n: usize) -> String {
    format!("spoke{}", n + 1)
}

/// Returns its address on the bridge.
fn address(n: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 1, n as u8 + 1)
}

/// Returns its address in the tunnel.
pub(super) fn in_tunnel(n: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 1, n as u8 + 1)
}

/// Returns true if it has a pair of keys. The others have a pre-shared key.
fn is_keyed(n: usize) -> bool {
    n % 4 < 2
}

/// Returns true if the hub knows where it is, and so initiates handshakes, too.
fn is_called(n: usize) -> bool {
    n.is_multiple_of(2)
}

impl Star {
    /// Makes all hosts, and starts the hub.
    pub(super) fn start(lab: &mut Lab, spokes: usize) -> anyhow::Result<Self> {
        ensure!((1..=SPOKES_MAX).contains(&spokes), "{spokes} spokes");
        let (hub, server) = (lab.host("hub")?, lab.host("server")?);
        hub.output("ip", &["link", "add", BRIDGE, "type", "bridge"])?;
        hub.up(BRIDGE)?;
        hub.address(BRIDGE, &format!("{HUB}/16"))?;
        hub.forwarding(true)?;
        lab.veth((&hub, "eth0"), (&server, "eth0"))?;
        hub.address("eth0", "10.2.0.1/24")?;
        for address in SERVERS {
            server.address("eth0", &format!("{address}/24"))?;
        }
        server.route("default", Ipv4Addr::new(10, 2, 0, 1).into())?;
        let mut hosts = Vec::new();
        for n in 0..spokes {
            let (spoke, port) = (lab.host(&name(n))?, format!("port{}", n + 1));
            lab.veth((&spoke, "eth0"), (&hub, &port))?;
            hub.output("ip", &["link", "set", &port, "master", BRIDGE])?;
            spoke.address("eth0", &format!("{}/16", address(n)))?;
            hosts.push(spoke);
        }
        let text = Arc::new(corpus::text(FILE_BYTES, 1));
        let contents: Arc<Contents> = Arc::new([(FILE.to_owned(), text)].into_iter().collect());
        let listener = server.run(|| TcpListener::bind((SERVERS[0], 80)))??;
        let web = http::serve(listener, Arc::clone(&contents))?;
        let directory = lab.directory().join("star");
        fs::create_dir_all(&directory)?;
        configure(&directory, spokes)?;
        let hub = start("hub", hub, &directory)?;
        let mut star = Self {
            hub,
            spokes: Vec::new(),
            hosts,
            server,
            directory,
            idle: 0,
            contents,
            _web: web,
        };
        super::wait_until("the hub starts", || {
            let hub = star.hub.process();
            ensure!(hub.try_wait()?.is_none(), "{}", star.hub.log());
            Ok(if star.hub.status().is_ok() { Vec::new() } else { vec!["it".to_owned()] })
        })?;
        star.idle = resident_bytes(star.hub.process())?;
        Ok(star)
    }

    pub(super) fn start_spokes(&mut self) -> anyhow::Result<()> {
        for (n, host) in self.hosts.iter().enumerate() {
            self.spokes.push(start(&name(n), host.clone(), &self.directory)?);
        }
        Ok(())
    }

    /// All spokes fetch a file from the server at the same time.
    pub(super) fn fetch_all(&self) -> anyhow::Result<()> {
        let mut downloads = Vec::new();
        for host in &self.hosts {
            let contents = Arc::clone(&self.contents);
            let server = SocketAddr::from((SERVERS[0], 80));
            let get = move || http::get(server, FILE, Some(&contents[FILE]), |_, _| {});
            downloads.push(host.spawn_thread(get)?);
        }
        for (n, download) in downloads.into_iter().enumerate() {
            let fetched = download.join().map_err(|_| anyhow::anyhow!("panicked"))??;
            let fetched = fetched.with_context(|| format!("a download of {}", name(n)))?;
            ensure!(fetched.is_as_expected, "the download of {} was changed", name(n));
        }
        Ok(())
    }

    /// Returns the ends of some logs.
    pub(super) fn logs(&self) -> String {
        let end = |relay: &Relay| {
            let log = relay.log();
            let lines: Vec<&str> = log.lines().rev().take(20).collect();
            let lines: Vec<&str> = lines.into_iter().rev().collect();
            format!("{}:\n{}\n", relay.name(), lines.join("\n"))
        };
        [&self.hub].into_iter().chain(self.spokes.first()).map(end).collect()
    }
}

impl Drop for Star {
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

fn start(name: &str, host: Host, directory: &Path) -> anyhow::Result<Relay> {
    let config = directory.join(format!("{name}.toml"));
    Ok(Relay::start(name, host, Path::new(DWELL), config, directory)?)
}

/// Writes the keys and the configuration of each relay.
fn configure(directory: &Path, spokes: usize) -> anyhow::Result<()> {
    let hub_key = make_keys(directory, "hub")?;
    let mut hub = format!(
        "[node]\nname = \"hub\"\naddresses = [\"{HUB_IN_TUNNEL}/32\"]\nstatus = \"{}/hub.sock\"\n\
         private_key_file = \"hub.key\"\n\n{DEFAULTS}contexts_max = {CONTEXTS}\n\
         context_window = \"{}KiB\"\n",
        directory.display(),
        WINDOW_BYTES >> 10,
    );
    for n in 0..spokes {
        let (name, of_tunnel) = (name(n), in_tunnel(n));
        let (private, [at_hub, at_spoke]) = if is_keyed(n) {
            let public = [make_keys(directory, &name)?, hub_key.clone()];
            let private = format!("private_key_file = \"{name}.key\"\n");
            (private, public.map(|key| format!("public_key = \"{key}\"")))
        } else {
            write_secret(&directory.join(format!("{name}.psk")))?;
            let psk = format!("psk_file = \"{name}.psk\"");
            (String::new(), [psk.clone(), psk])
        };
        let endpoint = match is_called(n) {
            true => format!("endpoint = \"{}:7733\"\n", address(n)),
            false => String::new(),
        };
        write!(
            hub,
            "\n[[peer]]\nname = \"{name}\"\n{endpoint}prefixes = [\"{of_tunnel}/32\"]\n{at_hub}\n"
        )?;
        let spoke = format!(
            "[node]\nname = \"{name}\"\naddresses = [\"{of_tunnel}/32\"]\n\
             status = \"{}/{name}.sock\"\n{private}\n{DEFAULTS}\n\
             [[peer]]\nname = \"hub\"\nendpoint = \"{HUB}:7733\"\n\
             prefixes = [\"10.2.0.0/24\", \"{HUB_IN_TUNNEL}/32\"]\n{at_spoke}\n",
            directory.display(),
        );
        fs::write(directory.join(format!("{name}.toml")), spoke)?;
    }
    Ok(fs::write(directory.join("hub.toml"), hub)?)
}

/// Makes a private key with the program; returns its public key.
fn make_keys(directory: &Path, name: &str) -> anyhow::Result<String> {
    let file = directory.join(format!("{name}.key"));
    let run = |command: &mut Command| -> anyhow::Result<String> {
        let output = command.output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    run(Command::new(DWELL).arg("genkey").arg("--out").arg(&file))?;
    run(Command::new(DWELL).arg("pubkey").arg(&file))
}
