//! The path that streams to the same proxy share, of which each has a part. What they find of its rate
//! outlasts them: so a new stream begins with what the last one knew.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_stream::{Advice, Arms, Confirmed, Learned, LinkReport, Sender};

use crate::turns::Turns;

/// The ends of streams that are in transit at a time. Each takes some packets and no room in the
/// connection that it ends: when thousands of programs close at once, nothing but ends would be on
/// the link until the last.
const ENDS_MAX: usize = 64;
/// Beyond this many paths, those without a stream are forgotten.
const IDLE_PATHS_MAX: usize = 64;
/// The weight of a rate below the one that is known of a path: of many streams at a time each finds only
/// its part.
const LOWER_GAIN: f64 = 0.25;
/// It counts at most so often: each stream reports every millisecond.
const LOWER_EVERY_NS: u64 = SECOND_NS / 10;
/// After this time without another one it counts alone, as the route may be another, ...
const FOUND_OLD_NS: u64 = 10 * SECOND_NS;
/// ... and after this one nothing is known.
const FORGOTTEN_NS: u64 = 60 * SECOND_NS;

/// A stream that sent all it had this long ago, in nanoseconds, may have something again any time.
const SMALL_NS: u64 = SECOND_NS;

/// So many topics' lessons are remembered of a path, for so long: contents change, and processors get other things to do.
const LESSONS_MAX: usize = 64;
const LESSON_NS: u64 = 600 * SECOND_NS;

/// All paths that have streams, and some that had, by the other proxy's address.
#[derive(Debug, Default)]
pub(crate) struct Paths(Mutex<HashMap<IpAddr, Arc<PathState>>>);

/// The path to one other proxy.
#[derive(Clone, Debug)]
pub(crate) struct Path(Arc<PathState>);

#[derive(Debug)]
struct PathState {
    ends: Turns,
    load: Mutex<Load>,
    /// What streams have learned last of codecs, by what they are about.
    lessons: Mutex<HashMap<u64, (Instant, Learned)>>,
}

/// The load of streams on the path.
#[derive(Clone, Debug, Default)]
struct Load {
    /// Streams that have something to send.
    streams: u32,
    /// The rate of those that keep it full, in bytes a second.
    rate: f64,
    /// The rate that a stream has found last, in bytes a second; zero if none has.
    found: f64,
    found_at: Instant,
    /// How messages are there sooner.
    arms: Arms,
    /// The shares that there have been.
    shares: u64,
    /// How often a stream has sent all that it had.
    rests: u64,
}

/// One stream's part of the load.
#[derive(Debug)]
pub(crate) struct Share {
    path: Path,
    number: u64,
    topic: Option<u64>,
    is_sending: bool,
    rate: f64,
    /// What TCP has said last of the rate that this stream found.
    delivered_rate: f64,
    /// How often this stream has sent all that it had, and how often others had when that was last looked at.
    rests: u64,
    rests_of_others: u64,
    /// When another one had done so since the look before.
    others_rested_at: Option<Instant>,
}

impl Paths {
    /// The path to a proxy.
    pub(crate) fn to(&self, other: IpAddr) -> Path {
        let mut paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = paths.get(&other) {
            return Path(Arc::clone(path));
        }
        if paths.len() >= IDLE_PATHS_MAX {
            paths.retain(|_, path| Arc::strong_count(path) > 1);
        }
        let (ends, load, lessons) = (Turns::new(ENDS_MAX), Mutex::default(), Mutex::default());
        let path = Arc::new(PathState { ends, load, lessons });
        paths.insert(other, Arc::clone(&path));
        Path(path)
    }
}

impl Path {
    /// Turns of those that end a stream.
    pub(crate) fn ends(&self) -> &Turns {
        &self.0.ends
    }

    /// The part of a new stream, which sends nothing yet.
    pub(crate) fn share(&self) -> Share {
        self.share_of(None)
    }

