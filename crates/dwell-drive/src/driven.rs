//! A port and the loop that does what it asks for.

use std::ops::Deref;

use dwell_base::Instant;
use dwell_policy::{Action, ConfigError, DropReason, Event, Job, PacketId, Port, PortConfig};

use crate::journal::{Input, Journal, Output};

/// A port that can keep a journal.
#[derive(Clone, Debug)]
pub struct Driven {
    port: Port,
    journal: Option<Box<Journal>>,
}

impl Driven {
    /// Returns an empty port whose link is idle.
    ///
    /// # Errors
    /// If the configuration makes no sense.
    pub fn new(config: PortConfig) -> Result<Self, ConfigError> {
        Ok(Self { port: Port::new(config)?, journal: None })
    }

    /// Keeps a journal from now on. The port must be as new: what it learned before is not in it.
    pub fn keep_journal(&mut self) {
        let config = self.port.config().clone();
        self.journal = Some(Box::new(Journal::new(config)));
    }

    /// Keeps no journal any more, and forgets what was not taken.
    pub fn end_journal(&mut self) {
        self.journal = None;
    }

    /// Returns the journal, if one is kept.
    pub fn journal_mut(&mut self) -> Option<&mut Journal> {
        self.journal.as_deref_mut()
    }

    #[cold]
    fn note(&mut self, now: Instant, input: impl FnOnce() -> Input) {
        if let Some(journal) = &mut self.journal {
            journal.input(now, input());
        }
    }

    #[cold]
    fn note_output(&mut self, now: Instant, action: Option<Action>) {
        if let Some(journal) = &mut self.journal {
            journal.output(now, Output::of(&self.port, action));
        }
    }

    /// [`Port::configure`].
    ///
    /// # Errors
    /// As [`Port::configure`].
    pub fn configure(&mut self, config: PortConfig) -> Result<(), ConfigError> {
        self.note(Instant::ZERO, || Input::Configure(Box::new(config.clone())));
        self.port.configure(config)
    }

    /// [`Port::forget_estimates`].
    pub fn forget_estimates(&mut self) {
        self.note(Instant::ZERO, || Input::ForgetEstimates);
        self.port.forget_estimates();
    }

    /// [`Port::handle`].
    #[inline]
    pub fn handle(&mut self, now: Instant, event: Event<'_>) {
        if self.journal.is_some() {
            self.note(now, || Input::from(&event));
        }
        self.port.handle(now, event);
    }

    /// [`Port::poll`].
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<Action> {
        let action = self.port.poll(now);
        if self.journal.is_some() {
            self.note_output(now, action);
        }
        action
    }

    /// [`Port::clear`].
    pub fn clear(&mut self, free: impl FnMut(PacketId, DropReason)) {
        self.note(Instant::ZERO, || Input::Clear);
        self.port.clear(free);
    }
}

impl Deref for Driven {
    type Target = Port;

    fn deref(&self) -> &Port {
        &self.port
    }
}

/// A port and what is around it, which does what the port asks for.
pub trait World {
    /// Polls the port at the present time. What the port has to know before, as whether its link is ready,
    /// it hears first.
    fn poll(&mut self) -> Option<Action>;

    /// Compresses the packets of [`Port::batch`] together. The port hears of the result by
    /// [`Event::Compressed`], at once or later.
    fn compress(&mut self, job: Job);

    /// Puts [`Port::frame`] on the link.
    fn send(&mut self);

    /// Forgets a packet.
    fn dropped(&mut self, id: PacketId, reason: DropReason);

    /// Marks a packet that waits (RFC 3168). Only packets whose senders take marks
    /// ([`Packet::takes_mark`](dwell_policy::Packet::takes_mark)) are marked.
    fn marked(&mut self, _id: PacketId) {}
}

