//! More than two relays: chains, with traffic that enters and leaves under way, and stars.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use dwell_base::Rate;
use dwell_report::Status;
use dwell_testkit::http::{self, Contents};
use dwell_testkit::lab::Lab;
use dwell_testkit::lab::sites::{Layout, Sites, sites};
use dwell_testkit::lab::topology::PairSpec;
use dwell_testkit::mesh::Mesh;
use dwell_testkit::{corpus, relays};

use crate::harness::has_ipv6;
use crate::site::{self, DWELL, balanced};

/// Each site fetches from the one behind the next gateway, and the first from the last: what goes
/// the whole way meets what enters and leaves on the way.
pub(super) fn parking_lot(lab: &mut Lab) -> anyhow::Result<()> {
    let layout = Layout::chain(4);
    let network = Network::start(lab, &layout)?;
    network.fetch_all(&[(0, 3), (0, 1), (1, 2), (2, 3)])?;
    let statuses = network.statuses()?;
    for (n, status) in statuses.iter().enumerate() {
        for peer in &status.peers {
            println!(
                "gateway{}: {} of {} packets pressed to {}",
                n + 1,
                peer.tx.pressed.packets,
                peer.tx.sent.packets,
                peer.name
            );
        }
    }
    // Downloads of text go from the later sites to the earlier ones.
    let pressed: u64 = statuses.iter().flat_map(|s| &s.peers).map(|p| p.tx.pressed.packets).sum();
    ensure!(pressed > 0, "text was not pressed: {statuses:#?}");
    Ok(())
}

/// The branches fetch from each other, over the hub.
pub(super) fn star(lab: &mut Lab) -> anyhow::Result<()> {
    let network = Network::start(lab, &Layout::star(3))?;
    network.fetch_all(&[(1, 2), (2, 3), (3, 1), (0, 1)])?;
    network.statuses()?;
    Ok(())
}

/// Sites with relays at 10 Mbit/s, and an HTTP server at each.
struct Network {
    mesh: Mesh,
    sites: Sites,
    contents: Arc<Contents>,
    _servers: Vec<http::Server>,
}

const FILES: [&str; 2] = ["/text", "/random"];

impl Network {
    fn start(lab: &mut Lab, layout: &Layout) -> anyhow::Result<Self> {
        let network = sites(lab, layout, &PairSpec::thin(Rate::from_mbps(10), 0))?;
        let settings = relays::RelaySettings { offload: false, ..site::settings() };
        let mesh = Mesh::start(lab, &network, Path::new(DWELL), &settings)?;
        let files = [corpus::text(150_000, 1), corpus::incompressible(60_000, 1)];
        let paths = FILES.map(str::to_owned);
        let contents = paths.into_iter().zip(files.map(Arc::new)).collect();
        let contents: Arc<Contents> = Arc::new(contents);
        let mut servers = Vec::new();
        for (n, host) in network.sites.iter().enumerate() {
            for address in addresses(n) {
                let listener = host.run(|| TcpListener::bind((address, 80)))??;
                servers.push(http::serve(listener, Arc::clone(&contents))?);
            }
        }
        Ok(Self { mesh, sites: network, contents, _servers: servers })
    }

    /// Fetches all files of all these ways (client, server) at once.
    fn fetch_all(&self, ways: &[(usize, usize)]) -> anyhow::Result<()> {
        let mut downloads = Vec::new();
        for &(client, server) in ways {
            for (address, path) in
                addresses(server).into_iter().flat_map(|a| FILES.map(|path| (a, path)))
            {
                let contents = Arc::clone(&self.contents);
                let download = move || {
                    let expected = &contents[path];
                    http::get(SocketAddr::new(address, 80), path, Some(expected), |_, _| {})
                };
                let thread = self.sites.sites[client].spawn_thread(download)?;
                downloads.push((client, server, thread));
            }
        }
        for (client, server, thread) in downloads {
            let what = || format!("site{} from site{}", client + 1, server + 1);
            let fetched = thread.join().map_err(|_| anyhow::anyhow!("panicked"))?;
            let fetched = fetched?.with_context(what)?;
            ensure!(fetched.is_as_expected, "{} came out changed", what());
        }
        Ok(())
    }

    fn statuses(&self) -> anyhow::Result<Vec<Status>> {
        let mut statuses = Vec::new();
        for relay in &self.mesh.relays {
            let status = relay.status()?;
            balanced(&status)?;
            for peer in &status.peers {
                let rx = &peer.rx;
                ensure!(rx.malformed + rx.auth_failed + rx.decode_failed == 0, "{peer:#?}");
            }
            statuses.push(status);
        }
        Ok(statuses)
    }
}

/// A site's addresses that this kernel can reach.
fn addresses(n: usize) -> Vec<IpAddr> {
    let [v4, v6] = Sites::site_addresses(n);
    if has_ipv6() { vec![v4, v6] } else { vec![v4] }
}
