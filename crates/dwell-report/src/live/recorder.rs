//! What is kept of a node.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::message::{self, ClassNow, Live, PeerNow, Window};
use super::point::{Counters, Measure, Point};
use super::series::{Range, Series};
use crate::status::{PeerState, PeerStatus, Status, TxStatus};

/// Peers and classes whose past is kept: some 250 kB each after a day.
const SCOPES_MAX: usize = 64;
/// Reasons and learned classes that are sent of each peer.
const LISTED_MAX: usize = 12;

/// The past of a node, its peers and classes. It begins with the second status.
#[derive(Debug)]
pub struct Recorder {
    node: Kept,
    peers: BTreeMap<String, Kept>,
    classes: BTreeMap<String, Kept>,
    decisions: BTreeMap<String, BTreeMap<String, u64>>,
    uptime_ns: u64,
    cpu_ns: u64,
    second: u64,
}

/// A scope: its latest counters, point and past.
#[derive(Debug)]
struct Kept {
    counters: Counters,
    now: Point,
    past: Option<Series>,
}

impl Kept {
    fn new(counters: Counters, is_kept: bool) -> Self {
        Self { counters, now: Point::MISSING, past: is_kept.then(Series::new) }
    }

    fn put(&mut self, second: u64, point: Point) {
        self.now = point;
        if let Some(past) = &mut self.past {
            past.put(second, point);
        }
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            node: Kept::new(Counters::default(), true),
            peers: BTreeMap::new(),
            classes: BTreeMap::new(),
            decisions: BTreeMap::new(),
            uptime_ns: 0,
            cpu_ns: 0,
            second: 0,
        }
    }
}

impl Recorder {
    /// Takes the state of the node in this second, since 1970. Returns what a reader is sent of it.
    pub fn take(&mut self, status: &Status, unix_s: u64) -> Live {
        let window_ns = status.uptime_ns.saturating_sub(self.uptime_ns);
        let mut node = Point::MISSING;
        let mut peers = Vec::with_capacity(status.peers.len());
        self.forget(status);
        for peer in &status.peers {
            let point = self.take_peer(peer, unix_s, window_ns);
            node.add_peer(&point);
            peers.push(self.describe(peer, window_ns));
        }
        if self.uptime_ns > 0 && window_ns > 0 {
            let cpu_ns = status.cpu_ns.saturating_sub(self.cpu_ns);
            node.set(Measure::Cpu, cpu_ns as f64 * 1e6 / window_ns as f64);
        }
        self.node.put(unix_s, node);
        let classes = self.take_classes(status, unix_s, window_ns);
        (self.uptime_ns, self.cpu_ns, self.second) = (status.uptime_ns, status.cpu_ns, unix_s);
        let said = crate::answer(status);
        let line = |begins: &str| said.lines().find(|line| line.starts_with(begins));
        Live {
            at_unix_s: unix_s,
            node: status.name.clone(),
            version: status.version.clone(),
            uptime_ns: status.uptime_ns,
            state: said.lines().next().unwrap_or_default().to_owned(),
            is_up: status.peers.iter().all(|peer| peer.state == PeerState::Up),
            saved: line("saved").unwrap_or_default().to_owned(),
            configuration: crate::answer::about_the_file(status),
            problems: status.problems.clone(),
            now: message::values(&node),
            peers,
            classes,
            flows: status.flows.clone(),
            events: status.events.clone(),
        }
    }

    /// Returns the past of the node, or of a peer. None if that is not kept.
    pub fn window(&self, peer: Option<&str>, range: Range) -> Option<Window> {
        let kept = match peer {
            None => &self.node,
            Some(name) => self.peers.get(name)?,
        };
        let columns = |past: &Series| message::columns(&past.window(range, self.second));
        let mut classes = BTreeMap::new();
        if peer.is_none() {
            for (name, class) in &self.classes {
                classes.extend(class.past.as_ref().map(|past| (name.clone(), columns(past))));
            }
        }
        Some(Window {
            at_unix_s: self.second,
            step_s: range.steps().0,
            series: columns(kept.past.as_ref()?),
            classes,
        })
    }

    /// Forgets peers and classes that are gone.
    fn forget(&mut self, status: &Status) {
        let names: BTreeSet<&str> = status.peers.iter().map(|peer| &*peer.name).collect();
        self.peers.retain(|name, _| names.contains(&**name));
        self.decisions.retain(|name, _| names.contains(&**name));
        let classes = status.peers.iter().flat_map(|peer| &peer.traffic);
        let classes: BTreeSet<&str> = classes.map(|class| &*class.class).collect();
        self.classes.retain(|name, _| classes.contains(&**name));
    }

