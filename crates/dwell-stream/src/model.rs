//! Senders in virtual time: a link of a given rate behind a buffer, and codecs of given costs.
//! Blocks are really compressed; only the time is made up.

use std::collections::HashMap;

use dwell_base::Instant;
use dwell_codec::{CodecSpec, Compressor};

use crate::{
    Bound, CodecPoint, Compressors, Config, Done, Job, LinkReport, Objective, Sender, Strategy,
};

/// Bytes a second of 1 Mbit/s.
pub(crate) const MBIT: f64 = 125_000.0;

/// A machine and a link.
#[derive(Clone, Copy)]
pub(crate) struct Model {
    /// The rate in bytes a second.
    pub(crate) link: f64,
    /// The time of a change of the rate, and the rate from then on, in bytes a second.
    pub(crate) later: Option<(Instant, f64)>,
    /// The bytes that the transport holds before it refuses.
    pub(crate) buffer: f64,
    /// True if after a refusal nobody asks the transport before it wakes up.
    pub(crate) patient: bool,
    /// The cost of one byte with each codec, in nanoseconds.
    pub(crate) cost_ns: fn(CodecSpec) -> f64,
    /// If the processor is shared: the sender's time slice, and the time slice of others.
    pub(crate) turns_ns: Option<(u64, u64)>,
}

impl Model {
    /// Returns the end of work of `work_ns` that begins now.
    fn after(self, now: Instant, work_ns: u64) -> Instant {
        let Some((own_ns, others_ns)) = self.turns_ns else { return now + work_ns };
        let (mut at, mut left) = (now.as_ns(), work_ns);
        loop {
            // It begins with the end of a time slice, so that the first block is interrupted.
            let into = (at + own_ns - own_ns / 16) % (own_ns + others_ns);
            if into >= own_ns {
                at += own_ns + others_ns - into;
                continue;
            }
            let step = left.min(own_ns - into);
            (at, left) = (at + step, left - step);
            if left == 0 {
                return Instant::from_ns(at);
            }
        }
    }
}

impl Model {
    /// Returns the bytes that the link can carry from one time to a later one.
    fn carries(self, from: Instant, to: Instant) -> f64 {
        let bytes = |rate: f64, ns: u64| rate * ns as f64 / 1e9;
        match self.later {
            Some((change, rate)) if change < to => {
                let change = change.max(from);
                bytes(self.link, change.since_ns(from)) + bytes(rate, to.since_ns(change))
            }
            _ => bytes(self.link, to.since_ns(from)),
        }
    }

    /// Returns the time at which the link has carried `bytes` from a time on.
    fn carried_at(self, from: Instant, bytes: f64) -> Instant {
        let after = |at: Instant, bytes: f64, rate: f64| at + (bytes / rate * 1e9) as u64;
        let Some((change, rate)) = self.later else { return after(from, bytes, self.link) };
        let change = change.max(from);
        let before = self.carries(from, change);
        match bytes <= before {
            true => after(from, bytes, self.link),
            false => after(change, bytes - before, rate),
        }
    }
}

/// Returns about the cost on a processor of 2023 for English text.
pub(crate) fn cost_ns(spec: CodecSpec) -> f64 {
    match (spec.id.name(), spec.level) {
        ("lz4", _) => 2.5,
        ("zstd", ..=-5) => 3.0,
        ("zstd", -4..=0) => 4.5,
        ("zstd", 1..=2) => 6.0,
        ("zstd", 3..=5) => 11.0,
        ("zstd", 6..=8) => 28.0,
        ("zstd", 10..) => 120.0,
        ("ppm", ..=4) => 50.0,
        ("ppm", _) => 75.0,
        // 800 where it goes on with a context, as it always does.
        ("mix", _) => 570.0,
        ("zstd", _) => 50.0,
        _ => 30.0,
    }
}

/// Returns the time that a job takes; referring to earlier blocks requires a search through these.
fn work_ns(model: Model, job: &Job) -> u64 {
    let referring = if job.refers() { 1.4 } else { 1.0 };
    (referring * (model.cost_ns)(job.codec()) * job.original_len() as f64) as u64
}

/// Returns the time that what is tried beside takes.
fn trial_ns(model: Model, job: &Job) -> u64 {
    let Some(trial) = job.trial else { return 0 };
    (1.4 * (model.cost_ns)(trial.codecs.0) * job.original_len() as f64) as u64
}

