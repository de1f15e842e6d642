//! One run: a pair, its weather, and what is checked.

use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;

use dwell_base::time::SECOND_NS;
use dwell_base::{Instant, Rng};
use dwell_confine::memory;
use dwell_testkit::virtual_net::{DirectionId, NodeId, VirtualNet};

use crate::end::{Addresses, End, Pace, addresses};
use crate::packet::FLOWS;
use crate::setup::Setup;
use crate::steady::{Place, Seen, Watch};
use crate::weather::{Incident, Spell};

const HOUR_NS: u64 = 3_600 * SECOND_NS;
/// After this long in fair weather both must have found each other.
const RECOVERY_NS: u64 = 15 * SECOND_NS;
/// In fair weather each flow is looked at for so long at a time, ...
const FLOW_NS: u64 = 30 * SECOND_NS;
/// ... and one of which so many were sent has arrivals, also on a link that takes a fiftieth of them, in one of so many
/// times one after another: packets travel in batches, so that of a few hundred a dozen datagrams may be all there is, of
/// which a link that is sent five times too much may well lose each.
const FLOW_PACKETS_MIN: u64 = 300;
const FLOW_LOOKS: u32 = 3;
/// Where nothing changes, codecs are found in this time, ...
const SETTLE_NS: u64 = 60 * SECOND_NS;
/// ... and then a context changes to a better one this often at most: to each of nine once, and back a second after the
/// change before, two, four, and so on to five minutes, ...
const PICKS_MAX: u64 = 18;
/// ... and every five minutes from then on.
const PICKS_AN_HOUR_MAX: u64 = 12;
/// The least that the process has may grow by at most this from the second quarter to the last one: the tables of a run
/// are bounded, and the allocator rounds. Contexts come beside it: as many bytes as the status says at either time.
const GROWTH_MAX_BYTES: u64 = 4 << 20;

/// Packets of a side, flow by flow.
#[derive(Clone, Copy, Debug)]
struct Flows {
    made: [u64; FLOWS],
    arrived: [u64; FLOWS],
}

impl Flows {
    fn since(&self, before: &[u64; FLOWS], of: impl Fn(&Self) -> [u64; FLOWS]) -> [u64; FLOWS] {
        let now = of(self);
        std::array::from_fn(|flow| now[flow] - before[flow])
    }
}

/// The results of a run.
#[derive(Debug)]
pub(crate) struct Summary {
    hours: f64,
    sent: u64,
    arrived: u64,
    refused: u64,
    spells: u64,
    restarts: u64,
    reloads: u64,
    moves: u64,
    /// Where nothing changed: the nanoseconds, for each open context; how often codecs changed then, and in all.
    steady_ns: u64,
    steady_picks: u64,
    picks: u64,
    /// The most of one spell, for each context that was open.
    picks_most: f64,
    /// Sides that were observed where nothing changed; the least that came of what the link takes, the most
    /// looks in which a found rate was off, and the least part that was compressed of what a full link was sent.
    watched: u64,
    share_least: f64,
    /// The least that a link was given to which more was sent than came, as a share of what it takes.
    busy_least: f64,
    off_most: f64,
    compressed_least: f64,
    /// The least memory that the process had, early and late.
    resident_bytes: [u64; 2],
    /// The memory that both ends had accounts of at these times.
    accounted_bytes: [u64; 2],
}

impl Summary {
    const fn new(hours: f64) -> Self {
        Self {
            hours,
            sent: 0,
            arrived: 0,
            refused: 0,
            spells: 0,
            restarts: 0,
            reloads: 0,
            moves: 0,
            steady_ns: 0,
            steady_picks: 0,
            picks: 0,
            picks_most: 0.0,
            watched: 0,
            share_least: f64::INFINITY,
            busy_least: f64::INFINITY,
            off_most: 0.0,
            compressed_least: f64::INFINITY,
            resident_bytes: [0; 2],
            accounted_bytes: [0; 2],
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [early, late] = self.resident_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20));
        write!(
            f,
            "{:.1} h, {} packets sent, {} arrived, {} refused, {} changes of weather, {} restarts, {} reloads, \
             {} moves; {} changes of codec, {} of them in {:.1} h of contexts where nothing else changed, \
             {:.1} of a context in one spell at most; {} times a side where nothing changed: {:.2} of what the link takes at least, \
             {:.2} of what it takes given at least to a link to which more was sent than came, a found rate off in {:.2} of the looks at most, {:.2} compressed of what a full link was sent at least; memory {early:.1} MiB early, {late:.1} MiB late",
            self.hours,
            self.sent,
            self.arrived,
            self.refused,
            self.spells,
            self.restarts,
            self.reloads,
            self.moves,
            self.picks,
            self.steady_picks,
            self.steady_ns as f64 / HOUR_NS as f64,
            self.picks_most,
            self.watched,
            self.share_least,
            self.busy_least,
            self.off_most,
            self.compressed_least,
        )
    }
}

