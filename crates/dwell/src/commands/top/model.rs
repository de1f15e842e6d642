//! What `dwell top` shows and how keys change it: without a terminal or a clock.

use std::collections::{BTreeMap, VecDeque};

use dwell_report::recent::{Totals, saved};
use dwell_report::status::{FlowStatus, PeerState, PeerStatus, RecentTraffic, Status};

use super::flows::{self, FlowSort};

/// Samples that are kept of each peer's link: as wide as a plot gets.
const HISTORY_MAX: usize = 240;
/// Characters of a filter.
const FILTER_MAX: usize = 40;

/// A key, as far as it means anything here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    Enter,
    Escape,
    Backspace,
    Interrupt,
    Char(char),
}

/// The order of the peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// As in the configuration.
    #[default]
    Configured,
    Name,
    Link,
    Received,
    Wait,
    Saved,
}

impl Sort {
    const ALL: [Self; 6] =
        [Self::Configured, Self::Name, Self::Link, Self::Received, Self::Wait, Self::Saved];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Name => "name",
            Self::Link => "out",
            Self::Received => "in",
            Self::Wait => "wait",
            Self::Saved => "saved",
        }
    }

    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

/// A peer as a row.
#[derive(Clone, Debug)]
pub(super) struct Row<'m> {
    pub(super) peer: &'m PeerStatus,
    pub(super) now: Option<RecentTraffic>,
    /// The part of the bytes that was saved between the last two samples, in parts per million; none if
    /// nothing was sent.
    pub(super) saved_ppm: Option<i64>,
}

/// A counter that moved between the last two samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) name: String,
    pub(super) per_second: u64,
    pub(super) total: u64,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    latest: Option<(u64, Status)>,
    before: Option<(u64, Status)>,
    history: BTreeMap<String, VecDeque<u64>>,
    /// Why there is no newer status.
    pub(super) trouble: Option<String>,
    pub(super) sort: Sort,
    pub(super) filter: String,
    /// The filter is being typed.
    pub(super) types_filter: bool,
    pub(super) is_paused: bool,
    /// Flows are shown, and not decisions.
    pub(super) shows_flows: bool,
    flow_sort: FlowSort,
    flow_filter: String,
    selected: usize,
}

impl Model {
    /// Takes what the node said at this time.
    pub(super) fn update(&mut self, now_ns: u64, status: Status) {
        self.trouble = None;
        self.before = self.latest.take();
        // Another process counts from zero again.
        let is_same = |before: &(u64, Status)| before.1.uptime_ns <= status.uptime_ns;
        self.before = self.before.take().filter(is_same);
        self.latest = Some((now_ns, status));
        let rates: Vec<(String, u64)> = self
            .all_rows()
            .iter()
            .map(|row| (row.peer.name.clone(), row.now.map_or(0, |now| now.link_bps)))
            .collect();
        self.history.retain(|name, _| rates.iter().any(|(known, _)| known == name));
        for (name, bps) in rates {
            let history = self.history.entry(name).or_default();
            history.push_back(bps);
            while history.len() > HISTORY_MAX {
                history.pop_front();
            }
        }
    }

    pub(super) fn status(&self) -> Option<&Status> {
        self.latest.as_ref().map(|(_, status)| status)
    }

    /// Does what a key means. False if it ends the program.
    pub(super) fn take_key(&mut self, key: Key) -> bool {
        match (self.types_filter, key) {
            (_, Key::Interrupt) => return false,
            (true, Key::Char(typed)) => {
                let filter = self.filter_mut();
                if filter.chars().count() < FILTER_MAX && !typed.is_control() {
                    filter.push(typed);
                }
            }
            (true, Key::Backspace) => {
                self.filter_mut().pop();
            }
            (true, Key::Enter) => self.types_filter = false,
            (_, Key::Escape) => {
                self.filter_mut().clear();
                self.types_filter = false;
            }
            (false, Key::Char('q')) => return false,
            (false, Key::Char('/')) => self.types_filter = true,
            (false, Key::Char('s')) if self.shows_flows => {
                self.flow_sort = self.flow_sort.next();
            }
            (false, Key::Char('s')) => self.sort = self.sort.next(),
            (false, Key::Char('f')) => self.shows_flows = !self.shows_flows,
            (false, Key::Char('p' | ' ')) => self.is_paused = !self.is_paused,
            (_, Key::Up) | (false, Key::Char('k')) => {
                self.selected = self.selected().saturating_sub(1);
            }
            (_, Key::Down) | (false, Key::Char('j')) => self.selected = self.selected() + 1,
            (false, Key::Enter | Key::Backspace | Key::Char(_)) => {}
        }
        true
    }

    /// The filter that is typed: while flows are shown, theirs.
    fn filter_mut(&mut self) -> &mut String {
        if self.shows_flows { &mut self.flow_filter } else { &mut self.filter }
    }

    /// The order that `s` changes, by its name, and the filter that `/` begins.
    pub(super) fn order(&self) -> (&'static str, &str) {
        match self.shows_flows {
            true => (self.flow_sort.name(), &self.flow_filter),
            false => (self.sort.name(), &self.filter),
        }
    }