/// The result of a run.
pub(crate) struct Run {
    /// Original bytes a second, from the first until the link has carried the last.
    pub(crate) rate: f64,
    pub(crate) sender: Sender,
}

/// The transport: a buffer that drains at the link's rate, and wakes up when a third of it is free.
struct Transport {
    model: Model,
    level: f64,
    at: Instant,
    /// The time until which nobody asks.
    asleep_until: Instant,
}

impl Transport {
    fn new(model: Model) -> Self {
        Self { model, level: 0.0, at: Instant::ZERO, asleep_until: Instant::ZERO }
    }

    fn room(&mut self, now: Instant) -> usize {
        self.level = (self.level - self.model.carries(self.at, now)).max(0.0);
        self.at = now;
        (self.model.buffer - self.level).max(0.0) as usize
    }

    /// Returns the time at which a third is free.
    fn wakes_at(&self) -> Instant {
        let excess = (self.level - self.model.buffer * 2.0 / 3.0).max(0.0);
        self.model.carried_at(self.at, excess) + 1
    }

    fn empty_at(&self) -> Instant {
        self.model.carried_at(self.at, self.level)
    }
}

/// Sends `data` and returns the rate. Strategies with a thread have one.
pub(crate) fn run(config: &Config, model: Model, data: &[u8]) -> Run {
    let threaded = matches!(config.strategy, Strategy::MixInOrder | Strategy::MixOutOfOrder);
    let mut sender = Sender::new(config).unwrap();
    let mut compressors = Compressors::new();
    let mut transport = Transport::new(model);
    let (mut now, mut rest) = (Instant::ZERO, data);
    let mut under_way: Option<(Instant, Done)> = None;
    while !sender.is_finished() {
        if let Some((_, done)) = under_way.take_if(|(at, _)| *at <= now) {
            sender.done(done);
        }
        rest = &rest[sender.accept(rest)..];
        if rest.is_empty() {
            sender.finish();
        }
        let refused = write(&mut sender, &mut transport, now);
        if !refused {
            sender.unblocked();
        }
        follow(&mut sender, &mut transport, model.buffer - f64::from(config.not_sent_len()));
        if under_way.is_none()
            && let Some(job) = sender.next_job(now)
        {
            let end = model.after(now, work_ns(model, &job));
            // What is tried beside comes behind it.
            let all = model.after(end, trial_ns(model, &job));
            let mut readings = [now, end, end, all].into_iter();
            let done = job.run(&mut compressors, || readings.next().unwrap());
            under_way = Some((all, done));
            let end = all;
            if !threaded {
                now = end;
                continue;
            }
        }
        let job_at = under_way.as_ref().map(|(at, _)| *at);
        let wake_at = refused.then(|| transport.wakes_at().max(transport.asleep_until));
        now = match (job_at, wake_at) {
            (Some(a), Some(b)) => a.min(b),
            (Some(a), None) | (None, Some(a)) => a,
            (None, None) => now,
        };
        now = model.after(now, 0);
    }
    let seconds = transport.empty_at().as_ns() as f64 / 1e9;
    Run { rate: data.len() as f64 / seconds, sender }
}

/// Sets the bytes that the transport holds to those that the sender wants, and those beside them.
fn follow(sender: &mut Sender, transport: &mut Transport, beside: f64) {
    let wished = sender.not_sent_len();
    let buffer = beside + f64::from(wished);
    if buffer != transport.model.buffer {
        transport.model.buffer = buffer;
        sender.transport_holds(wished);
    }
}

/// Writes until nothing is left or the transport refuses; returns true if it refused.
fn write(sender: &mut Sender, transport: &mut Transport, now: Instant) -> bool {
    if now < transport.asleep_until {
        return true;
    }
    loop {
        let wanted = sender.wire(now).len();
        if wanted == 0 {
            return false;
        }
        let taken = wanted.min(transport.room(now));
        transport.level += taken as f64;
        sender.wrote(now, taken);
        if taken < wanted {
            sender.blocked(now);
            if transport.model.patient {
                transport.asleep_until = transport.wakes_at();
            }
            return true;
        }
    }
}

/// Returns the bound for these codecs and data, and raw.
pub(crate) fn bound(config: &Config, codecs: &[CodecSpec], model: Model, data: &[u8]) -> f64 {
    let mut points = vec![CodecPoint::RAW];
    points.extend(
        codecs
            .iter()
            .map(|&spec| CodecPoint::new((model.cost_ns)(spec), ratio(config, spec, data))),
    );
    Bound::of(model.link, &points).rate
}

