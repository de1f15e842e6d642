//! One peer that sends what costs much, and another one beside it.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dwell_lab::corpus;
use dwell_lab::http::{self, Contents};
use dwell_lab::lab::Lab;
use dwell_lab::lab::topology::PairSpec;
use dwell_lab::ping::PingSummary;
use dwell_lab::relays::RelaySettings;
use dwell_report::status::PeerStatus;
use dwell_testkit::hostile::{HostileSocket, bodies};
use dwell_testkit::mesh::Mesh;
use dwell_testkit::sites::{Layout, Sites, sites};
use dwell_testkit::stalls::StallWatch;

use crate::site::{self, DWELL, balanced};

const LINK: &str = "rate 10mbit delay 5ms queue 100ms";
/// 1.4 kB each: 224 kbit/s.
const DATAGRAMS_A_SECOND: u32 = 20;
const FILE: &str = "/random";
const FILE_BYTES: usize = 3_000_000;
/// Least share of its goodput that an honest peer keeps, and how much longer 99 % of its pings may
/// take.
const GOODPUT_MIN: f64 = 0.8;
const PING_MAX: u64 = 3;
/// The number of times that the machine's own behaviour is measured again.
const TRIES: u32 = 3;
/// A machine that stood still for less is no reason: a hundredth of the pings takes three times as long
/// only if something else holds them up.
const STALL_MAX: Duration = Duration::from_millis(50);

/// The hub of a star, an honest relay, and a hostile peer with a key.
struct Star {
    mesh: Mesh,
    network: Sites,
    contents: Arc<Contents>,
    _server: http::Server,
}

/// The service that an honest peer gets from the hub.
struct Service {
    goodput_bps: f64,
    ping_p99_ns: u64,
    stalled: Duration,
}

/// Blocks that restore to 67,000 packets, twenty times a second, by a peer that has the key: it must not
/// take the hub from the others.
pub(super) fn crowds(lab: &mut Lab) -> anyhow::Result<()> {
    let mut star = Star::start(lab)?;
    let mut hostile = star.become_hostile()?;
    for attempt in 1..=TRIES {
        let quiet = star.measure()?;
        let attack = Attack::begin(hostile);
        let busy = star.measure();
        let sent;
        (hostile, sent) = attack.end()?;
        let busy = busy?;
        println!(
            "goodput {:.2} and {:.2} Mbit/s, ping p99 {:.1} and {:.1} ms, {sent} hostile datagrams; \
             the machine stood still for {} and {} ms",
            quiet.goodput_bps / 1e6,
            busy.goodput_bps / 1e6,
            quiet.ping_p99_ns as f64 / 1e6,
            busy.ping_p99_ns as f64 / 1e6,
            quiet.stalled.as_millis(),
            busy.stalled.as_millis(),
        );
        ensure!(sent > 50, "only {sent} hostile datagrams were sent");
        let kept = busy.goodput_bps / quiet.goodput_bps;
        let is_fair = kept >= GOODPUT_MIN && busy.ping_p99_ns < PING_MAX * quiet.ping_p99_ns;
        if is_fair {
            return star.verify();
        }
        let may_retry = attempt < TRIES && quiet.stalled.max(busy.stalled) > STALL_MAX;
        ensure!(may_retry, "the honest peer keeps {kept:.2} of its goodput");
        println!("not fair, but the machine stood still: this is measured again");
    }
    Ok(())
}

impl Star {
    fn start(lab: &mut Lab) -> anyhow::Result<Self> {
        let link = || LINK.parse();
        let network = sites(lab, &Layout::star(2), &PairSpec::emulated(link()?, link()?))?;
        let settings = RelaySettings { scheme: "edge".to_owned(), ..site::settings() };
        let mesh = Mesh::start(lab, &network, Path::new(DWELL), &settings)?;
        let file = Arc::new(corpus::incompressible(FILE_BYTES, 1));
        let contents: Arc<Contents> = Arc::new([(FILE.to_owned(), file)].into_iter().collect());
        let [address, _] = Sites::site_addresses(1);
        let listener = network.sites[1].run(|| TcpListener::bind((address, 80)))??;
        let server = http::serve(listener, Arc::clone(&contents))?;
        Ok(Self { mesh, network, contents, _server: server })
    }

