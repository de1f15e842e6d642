//! A budget for each second, divided among those who ask for it from everywhere.
//!
//! Division is max-min fair, at two levels: among networks, and within each network among its
//! addresses. Who asks for less than a fair share gets all that it asks for, whatever others do; what
//! it leaves goes to those who ask for more. The fair share of a second follows from what was asked
//! for in the seconds before, so each request is decided at once and nothing is queued. If more
//! networks ask than can be served at all, each has the same chance, however early in the second the
//! others come.
//!
//! A network is an IPv4 /24 or an IPv6 /48: the longest prefixes that are routed in the Internet,
//! and what one site is given. Who has one address of such a network may have all of it, and seldom
//! has several. An address is an IPv4 address or an IPv6 /64, in which a host takes any address.

use std::net::IpAddr;

use aws_lc_rs::hmac;
use dwell_base::Instant;
use dwell_base::time::SECOND_NS;

use super::RandomSource;

/// Entries that compete for a place in a table: nobody can choose with whom.
const WAYS: usize = 8;
/// Steps in which the limit of a network's addresses is set.
const STEPS: usize = 10;

/// The budget of a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// In all.
    pub(super) total: u32,
    /// To one network, even if nobody else asks: the first second of a burst is never all lost.
    pub(super) of_network: u32,
    /// To one address.
    pub(super) of_address: u32,
}

/// A network or an address that asked lately.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Zero if the place is free.
    name: u64,
    /// Of an address: its network.
    network: u64,
    asked: u32,
    granted: u32,
    /// Its demand in the second before; halved with each second without more.
    demand: u32,
    /// Of a network: the most for one of its addresses.
    limit: u32,
    /// Of a network: how many of its addresses there are.
    addresses: u32,
    /// Of a network: the numbers of its addresses that ask for more than each number of steps.
    above: [u16; STEPS],
}

/// The division of an [`Allowance`]; its memory is fixed.
pub(super) struct Shares {
    allowance: Allowance,
    key: hmac::Key,
    second: u64,
    granted: u32,
    /// For each network, in this second.
    level: u32,
    /// Networks that asked in the second before, and those that came new in this one.
    crowd: u32,
    fresh: u32,
    /// Granted in this second to those for whom there is no place in the tables.
    unplaced: u32,
    networks: Box<[Entry]>,
    addresses: Box<[Entry]>,
}

impl Shares {
    /// Shares among as many networks, and as many addresses, as there are `places`: a power of two.
    pub(super) fn new(allowance: Allowance, places: usize, random: &mut RandomSource) -> Self {
        let mut key = zeroize::Zeroizing::new([0; 32]);
        random(&mut *key);
        let places = places.max(WAYS).next_power_of_two();
        Self {
            allowance,
            key: hmac::Key::new(hmac::HMAC_SHA256, &*key),
            second: 0,
            granted: 0,
            level: allowance.of_network,
            crowd: 0,
            fresh: 0,
            unplaced: 0,
            networks: vec![Entry::default(); places].into_boxed_slice(),
            addresses: vec![Entry::default(); places].into_boxed_slice(),
        }
    }

    /// Returns true if a request from this address is granted. It counts as asked for in any case.
    pub(super) fn grant(&mut self, now: Instant, source: IpAddr) -> bool {
        self.begin(now.as_ns() / SECOND_NS);
        let (network, address) = self.names_of(source);
        let (of_network, is_new) = place(&mut self.networks, network);
        self.fresh = self.fresh.saturating_add(u32::from(is_new));
        let Some(of_network) = of_network else { return self.grant_unplaced(network) };
        if is_new {
            self.networks[of_network].limit = self.level.min(self.allowance.of_address);
        }
        let (Some(at), _) = place(&mut self.addresses, address) else {
            return self.grant_unplaced(address);
        };
        let (net, own) = (&mut self.networks[of_network], &mut self.addresses[at]);
        own.network = network;
        own.asked = own.asked.saturating_add(1);
        net.asked = net.asked.saturating_add(1);
        let is_within = self.granted < self.allowance.total
            && net.granted < self.level
            && own.granted < net.limit.max(1);
        let (addresses, level) = (net.addresses, self.level);
        let is_drawn = self.draws(network, self.crowd, self.allowance.total)
            && self.draws(address, addresses, level);
        if !(is_within && is_drawn) {
            return false;
        }
        self.granted += 1;
        self.networks[of_network].granted += 1;
        self.addresses[at].granted += 1;
        true
    }

    /// There are more who ask than can be distinguished: a small part is for all of these.
    fn grant_unplaced(&mut self, name: u64) -> bool {
        let Allowance { total, .. } = self.allowance;
        let granted = self.granted < total
            && self.unplaced < total / 4
            && self.draws(name, self.crowd, total);
        self.granted += u32::from(granted);
        self.unplaced += u32::from(granted);
        granted
    }