/// Returns the ratio of a codec on blocks of these data.
fn ratio(config: &Config, spec: CodecSpec, data: &[u8]) -> f64 {
    thread_local! {
        static KNOWN: std::cell::RefCell<HashMap<(CodecSpec, usize, usize), f64>> =
            std::cell::RefCell::default();
    }
    let key = (spec, config.block_len, data.len());
    if let Some(known) = KNOWN.with_borrow(|known| known.get(&key).copied()) {
        return known;
    }
    let mut compressor = Compressor::new(spec, None).unwrap();
    let mut dst = vec![0; config.block_len];
    let compressed: usize = data
        .chunks(config.block_len)
        .map(|block| compressor.compress(block, &mut dst).unwrap().unwrap_or(block.len()))
        .sum();
    let ratio = compressed as f64 / data.len() as f64;
    KNOWN.with_borrow_mut(|known| known.insert(key, ratio));
    ratio
}

mod tests {
    use super::*;
    use crate::tests::rows;

    fn book(len: usize) -> Vec<u8> {
        let book = include_bytes!("../../../data/text/book1.txt");
        book.iter().copied().cycle().take(len).collect()
    }

    fn model(mbit: f64) -> Model {
        Model {
            link: mbit * MBIT,
            later: None,
            buffer: 128e3,
            patient: false,
            cost_ns,
            turns_ns: None,
        }
    }

    const SINGLE: [Strategy; 4] = [Strategy::Raw, Strategy::All, Strategy::Switch, Strategy::Mix];

    /// Returns the rates of all strategies in Mbit/s, and the bounds with the codec alone and with
    /// all.
    fn rates(mbit: f64, data: &[u8]) -> (HashMap<Strategy, f64>, f64, f64) {
        let config = Config::default();
        let rate = |&strategy: &Strategy| {
            (strategy, run(&Config::new(strategy), model(mbit), data).rate / MBIT)
        };
        let rates = Strategy::ALL[..7].iter().map(rate).collect();
        let single = bound(&config, &[config.codec], model(mbit), data) / MBIT;
        let all = bound(&config, &config.codecs, model(mbit), data) / MBIT;
        (rates, single, all)
    }

    /// The promises of the papers, the design and docs/streams.md, at rates in all three zones, for
    /// long enough that the beginning hardly counts. Virtual time: the same on every machine,
    /// except that the ratios depend on the libraries' versions.
    #[test]
    fn strategies_reach_what_they_promise() {
        for mbit in [5.0, 50.0, 200.0, 400.0, 700.0, 1000.0, 2000.0] {
            let data = book(if mbit < 300.0 { 8 << 20 } else { 48 << 20 });
            let (rates, single, all) = rates(mbit, &data);
            let reported = format!("{mbit} Mbit/s: bounds {single:.0} and {all:.0}, {rates:.1?}");
            let of = |strategy| rates[&strategy];
            for mixing in [Strategy::Mix, Strategy::MixInOrder, Strategy::MixOutOfOrder] {
                assert!(of(mixing) > 0.98 * single, "{mixing} at {reported}");
                assert!(of(mixing) < 1.01 * single, "{mixing} at {reported}");
            }
            assert!(of(Strategy::Hull) > 0.95 * all, "hull at {reported}");
            for other in SINGLE {
                assert!(of(Strategy::Hull) > 0.98 * of(other), "hull and {other} at {reported}");
            }
            assert!(
                of(Strategy::Switch) > 0.85 * of(Strategy::Raw).max(of(Strategy::All)),
                "{reported}"
            );
        }
    }

