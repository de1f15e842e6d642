//! A hub with many peers, each a relay of its own in a namespace of its own, all of which compress in
//! contexts: what they send arrives, whoever is killed, and the hub's memory is what was negotiated.

mod flows;
mod star;

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use dwell_base::Rng;
use dwell_lab::lab::Lab;
use dwell_report::Status;
use dwell_report::status::PeerState;

use crate::site::{DWELL, balanced, resident_bytes};
use flows::Flows;
use star::Star;

/// Contexts in each direction, and the binary logarithm of their window, as the hub offers them. The spokes
/// offer more, and each has traffic between more pairs of hosts than there are contexts.
const CONTEXTS: u64 = 2;
const WINDOW_LOG: u32 = 17;
const WINDOW_BYTES: u64 = 1 << WINDOW_LOG;
/// What a context may take in the hub: the decoder's ring, window and base, and what zstd has beside them;
/// the encoder's, with its tables.
const DECODER_BYTES: u64 = 3 * WINDOW_BYTES + (512 << 10);
const ENCODER_BYTES: u64 = 3 * WINDOW_BYTES + (1 << 20);
/// What a peer may take beside its contexts: sessions, queue, and what is kept to be sent again, of which a
/// flow has at most one burst under way.
const PEER_BYTES: u64 = 1 << 20;

/// What is waited for takes seconds, unless it never happens.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(200);
/// If more passed between two looks, this process was stopped, or the machine stood still.
const POLL_MAX: Duration = Duration::from_secs(2);
/// Of those that are killed one is, on average, in so much time, and is away for this long at most.
const KILLS_SPACING_MS: u64 = 150;
const AWAY_MS: u64 = 2_000;

/// All find the hub, and all that they send arrives; also after the hub was killed, and after a third of
/// them was, at moments that the seed draws.
pub(super) fn kills(lab: &mut Lab, spokes: usize, seed: u64) -> anyhow::Result<()> {
    let mut star = Star::start(lab, spokes)?;
    let began = Instant::now();
    star.start_spokes()?;
    star.wait_until_up()?;
    println!("{spokes} spokes up after {:.1} s", began.elapsed().as_secs_f64());
    star.fetch_all()?;
    let flows = Flows::start(&star)?;
    star.all_work(&flows)?;
    star.all_is_sent()?;
    star.check_memory()?;

    let before = star.batches()?;
    let killed = Instant::now();
    star.hub.kill()?;
    star.hub.restart(None)?;
    star.wait_until_up()?;
    println!("up again {:.1} s after the hub was killed", killed.elapsed().as_secs_f64());
    star.all_decode(&before)?;
    star.all_work(&flows)?;
    println!("all work {:.1} s after it", killed.elapsed().as_secs_f64());
    star.all_is_sent()?;
    star.check_memory()?;

    star.kill_spokes(seed)?;
    let killed = Instant::now();
    star.wait_until_up()?;
    star.all_work(&flows)?;
    println!("all work {:.1} s after the last spoke was killed", killed.elapsed().as_secs_f64());
    star.check_memory()?;
    flows.finish()?;
    star.fetch_all()?;
    star.check_accounts()
}

impl Star {
    fn wait_until_up(&self) -> anyhow::Result<()> {
        wait_until("all peers of the hub are up", || {
            let Ok(status) = self.hub.status() else { return Ok(vec!["the hub".to_owned()]) };
            let down = status.peers.into_iter().filter(|peer| peer.state != PeerState::Up);
            Ok(down.map(|peer| peer.name).collect())
        })
        .with_context(|| self.logs())
    }

    /// Every flow goes through twice from now on, and then nothing is wrong with the hub or any of its peers.
    fn all_work(&self, flows: &Flows) -> anyhow::Result<()> {
        let before = flows.completed();
        wait_until("all flows go through", || {
            let flows = flows.completed().into_iter().zip(&before).enumerate();
            let stuck = flows.filter(|&(_, (now, &before))| now < before + 2);
            Ok(stuck.map(|(n, _)| star::name(n)).collect())
        })
        .with_context(|| self.logs())?;
        flows.check()?;
        wait_until("the hub has no problems", || {
            let status = self.status_by_program()?;
            let of_node = status.problems.iter().map(|it| format!("{}: {}", it.problem, it.why));
            let of_peers = status.peers.iter().flat_map(|peer| {
                let name = &peer.name;
                peer.problems.iter().map(move |it| format!("{name}: {}: {}", it.problem, it.why))
            });
            Ok(of_node.chain(of_peers).collect())
        })
    }