    fn take_peer(&mut self, peer: &PeerStatus, unix_s: u64, window_ns: u64) -> Point {
        let counters = Counters::of_peer(peer);
        let mut point = Point::MISSING;
        let is_room = self.peers.len() < SCOPES_MAX;
        match self.peers.get(&peer.name) {
            Some(kept) => point = counters.since(&kept.counters, window_ns),
            None => {
                self.peers.insert(peer.name.clone(), Kept::new(counters, is_room));
            }
        }
        point.set(Measure::Wait, peer.waiting_ns as f64);
        if let Some(kept) = self.peers.get_mut(&peer.name) {
            kept.counters = counters;
            kept.put(unix_s, point);
        }
        point
    }

    fn take_classes(&mut self, status: &Status, unix_s: u64, window_ns: u64) -> Vec<ClassNow> {
        let mut sums: BTreeMap<&str, Counters> = BTreeMap::new();
        let mut order = Vec::new();
        for class in status.peers.iter().flat_map(|peer| &peer.traffic) {
            let sum = sums.entry(&class.class).or_insert_with(|| {
                order.push(&*class.class);
                Counters::default()
            });
            sum.add_class(class);
        }
        let mut now = Vec::new();
        for name in order {
            let counters = sums[name];
            let is_room = self.classes.len() < SCOPES_MAX;
            let (point, kept) = match self.classes.get_mut(name) {
                Some(kept) => (counters.since(&kept.counters, window_ns), kept),
                None => {
                    let new = Kept::new(counters, is_room);
                    (Point::MISSING, self.classes.entry(name.to_owned()).or_insert(new))
                }
            };
            kept.counters = counters;
            kept.put(unix_s, point);
            now.push(ClassNow { name: name.to_owned(), now: message::values(&point) });
        }
        now
    }

    fn describe(&mut self, peer: &PeerStatus, window_ns: u64) -> PeerNow {
        let kept = self.peers.get(&peer.name);
        let counts = decisions(&peer.tx);
        let before = self.decisions.insert(peer.name.clone(), counts.clone()).unwrap_or_default();
        let per_second = |(name, count): (String, u64)| {
            let new = u128::from(count.checked_sub(*before.get(&name)?)?) * 1_000_000_000;
            let per_second = u64::try_from(new.checked_div(u128::from(window_ns))?).ok()?;
            (per_second > 0).then_some((name, per_second))
        };
        let mut decisions: VecDeque<_> = counts.into_iter().filter_map(per_second).collect();
        decisions.make_contiguous().sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        decisions.truncate(LISTED_MAX);
        PeerNow {
            name: peer.name.clone(),
            state: peer.state,
            state_for_ns: peer.state_for_ns,
            endpoint: peer.endpoint.clone(),
            scheme: peer.scheme.clone(),
            codec: peer.codec.clone(),
            rate_bps: peer.rate_bps,
            rtt_ns: peer.rtt_ns,
            waiting_packets: peer.waiting_packets,
            loss_ppm: peer.tx.loss.map(|loss| loss.ppm),
            problems: peer.problems.clone(),
            now: kept.map(|kept| message::values(&kept.now)).unwrap_or_default(),
            decisions: decisions.into(),
            classes: peer.classes.iter().take(LISTED_MAX).cloned().collect(),
            is_kept: kept.is_some_and(|kept| kept.past.is_some()),
        }
    }
}

