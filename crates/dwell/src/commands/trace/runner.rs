//! One thread reads captures and keeps account of them; the next compresses what refers to earlier
//! packets, in their order; the others compress their packets in all other ways.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use dwell_base::time::duration_ns;
use dwell_report::human;
use dwell_trace::{Accounts, Analysis, Analyzer, Batch, Capture, Clock, HistoryAnalyzer, Settings};

use super::input::Source;
use super::survey::{Survey, Surveyed};
use dwell_cli::terminal;

/// The analysis of some captures, and what could not be read.
pub(super) struct Done {
    pub(super) analysis: Analysis,
    /// Captures that could not be read at all.
    pub(super) failed: usize,
}

/// Packets that are read at once if none is compressed.
const SKIM_PACKETS: u64 = 100_000;
/// Batches that wait for each compressing thread: enough that it never waits for the reader.
const WAITING_PER_JOB: usize = 2;
/// With more threads, no more batches wait: one reader fills them one after the other.
const JOBS_WAITED_FOR_MAX: usize = 8;

/// Analyses captures, with a number of threads that compress; the times that codecs take are 0 if they are not to
/// be measured.
pub(super) fn run(
    survey: Survey,
    settings: &Settings,
    jobs: usize,
    measures_time: bool,
    stop: &AtomicBool,
) -> anyhow::Result<Done> {
    let read_bytes = Arc::new(AtomicU64::new(0));
    let meter = Meter::new(survey.bytes(), Arc::clone(&read_bytes));
    let mut captures = survey.captures;
    let mut reader = Reader {
        accounts: Accounts::new(settings).with_sides(Arc::new(survey.sides)),
        meter,
        stop,
        read_bytes,
        failed: 0,
        is_partial: survey.is_cut_short,
    };
    let is_counted_only = settings.codecs.is_empty()
        && settings.block_codec.is_none()
        && settings.context_codec.is_none();
    if is_counted_only {
        for capture in &mut captures {
            reader.read(capture, |reader, capture| Ok(reader.skim(capture)))?;
        }
        return Ok(reader.finish(Vec::new()));
    }
    let clock = || Monotonic(measures_time.then(Instant::now));
    let analyzers =
        (0..jobs).map(|_| Analyzer::new(settings, clock())).collect::<Result<Vec<_>, _>>()?;
    let history = HistoryAnalyzer::new(settings, clock())?;
    thread::scope(|scope| {
        let (read, to_remember) = sync_channel(WAITING_PER_JOB);
        let (full, to_compress) = sync_channel(jobs.min(JOBS_WAITED_FOR_MAX) * WAITING_PER_JOB);
        let (empty, to_fill) = sync_channel(jobs.min(JOBS_WAITED_FOR_MAX) * (WAITING_PER_JOB + 2));
        let to_compress = Arc::new(Mutex::new(to_compress));
        let threads: Vec<_> = analyzers
            .into_iter()
            .map(|compress| {
                let (to_compress, empty) = (Arc::clone(&to_compress), empty.clone());
                scope.spawn(move || work(compress, &to_compress, &empty))
            })
            .collect();
        // So that the reader notices if all of them are gone.
        drop((empty, to_compress));
        let history = scope.spawn(move || remember(history, &to_remember, &full));
        let done = captures.iter_mut().try_for_each(|capture| {
            reader.read(capture, |reader, capture| reader.hand_out(capture, &read, &to_fill))
        });
        drop(read);
        let parts = threads
            .into_iter()
            .chain([history])
            .map(|thread| {
                thread.join().map_err(|_| anyhow!("a thread panicked: this is a bug in dwell"))?
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        done?;
        Ok(reader.finish(parts))
    })
}

/// Compresses what refers to earlier packets, batch after batch, and hands them on.
fn remember(
    mut history: HistoryAnalyzer<Monotonic>,
    to_remember: &Receiver<Batch>,
    full: &SyncSender<Batch>,
) -> anyhow::Result<Analysis> {
    const BUG: &str = "a codec failed; this is a bug";
    for mut batch in to_remember {
        history.batch(&mut batch).context(BUG)?;
        full.send(batch).map_err(|_| anyhow!("the threads that compress are gone"))?;
    }
    history.finish().context(BUG)
}

/// Compresses batches until there are no more.
fn work(
    mut analyzer: Analyzer<Monotonic>,
    to_compress: &Mutex<Receiver<Batch>>,
    empty: &SyncSender<Batch>,
) -> anyhow::Result<Analysis> {
    loop {
        let next = to_compress.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(batch) = next else { return Ok(analyzer.finish()) };
        analyzer.batch(&batch).context("a codec failed; this is a bug")?;
        // If there is no room for it, or nobody to fill it, its memory is not needed.
        let _ = empty.try_send(batch);
    }
}

struct Reader<'s> {
    accounts: Accounts,
    meter: Meter,
    stop: &'s AtomicBool,
    read_bytes: Arc<AtomicU64>,
    failed: usize,
    /// Some captures were not read to the end, since the user wanted to stop.
    is_partial: bool,
}

impl Reader<'_> {
    /// Reads a capture by `read`, which returns whether it came to the end; one that can't be read
    /// is reported, and the others go on.
    fn read(
        &mut self,
        surveyed: &mut Surveyed,
        read: impl FnOnce(&mut Self, &mut Capture<Source>) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            self.is_partial = true;
            return Ok(());
        }
        let name = surveyed.name();
        let opened = Source::open(surveyed, &self.read_bytes)
            .map_err(|error| format!("it can't be opened: {error}"))
            .and_then(|source| Capture::open(source).map_err(|error| error.to_string()));
        let mut capture = match opened {
            Ok(capture) => capture,
            Err(why) => {
                self.failed += 1;
                terminal::complain("dwell", &format!("{name}: {why}"));
                return Ok(());
            }
        };
        self.accounts.begin(&name, capture.format());
        let is_whole = read(self, &mut capture)?;
        if let Some(trouble) = capture.trouble() {
            self.meter.clear();
            terminal::complain(
                "dwell",
                &format!("{name} is broken {trouble}; what is before that was read"),
            );
        }
        self.is_partial |= !is_whole;
        self.accounts.end_with((!is_whole).then(|| "interrupted here by the user".to_owned()));
        Ok(())
    }

    fn skim(&mut self, capture: &mut Capture<Source>) -> bool {
        while self.accounts.skim(capture, SKIM_PACKETS) {
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            self.meter.show();
        }
        true
    }

    fn hand_out(
        &mut self,
        capture: &mut Capture<Source>,
        full: &SyncSender<Batch>,
        to_fill: &Receiver<Batch>,
    ) -> anyhow::Result<bool> {
        while !self.stop.load(Ordering::Relaxed) {
            let mut batch = to_fill.try_recv().unwrap_or_default();
            let more = self.accounts.fill(capture, &mut batch);
            full.send(batch).map_err(|_| anyhow!("the threads that compress are gone"))?;
            self.meter.show();
            if !more {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn finish(mut self, parts: Vec<Analysis>) -> Done {
        self.meter.clear();
        let mut analysis = self.accounts.finish();
        for part in parts {
            // All have the settings that they were made with here.
            let added = analysis.merge(part);
            debug_assert!(added.is_ok());
        }
        analysis.is_partial = self.is_partial;
        Done { analysis, failed: self.failed }
    }
}

/// The machine's clock, or none: then all times are 0.
struct Monotonic(Option<Instant>);

impl Clock for Monotonic {
    fn now_ns(&mut self) -> u64 {
        self.0.map_or(0, |start| duration_ns(start.elapsed()))
    }
}

/// Tells a terminal how far it is.
struct Meter {
    all_bytes: Option<u64>,
    read_bytes: Arc<AtomicU64>,
    start: Instant,
    spoke: Instant,
    is_shown: bool,
    is_terminal: bool,
}

impl Meter {
    const QUIET: Duration = Duration::from_secs(2);
    const EVERY: Duration = Duration::from_millis(500);

    fn new(all_bytes: Option<u64>, read_bytes: Arc<AtomicU64>) -> Self {
        let (start, is_terminal) = (Instant::now(), std::io::stderr().is_terminal());
        Self { all_bytes, read_bytes, start, spoke: start, is_shown: false, is_terminal }
    }

    fn show(&mut self) {
        let elapsed = self.start.elapsed();
        if !self.is_terminal || elapsed < Self::QUIET || self.spoke.elapsed() < Self::EVERY {
            return;
        }
        (self.spoke, self.is_shown) = (Instant::now(), true);
        let read = self.read_bytes.load(Ordering::Relaxed);
        let left = match self.all_bytes {
            Some(all) if read > 0 => {
                let rest = elapsed.as_secs_f64() * all.saturating_sub(read) as f64 / read as f64;
                let rest = human::duration((rest * 1e9) as u64);
                format!(" of {}, {rest} left", human::bytes(all))
            }
            _ => String::new(),
        };
        eprint!("\r\x1b[Kread {}{left}", human::bytes(read));
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            eprint!("\r\x1b[K");
        }
    }
}
