//! A relay on each gateway of a network of sites, each a peer of its neighbours.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sites::Sites;
use dwell_lab::lab::Lab;
use dwell_lab::relays::{Relay, RelayError, RelaySettings, write_secret};

/// The relays, in the order of the gateways.
#[derive(Debug)]
pub struct Mesh {
    /// One for each gateway.
    pub relays: Vec<Relay>,
    directory: PathBuf,
}

impl Mesh {
    /// Starts the relays with the program `dwell`, and waits until all have found their neighbours.
    ///
    /// A packet goes from relay to relay along the thin links; each has a session with its
    /// neighbours, which are named `gateway1`, `gateway2`, ... The setting `keys` is ignored: each
    /// sealed link has a key that both ends know.
    ///
    /// # Errors
    /// If one does not start, or does not find its neighbours within ten seconds.
    pub fn start(
        lab: &Lab,
        network: &Sites,
        dwell: &Path,
        settings: &RelaySettings,
    ) -> Result<Self, RelayError> {
        let directory = lab.directory().join("mesh");
        let io = |what: &str| {
            let what = what.to_owned();
            move |source| RelayError::Io { what, source }
        };
        std::fs::create_dir_all(&directory).map_err(io("make a directory for the relays"))?;
        for link in 0..network.layout().links().len() {
            write_secret(&psk(&directory, link)).map_err(io("write a key"))?;
        }
        let mut relays = Vec::new();
        for (n, host) in network.gateways.iter().enumerate() {
            let name = host.name();
            let config = directory.join(format!("{name}.toml"));
            std::fs::write(&config, node(network, n, &directory, settings))
                .map_err(io("write a configuration"))?;
            relays.push(Relay::start(name, host.clone(), dwell, config, &directory)?);
        }
        for relay in &mut relays {
            relay.wait_for_peer(Duration::from_secs(10))?;
        }
        Ok(Self { relays, directory })
    }

    /// Returns the file with the key of a link's ends.
    pub fn key(&self, link: usize) -> PathBuf {
        psk(&self.directory, link)
    }
}

fn psk(directory: &Path, link: usize) -> PathBuf {
    directory.join(format!("link{link}.psk"))
}

/// Returns the configuration of the relay on gateway `n`.
fn node(network: &Sites, n: usize, directory: &Path, settings: &RelaySettings) -> String {
    let RelaySettings { scheme, codec, offload, transit, extra, .. } = settings;
    let mut text = String::new();
    let _ = write!(
        text,
        "[savings]\nfile = \"none\"\n[node]\nname = \"{name}\"\naddresses = [\"{v4}/32\", \"{v6}/128\"]\noffload = {offload}\n\
         transit = {transit}\nstatus = \"{directory}/{name}.sock\"\n\n\
         [defaults]\nscheme = \"{scheme}\"\ncodec = \"{codec}\"\nrate = \"{rate}\"\n{extra}\n",
        name = network.gateways[n].name(),
        v4 = address(n),
        v6 = address_v6(n),
        rate = settings.rate,
        directory = directory.display(),
    );
    let first_hops = network.layout().first_hops(n);
    for (near, link) in network.layout().neighbours(n) {
        let behind = first_hops.iter().enumerate().filter(|&(_, &hop)| hop == Some(near));
        let prefixes: Vec<String> = behind
            .flat_map(|(site, _)| {
                let [v4, v6] = Sites::site_prefixes(site);
                [v4, v6, format!("{}/32", address(site)), format!("{}/128", address_v6(site))]
            })
            .map(|prefix| format!("\"{prefix}\""))
            .collect();
        let security = match settings.sealed {
            true => format!("psk_file = \"{}\"", psk(directory, link).display()),
            false => "security = \"none\"".to_owned(),
        };
        let _ = write!(
            text,
            "\n[[peer]]\nname = \"{name}\"\nendpoint = \"{endpoint}:7733\"\n\
             prefixes = [{prefixes}]\n{security}\n",
            name = network.gateways[near].name(),
            endpoint = network.link_address(link, near),
            prefixes = prefixes.join(", "),
        );
    }
    text
}

/// Returns the address of a relay itself.
fn address(n: usize) -> String {
    format!("10.77.0.{}", n + 1)
}

fn address_v6(n: usize) -> String {
    format!("fd77::{:x}", n + 1)
}