    fn status_by_program(&self) -> anyhow::Result<Status> {
        let socket = self.directory.join("hub.sock");
        let mut command = Command::new(DWELL);
        let output = command.args(["status", "--json", "--socket"]).arg(socket).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Batches that each spoke has decoded.
    fn batches(&self) -> anyhow::Result<Vec<u64>> {
        let of = |status: Status| status.peers[0].rx.contexts.batches;
        self.spokes.iter().map(|spoke| Ok(of(spoke.status()?))).collect()
    }

    /// Each spoke decodes more batches than `before`, and the hub, which began from nothing, some of each.
    fn all_decode(&self, before: &[u64]) -> anyhow::Result<()> {
        wait_until("all decode batches of contexts again", || {
            let mut missing = Vec::new();
            for (n, (now, before)) in self.batches()?.into_iter().zip(before).enumerate() {
                if now <= *before {
                    missing.push(format!("{} {now} after {before}", star::name(n)));
                }
            }
            for peer in self.hub.status()?.peers {
                if peer.rx.contexts.batches == 0 {
                    missing.push(format!("the hub of {}", peer.name));
                }
            }
            Ok(missing)
        })
    }

    /// Nothing was for a peer to which the hub had no socket: also those that it did not know the address of
    /// get its first datagrams.
    fn all_is_sent(&self) -> anyhow::Result<()> {
        for peer in self.hub.status()?.peers {
            let errors = &peer.tx.send_errors;
            ensure!(!errors.contains_key("failed"), "{}: {errors:?}", peer.name);
        }
        Ok(())
    }

    /// The hub's memory is within what it has offered, and what a peer costs beside that.
    fn check_memory(&mut self) -> anyhow::Result<()> {
        let (mut contexts, mut bytes) = (0, 0);
        let status = self.hub.status()?;
        for peer in &status.peers {
            let (tx, rx) = (&peer.tx.contexts, &peer.rx.contexts);
            let is_within = |open, used, each| open <= CONTEXTS && used <= CONTEXTS * each;
            ensure!(is_within(tx.open, tx.memory_bytes, ENCODER_BYTES), "{}: {tx:#?}", peer.name);
            ensure!(is_within(rx.open, rx.memory_bytes, DECODER_BYTES), "{}: {rx:#?}", peer.name);
            contexts += tx.open + rx.open;
            bytes += tx.memory_bytes + rx.memory_bytes;
        }
        let peers = status.peers.len() as u64;
        ensure!(contexts > 2 * peers, "only {contexts} contexts are used");
        let each = CONTEXTS * (ENCODER_BYTES + DECODER_BYTES) + PEER_BYTES;
        let (resident, most) = (resident_bytes(self.hub.process())?, self.idle + peers * each);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!(
            "the hub has {:.0} MiB, {:.0} of them in {contexts} contexts, {:.0} MiB before, at most {:.0}",
            mib(resident),
            mib(bytes),
            mib(self.idle),
            mib(most)
        );
        ensure!(resident <= most, "{resident} bytes, and at most {most} were negotiated");
        Ok(())
    }

    /// Kills a third of the spokes and starts each again, at random moments.
    fn kill_spokes(&mut self, seed: u64) -> anyhow::Result<()> {
        let mut rng = Rng::from_seed(seed);
        let mut left: Vec<usize> = (0..self.spokes.len()).collect();
        let mut events = Vec::new();
        let kills = self.spokes.len().div_ceil(3);
        for _ in 0..kills {
            let spoke = left.swap_remove(rng.below(left.len() as u64) as usize);
            let at_ms = rng.below(kills as u64 * KILLS_SPACING_MS);
            events.push((at_ms, spoke, false));
            events.push((at_ms + 1 + rng.below(AWAY_MS), spoke, true));
        }
        events.sort_unstable();
        let began = Instant::now();
        for (at_ms, spoke, starts) in events {
            let at = began + Duration::from_millis(at_ms);
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            let spoke = &mut self.spokes[spoke];
            if starts { spoke.restart(None)? } else { spoke.kill()? }
        }
        Ok(())
    }

    /// Nothing was decoded wrongly at either end, and every packet is accounted for.
    fn check_accounts(&self) -> anyhow::Result<()> {
        for relay in self.spokes.iter().chain([&self.hub]) {
            let status = relay.status()?;
            balanced(&status)?;
            for peer in &status.peers {
                let rx = &peer.rx;
                let damage = rx.malformed + rx.decode_failed + rx.not_allowed;
                let damaged = rx.contexts.dropped.get("damaged").unwrap_or(&0);
                let refused = damage + damaged + rx.too_many_packets + rx.over_budget;
                ensure!(refused == 0, "{} of {}: {rx:#?}", relay.name(), peer.name);
            }
        }
        let crowded_out = |status: &Status| {
            let of = |peer: &dwell_report::status::PeerStatus| {
                peer.tx.contexts.without_context.get("crowded_out").copied().unwrap_or(0)
            };
            status.peers.iter().map(of).sum::<u64>()
        };
        let status = self.hub.status()?;
        ensure!(crowded_out(&status) > 0, "no more contexts were wanted than there are");
        Ok(())
    }
}

/// Waits until nothing is missing any more.
fn wait_until(
    what: &str,
    mut missing: impl FnMut() -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<()> {
    let mut waited = Duration::ZERO;
    loop {
        let looked = Instant::now();
        let missing = missing()?;
        if missing.is_empty() {
            return Ok(());
        }
        if waited > PATIENCE {
            let some: Vec<&str> = missing.iter().take(10).map(String::as_str).collect();
            bail!("never happened: {what}; {} are missing: {}", missing.len(), some.join("; "));
        }
        std::thread::sleep(POLL);
        waited += looked.elapsed().min(POLL_MAX);
    }
}