struct Run {
    net: VirtualNet<End>,
    ends: [NodeId; 2],
    links: [DirectionId; 2],
    addresses: Addresses,
    rng: Rng,
    /// What the weather gives: bits per second, and a part of each processor.
    place: Place,
    summary: Summary,
}

/// Runs a pair for the given number of virtual hours; the error says what went wrong and when.
pub(crate) fn run(setup: &Setup, seed: u64, hours: f64) -> Result<Summary, String> {
    let until_ns = (hours * HOUR_NS as f64) as u64;
    let mut run = Run::new(setup, seed, hours)?;
    let mut next_check_ns = 0;
    while run.now_ns() < until_ns {
        run.spell(until_ns).map_err(|e| run.at(&e))?;
        if run.now_ns() >= next_check_ns {
            run.check_accounts().map_err(|e| run.at(&e))?;
            next_check_ns = run.now_ns() + HOUR_NS;
        }
        run.look_at_memory(until_ns);
    }
    run.finish()
}

impl Run {
    fn new(setup: &Setup, seed: u64, hours: f64) -> Result<Self, String> {
        let mut rng = Rng::stream(seed, 1);
        let (addresses, made) = (addresses(), Rc::new([Cell::new(0), Cell::new(0)]));
        let mut net = VirtualNet::new();
        let mut end = |side| -> Result<NodeId, String> {
            Ok(net.add(End::new(side, seed, setup.clone(), addresses.clone(), made.clone())?))
        };
        let ends = [end(0)?, end(1)?];
        let Spell { link: fair, link_bps, cpu_share, .. } = Spell::next(&mut rng);
        let links = net.connect((ends[0], 0), (ends[1], 0), fair.clone(), fair.with_seed(seed));
        let place = Place { link_bps, cpu_share };
        Ok(Self { net, ends, links, addresses, rng, place, summary: Summary::new(hours) })
    }

    fn now_ns(&self) -> u64 {
        self.net.now().as_ns()
    }

    fn at(&self, message: &str) -> String {
        let ends = self.ends.map(|id| self.net.node(id).seen());
        let (after, place) = (self.now_ns() as f64 / 1e9, self.place);
        format!("{message} (after {after:.1} s; {place:?}; {}; {})", ends[0], ends[1])
    }

    /// Lets one stretch of weather pass.
    fn spell(&mut self, until_ns: u64) -> Result<(), String> {
        let spell = Spell::next(&mut self.rng);
        let now = self.net.now();
        self.summary.spells += 1;
        self.place = Place { link_bps: spell.link_bps, cpu_share: spell.cpu_share };
        for link in self.links {
            let seed = self.rng.below(1 << 60);
            self.net.set_link(link, spell.link.clone().with_seed(seed));
        }
        for id in self.ends {
            self.net.with_node(id, |end, _, _| end.set_cpu_share(spell.cpu_share));
        }
        self.happen(spell.incident)?;
        let end = now + spell.lasts_ns.min(until_ns.saturating_sub(now.as_ns()).max(1));
        if spell.is_steady {
            let Self { net, rng, ends, .. } = self;
            ends.iter().for_each(|&id| {
                net.with_node(id, |source, now, _| {
                    source.keep_steady((now, end), rng);
                });
            });
        }
        let before = self.picks();
        if spell.is_fair && now + RECOVERY_NS < end {
            self.go_to(now + RECOVERY_NS)?;
            self.fair(end, spell.is_steady.then_some(self.place))?;
        }
        self.go_to(end)?;
        // Those of a node that was killed are not counted on.
        let after = self.picks();
        self.summary.picks +=
            (0..2).map(|at| after[at].0.saturating_sub(before[at].0)).sum::<u64>();
        Ok(())
    }