    /// The same of a stream that is about this.
    pub(crate) fn share_of(&self, topic: Option<u64>) -> Share {
        let mut load = self.load();
        load.shares += 1;
        Share {
            path: self.clone(),
            number: load.shares,
            topic,
            is_sending: false,
            rate: 0.0,
            delivered_rate: 0.0,
            rests: 0,
            rests_of_others: load.rests,
            others_rested_at: None,
        }
    }

    /// Returns what streams about this have learned last of codecs.
    pub(crate) fn lesson(&self, now: Instant, topic: u64) -> Option<Learned> {
        let lessons = self.lessons();
        let (at, learned) = lessons.get(&topic)?;
        (now.since_ns(*at) < LESSON_NS).then(|| learned.clone())
    }

    /// Notes what a stream about this had learned then, if nobody has learned anything since.
    pub(crate) fn teach(&self, now: Instant, topic: u64, learned: Learned) {
        let mut lessons = self.lessons();
        if lessons.get(&topic).is_some_and(|(at, _)| *at > now) {
            return;
        }
        if lessons.len() >= LESSONS_MAX && !lessons.contains_key(&topic) {
            // Any: who goes on says it again soon.
            let other = lessons.keys().next().copied();
            other.map(|other| lessons.remove(&other));
        }
        lessons.insert(topic, (now, learned));
    }

    fn lessons(&self) -> MutexGuard<'_, HashMap<u64, (Instant, Learned)>> {
        self.0.lessons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self) -> MutexGuard<'_, Load> {
        self.0.load.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    /// A stream has found this rate.
    fn find(&mut self, now: Instant, rate: f64) {
        let since_ns = now.since_ns(self.found_at);
        let is_part = rate < self.found && since_ns < FOUND_OLD_NS;
        if is_part && since_ns < LOWER_EVERY_NS {
            return;
        }
        let gain = if is_part { LOWER_GAIN } else { 1.0 };
        self.found += gain * (rate - self.found);
        self.found_at = now;
    }
}

impl Share {
    /// Returns the rate that one more stream may expect of the path, in bytes a second: the average
    /// of all, if some keep it full.
    pub(crate) fn expected(&self) -> Option<f64> {
        let load = self.path.load();
        let others = load.streams - u32::from(self.is_sending);
        (load.rate > 0.0).then(|| load.rate / f64::from(others + 1))
    }

    /// Returns what a message had better expect of which so many bytes are known. If nothing is pending, [`Share::confirmed`] is
    /// called for it.
    pub(crate) fn advice(&self, now: Instant, len: usize, report: &LinkReport) -> Advice {
        let arms = &mut self.path.load().arms;
        match report.pending_bytes {
            0 => arms.begin(now, self.number, len, report),
            _ => arms.advice(now, len),
        }
    }

    /// Returns the same for a message that is not looked at.
    pub(crate) fn outlook(&self, now: Instant, len: usize) -> Advice {
        self.path.load().arms.advice(now, len)
    }

    /// Has streams about the same begin with what this one has learned of codecs.
    pub(crate) fn teaches(&self, now: Instant, sender: &Sender) {
        if let Some((topic, learned)) = self.topic.zip(sender.learned()) {
            self.path.teach(now, topic, learned);
        }
    }

    /// Learns from a message.
    pub(crate) fn confirmed(&self, now: Instant, message: &Confirmed) {
        self.path.load().arms.confirmed(now, self.number, message);
    }

    /// Returns the rate of the path as streams have found it, in bytes a second, zero if none has lately; with
    /// what TCP says of this one now. TCP goes on saying what the last long answer has found, which is found once only.
    pub(crate) fn path_rate(&mut self, now: Instant, report: &LinkReport) -> f64 {
        let mut load = self.path.load();
        let rate = report.delivered_rate;
        if !report.is_least && rate > 0.0 && rate != self.delivered_rate {
            self.delivered_rate = rate;
            load.find(now, rate);
        }
        let before = std::mem::replace(&mut self.rests_of_others, load.rests - self.rests);
        if !self.is_sending {
            // What others did while it had nothing to send is of the past.
            self.others_rested_at = None;
        } else if self.rests_of_others != before {
            self.others_rested_at = Some(now);
        }
        if now.since_ns(load.found_at) < FORGOTTEN_NS { load.found } else { 0.0 }
    }