    /// Interrupted work takes longer than it should: the shares must be those of the time that it
    /// takes, and not of the time that the codecs need. If others have the processor for longer
    /// than the transport has data to send, the link is slower than it seems; the sender can't know
    /// that, and it costs up to 15 %.
    #[test]
    fn a_processor_that_is_shared_is_not_overrated() {
        for (own_ms, others_ms, mbit, of_best) in [
            (0.25, 0.25, 100.0, 1.0),
            (1.0, 1.0, 20.0, 1.0),
            (1.0, 1.0, 400.0, 0.95),
            (4.0, 4.0, 100.0, 0.98),
            (4.0, 4.0, 200.0, 0.95),
            (4.0, 4.0, 400.0, 0.92),
            (4.0, 20.0, 50.0, 0.98),
            (4.0, 20.0, 200.0, 0.84),
        ] {
            let data = book(if mbit < 300.0 { 8 << 20 } else { 48 << 20 });
            let turns_ns = Some(((own_ms * 1e6) as u64, (others_ms * 1e6) as u64));
            let shared = Model { turns_ns, ..model(mbit) };
            let rate = |strategy| run(&Config::new(strategy), shared, &data).rate / MBIT;
            let (hull, others) = (rate(Strategy::Hull), SINGLE.map(rate));
            let best = others.into_iter().fold(0.0, f64::max);
            let reported =
                format!("{mbit} Mbit/s, {own_ms} of {others_ms} ms: {hull:.1}, {others:.1?}");
            assert!(hull > of_best * best, "{reported}");
        }
    }

    /// A slow link needs no more data in the transport than it can follow; a fast one must not run
    /// empty while a writer sleeps.
    #[test]
    fn a_fast_link_has_more_in_store() {
        let depth = |strategy, mbit| {
            run(&Config::new(strategy), model(mbit), &book(24 << 20)).sender.not_sent_len() >> 10
        };
        assert_eq!(depth(Strategy::Hull, 5.0), 32);
        assert_eq!(depth(Strategy::Hull, 2000.0), 512);
        assert_eq!(depth(Strategy::Mix, 2000.0), 128);
        assert_eq!(depth(Strategy::Raw, 2000.0), 1024);
    }

    /// If the link is faster than any codec, mixing must not slow it down.
    #[test]
    fn a_link_faster_than_the_codecs_is_left_alone() {
        for mbit in [4000.0, 20_000.0] {
            // Long enough that the loss until the rate is known hardly counts.
            let data = book(192 << 20);
            let rate = |strategy| run(&Config::new(strategy), model(mbit), &data).rate / MBIT;
            let (raw, hull) = (rate(Strategy::Raw), rate(Strategy::Hull));
            assert!(hull > 0.95 * raw, "{mbit}: {hull} of {raw}");
        }
    }

    #[test]
    fn incompressible_data_are_hardly_tried() {
        let film = include_bytes!("../../../data/media/elf.webm");
        let data: Vec<u8> = film.iter().copied().cycle().take(10 << 20).collect();
        for strategy in [Strategy::All, Strategy::Mix, Strategy::Hull, Strategy::Switch] {
            let run = run(&Config::new(strategy), model(100.0), &data);
            let stats = run.sender.stats();
            let tried: u64 = stats.by_codec.values().map(|codec| codec.original_bytes).sum();
            assert!(tried < data.len() as u64 / 10, "{strategy}: {stats:?}");
            assert!(stats.wire_bytes < data.len() as u64 + 10_000, "{strategy}: {stats:?}");
            assert!(run.rate > 0.99 * 100.0 * MBIT, "{strategy}: {}", run.rate);
        }
    }

    /// Over a slow link, blocks that refer to earlier ones carry more; if the processor is the
    /// bottleneck, they must not carry less.
    #[test]
    fn a_history_pays_over_slow_links() {
        let data = book(16 << 20);
        for (mbit, gain) in [(5.0, 1.05), (50.0, 1.05), (700.0, 0.98)] {
            let mut config = Config::new(Strategy::Hull);
            let with = run(&config, model(mbit), &data);
            config.history = false;
            let without = run(&config, model(mbit), &data);
            let reported = format!("{mbit}: {:.1}, {:.1}", with.rate / MBIT, without.rate / MBIT);
            assert!(with.rate > gain * without.rate, "{reported}");
            let stats = with.sender.stats();
            assert!(mbit > 100.0 || stats.referring_blocks > 100, "{reported}: {stats:?}");
            assert_eq!(without.sender.stats().referring_blocks, 0);
        }
    }

    /// Prose and noise in turns: neither must keep the other from its best codec.
    #[test]
    fn turns_of_noise_do_not_spoil_the_prose() {
        const TURN: usize = 512 << 10;
        let mut noise = vec![0; 8 * TURN];
        dwell_base::Rng::from_seed(4).fill(&mut noise);
        let turns = book(8 * TURN);
        let turns = turns.chunks(TURN).zip(noise.chunks(TURN));
        let data: Vec<u8> = turns.flat_map(|(prose, noise)| [prose, noise].concat()).collect();
        for mbit in [20.0, 100.0] {
            let config = Config::new(Strategy::Hull);
            // The link is the bottleneck for both.
            let best = CodecSpec { id: dwell_codec::CodecId::Zstd, level: 6 };
            let whole = 0.5 * ratio(&config, best, &book(8 << 20)) + 0.5;
            for (strategy, share) in [(Strategy::Hull, 0.95), (Strategy::Mix, 0.9)] {
                let run = run(&Config::new(strategy), model(mbit), &data);
                let reported = format!("{strategy}: {:.1} of {:.1}", run.rate / MBIT, mbit / whole);
                assert!(run.rate > share * mbit * MBIT / whole, "{reported}");
            }
        }
    }