    /// Fair weather until then: packets arrive.
    fn fair(&mut self, end: Instant, steady: Option<Place>) -> Result<(), String> {
        let settled = self.net.now() + SETTLE_NS;
        let start = self.counts();
        let (mut found, mut watches, mut silent) = (None, None, [[0; FLOWS]; 2]);
        while self.net.now() < end {
            let before = self.counts();
            self.go_to((self.net.now() + FLOW_NS).min(end))?;
            self.check_flows(&before, &mut silent)?;
            if steady.is_some() && found.is_none() && self.net.now() >= settled {
                found = Some((self.net.now(), self.picks()));
                watches = Some([0, 1].map(|side| Watch::new(self.net.now(), self.pace(side))));
            }
            let looks = watches.iter_mut().flatten().enumerate().zip(steady.iter().cycle());
            for ((side, watch), &place) in looks {
                watch.look(self.pace(side), place);
            }
        }
        self.check_that_it_goes_on(&start)?;
        if let (Some(watches), Some(place)) = (watches, steady) {
            self.check_share(&watches, place)?;
        }
        found.map_or(Ok(()), |(since, before)| self.check_picks(since, before))
    }

    /// What was sent and what came, flow by flow, of each side.
    fn counts(&self) -> [Flows; 2] {
        [0, 1].map(|side| Flows {
            made: self.net.node(self.ends[side]).made_by_flow,
            arrived: self.net.node(self.ends[1 - side]).arrivals.by_flow,
        })
    }

    fn picks(&self) -> [(u64, u64); 2] {
        self.ends.map(|id| self.net.node(id).picks())
    }

    fn pace(&self, side: usize) -> Pace {
        let arrived_bytes = self.net.node(self.ends[1 - side]).arrivals.bytes;
        self.net.node(self.ends[side]).pace(arrived_bytes)
    }

    /// Where nothing changes, the link is made use of, and its rate is found.
    fn check_share(&mut self, watches: &[Watch; 2], place: Place) -> Result<(), String> {
        for (side, watch) in watches.iter().enumerate() {
            let Some(seen) = watch.seen(self.net.now(), self.pace(side), place) else { continue };
            let is_hidden = self.pace(1 - side).is_above(place);
            let seen = Seen { off: seen.off.filter(|_| !is_hidden), ..seen };
            let summary = &mut self.summary;
            summary.watched += 1;
            summary.share_least = summary.share_least.min(seen.share);
            summary.busy_least = summary.busy_least.min(seen.busy.unwrap_or(f64::INFINITY));
            summary.off_most = summary.off_most.max(seen.off.unwrap_or(0.0));
            summary.compressed_least =
                summary.compressed_least.min(seen.compressed.unwrap_or(f64::INFINITY));
            seen.check(side).map_err(|error| format!("{error}: {seen:?} at {place:?}"))?;
        }
        Ok(())
    }

    /// Where nothing has changed since then, codecs have not either.
    fn check_picks(&mut self, since: Instant, before: [(u64, u64); 2]) -> Result<(), String> {
        let elapsed_ns = self.net.now().since_ns(since);
        for (side, (after, before)) in self.picks().into_iter().zip(before).enumerate() {
            // Those that were closed meanwhile have had their changes, too.
            let (picks, contexts) = (after.0.saturating_sub(before.0), after.1.max(before.1));
            self.summary.steady_picks += picks;
            let of_each = picks as f64 / contexts.max(1) as f64;
            self.summary.picks_most = self.summary.picks_most.max(of_each);
            self.summary.steady_ns += elapsed_ns * contexts;
            let most = contexts * (PICKS_MAX + PICKS_AN_HOUR_MAX * elapsed_ns / HOUR_NS);
            if picks > most {
                return Err(format!(
                    "{contexts} contexts of side {side} changed their codecs {picks} times in {} s, and nothing else \
                     changed",
                    elapsed_ns / SECOND_NS
                ));
            }
        }
        Ok(())
    }

    /// Each flow has arrivals; `silent` has how often one after another it had none.
    fn check_flows(
        &self,
        before: &[Flows; 2],
        silent: &mut [[u32; FLOWS]; 2],
    ) -> Result<(), String> {
        for (side, (after, before)) in self.counts().iter().zip(before).enumerate() {
            for (flow, silent) in silent[side].iter_mut().enumerate() {
                let sent = after.made[flow] - before.made[flow];
                if after.arrived[flow] > before.arrived[flow] {
                    *silent = 0;
                } else if sent >= FLOW_PACKETS_MIN {
                    *silent += 1;
                }
                if *silent == FLOW_LOOKS {
                    return Err(format!(
                        "of flow {flow} of side {side} nothing arrived in fair weather, {FLOW_LOOKS} times one after \
                         another, {sent} packets of the latest; of all flows {:?} arrived of {:?}",
                        after.since(&before.arrived, |it| it.arrived),
                        after.since(&before.made, |it| it.made)
                    ));
                }
            }
        }
        Ok(())
    }