    /// Puts a hostile peer in the place of the third relay.
    fn become_hostile(&mut self) -> anyhow::Result<HostileSocket> {
        self.mesh.relays[2].kill()?;
        let key = std::fs::read_to_string(self.mesh.key(1))?;
        let key: Vec<u8> = (0..32)
            .map(|at| u8::from_str_radix(key.get(2 * at..2 * at + 2).unwrap_or_default(), 16))
            .collect::<Result<_, _>>()?;
        let key = <[u8; 32]>::try_from(key).ok().context("a key of 32 bytes")?;
        let at = |gateway| SocketAddr::new(self.network.link_address(1, gateway), 7733);
        Ok(HostileSocket::connect(&self.network.gateways[2], at(2), at(0), Some(key))?)
    }

    /// A download over the hub's link to the honest relay, and then pings.
    fn measure(&self) -> anyhow::Result<Service> {
        let watch = StallWatch::start();
        let [address, _] = Sites::site_addresses(1);
        let contents = Arc::clone(&self.contents);
        let download =
            move || http::get(SocketAddr::new(address, 80), FILE, Some(&contents[FILE]), |_, _| {});
        let fetched = self.network.sites[0].run(download)??;
        ensure!(fetched.is_as_expected, "the download was changed");
        let to = address.to_string();
        let ping = ["-n", "-c", "300", "-i", "0.01", "-W", "2", &to];
        let output = self.network.sites[0].command("ping").args(ping).output()?;
        let summary = PingSummary::parse(&String::from_utf8_lossy(&output.stdout));
        ensure!(summary.replies.len() >= 290, "{} pings came back", summary.replies.len());
        let ping_p99_ns = summary.quantile_ns(0.99).context("there are replies")?;
        Ok(Service { goodput_bps: fetched.goodput_bps(), ping_p99_ns, stalled: watch.stop() })
    }

    fn verify(&self) -> anyhow::Result<()> {
        let status = self.mesh.relays[0].status()?;
        balanced(&status)?;
        let peer = |name: &str| -> anyhow::Result<&PeerStatus> {
            status.peers.iter().find(|peer| peer.name == name).context("a peer is not there")
        };
        let (honest, hostile) = (&peer("gateway2")?.rx, &peer("gateway3")?.rx);
        ensure!(hostile.too_many_packets > 50, "too many packets are not counted: {hostile:#?}");
        let refused = honest.over_budget + honest.too_many_packets;
        ensure!(refused == 0, "what the honest peer sent was refused: {honest:#?}");
        println!("{} hostile datagrams waited for a turn", hostile.deferred_datagrams);
        Ok(())
    }
}

/// A hostile peer at work.
struct Attack {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<(HostileSocket, u32)>,
}

impl Attack {
    fn begin(mut hostile: HostileSocket) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            let port = |site| SocketAddrV4::new(Ipv4Addr::new(10, site, 0, 2), 9);
            let (from, to) = (port(3), port(1));
            let (body, _) = bodies::crowd(from, to, bodies::BODY_LEN_MAX - 60);
            let (began, mut sent) = (Instant::now(), 0);
            while !until.load(Ordering::Relaxed) {
                // A full queue loses one now and then, as on any host.
                sent += u32::from(hostile.send(&body).is_ok());
                let _ = hostile.receive();
                let next = began + Duration::from_secs(1) * (sent + 1) / DATAGRAMS_A_SECOND;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            (hostile, sent)
        });
        Self { ended, thread }
    }

    fn end(self) -> anyhow::Result<(HostileSocket, u32)> {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the attack panicked"))
    }
}