/// What became of packets, in words, and how often.
fn decisions(tx: &TxStatus) -> BTreeMap<String, u64> {
    let raw = tx
        .bypassed
        .iter()
        .map(|(reason, count)| (format!("not compressed: {}", crate::explained(reason)), *count));
    let dropped =
        tx.dropped.iter().map(|(reason, count)| (format!("dropped: {reason}"), count.packets));
    let others = [
        ("compressed".to_owned(), tx.compressed.packets),
        ("not compressed: they did not become smaller".to_owned(), tx.not_smaller),
        ("sent again, datagrams".to_owned(), tx.resent_datagrams),
    ];
    raw.chain(dropped).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use dwell_base::time::SECOND_NS;

    use super::*;
    use crate::status::{ClassTraffic, Count};

    /// A node with peers of these names, after so many seconds of equal traffic.
    fn status(names: &[&str], seconds: u64) -> Status {
        let peers = names.iter().map(|name| {
            let mut peer = PeerStatus { name: (*name).to_owned(), ..PeerStatus::default() };
            peer.state = PeerState::Up;
            peer.waiting_ns = 7_000_000;
            peer.tx.arrived.bytes = seconds * 250_000;
            peer.tx.plain_bytes = seconds * 250_000;
            peer.tx.link_bytes = seconds * 125_000;
            peer.tx.compressed = Count { packets: seconds * 100, bytes: seconds * 100_000 };
            peer.tx.bypassed.insert("sparse".to_owned(), seconds * 3);
            let arrived = Count { packets: seconds, bytes: seconds * 12_500 };
            let class = "meters".to_owned();
            peer.traffic = vec![ClassTraffic {
                class,
                arrived,
                plain_bytes: seconds * 12_500,
                link_bytes: seconds * 2_500,
                ..ClassTraffic::default()
            }];
            peer
        });
        Status {
            name: "site-a".to_owned(),
            uptime_ns: (seconds + 1) * SECOND_NS,
            cpu_ns: seconds * SECOND_NS / 10,
            peers: peers.collect(),
            ..Status::default()
        }
    }

    fn latest(window: &Window, name: &str) -> Option<f64> {
        *window.series[name].last().unwrap()
    }

    #[test]
    fn a_node_is_the_sum_of_its_peers() {
        let mut recorder = Recorder::default();
        let first = recorder.take(&status(&["hub", "depot"], 10), 4_000);
        assert!(!first.now.contains_key("link_bps"), "nothing to compare with");
        let live = recorder.take(&status(&["hub", "depot"], 12), 4_002);
        assert_eq!(live.now["offered_bps"], 4e6);
        assert_eq!(live.now["link_bps"], 2e6);
        assert_eq!(live.now["wait_ns"], 7e6);
        assert_eq!(live.now["cpu_ppm"], 1e5);
        assert_eq!(live.peers[1].now["link_bps"], 1e6);
        assert_eq!(live.peers[1].decisions[0], ("compressed".to_owned(), 100));
        assert_eq!(
            live.peers[1].decisions[1],
            ("not compressed: they came alone, or rarely".to_owned(), 3)
        );
        assert_eq!(live.classes[0].now["offered_bps"], 2e5);
        assert_eq!(live.classes[0].now["plain_bps"], 2e5);
        assert_eq!(live.classes[0].now["link_bps"], 4e4, "of both peers");
        assert_eq!(live.state, "site-a is up: all 2 peers answer");
        let window = recorder.window(None, Range::FiveMinutes).unwrap();
        assert_eq!((window.at_unix_s, window.step_s), (4_002, 1));
        assert_eq!(latest(&window, "link_bps"), Some(2e6));
        assert_eq!(window.series["link_bps"][298], None, "a second without a look");
        assert_eq!(window.classes["meters"]["offered_bps"][299], Some(2e5));
        let hub = recorder.window(Some("hub"), Range::Hour).unwrap();
        assert_eq!(latest(&hub, "link_bps"), Some(1e6));
        assert!(hub.classes.is_empty());
        assert!(recorder.window(Some("nobody"), Range::Hour).is_none());
    }

    #[test]
    fn peers_that_are_gone_are_forgotten_and_too_many_have_no_past() {
        let names: Vec<String> = (0..SCOPES_MAX + 2).map(|at| format!("peer-{at:03}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut recorder = Recorder::default();
        recorder.take(&status(&names, 1), 1);
        let live = recorder.take(&status(&names, 2), 2);
        assert_eq!(live.peers.iter().filter(|peer| !peer.is_kept).count(), 2);
        assert_eq!(live.peers.last().unwrap().now["link_bps"], 1e6, "it is shown all the same");
        assert!(recorder.window(Some(names[SCOPES_MAX]), Range::Hour).is_none());
        recorder.take(&status(&["other"], 3), 3);
        assert_eq!((recorder.peers.len(), recorder.decisions.len()), (1, 1));
        assert!(recorder.window(Some("peer-000"), Range::Hour).is_none());
    }

    #[test]
    fn messages_are_json_without_what_is_not_known() {
        let mut recorder = Recorder::default();
        recorder.take(&status(&["hub"], 1), 1);
        let live = recorder.take(&crate::status::tests::example(), 2);
        let text = serde_json::to_string(&live).unwrap();
        assert!(!text.contains("NaN"), "{text}");
        let window = recorder.window(None, Range::FiveMinutes).unwrap();
        let text = serde_json::to_string(&window).unwrap();
        assert!(text.contains("null") && !text.contains("NaN"), "{text}");
    }
}