    /// First incompressible data, then compressible ones.
    #[test]
    fn changes_are_noticed() {
        let film = include_bytes!("../../../data/media/elf.webm");
        let mut data: Vec<u8> = film.iter().copied().cycle().take(6 << 20).collect();
        data.extend(book(10 << 20));
        for strategy in [Strategy::All, Strategy::Mix, Strategy::Hull] {
            let run = run(&Config::new(strategy), model(100.0), &data);
            let compressed = run.sender.stats().compressed_original_bytes;
            assert!(compressed > 7 << 20, "{strategy}: {:?}", run.sender.stats());
        }
    }

    /// The book over and over, each time with other letters.
    fn books(len: usize) -> Vec<u8> {
        let letters = |turn: u8| {
            move |byte: &u8| match byte {
                b'a'..=b'z' => b'a' + (byte - b'a' + turn) % 26,
                other => *other,
            }
        };
        let book = include_bytes!("../../../data/text/book1.txt");
        let books = (0..26).flat_map(|turn| book.iter().map(letters(turn)));
        books.take(len).collect()
    }

    /// A model carries more over a thin link, and nobody waits for it over a faster one; also if the link becomes
    /// faster, or thin, while there is another codec.
    #[test]
    fn a_model_pays_over_thin_links_only() {
        let seconds = |seconds: f64| Instant::from_ns((1e9 * seconds) as u64);
        let links = [2.0, 5.0, 20.0, 100.0, 500.0].map(|mbit| (mbit, mbit, 1.0));
        let changing = [(5.0, 200.0, 3.0), (200.0, 5.0, 0.1)];
        for (mbit, later, change) in links.into_iter().chain(changing) {
            let link = Model { later: Some((seconds(change), later * MBIT)), ..model(mbit) };
            let data = books(if mbit.max(later) < 50.0 { 6 << 20 } else { 12 << 20 });
            let [zstd, ppm] = [0, 22].map(|model_log| {
                let mut config = Config::new(Strategy::Hull);
                config.set_window(19);
                config.set_model(model_log);
                run(&config, link, &data)
            });
            let reported = format!(
                "{mbit} to {later} Mbit/s: {:.2} and {:.2}, {:?}",
                ppm.rate / MBIT,
                zstd.rate / MBIT,
                ppm.sender.stats().by_codec
            );
            let least = if mbit.max(later) < 10.0 { 1.12 } else { 0.98 };
            assert!(ppm.rate > least * zstd.rate, "{reported}");
        }
    }

    /// What is in the project, which is its own program sources.
    fn sources(len: usize) -> Vec<u8> {
        let files = [
            &include_bytes!("blocks.rs")[..],
            include_bytes!("blocks/granted.rs"),
            include_bytes!("blocks/jobs.rs"),
            include_bytes!("config.rs"),
            include_bytes!("context.rs"),
            include_bytes!("frame.rs"),
            include_bytes!("io.rs"),
            include_bytes!("model.rs"),
            include_bytes!("receiver.rs"),
            include_bytes!("tests.rs"),
            include_bytes!("units.rs"),
            include_bytes!("../../dwell-policy/src/method/codecs.rs"),
            include_bytes!("../../dwell-policy/src/method/hull.rs"),
            include_bytes!("../../dwell-policy/src/method/pick.rs"),
            include_bytes!("../../dwell-codec/src/ppm/model.rs"),
            include_bytes!("../../dwell-codec/src/ppm/arena.rs"),
        ];
        let once: Vec<u8> = files.concat();
        // Again and again with other letters, so that no repetition reaches from one to the next.
        let turn = |turn: usize| {
            once.iter().map(move |&byte| match byte {
                b'a'..=b'z' => b'a' + (byte - b'a' + (turn % 26) as u8) % 26,
                other => other,
            })
        };
        (0..).flat_map(turn).take(len).collect()
    }