    /// Returns true if others share the path now that send a little at a time, as [`Share::path_rate`] has seen it.
    pub(crate) fn small_are_beside(&self, now: Instant) -> bool {
        self.others_rested_at.is_some_and(|at| now.since_ns(at) < SMALL_NS)
    }

    /// The stream has something to send, or not, and the path takes this many bytes a second of it, if
    /// that is known.
    pub(crate) fn set(&mut self, is_sending: bool, rate: Option<f64>) {
        let rate = if is_sending { rate.unwrap_or(0.0) } else { 0.0 };
        // Not for every small step: all streams of the path share it.
        let differs = (rate - self.rate).abs() > 0.1 * self.rate || rate == 0.0 && self.rate > 0.0;
        if is_sending == self.is_sending && !differs {
            return;
        }
        let mut load = self.path.load();
        let rests = u64::from(self.is_sending && !is_sending);
        (load.rests, self.rests) = (load.rests + rests, self.rests + rests);
        load.streams = load.streams + u32::from(is_sending) - u32::from(self.is_sending);
        load.rate = match load.streams {
            // What rounding has left.
            0 => 0.0,
            _ => (load.rate + rate - self.rate).max(0.0),
        };
        (self.is_sending, self.rate) = (is_sending, rate);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(false, None);
    }
}

#[cfg(test)]
mod tests {
    use dwell_stream::{Config, Strategy};

    use super::*;

    #[test]
    fn a_new_stream_expects_what_the_others_leave() {
        let paths = Paths::default();
        let here = paths.to([192, 0, 2, 1].into());
        let (mut first, mut second) = (here.share(), here.share());
        assert_eq!(second.expected(), None);
        first.set(true, None);
        assert_eq!(second.expected(), None);
        first.set(true, Some(1e6));
        assert_eq!(second.expected(), Some(5e5));
        second.set(true, None);
        assert_eq!((second.expected(), here.share().expected()), (Some(5e5), Some(1e6 / 3.0)));
        // Others have a path of their own, and that of whoever is there already is the same.
        assert_eq!(paths.to([192, 0, 2, 2].into()).share().expected(), None);
        assert_eq!(paths.to([192, 0, 2, 1].into()).share().expected(), Some(1e6 / 3.0));
        drop(first);
        assert_eq!(here.share().expected(), None);
        drop(second);
        let load = here.load();
        assert_eq!((load.streams, load.rate), (0, 0.0));
    }

    #[test]
    fn what_a_stream_has_found_is_known_to_the_next() {
        let paths = Paths::default();
        let path = || paths.to([192, 0, 2, 1].into()).share();
        let found = |seconds: u64, delivered_rate, is_least| {
            let now = Instant::from_ns((100 + seconds) * SECOND_NS);
            path().path_rate(now, &LinkReport { delivered_rate, is_least, ..Default::default() })
        };
        assert_eq!(found(0, 0.0, false), 0.0);
        assert_eq!(found(0, 5e6, true), 0.0, "the least that it carries");
        assert_eq!(found(0, 1e6, false), 1e6);
        assert_eq!(found(1, 0.0, true), 1e6, "another stream");
        assert_eq!(found(2, 5e5, false), 8.75e5);
        assert_eq!(found(3, 2e6, false), 2e6);
        // The route may be another after a while, and is not known for ever.
        assert_eq!(found(12, 1e6, false), 1.75e6);
        assert_eq!(found(22, 1e5, false), 1e5);
        assert_eq!((found(81, 0.0, true), found(82, 0.0, true)), (1e5, 0.0));
    }

