//! One run: a pair, its weather, and what is checked.

use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;

use dwell_base::time::SECOND_NS;
use dwell_base::{Instant, Rng};
use dwell_testkit::virtual_net::{DirectionId, NodeId, VirtualNet};

use crate::end::{Addresses, End, addresses};
use crate::setup::Setup;
use crate::weather::{Incident, Spell};

const HOUR_NS: u64 = 3_600 * SECOND_NS;
/// After this long in fair weather both must have found each other.
const RECOVERY_NS: u64 = 15 * SECOND_NS;
/// The process may grow by at most this after its first quarter: the tables of a run are bounded,
/// and the allocator rounds. Contexts come beside it: as many bytes as the status says.
const GROWTH_MAX_BYTES: u64 = 4 << 20;

/// The results of a run.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    hours: f64,
    sent: u64,
    arrived: u64,
    refused: u64,
    spells: u64,
    restarts: u64,
    reloads: u64,
    moves: u64,
    resident_bytes: [u64; 2],
    /// The most memory that the contexts of both ends had at a time, early and later.
    context_bytes: [u64; 2],
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [early, late] = self.resident_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20));
        write!(
            f,
            "{:.1} h, {} packets sent, {} arrived, {} refused, {} changes of weather, {} restarts, {} reloads, \
             {} moves; memory {early:.1} MiB early, {late:.1} MiB at the end",
            self.hours,
            self.sent,
            self.arrived,
            self.refused,
            self.spells,
            self.restarts,
            self.reloads,
            self.moves
        )
    }
}

struct Run {
    net: VirtualNet<End>,
    ends: [NodeId; 2],
    links: [DirectionId; 2],
    addresses: Addresses,
    rng: Rng,
    summary: Summary,
}

/// Runs a pair for the given number of virtual hours; the error says what went wrong and when.
pub(crate) fn run(setup: &Setup, seed: u64, hours: f64) -> Result<Summary, String> {
    let until_ns = (hours * HOUR_NS as f64) as u64;
    let mut run = Run::new(setup, seed)?;
    run.summary.hours = hours;
    let mut next_check_ns = 0;
    while run.now_ns() < until_ns {
        run.spell(until_ns).map_err(|e| run.at(&e))?;
        if run.now_ns() >= next_check_ns {
            run.check_accounts().map_err(|e| run.at(&e))?;
            next_check_ns = run.now_ns() + HOUR_NS;
        }
        run.look_at_memory(run.now_ns() > until_ns / 4);
    }
    run.finish()
}

impl Run {
    fn new(setup: &Setup, seed: u64) -> Result<Self, String> {
        let mut rng = Rng::stream(seed, 1);
        let (addresses, made) = (addresses(), Rc::new([Cell::new(0), Cell::new(0)]));
        let mut net = VirtualNet::new();
        let mut end = |side| -> Result<NodeId, String> {
            Ok(net.add(End::new(side, seed, setup.clone(), addresses.clone(), made.clone())?))
        };
        let ends = [end(0)?, end(1)?];
        let fair = Spell::next(&mut rng).link;
        let links = net.connect((ends[0], 0), (ends[1], 0), fair.clone(), fair.with_seed(seed));
        Ok(Self { net, ends, links, addresses, rng, summary: Summary::default() })
    }

    fn now_ns(&self) -> u64 {
        self.net.now().as_ns()
    }

    fn at(&self, message: &str) -> String {
        format!("{message} (after {:.1} s)", self.now_ns() as f64 / 1e9)
    }

    /// Lets one stretch of weather pass.
    fn spell(&mut self, until_ns: u64) -> Result<(), String> {
        let spell = Spell::next(&mut self.rng);
        let now = self.net.now();
        self.summary.spells += 1;
        for link in self.links {
            let seed = self.rng.below(1 << 60);
            self.net.set_link(link, spell.link.clone().with_seed(seed));
        }
        self.happen(spell.incident)?;
        let end = now + spell.lasts_ns.min(until_ns.saturating_sub(now.as_ns()).max(1));
        let recovered = now + RECOVERY_NS;
        if spell.is_fair && recovered < end {
            self.go_to(recovered)?;
            let before = self.ends.map(|id| self.net.node(id).arrivals.packets);
            let made = self.ends.map(|id| self.net.node(id).made);
            self.go_to(end)?;
            self.check_that_it_goes_on(before, made)?;
        }
        self.go_to(end)
    }

    fn go_to(&mut self, at: Instant) -> Result<(), String> {
        self.net.run_until(at).map_err(|e| e.to_string())?;
        let wrong = self.ends.iter().find_map(|&id| self.net.node(id).wrong.clone());
        wrong.map_or(Ok(()), Err)
    }

    /// In fair weather both ends know each other, and if enough was sent something arrives.
    fn check_that_it_goes_on(&self, before: [u64; 2], made: [u64; 2]) -> Result<(), String> {
        for (side, &id) in self.ends.iter().enumerate() {
            let end = self.net.node(id);
            if !end.is_up() {
                return Err(format!("side {side} has not found its peer in fair weather"));
            }
            let sent = end.made - made[side];
            let arrived = self.net.node(self.ends[1 - side]).arrivals.packets - before[1 - side];
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
        if self.links.iter().any(|&link| !self.net.link_stats(link).balanced()) {
            return Err("the link's own accounts don't balance".into());
        }
        Ok(())
    }

    fn look_at_memory(&mut self, is_later: bool) {
        let contexts = self.ends.map(|id| self.net.node(id).context_bytes());
        let [early, later] = &mut self.summary.context_bytes;
        let most = if is_later { later } else { early };
        *most = contexts.iter().sum::<u64>().max(*most);
        let [early, _] = &mut self.summary.resident_bytes;
        if is_later && *early == 0 {
            *early = resident_bytes();
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
        self.summary.resident_bytes[1] = resident_bytes();
        let [early, late] = self.summary.resident_bytes;
        let [contexts_early, contexts_later] = self.summary.context_bytes;
        let of_contexts = contexts_later.saturating_sub(contexts_early);
        if late > early + GROWTH_MAX_BYTES + of_contexts {
            return Err(self.at(&format!("memory grew from {early} to {late} bytes")));
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