    /// Returns the rates with models of ppm only, and with those of mix, too, and how many bytes went through one of these.
    fn with_models(link: Model, data: &[u8]) -> (f64, f64, u64) {
        let [ppm, mix] = [false, true].map(|mixed_models| {
            let mut config = Config { mixed_models, ..Config::new(Strategy::Hull) };
            config.set_window(19);
            config.set_model(22);
            run(&config, link, data)
        });
        let by_codec = mix.sender.stats().by_codec.iter();
        let mixed = by_codec.filter(|(codec, _)| codec.id == dwell_codec::CodecId::Mix);
        (ppm.rate, mix.rate, mixed.map(|(_, codec)| codec.original_bytes).sum())
    }

    /// A model that mixes carries more over the thinnest links, of what it leaves less of; and nowhere less, as it is tried beside first. Also
    /// if the link becomes faster, or thin.
    #[test]
    #[allow(clippy::disallowed_macros, reason = "a document has what it finds")]
    fn a_mixed_model_pays_over_the_thinnest_links_only() {
        let steady = [(0.5, 3), (1.0, 3), (2.0, 3), (10.0, 4), (100.0, 6)];
        let steady = steady.map(|(mbit, len)| (mbit, mbit, 1.0, len));
        let changing = [(0.5, 20.0, 12.0, 6), (20.0, 0.5, 0.5, 3)];
        for (mbit, later, change, len) in steady.into_iter().chain(changing) {
            let change = Instant::from_ns((1e9 * change) as u64);
            let link = Model { later: Some((change, later * MBIT)), ..model(mbit) };
            let len = len << 20;
            let contents: [(_, Vec<u8>, [f64; 2]); 3] = [
                ("sources", sources(len), [1.03, 1.01]),
                ("rows", rows(len), [1.08, 1.05]),
                ("books", books(len), [0.99, 0.99]),
            ];
            // What the others would show is shown by rows, too, and sooner.
            let many = if f64::max(mbit, later) < 5.0 { 0..3 } else { 1..2 };
            for (name, data, gains) in &contents[many] {
                let (ppm, mix, mixed_bytes) = with_models(link, data);
                let reported = format!(
                    "{name} at {mbit} to {later} Mbit/s: {:.3}, {:.3} ({:.3}), {mixed_bytes} bytes",
                    ppm / MBIT,
                    mix / MBIT,
                    mix / ppm,
                );
                println!("{reported}");
                let least = match f64::max(mbit, later) {
                    ..1.0 => gains[0],
                    ..2.0 => gains[1],
                    _ if mbit == later => 0.99,
                    _ => 0.98,
                };
                assert!(mix > least * ppm, "{reported}");
                assert!(mixed_bytes == 0 || f64::min(mbit, later) < 2.0, "{reported}");
            }
        }
    }

    /// To save bytes it is used over faster links, too, though it may carry less there.
    #[test]
    #[allow(clippy::disallowed_macros, reason = "a document has what it finds")]
    fn a_mixed_model_saves_bytes() {
        for (mbit, gain) in [(1.0, 0.93), (4.0, 0.95), (20.0, 1.001)] {
            let data = rows(4 << 20);
            let wire = |mixed_models| {
                let objective = Objective::Bytes;
                let mut config = Config { mixed_models, objective, ..Config::new(Strategy::Hull) };
                config.set_window(19);
                config.set_model(22);
                run(&config, model(mbit), &data).sender.stats().wire_bytes
            };
            let [ppm, mix] = [false, true].map(|may| wire(may) as f64);
            println!("{mbit} Mbit/s, to save bytes: {ppm} and {mix}: {:.3}", mix / ppm);
            assert!(mix < gain * ppm, "{mbit} Mbit/s: {mix} and {ppm} bytes");
        }
    }

    /// A link that becomes slow, or is slow from the beginning, takes a long time between two
    /// refusals, and must be measured nevertheless.
    #[test]
    fn a_link_that_becomes_slow_is_noticed() {
        let data = book(12 << 20);
        let fall = Instant::from_ns(40_000_000);
        for before in [10.0, 400.0] {
            let later = Some((fall, 10.0 * MBIT));
            let falling = Model { later, patient: true, ..model(before) };
            let config = Config::new(Strategy::Hull);
            let run_of = |strategy| run(&Config::new(strategy), falling, &data);
            let (hull, switch) = (run_of(Strategy::Hull), run_of(Strategy::Switch));
            let best = bound(&config, &config.codecs, model(10.0), &data);
            let reported = format!("from {before}: {:.2} of {:.2}", hull.rate / MBIT, best / MBIT);
            assert!(hull.rate > 0.95 * best, "{reported}");
            // No probes if the link is full of compressed data: they would be 5 %.
            let raw = switch.sender.stats().raw_bytes;
            assert!(raw < 600 << 10, "from {before}: {raw} bytes raw");
        }
    }

