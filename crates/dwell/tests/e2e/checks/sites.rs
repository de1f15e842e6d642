//! More than two relays: chains, with traffic that enters and leaves under way, and stars.

use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use dwell_base::Rate;
use dwell_lab::corpus;
use dwell_lab::http::{self, Contents};
use dwell_lab::lab::Lab;
use dwell_lab::lab::topology::PairSpec;
use dwell_lab::relays::RelaySettings;
use dwell_report::Status;
use dwell_testkit::mesh::Mesh;
use dwell_testkit::sites::{Layout, Sites, sites};

use crate::harness::has_ipv6;
use crate::site::{self, DWELL, balanced};

/// Each site fetches from the one behind the next gateway, and the first from the last: what goes
/// the whole way meets what enters and leaves on the way.
pub(super) fn parking_lot(lab: &mut Lab, transit: bool) -> anyhow::Result<()> {
    let layout = Layout::chain(4);
    let network = Network::start(lab, &layout, &RelaySettings { transit, ..settings() })?;
    network.fetch_all(&[(0, 3), (0, 1), (1, 2), (2, 3)])?;
    let statuses = network.statuses()?;
    for (n, status) in statuses.iter().enumerate() {
        for peer in &status.peers {
            println!(
                "gateway{}: {} of {} packets compressed to {}, {} came compressed",
                n + 1,
                peer.tx.compressed.packets,
                peer.tx.sent.packets,
                peer.name,
                peer.tx.forwarded_compressed.packets
            );
        }
    }
    let carried: u64 =
        statuses.iter().flat_map(|s| &s.peers).map(|p| p.rx.forwarded_compressed.packets).sum();
    ensure!((carried > 0) == transit, "{carried} were carried on: {statuses:#?}");
    // Downloads of text go from the later sites to the earlier ones.
    let compressed: u64 =
        statuses.iter().flat_map(|s| &s.peers).map(|p| p.tx.compressed.packets).sum();
    ensure!(compressed > 0, "text was not compressed: {statuses:#?}");
    Ok(())
}

/// The branches fetch from each other, over the hub.
pub(super) fn star(lab: &mut Lab) -> anyhow::Result<()> {
    let network = Network::start(lab, &Layout::star(3), &settings())?;
    network.fetch_all(&[(1, 2), (2, 3), (3, 1), (0, 1)])?;
    network.statuses()?;
    Ok(())
}

/// Relays between others open nothing that goes further, and nobody notices.
pub(super) fn transit(lab: &mut Lab, scheme: &str) -> anyhow::Result<()> {
    let settings = RelaySettings { transit: true, scheme: scheme.to_owned(), ..settings() };
    let network = Network::start(lab, &Layout::chain(3), &settings)?;
    // From one end to the other only: all that the middle gets is for others.
    network.fetch_all(&[(0, 2), (0, 2), (2, 0)])?;
    network.send_messages(0, 2)?;
    let statuses = network.statuses()?;
    for peer in &statuses[1].peers {
        let rx = &peer.rx;
        println!(
            "from {}: {} carried on, {} raw ones forwarded, {} opened",
            peer.name, rx.forwarded_compressed.packets, rx.forwarded.packets, rx.compressed
        );
        ensure!(rx.forwarded_compressed.packets > 0, "nothing was carried on: {peer:#?}");
        ensure!(rx.forwarded.packets > 0, "nothing went on raw: {peer:#?}");
        ensure!(rx.compressed == 0, "the middle opened something: {peer:#?}");
    }
    ensure!(statuses[0].peers[0].rx.compressed > 0, "nothing came compressed: {:#?}", statuses[0]);
    ensure!(statuses[2].peers[0].rx.compressed > 0, "nothing came compressed: {:#?}", statuses[2]);
    Ok(())
}

fn settings() -> RelaySettings {
    RelaySettings { offload: false, ..site::settings() }
}

/// Sites with relays at 10 Mbit/s, and an HTTP server at each.
struct Network {
    mesh: Mesh,
    sites: Sites,
    contents: Arc<Contents>,
    _servers: Vec<http::Server>,
}

const MESSAGES: usize = 200;
const FILES: [&str; 2] = ["/text", "/random"];

impl Network {
    fn start(lab: &mut Lab, layout: &Layout, settings: &RelaySettings) -> anyhow::Result<Self> {
        let network = sites(lab, layout, &PairSpec::thin(Rate::from_mbps(10), 0))?;
        let mesh = Mesh::start(lab, &network, Path::new(DWELL), settings)?;
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

    /// Sends messages in bursts, which have to wait for the link, from one site to another. They come
    /// as they were sent, and in order.
    fn send_messages(&self, from: usize, to: usize) -> anyhow::Result<()> {
        let text = corpus::text(64 << 10, 3);
        let message = move |n: usize| {
            [&(n as u32).to_be_bytes()[..], &text[n * 100 % 60_000..][..200 + n % 1000]].concat()
        };
        for address in addresses(to) {
            let to_address = SocketAddr::new(address, 9000);
            let socket = self.sites.sites[to].run(|| UdpSocket::bind(to_address))??;
            socket.set_read_timeout(Some(Duration::from_secs(5)))?;
            let message = message.clone();
            let sent = message.clone();
            let sender = self.sites.sites[from].spawn_thread(move || -> std::io::Result<()> {
                let any = if to_address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = UdpSocket::bind(any)?;
                for n in 0..MESSAGES {
                    if n % 40 == 0 {
                        std::thread::sleep(Duration::from_millis(200));
                    }
                    socket.send_to(&sent(n), to_address)?;
                }
                Ok(())
            })?;
            let mut room = [0; 2048];
            for n in 0..MESSAGES {
                let len = socket.recv(&mut room).with_context(|| format!("message {n}"))?;
                ensure!(room[..len] == message(n), "message {n} came out changed, or of order");
            }
            sender.join().map_err(|_| anyhow::anyhow!("panicked"))???;
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
