//! The bed of runs: a link between two sites, and the user's wish to stop.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use dwell_base::Rate;
use dwell_lab::LinkSpec;
use dwell_lab::lab::topology::{self, Pair, PairSpec, THIN_DEVICE};
use dwell_lab::lab::{Host, Lab, LabError, Shape};
use rustix::net::sockopt::set_tcp_congestion;

use super::link_rate::LinkRate;
use super::machine;

/// A pair of sites joined by a link. Data flow from the server to the client, so that the
/// egress is the sender and the ingress the receiver.
#[derive(Debug)]
pub(super) struct Bed<'a> {
    pub(super) lab: &'a Lab,
    pub(super) pair: Pair,
    pub(super) rate: LinkRate,
    congestion_control: Option<String>,
    interrupted: Arc<AtomicBool>,
}

/// The user wants no more runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// The time in which an interruption is noticed.
const GLANCE: Duration = Duration::from_millis(50);

impl<'a> Bed<'a> {
    pub(super) fn new(lab: &'a mut Lab, rate: LinkRate, delay_ns: u64) -> Result<Self, LabError> {
        let spec = match rate.0 {
            Some(rate) => PairSpec::thin(rate, delay_ns),
            None => PairSpec::default(),
        };
        Self::with(lab, rate, spec)
    }

    /// The slow link is behind a router, where neither end sees it, and the way to it takes this time.
    pub(super) fn routed(lab: &'a mut Lab, rate: Rate, delay_ns: u64) -> Result<Self, LabError> {
        let spec = PairSpec::routed(rate).with_delay_ns(delay_ns);
        Self::with(lab, LinkRate(Some(rate)), spec)
    }

    /// With a medium behind the shaped devices that loses a share of the packets each way, by
    /// chance, and can be cut.
    pub(super) fn emulated(
        lab: &'a mut Lab,
        rate: LinkRate,
        delay_ns: u64,
        (loss, reorder): (f64, f64),
    ) -> Result<Self, LabError> {
        let medium = LinkSpec::new().with_delay_ns(delay_ns).with_loss(loss).with_reorder(reorder);
        let medium = Some([medium.clone().with_seed(1), medium.with_seed(2)]);
        Self::with(lab, rate, PairSpec { shape: rate.0.map(Shape::new), medium, router: None })
    }

    fn with(lab: &'a mut Lab, rate: LinkRate, spec: PairSpec) -> Result<Self, LabError> {
        let pair = topology::pair(lab, spec)?;
        // What TCP learned of the way with one contender must not help the next.
        for host in [&pair.client, &pair.server] {
            host.sysctl("net/ipv4/tcp_no_metrics_save", "1")?;
        }
        let interrupted = lab.interrupted();
        Ok(Self { lab, pair, rate, congestion_control: None, interrupted })
    }

    /// Lets the server's TCP react to congestion in this way, of those that the kernel has.
    pub(super) fn set_congestion_control(&mut self, name: &str) -> anyhow::Result<()> {
        self.congestion_control = Some(name.to_owned());
        self.listen(SocketAddr::from(([127, 0, 0, 1], 0))).map(drop)
    }

    /// Opens a TCP port of the server.
    pub(super) fn listen(&self, address: SocketAddr) -> anyhow::Result<TcpListener> {
        self.listen_on(&self.pair.server, address)
    }

    /// Opens a TCP port of a host, whose connections react to congestion in the way that was chosen.
    pub(super) fn listen_on(
        &self,
        host: &Host,
        address: SocketAddr,
    ) -> anyhow::Result<TcpListener> {
        let listener = host.run(|| TcpListener::bind(address))?;
        let listener = listener.with_context(|| format!("can't listen on {address}"))?;
        if let Some(name) = &self.congestion_control {
            // Connections inherit it. The default of a namespace can't be set to any.
            set_tcp_congestion(&listener, name)
                .with_context(|| format!("TCP can't use {name}: is the kernel's module loaded?"))?;
        }
        Ok(listener)
    }

    /// Lets all TCP of the sender's router over the link react to congestion in the way that was chosen, also
    /// that of other programs.
    pub(super) fn congest_link(&self) -> anyhow::Result<()> {
        let egress = &self.pair.egress;
        let Some(name) = &self.congestion_control else { return Ok(()) };
        // A namespace's default can be set to few, a route's to any.
        if egress.run(machine::congestion_control)? != *name {
            let route = ["route", "replace", "10.0.0.1/32", "dev", THIN_DEVICE, "congctl", name];
            egress.output("ip", &route)?;
        }
        Ok(())
    }

    /// Bytes that have been put on the link, in both directions, headers included.
    pub(super) fn link_bytes(&self) -> Result<u64, LabError> {
        Ok(self.pair.ingress.tx_bytes(THIN_DEVICE)? + self.pair.egress.tx_bytes(THIN_DEVICE)?)
    }

    /// Fails if the user wants to stop.
    pub(super) fn check(&self) -> Result<(), Interrupted> {
        if self.interrupted.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
    }

    /// Sleeps until then, unless the user wants to stop.
    pub(super) fn sleep_until(&self, end: Instant) -> Result<(), Interrupted> {
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(GLANCE));
        }
    }

    /// Sleeps this long, unless the user wants to stop.
    pub(super) fn sleep(&self, time: Duration) -> Result<(), Interrupted> {
        self.sleep_until(Instant::now() + time)
    }
}