    /// An answer over an idle link is compressed from the first one on, if the transport says how slow
    /// the link is, and it arrives sooner so; over a fast link it is not. Nothing is refused here.
    #[test]
    fn an_answer_is_compressed_if_it_arrives_sooner() {
        let answer = book(100_000);
        for (mbit, is_sooner) in [(5.0, true), (20.0, true), (100.0, true), (20_000.0, false)] {
            let mut sender = Sender::new(&Config::default()).unwrap();
            let mut compressors = Compressors::new();
            let (mut now, mut wire) = (Instant::from_ns(1), 0);
            let model = model(mbit);
            for _ in 0..10 {
                now = now + 1_000_000_000;
                let (asked_at, window_rate) = (now, mbit * MBIT);
                sender.accept(&answer);
                sender.reported(now, &LinkReport { window_rate, ..LinkReport::default() });
                while !sender.is_idle() {
                    let len = sender.wire(now).len();
                    sender.wrote(now, len);
                    wire += len;
                    if len == 0 {
                        let job = sender.next_job(now).unwrap();
                        let end = now + work_ns(model, &job);
                        let mut readings = [now, end].into_iter();
                        sender.done(job.run(&mut compressors, || readings.next().unwrap()));
                        now = end;
                    }
                }
                let raw_ns = answer.len() as f64 / window_rate * 1e9;
                assert!((now.since_ns(asked_at) as f64) < 0.5 * raw_ns, "{mbit} Mbit/s");
            }
            let ratio = wire as f64 / (10.0 * answer.len() as f64);
            let expected = if is_sooner { 0.01..0.6 } else { 1.0..1.01 };
            assert!(expected.contains(&ratio), "{mbit} Mbit/s: {ratio}");
            // The later ones refer to the one before, which here is the same.
            assert!(mbit > 20.0 || ratio < 0.15, "{mbit} Mbit/s: {ratio}");
        }
    }

    /// An idle link gets every byte at once, whatever the strategy has learned before; unless it is known to
    /// be so slow that hull has the longest compressed.
    #[test]
    fn an_idle_link_is_given_what_there_is_at_once() {
        for strategy in [Strategy::Raw, Strategy::Mix, Strategy::MixOutOfOrder, Strategy::Hull] {
            let mut sender = run_without_end(strategy);
            let mut now = Instant::from_ns(60_000_000_000);
            for len in [1, 100, 10_000] {
                now = now + 1_000_000_000;
                assert_eq!(sender.accept(&book(len)), len);
                let mut wire = sender.wire(now).len();
                if strategy == Strategy::Hull && len == 10_000 {
                    assert_eq!(wire, 0);
                    sender.compress(&mut Compressors::new(), || now).unwrap();
                    wire = sender.wire(now).len();
                    assert!((1..len).contains(&wire), "{wire} of {len}");
                } else {
                    assert!(wire >= len, "{strategy}: {wire} of {len}");
                }
                sender.wrote(now, wire);
            }
        }
    }

    /// A sender that has had its share of a busy link, and then nothing more to do.
    fn run_without_end(strategy: Strategy) -> Sender {
        let mut sender = Sender::new(&Config::new(strategy)).unwrap();
        let model = model(50.0);
        let mut transport = Transport::new(model);
        let (mut now, mut compressors) = (Instant::ZERO, Compressors::new());
        let data = book(8 << 20);
        let mut rest = &data[..];
        while !(rest.is_empty() && sender.is_idle()) {
            rest = &rest[sender.accept(rest)..];
            let refused = write(&mut sender, &mut transport, now);
            let Some(job) = sender.next_job(now) else {
                now = if refused { transport.wakes_at() } else { now };
                continue;
            };
            let ns = work_ns(model, &job);
            let mut readings = [now, now + ns].into_iter();
            sender.done(job.run(&mut compressors, || readings.next().unwrap()));
            now = now + ns;
        }
        sender
    }
}