    fn go_to(&mut self, at: Instant) -> Result<(), String> {
        self.net.run_until(at).map_err(|e| e.to_string())?;
        let wrong = self.ends.iter().find_map(|&id| self.net.node(id).wrong.clone());
        wrong.map_or(Ok(()), Err)
    }

    /// In fair weather both ends know each other, and if enough was sent something arrives.
    fn check_that_it_goes_on(&self, before: &[Flows; 2]) -> Result<(), String> {
        let after = self.counts();
        for (side, &id) in self.ends.iter().enumerate() {
            if !self.net.node(id).is_up() {
                return Err(format!("side {side} has not found its peer in fair weather"));
            }
            let of = |counts: &[u64; FLOWS]| counts.iter().sum::<u64>();
            let sent = of(&after[side].made) - of(&before[side].made);
            let arrived = of(&after[side].arrived) - of(&before[side].arrived);
            if sent > 20 && arrived == 0 {
                return Err(format!("{sent} packets of side {side} were sent, and none arrived"));
            }
        }
        Ok(())
    }

    fn happen(&mut self, incident: Incident) -> Result<(), String> {
        match incident {
            Incident::Quiet => Ok(()),
            Incident::Killed { side } => {
                self.summary.restarts += 1;
                self.net.with_node(self.ends[side], |end, _, out| {
                    end.restart()?;
                    end.settle(out);
                    Ok(())
                })
            }
            Incident::Reloaded { side } => {
                self.summary.reloads += 1;
                let Self { net, rng, ends, .. } = self;
                net.with_node(ends[side], |end, _, out| {
                    end.reload(rng)?;
                    end.settle(out);
                    Ok(())
                })
            }
            Incident::Moved => {
                self.summary.moves += 1;
                let port = 1_024 + self.rng.below(60_000) as u16;
                self.addresses[0].set(SocketAddr::from(([198, 51, 100, 7], port)));
                Ok(())
            }
        }
    }

    fn check_accounts(&mut self) -> Result<(), String> {
        for (side, &id) in self.ends.iter().enumerate() {
            let tx = self.net.node(id).status().tx;
            if !tx.balances() {
                return Err(format!("the accounts of side {side} don't balance: {tx:?}"));
            }
        }
        for (side, &id) in self.ends.iter().enumerate() {
            let (bytes, most) = self.net.node(id).context_bytes();
            if bytes > most {
                return Err(format!(
                    "contexts of side {side} have {bytes} bytes, and may have {most}"
                ));
            }
        }
        if self.links.iter().any(|&link| !self.net.link_stats(link).balanced()) {
            return Err("the link's own accounts don't balance".into());
        }
        Ok(())
    }

    /// Notes when the process had least, in the second quarter and in the last one: what grows for ever grows then, too.
    fn look_at_memory(&mut self, until_ns: u64) {
        let at = match 4 * self.now_ns() / until_ns.max(1) {
            1 => 0,
            3.. => 1,
            _ => return,
        };
        // What the allocator keeps says nothing of what is needed.
        memory::give_back_free();
        let resident = resident_bytes();
        let least = &mut self.summary.resident_bytes[at];
        if *least == 0 || resident < *least {
            *least = resident;
            let accounted = self.ends.map(|id| self.net.node(id).accounted_bytes());
            self.summary.accounted_bytes[at] = accounted.iter().sum();
        }
    }

    fn finish(mut self) -> Result<Summary, String> {
        self.check_accounts().map_err(|e| self.at(&e))?;
        for id in self.ends {
            let end = self.net.node(id);
            self.summary.sent += end.made;
            self.summary.arrived += end.arrivals.packets;
            self.summary.refused += end.arrivals.refusals;
        }
        self.look_at_memory(self.now_ns());
        let [early, late] = self.summary.resident_bytes;
        let [accounted_early, accounted_late] = self.summary.accounted_bytes;
        let accounted = accounted_late.saturating_sub(accounted_early);
        if early > 0 && late > early + GROWTH_MAX_BYTES + accounted {
            return Err(self.at(&format!(
                "memory grew from {early} to {late} bytes, of which there are accounts of {accounted_early} and {accounted_late}"
            )));
        }
        Ok(self.summary)
    }
}

/// Returns the memory that the process has resident.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