    /// True for all who ask if there are places for them; otherwise for about four fifths as many as
    /// there are places, others in each second. So there is a place for each, however late it comes.
    fn draws(&self, name: u64, who_ask: u32, places: u32) -> bool {
        let lot = mix(name ^ self.second.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 32;
        let drawn = u64::from(places) * 4 / 5;
        who_ask <= places || lot * u64::from(who_ask) < drawn << 32
    }

    /// Nobody can foresee these names, nor who shares a place.
    fn names_of(&self, source: IpAddr) -> (u64, u64) {
        let (network, address) = prefixes_of(source);
        let name = |bytes: &[u8]| {
            let tag = hmac::sign(&self.key, bytes);
            tag.as_ref().first_chunk().map_or(1, |first| u64::from_le_bytes(*first)).max(1)
        };
        (name(&network), name(&address))
    }

    fn begin(&mut self, second: u64) {
        let passed = second.wrapping_sub(self.second);
        if passed == 0 {
            return;
        }
        self.second = second;
        (self.granted, self.unplaced) = (0, 0);
        let halvings = u32::try_from(passed - 1).unwrap_or(u32::MAX).min(31);
        for entry in self.networks.iter_mut().chain(&mut self.addresses) {
            let demand = entry.asked.max(entry.demand / 2) >> halvings;
            if demand == 0 {
                *entry = Entry::default();
            } else {
                (entry.demand, entry.asked, entry.granted) = (demand, 0, 0);
                (entry.addresses, entry.above) = (0, [0; STEPS]);
            }
        }
        self.count_addresses();
        self.set_levels();
        self.fresh = 0;
    }

    /// Tells each network how much its addresses ask for.
    fn count_addresses(&mut self) {
        let step = self.step();
        for address in self.addresses.iter().filter(|address| address.name != 0) {
            let Some(at) = find(&self.networks, address.network) else { continue };
            let network = &mut self.networks[at];
            network.addresses += 1;
            let demand = address.demand.min(self.allowance.of_address);
            let steps = (demand.div_ceil(step) as usize).min(STEPS);
            let above = network.above[..steps].iter_mut();
            above.for_each(|count| *count = count.saturating_add(1));
        }
    }

    fn step(&self) -> u32 {
        (self.allowance.of_address / STEPS as u32).max(1)
    }

    /// Finds the level up to which every network gets what it asks for.
    fn set_levels(&mut self) {
        let step = self.step();
        let Allowance { total, of_network, of_address } = self.allowance;
        // What a network can get by its addresses' own limits, so that none is kept for nothing.
        let demand = |network: &Entry| {
            let by_addresses =
                network.above.iter().map(|&count| u32::from(count)).sum::<u32>() * step;
            network.demand.min(by_addresses.max(1))
        };
        let asking = || self.networks.iter().filter(|network| network.name != 0);
        let taken = |level: u32| asking().map(|it| u64::from(demand(it).min(level))).sum::<u64>();
        let (mut level, mut above) = (1, of_network.max(1) + 1);
        while level + 1 < above {
            let middle = level.midpoint(above);
            if taken(middle) <= u64::from(total) { level = middle } else { above = middle }
        }
        self.crowd = (asking().count() as u32).max(self.fresh);
        self.level = level;
        for network in self.networks.iter_mut().filter(|network| network.name != 0) {
            network.limit = limit_within(network, level, step).min(of_address);
        }
    }
}

/// The most for each address of a network that gets `level` in all.
fn limit_within(network: &Entry, level: u32, step: u32) -> u32 {
    let (mut taken, mut limit) = (0, 0);
    for count in network.above {
        taken += u32::from(count) * step;
        if taken > level {
            break;
        }
        limit += step;
    }
    // Less than a step for each, if there are many.
    limit.max(level / network.addresses.max(1)).max(1)
}

/// Returns the index of the entry of this name, and true if it is a new one. It takes the place of
/// the one that asked for least in the seconds before; none if all there asked in this second.
fn place(table: &mut [Entry], name: u64) -> (Option<usize>, bool) {
    if let Some(at) = find(table, name) {
        return (Some(at), false);
    }
    let idle = set_of(table, name).filter(|&at| table[at].asked == 0);
    let least = idle.min_by_key(|&at| table[at].demand);
    if let Some(at) = least {
        table[at] = Entry { name, ..Entry::default() };
    }
    (least, true)
}

fn find(table: &[Entry], name: u64) -> Option<usize> {
    set_of(table, name).find(|&at| table[at].name == name)
}

fn set_of(table: &[Entry], name: u64) -> std::ops::Range<usize> {
    let sets = (table.len() / WAYS) as u64;
    let first = (mix(name) % sets) as usize * WAYS;
    first..first + WAYS
}

/// The last step of SplitMix64: each bit of the result depends on all of the number.
fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// The network and the address: what is named by them has no other meaning.
fn prefixes_of(ip: IpAddr) -> ([u8; 9], [u8; 9]) {
    let named = |kind: u8, bytes: &[u8]| {
        let mut out = [0; 9];
        out[0] = kind;
        out[1..=bytes.len()].copy_from_slice(bytes);
        out
    };
    match ip.to_canonical() {
        IpAddr::V4(ip) => (named(4, &ip.octets()[..3]), named(5, &ip.octets())),
        IpAddr::V6(ip) => (named(6, &ip.octets()[..6]), named(7, &ip.octets()[..8])),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use dwell_base::Rng;
    use dwell_base::time::MILLI_NS;

    use super::*;

    const ALLOWANCE: Allowance = Allowance { total: 150, of_network: 100, of_address: 10 };

    fn shares(seed: u64) -> Shares {
        let mut rng = Rng::from_seed(seed);
        let mut random: RandomSource = Box::new(move |bytes| rng.fill(bytes));
        Shares::new(ALLOWANCE, 2_048, &mut random)
    }

    /// The others ask twenty times a second each, for so many seconds; one asks once a second, in the
    /// middle. How often it was granted, and the most that was granted in a second.
    fn rush(others: &[IpAddr], one: IpAddr, seconds: u64, seed: u64) -> (u64, u32) {
        let (mut shares, mut got, mut most) = (shares(seed), 0, 0);
        for second in 0..seconds {
            let mut granted = 0;
            for ms in (0..1_000).step_by(50) {
                let now = Instant::from_ns((1_000 * (second + 1) + ms) * MILLI_NS);
                granted += others.iter().filter(|&&it| shares.grant(now, it)).count() as u32;
                if ms == 500 {
                    let is_granted = shares.grant(now, one);
                    got += u64::from(is_granted);
                    granted += u32::from(is_granted);
                }
            }
            most = granted.max(most);
        }
        (got, most)
    }

    fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
        Ipv4Addr::new(a, b, c, d).into()
    }

    #[test]
    fn who_asks_for_little_gets_it_whatever_others_do() {
        let honest = v4(198, 51, 100, 7);
        let one_network: Vec<_> = (1..=60).map(|host| v4(203, 0, 113, host)).collect();
        let many_networks: Vec<_> = (1..=60).map(|net| v4(100, 64, net, 1)).collect();
        let beside: Vec<_> = (100..160).map(|host| v4(198, 51, 100, host)).collect();
        let of_one_site: Vec<IpAddr> =
            (0..60).map(|net| Ipv6Addr::new(0x2001, 0xdb8, 1, net, 0, 0, 0, 1).into()).collect();
        for (name, others) in [
            ("one network", one_network),
            ("sixty networks", many_networks),
            ("the same network", beside),
            ("one IPv6 site", of_one_site),
        ] {
            for seed in 0..20 {
                let (got, most) = rush(&others, honest, 20, seed);
                // In the first second nobody knows who asks for how much.
                assert!(got >= 19, "{name}: {got} of 20");
                assert!(most <= 150, "{name}: {most} in a second");
            }
        }
    }

    #[test]
    fn what_is_not_asked_for_goes_to_those_who_ask() {
        let (mut shares, mut granted) = (shares(1), 0);
        for ms in 0..10_000 {
            let now = Instant::from_ns((1_000 + ms) * MILLI_NS);
            granted += u32::from(shares.grant(now, v4(203, 0, 113, (ms % 9) as u8)));
        }
        // Nine addresses, eleven for each.
        assert!((900..=1_000).contains(&granted), "one network alone has its most: {granted}");
    }

    #[test]
    fn more_networks_than_can_be_served_have_equal_chances() {
        let others: Vec<_> =
            (0..600_u32).map(|net| v4(100, 64 + (net >> 8) as u8, net as u8, 1)).collect();
        let got: u64 = (0..10).map(|seed| rush(&others, v4(198, 51, 100, 7), 20, seed).0).sum();
        // 120 of 601, in 200 tries: 40 in the mean, and 6 off it is one standard deviation.
        assert!((20..=65).contains(&got), "{got} of 200");
    }

    #[test]
    fn memory_does_not_grow_with_forged_addresses() {
        let mut shares = shares(3);
        let mut rng = Rng::from_seed(4);
        for n in 0..200_000_u64 {
            let mut octets = [0; 4];
            rng.fill(&mut octets);
            shares.grant(Instant::from_ns(n * 20_000), octets.into());
        }
        assert_eq!((shares.networks.len(), shares.addresses.len()), (2_048, 2_048));
    }
}
