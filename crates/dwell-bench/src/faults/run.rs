//! One run: relays, traffic, a fault, and what became of the traffic.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dwell_base::Rate;
use dwell_base::time::duration_ns;
use dwell_lab::lab::Lab;
use dwell_lab::relays::{RelayRate, RelaySettings, Relays};
use dwell_testkit::faults::{Fault, FaultTiming, Struck, Trap, block_plain_paths};
use dwell_testkit::stream::{Spacing, Stream, StreamSpec, Tally};

use super::super::bed::Bed;
use super::super::contender::Security;
use super::super::download::{Body, Downloads};
use super::super::link_rate::LinkRate;
use super::super::program;
use super::super::tunnel::server;
use super::record::{Aftermath, OneWay};

/// The subject of a run.
pub(super) struct Scene<'a> {
    pub(super) fault: Fault,
    pub(super) security: Security,
    pub(super) timing: FaultTiming,
    pub(super) scheme: &'a str,
    pub(super) codec: &'a str,
    pub(super) rate: Rate,
    pub(super) delay_ns: u64,
    pub(super) body: &'a Body,
}

/// Datagrams a second each way, and their payloads.
const PER_SECOND: f64 = 200.0;
const PAYLOAD_BYTES: usize = 120;
/// All is well for so long before the fault, and after it.
const WARM_UP: Duration = Duration::from_secs(2);
const AFTER: Duration = Duration::from_millis(1500);
const GRACE: Duration = Duration::from_millis(500);
const GLANCE: Duration = Duration::from_millis(2);
/// Traffic that has not gone on after so long will not.
const PATIENCE: Duration = Duration::from_secs(60);

impl Scene<'_> {
    pub(super) fn play(&self, lab: &mut Lab) -> anyhow::Result<Aftermath> {
        let bed = Bed::emulated(lab, LinkRate(Some(self.rate)), self.delay_ns, (0.0, 0.0))?;
        bed.check()?;
        let mut relays = self.relays(&bed)?;
        block_plain_paths(&bed.pair)?;
        let mut trap = Trap::set(bed.lab, self.fault, self.timing, &mut relays)?;
        let downloads = Downloads::start(&bed, std::slice::from_ref(self.body), server(0).ip())?;
        let streams = streams(&bed)?;
        let played = self.act(&bed, &mut trap, &mut relays, &downloads, &streams);
        let [there, back] = streams.map(|stream| stream.finish(GRACE));
        let download_bytes = downloads.received_bytes();
        let (is_equal, played) = (downloads.finish(), played?);
        let (there, back) = (there?, back?);
        ensure!(is_equal?, "bytes of the download were altered");
        relays.stop()?;
        let (struck, progress) = played;
        Ok(Aftermath {
            there: one_way(&there, struck)?,
            back: one_way(&back, struck)?,
            download_resumed_ns: download_resumed_ns(&progress, struck.cleared)?,
            download_bytes,
        })
    }

    fn relays(&self, bed: &Bed<'_>) -> anyhow::Result<Relays> {
        let settings = RelaySettings {
            scheme: self.scheme.to_owned(),
            codec: self.codec.to_owned(),
            // A little less than the link takes: the queue is the relay's.
            rate: RelayRate::Fixed(Rate::clamped_bps(self.rate.as_bps() / 100 * 95)),
            sealed: self.security != Security::None,
            keyed: self.security == Security::Keys,
            extra: "on_dead = \"closed\"".to_owned(),
            ..RelaySettings::default()
        };
        Ok(Relays::start(bed.lab, &bed.pair, &program::dwell()?, &settings)?)
    }

    /// Lets it happen, and waits until everything goes on: when it was, and when more of the
    /// download had come.
    fn act(
        &self,
        bed: &Bed<'_>,
        trap: &mut Trap,
        relays: &mut Relays,
        downloads: &Downloads,
        streams: &[Stream; 2],
    ) -> anyhow::Result<(Struck, Vec<Instant>)> {
        bed.sleep(WARM_UP)?;
        ensure!(downloads.received_bytes() > 0, "nothing is downloaded");
        ensure!(streams.iter().all(|stream| stream.received() > 0), "no datagram arrives");
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let watching = scope.spawn(|| downloads.watch(&stop));
            let struck = self.strike(bed, trap, relays, downloads, streams);
            stop.store(true, Ordering::Relaxed);
            let progress = watching.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
            Ok((struck?, progress))
        })
    }

    fn strike(
        &self,
        bed: &Bed<'_>,
        trap: &mut Trap,
        relays: &mut Relays,
        downloads: &Downloads,
        streams: &[Stream; 2],
    ) -> anyhow::Result<Struck> {
        let struck = trap.strike(&bed.pair, relays)?;
        let before = downloads.received_bytes();
        let end = Instant::now() + PATIENCE;
        loop {
            bed.check()?;
            let is_back = streams.iter().all(|stream| stream.has_resumed_after(struck.cleared));
            if is_back && downloads.received_bytes() > before {
                bed.sleep(AFTER)?;
                return Ok(struck);
            }
            ensure!(
                Instant::now() < end,
                "traffic has not gone on after {PATIENCE:?}; the relays say:\n{}\n{}",
                relays.ingress.log(),
                relays.egress.log()
            );
            thread::sleep(GLANCE);
        }
    }
}

/// From a moment until more of the download had come.
fn download_resumed_ns(progress: &[Instant], cleared: Instant) -> anyhow::Result<u64> {
    let first = progress.iter().find(|at| **at > cleared).context("the download stands still")?;
    Ok(duration_ns(*first - cleared))
}

fn streams(bed: &Bed<'_>) -> anyhow::Result<[Stream; 2]> {
    let (client, server) = (&bed.pair.client, &bed.pair.server);
    let spec = |to: [u8; 4]| StreamSpec {
        to: (to, 9000).into(),
        payload_bytes: PAYLOAD_BYTES,
        spacing: Spacing::Even(PER_SECOND),
    };
    Ok([
        Stream::start(client, server, spec([10, 2, 0, 2]))?,
        Stream::start(server, client, spec([10, 1, 0, 2]))?,
    ])
}

fn one_way(tally: &Tally, struck: Struck) -> anyhow::Result<OneWay> {
    ensure!(tally.altered == 0, "{} datagrams were altered", tally.altered);
    ensure!(tally.duplicates == 0, "{} datagrams came twice", tally.duplicates);
    Ok(OneWay {
        resumed_ns: tally.resumed_after_ns(struck.cleared).context("no datagram came after it")?,
        silence_ns: tally.longest_silence_ns(struck.began),
        sent: tally.sent,
        lost: tally.lost(),
    })
}