    #[test]
    fn what_is_only_said_again_was_not_found_again() {
        let paths = Paths::default();
        let share = || paths.to([192, 0, 2, 1].into()).share();
        let (mut old, mut other) = (share(), share());
        let found = |share: &mut Share, ms: u64, delivered_rate, is_least| {
            let now = Instant::from_ns(100 * SECOND_NS + ms * SECOND_NS / 1000);
            share.path_rate(now, &LinkReport { delivered_rate, is_least, ..Default::default() })
        };
        // Its short answers say the same for two minutes: it counts for one.
        for second in 0..120 {
            let known = if second < 60 { 1e6 } else { 0.0 };
            assert_eq!(found(&mut old, 1000 * second, 1e6, false), known, "{second}");
        }
        // One of many streams finds its part, each millisecond another one.
        assert_eq!(found(&mut other, 120_000, 8e6, false), 8e6);
        for ms in 1..100 {
            assert_eq!(found(&mut old, 120_000 + ms, 1e6 + ms as f64, false), 8e6);
        }
        assert_eq!(found(&mut old, 120_100, 2e6, false), 6.5e6);
        assert_eq!(found(&mut other, 120_101, 9e6, false), 9e6);
    }

    #[test]
    fn those_beside_are_small_that_send_all_they_have() {
        let path = Paths::default().to([192, 0, 2, 1].into());
        let at = |ms: u64| Instant::from_ns(SECOND_NS + ms * SECOND_NS / 1000);
        let are_beside = |share: &mut Share, now| {
            share.path_rate(now, &LinkReport::default());
            share.small_are_beside(now)
        };
        let (mut large, mut small, mut other) = (path.share(), path.share(), path.share());
        large.set(true, Some(1e6));
        other.set(true, Some(1e6));
        small.set(true, None);
        assert!(!are_beside(&mut large, at(0)), "it has not sent it yet");
        small.set(false, None);
        assert!(are_beside(&mut large, at(1)) && are_beside(&mut other, at(1)));
        assert!(are_beside(&mut large, at(1_000)) && !are_beside(&mut large, at(1_001)));
        // What one does itself is not done by others, and the end of one is as good as a pause.
        large.set(false, None);
        assert!(!are_beside(&mut large, at(2_000)) && are_beside(&mut other, at(2_000)));
        other.set(true, Some(1e6));
        drop(other);
        assert!(!are_beside(&mut large, at(2_001)), "before it had anything to send");
        large.set(true, None);
        small.set(true, None);
        drop(small);
        assert!(are_beside(&mut large, at(2_002)));
        assert!(!are_beside(&mut path.share(), at(2_001)), "of those before it");
    }

    #[test]
    fn few_lessons_are_remembered_and_the_last_of_each_topic() {
        let path = Paths::default().to([192, 0, 2, 1].into());
        let mut config = Config::new(Strategy::Hull);
        config.codecs = vec!["zstd:1".parse().unwrap()];
        let mut sender = Sender::new(&config).unwrap();
        sender.expect_rate(crate::clock::now(), 1e5);
        let mut out = Vec::new();
        let mut sends = |sender: &mut Sender| {
            sender.accept(&[1; 10_000]);
            crate::uplink::collect(sender, &mut out);
        };
        assert!(sender.learned().is_none());
        sends(&mut sender);
        let (now, learned) = (Instant::from_ns(SECOND_NS), sender.learned().unwrap());
        for topic in 0..100 {
            path.teach(now, topic, learned.clone());
            assert!(path.lesson(now, topic).is_some());
        }
        assert_eq!(path.lessons().len(), LESSONS_MAX);
        assert!(path.lesson(now, 100).is_none());
        // What was learned before comes too late, and nothing is believed for ever.
        path.teach(Instant::from_ns(now.as_ns() - SECOND_NS), 99, learned.clone());
        assert!(path.lesson(Instant::from_ns(now.as_ns() + LESSON_NS - 1), 99).is_some());
        assert!(path.lesson(Instant::from_ns(now.as_ns() + LESSON_NS), 99).is_none());
    }

    #[test]
    fn paths_without_streams_are_forgotten() {
        let paths = Paths::default();
        let kept = paths.to([192, 0, 2, 1].into());
        for number in 0..10 * IDLE_PATHS_MAX as u32 {
            paths.to(number.to_be_bytes().into());
        }
        assert!(paths.0.lock().unwrap().len() <= IDLE_PATHS_MAX + 1);
        drop(kept);
    }
}