/// Does what the port of `world` asks for, until it asks for nothing more. Returns true if it has sent.
#[inline]
pub fn drain(world: &mut impl World) -> bool {
    let mut has_sent = false;
    while let Some(action) = world.poll() {
        match action {
            Action::Compress(job) => world.compress(job),
            Action::Send => {
                world.send();
                has_sent = true;
            }
            Action::Drop(id, reason) => world.dropped(id, reason),
            Action::Mark(id) => world.marked(id),
        }
    }
    has_sent
}

#[cfg(test)]
mod tests {
    use dwell_base::Rate;
    use dwell_policy::{ClassKey, Estimate, Estimates, Outcome, Packet, QueueLimit, Ratio, Scheme};

    use super::*;
    use crate::journal::{Entry, JournalError, repeat};

    /// Takes every frame, and compresses to half: at once, or later.
    struct Notes {
        port: Driven,
        now: Instant,
        is_late: bool,
        jobs: Vec<Job>,
        sent_bytes: Vec<u64>,
        dropped: Vec<(PacketId, DropReason)>,
        marked: Vec<PacketId>,
    }

    impl Notes {
        fn new(config: PortConfig) -> Self {
            Self {
                port: Driven::new(config).unwrap(),
                now: Instant::ZERO,
                is_late: false,
                jobs: Vec::new(),
                sent_bytes: Vec::new(),
                dropped: Vec::new(),
                marked: Vec::new(),
            }
        }

        fn late(config: PortConfig) -> Self {
            Self { is_late: true, ..Self::new(config) }
        }

        fn handle(&mut self, now: Instant, event: Event<'_>) {
            self.now = now;
            self.port.handle(now, event);
        }
    }

    impl World for Notes {
        fn poll(&mut self) -> Option<Action> {
            self.port.poll(self.now)
        }

        fn compress(&mut self, job: Job) {
            self.jobs.push(job);
            if !self.is_late {
                let (job, outcome) = (job.id, Outcome::Smaller(job.bytes / 2));
                self.port.handle(self.now, Event::Compressed { job, outcome, took_ns: 7 });
            }
        }

        fn send(&mut self) {
            self.sent_bytes.push(self.port.frame().link_bytes);
        }

        fn dropped(&mut self, id: PacketId, reason: DropReason) {
            self.dropped.push((id, reason));
        }

        fn marked(&mut self, id: PacketId) {
            self.marked.push(id);
        }
    }

    fn config() -> PortConfig {
        PortConfig { scheme: Scheme::all(), limit: QueueLimit::packets(3), ..PortConfig::default() }
    }

    fn packet(id: u32) -> Packet {
        let class = ClassKey::new(6, 80);
        Packet::new(PacketId(id), 1_000, (class, class))
    }

    fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1_000)
    }

    #[test]
    fn a_port_is_drained_of_all_that_it_asks_for() {
        let mut world = Notes::late(config());
        assert!(!drain(&mut world), "an empty port has nothing to send");
        for id in 0..5 {
            world.handle(at(0), Event::Arrive(packet(id)));
            assert!(!drain(&mut world), "the compressor has it");
        }
        // One is being compressed and two wait.
        assert_eq!((world.jobs.len(), world.port.accounts().held.packets), (1, 3));
        let full = DropReason::QueuePackets;
        assert_eq!(world.dropped, [(PacketId(3), full), (PacketId(4), full)]);
        world.is_late = false;
        let (job, outcome) = (world.jobs[0].id, Outcome::Smaller(400));
        world.handle(at(1), Event::Compressed { job, outcome, took_ns: 5 });
        assert!(drain(&mut world));
        assert_eq!((&world.sent_bytes[..], world.jobs.len()), (&[400][..], 3));
        world.handle(at(2), Event::LinkReady);
        assert!(drain(&mut world));
        assert_eq!(world.sent_bytes, [400, 500]);
        assert_eq!(world.port.accounts().compress.took_ns, 5 + 7 + 7);
    }

    #[test]
    fn marks_are_handed_on() {
        // Noise that waits for longer than its flow may, on a link that never takes it.
        let scheme = Scheme::auto(dwell_policy::Gather::HostPair);
        let rate = Some(Rate::from_mbps(10));
        let mut world = Notes::new(PortConfig { scheme, rate, ..PortConfig::default() });
        world.handle(at(0), Event::LinkBusy);
        for ms in 0..400u32 {
            let now = at(u64::from(ms) * 1_000);
            for id in [3 * ms, 3 * ms + 1, 3 * ms + 2] {
                let marked = Packet { takes_mark: true, looks_random: true, ..packet(id) };
                world.handle(now, Event::Arrive(Packet { flow: 1, group: 1, ..marked }));
            }
            world.handle(now, Event::LinkReady);
            drain(&mut world);
        }
        assert!(!world.marked.is_empty());
        assert_eq!(world.port.accounts().marked, world.marked.len() as u64);
    }

    #[test]
    fn what_a_port_is_asked_reaches_it() {
        let mut port = Driven::new(config()).unwrap();
        let estimates = Estimates::Fixed(Estimate { ratio: Ratio::ONE, cost_ns: 9 });
        port.configure(PortConfig { estimates, ..config() }).unwrap();
        assert_eq!(port.config().estimates, estimates);
        let nothing = PortConfig { limit: QueueLimit::packets(0), ..config() };
        assert_eq!(port.configure(nothing), Err(ConfigError::QueueTooSmall));
        let mut world = Notes::new(config());
        world.handle(at(0), Event::Arrive(packet(0)));
        drain(&mut world);
        assert_eq!(world.port.learned_classes().count(), 1);
        world.port.forget_estimates();
        assert_eq!(world.port.learned_classes().count(), 0);
        // What waits is handed back.
        world.handle(at(0), Event::Arrive(packet(1)));
        world.handle(at(0), Event::LinkBusy);
        let mut cleared = Vec::new();
        drain(&mut world);
        world.port.clear(|id, reason| cleared.push((id, reason)));
        assert_eq!(cleared, [(PacketId(1), DropReason::Cleared)]);
        assert!(world.port.is_empty());
    }

    /// A port's journal of all kinds of inputs, and the port.
    fn journal() -> (Vec<Entry>, Driven) {
        let mut world = Notes::late(config());
        assert!(world.port.journal_mut().is_none());
        world.port.keep_journal();
        for id in 0..4 {
            world.handle(at(0), Event::Arrive(packet(id)));
            drain(&mut world);
        }
        let (job, outcome) = (world.jobs[0].id, Outcome::Smaller(400));
        world.handle(at(1), Event::Compressed { job, outcome, took_ns: 5 });
        drain(&mut world);
        let sent =
            dwell_policy::FramePacket { id: PacketId(0), original_bytes: 1_000, sojourn_ns: 1_000 };
        let lost = dwell_policy::LostBatch { packets: &[sent], bytes: 400 };
        world.handle(at(2), Event::Lost(lost));
        let link = dwell_policy::LinkState::of_rate(Some(Rate::from_mbps(2)));
        world.handle(at(2), Event::Link(link));
        world.handle(at(3), Event::LinkReady);
        drain(&mut world);
        world.handle(at(3), Event::LinkBusy);
        let Notes { mut port, .. } = world;
        port.configure(PortConfig { compress_bytes_min: 10, ..config() }).unwrap();
        port.clear(|_, _| ());
        port.forget_estimates();
        let entries = port.journal_mut().expect("one is kept").take();
        (entries, port)
    }

    fn lines(entries: &[Entry]) -> impl Iterator<Item = Result<Entry, JournalError>> {
        let lines = entries.iter().map(Entry::to_line).enumerate();
        lines.map(|(n, line)| Entry::from_line(&line, n + 1))
    }

    #[test]
    fn a_journal_has_all_that_went_in_and_came_out() {
        let (entries, mut port) = journal();
        assert!(port.journal_mut().is_some_and(|journal| journal.take().is_empty()));
        let inputs = entries.iter().filter_map(|entry| match entry {
            Entry::Input(at_ns, input) => Some((*at_ns, input)),
            Entry::Output(..) => None,
        });
        let kind = |input: &Input| match input {
            Input::Configure(_) => "configure",
            Input::ForgetEstimates => "forget",
            Input::Clear => "clear",
            Input::Arrive(_) => "arrive",
            Input::Compressed { .. } => "compressed",
            Input::Lost { .. } => "lost",
            Input::LinkReady => "ready",
            Input::LinkBusy => "busy",
            Input::Link(_) => "link",
        };
        let kinds: Vec<_> = inputs.map(|(at_ns, input)| (at_ns, kind(input))).collect();
        let arrivals =
            [(0, "configure"), (0, "arrive"), (0, "arrive"), (0, "arrive"), (0, "arrive")];
        assert_eq!(kinds[..5], arrivals);
        let others = [(1_000, "compressed"), (2_000, "lost"), (2_000, "link"), (3_000, "ready")];
        assert_eq!(kinds[5..9], others);
        let last = [(3_000, "busy"), (0, "configure"), (0, "clear"), (0, "forget")];
        assert_eq!(kinds[9..], last);
        // Polls that found nothing are noted once.
        let nothing = Entry::Output(0, Output::Nothing);
        assert!(entries.windows(2).all(|pair| pair != [nothing.clone(), nothing.clone()]));
        assert!(entries.contains(&nothing));
        let drop = Output::Drop(PacketId(3), DropReason::QueuePackets);
        assert!(entries.contains(&Entry::Output(0, drop)));
        // Without a journal nothing is kept.
        port.end_journal();
        assert!(port.journal_mut().is_none());
    }

    #[test]
    fn a_journal_that_is_repeated_has_the_same_actions() {
        let (entries, port) = journal();
        let (repeated, actions) = repeat(lines(&entries)).unwrap();
        // Two jobs at least, two frames, a drop.
        let outputs = entries.iter().filter(
            |entry| matches!(entry, Entry::Output(_, output) if *output != Output::Nothing),
        );
        assert_eq!(actions, outputs.count() as u64);
        assert!(actions >= 5, "{actions}");
        assert_eq!(repeated.accounts(), port.accounts());
        assert_eq!(repeated.config(), port.config());
        assert_eq!(repeated.learned_classes().count(), 0);
    }

    #[test]
    fn equal_outputs_one_after_another_are_all_noted() {
        let mut journal = Journal::new(config());
        for _ in 0..2 {
            journal.output(at(0), Output::Mark(PacketId(1)));
            journal.output(at(1), Output::Nothing);
            journal.output(at(1), Output::Nothing);
        }
        journal.output(at(1), Output::Mark(PacketId(1)));
        journal.output(at(1), Output::Mark(PacketId(1)));
        assert_eq!(journal.take().len(), 1 + 4 + 2);
    }

    #[test]
    fn what_a_journal_has_wrong_is_reported_with_its_entry() {
        let (mut entries, _) = journal();
        assert!(matches!(repeat(lines(&entries[1..])), Err(JournalError::NoConfiguration)));
        let nothing = PortConfig { limit: QueueLimit::packets(0), ..config() };
        let refused = [Entry::Input(0, Input::Configure(Box::new(nothing)))];
        let refused = repeat(lines(&refused));
        assert!(matches!(refused, Err(JournalError::Configuration { entry: 1, .. })));
        let line = Entry::from_line("{}", 5);
        assert!(matches!(line, Err(JournalError::Syntax { entry: 5, .. })), "{line:?}");
        // Another output than that of the port.
        let changed = entries.iter().position(|entry| matches!(entry, Entry::Output(..))).unwrap();
        entries[changed] = Entry::Output(0, Output::Mark(PacketId(9)));
        match repeat(lines(&entries)) {
            Err(JournalError::Differs { entry, expected, .. }) => {
                assert_eq!((entry, *expected), (changed + 1, Output::Mark(PacketId(9))));
            }
            other => panic!("{other:?}"),
        }
    }
}