    /// The flows to a peer that are shown, in their order.
    pub(super) fn flows(&self, peer: &str) -> Vec<&FlowStatus> {
        let flows = self.status().map_or(&[][..], |status| &status.flows);
        flows::listed(flows, peer, &self.flow_filter, self.flow_sort)
    }

    /// The number of the selected row.
    pub(super) fn selected(&self) -> usize {
        self.selected.min(self.rows().len().saturating_sub(1))
    }

    fn all_rows(&self) -> Vec<Row<'_>> {
        let Some((now_ns, status)) = &self.latest else { return Vec::new() };
        status.peers.iter().map(|peer| self.row(peer, *now_ns)).collect()
    }

    fn row<'m>(&self, peer: &'m PeerStatus, now_ns: u64) -> Row<'m> {
        let Some((before_ns, old)) = self.earlier(&peer.name) else {
            return Row { peer, now: peer.recent, saved_ppm: None };
        };
        let window_ns = now_ns.saturating_sub(before_ns);
        let now = Totals::of(peer).since(&Totals::of(old), window_ns, peer.rate_bps);
        let (new, old) = (saved(&peer.tx), saved(&old.tx));
        let plain = new.plain_bytes.saturating_sub(old.plain_bytes);
        let net = i128::from(new.net_bytes()) - i128::from(old.net_bytes());
        let ppm = (net * 1_000_000).checked_div(i128::from(plain));
        Row { peer, now, saved_ppm: ppm.and_then(|ppm| i64::try_from(ppm).ok()) }
    }

    fn earlier(&self, name: &str) -> Option<(u64, &PeerStatus)> {
        let (at, status) = self.before.as_ref()?;
        status.peers.iter().find(|peer| peer.name == name).map(|peer| (*at, peer))
    }

    /// The peers that are shown, in their order.
    pub(super) fn rows(&self) -> Vec<Row<'_>> {
        let mut rows = self.all_rows();
        let is_wanted = |row: &Row<'_>| {
            let peer = row.peer;
            let mut words = [&*peer.name, peer.state.name()].into_iter();
            words.any(|word| word.contains(&self.filter))
                || peer.classes.iter().any(|class| class.class.contains(&self.filter))
        };
        rows.retain(is_wanted);
        let rate = |row: &Row<'_>, of: fn(&RecentTraffic) -> u64| row.now.as_ref().map_or(0, of);
        // Sorting is stable: equal ones stay in the order of the configuration.
        match self.sort {
            Sort::Configured => {}
            Sort::Name => rows.sort_by(|a, b| a.peer.name.cmp(&b.peer.name)),
            Sort::Link => rows.sort_by_key(|row| std::cmp::Reverse(rate(row, |now| now.link_bps))),
            Sort::Received => {
                rows.sort_by_key(|row| std::cmp::Reverse(rate(row, |now| now.received_bps)));
            }
            Sort::Wait => rows.sort_by_key(|row| std::cmp::Reverse(row.peer.waiting_ns)),
            Sort::Saved => rows.sort_by_key(|row| std::cmp::Reverse(row.peer.tx.net_saved_bytes)),
        }
        rows
    }

    /// The link's rate in the last samples, the latest last.
    pub(super) fn history(&self, name: &str) -> Vec<u64> {
        self.history.get(name).map(|history| history.iter().copied().collect()).unwrap_or_default()
    }

    /// What was decided for a peer's packets, and what was dropped: reasons, the busiest first.
    pub(super) fn decisions(&self, peer: &PeerStatus) -> Vec<Moved> {
        let old = self.earlier(&peer.name);
        let window_ns = match (&self.latest, old) {
            (Some((now, _)), Some((before, _))) => now.saturating_sub(before),
            _ => 0,
        };
        let counters = |peer: &PeerStatus| -> BTreeMap<String, u64> {
            let tx = &peer.tx;
            let bypassed = tx.bypassed.iter().map(|(reason, &count)| {
                (format!("raw: {}", dwell_report::explained(reason)), count)
            });
            let dropped = tx
                .dropped
                .iter()
                .map(|(reason, count)| (format!("dropped: {reason}"), count.packets));
            let compressed = [
                ("compressed".to_owned(), tx.compressed.packets),
                ("raw: they did not become smaller".to_owned(), tx.not_smaller),
            ];
            compressed.into_iter().chain(bypassed).chain(dropped).collect()
        };
        let before = old.map(|(_, old)| counters(old)).unwrap_or_default();
        let moved =
            counters(peer).into_iter().filter(|(_, total)| *total > 0).map(|(name, total)| {
                let more = total.saturating_sub(before.get(&name).copied().unwrap_or(total));
                let per_second = u128::from(more) * 1_000_000_000;
                let per_second = per_second.checked_div(u128::from(window_ns)).unwrap_or(0) as u64;
                Moved { name, per_second, total }
            });
        let mut moved: Vec<Moved> = moved.collect();
        moved.sort_by_key(|it| std::cmp::Reverse((it.per_second, it.total)));
        moved
    }

    /// Peers that are up, and all of them.
    pub(super) fn up(&self) -> (usize, usize) {
        let peers = self.status().map_or(&[][..], |status| &status.peers);
        (peers.iter().filter(|peer| peer.state == PeerState::Up).count(), peers.len())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use dwell_report::status::{ClassStatus, Count, TxStatus};

    use super::*;

    pub(crate) const SECOND_NS: u64 = 1_000_000_000;

    fn peer(name: &str, link_bytes: u64) -> PeerStatus {
        let count = |packets| Count { packets, bytes: packets * 1_000 };
        PeerStatus {
            name: name.to_owned(),
            state: PeerState::Up,
            state_for_ns: 60 * SECOND_NS,
            rate_bps: Some(10_000_000),
            waiting_ns: 12_000_000,
            tx: TxStatus {
                arrived: count(link_bytes / 500),
                sent: count(link_bytes / 500),
                plain_bytes: 2 * link_bytes,
                link_bytes,
                net_saved_bytes: link_bytes as i64,
                compressed: count(link_bytes / 1_000),
                bypassed: [("sparse".to_owned(), link_bytes / 10_000)].into(),
                dropped: [("queue_packets".to_owned(), Count { packets: 3, bytes: 9 })].into(),
                ..TxStatus::default()
            },
            classes: vec![ClassStatus {
                class: "tcp/443".to_owned(),
                ratio: 0.98,
                ns_per_byte: 5.0,
                backing_off: true,
            }],
            ..PeerStatus::default()
        }
    }

    /// A node's state after so many seconds: "hub" sends 4 Mbit/s, "depot" eight times less.
    pub(crate) fn status(seconds: u64) -> Status {
        let hub = peer("hub", seconds * 500_000);
        let mut depot = peer("depot", seconds * 62_500);
        depot.state = PeerState::Connecting;
        Status {
            name: "site-a".to_owned(),
            uptime_ns: seconds * SECOND_NS,
            peers: vec![hub, depot],
            ..Status::default()
        }
    }

    pub(crate) fn model() -> Model {
        let mut model = Model::default();
        for seconds in 10..14 {
            model.update(seconds * SECOND_NS, status(seconds));
        }
        model
    }

    fn names(model: &Model) -> Vec<&str> {
        model.rows().iter().map(|row| &*row.peer.name).collect()
    }

    #[test]
    fn rates_are_those_between_two_samples() {
        let model = model();
        let rows = model.rows();
        assert_eq!(rows[0].now.unwrap().link_bps, 4_000_000);
        assert_eq!(rows[0].now.unwrap().utilisation_ppm, Some(400_000));
        assert_eq!(rows[0].saved_ppm, Some(500_000));
        assert_eq!(model.history("hub"), [0, 4_000_000, 4_000_000, 4_000_000]);
        let decisions = model.decisions(rows[0].peer);
        let first = ("compressed", 500, 6_500);
        let found = &decisions[0];
        assert_eq!((&*found.name, found.per_second, found.total), first);
        assert_eq!(decisions.last().unwrap().name, "dropped: queue_packets");
    }

    #[test]
    fn a_restart_is_no_flood() {
        let mut model = model();
        model.update(20 * SECOND_NS, status(1));
        assert_eq!(model.rows()[0].now, None);
        assert_eq!(model.history("hub").last(), Some(&0));
        model.update(21 * SECOND_NS, status(2));
        assert_eq!(model.rows()[0].now.unwrap().link_bps, 4_000_000);
    }

    #[test]
    fn keys_sort_filter_and_end() {
        let mut model = model();
        assert_eq!(names(&model), ["hub", "depot"]);
        assert!(model.take_key(Key::Char('s')));
        assert_eq!((model.sort, names(&model)), (Sort::Name, vec!["depot", "hub"]));
        model.take_key(Key::Char('s'));
        assert_eq!((model.sort, names(&model)), (Sort::Link, vec!["hub", "depot"]));
        for key in [Key::Char('/'), Key::Char('q'), Key::Backspace, Key::Char('d'), Key::Char('e')]
        {
            assert!(model.take_key(key), "q is a letter there");
        }
        assert_eq!((&*model.filter, names(&model)), ("de", vec!["depot"]));
        model.take_key(Key::Down);
        assert_eq!(model.selected(), 0, "there is one row only");
        assert!(model.take_key(Key::Enter) && !model.types_filter);
        assert!(model.take_key(Key::Escape));
        assert_eq!(names(&model).len(), 2);
        model.filter = "connecting".to_owned();
        assert_eq!(names(&model), ["depot"]);
        model.filter = "tcp/443".to_owned();
        assert_eq!(names(&model).len(), 2, "by what they send");
        assert!(model.take_key(Key::Char('p')) && model.is_paused);
        assert!(!model.take_key(Key::Char('q')));
        model.take_key(Key::Char('/'));
        assert!(!model.take_key(Key::Interrupt), "whatever is typed");
        assert_eq!(Sort::ALL.iter().fold(Sort::default(), |sort, _| sort.next()), Sort::default());
    }
}
