//! The survey of captures: what is on which side of the link, when each of them begins, and
//! whether two of them are the same.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_trace::sides::Ends;
use dwell_trace::{Capture, Datagram, Fingerprint, Learner, Sides};

use super::files;
use super::input::STDIN;
use dwell_cli::terminal;

/// So much of standard input is kept for a second look; what is behind it follows the rule that
/// was found until there.
const HEAD_BYTES_MAX: usize = 64 << 20;
/// Frames between two checks whether to stop.
const STOP_FRAMES: u64 = 4096;

/// Captures that are about to be read.
pub(super) struct Survey {
    pub(super) captures: Vec<Surveyed>,
    pub(super) sides: Sides,
    /// The user wanted to stop while standard input was being kept: what was kept is all.
    pub(super) is_cut_short: bool,
}

/// A capture that was surveyed.
#[derive(Clone, Debug, Default)]
pub(super) struct Surveyed {
    pub(super) path: PathBuf,
    /// When its first packet was captured, if that is known.
    pub(super) first_ns: Option<u64>,
    /// Why it can't be read at all.
    pub(super) error: Option<String>,
    /// The beginning of standard input, and whether there is nothing behind it.
    head: Option<(Vec<u8>, bool)>,
}

impl Survey {
    /// Takes captures as they are, without a survey.
    pub(super) fn none(arguments: &[PathBuf]) -> anyhow::Result<Self> {
        let paths = files::find(arguments)?.into_iter();
        let captures = paths.map(|path| Surveyed { path, ..Surveyed::default() }).collect();
        Ok(Self { captures, sides: Sides::one_way(), is_cut_short: false })
    }

    /// Surveys all captures. `sides` are those that were stated; without, they are found.
    pub(super) fn of(
        arguments: &[PathBuf],
        sides: Option<Sides>,
        stop: &AtomicBool,
    ) -> anyhow::Result<Self> {
        let mut this = Self::none(arguments)?;
        let mut learner = Learner::default();
        let mut seen: HashMap<Fingerprint, PathBuf> = HashMap::new();
        let mut captures = Vec::new();
        for mut capture in std::mem::take(&mut this.captures) {
            if capture.path.as_os_str() == STDIN {
                let (head, is_all) = keep(io::stdin().lock(), stop)?;
                // What was kept is read, and shown as a part.
                let is_stopped = stop.swap(false, Ordering::Relaxed);
                this.is_cut_short |= is_stopped;
                capture.head = Some((head, is_all || is_stopped));
            }
            let fingerprint = look(&mut capture, &mut learner, stop);
            match seen.get(&fingerprint).filter(|_| fingerprint.frames() > 0) {
                Some(first) => {
                    let (path, first) = (capture.path.display(), first.display());
                    terminal::note(&format!(
                        "{path} has the same packets as {first}, and is left out"
                    ));
                }
                None => {
                    seen.insert(fingerprint, capture.path.clone());
                    captures.push(capture);
                }
            }
        }
        this.captures = captures;
        this.sides = sides.unwrap_or_else(|| learner.finish());
        Ok(this)
    }

    /// Returns the number of bytes to read, if it is known: standard input and pipes have no length.
    pub(super) fn bytes(&self) -> Option<u64> {
        let bytes = |capture: &Surveyed| {
            let metadata = std::fs::metadata(&capture.path).ok()?;
            metadata.is_file().then_some(metadata.len())
        };
        self.captures.iter().map(bytes).sum()
    }
}

impl Surveyed {
    /// Opens it, for the only time if it is standard input.
    pub(super) fn open(&mut self) -> io::Result<Box<dyn Read + Send>> {
        Ok(match (self.head.take(), self.path.as_os_str() == STDIN) {
            (Some((head, true)), _) => Box::new(Cursor::new(head)),
            (Some((head, false)), _) => Box::new(Cursor::new(head).chain(io::stdin())),
            (None, true) => Box::new(io::stdin()),
            (None, false) => Box::new(File::open(&self.path)?),
        })
    }

    /// Returns the name of the capture in reports.
    pub(super) fn name(&self) -> String {
        match self.path.as_os_str() == STDIN {
            true => "standard input".to_owned(),
            false => self.path.display().to_string(),
        }
    }
}

/// The beginning of a stream, and whether that is all of it.
fn keep(mut from: impl Read, stop: &AtomicBool) -> io::Result<(Vec<u8>, bool)> {
    let mut head = Vec::new();
    let mut piece = vec![0; 1 << 16];
    while head.len() < HEAD_BYTES_MAX && !stop.load(Ordering::Relaxed) {
        match from.read(&mut piece) {
            Ok(0) => return Ok((head, true)),
            Ok(count) => head.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((head, false))
}

/// Surveys all frames of a capture.
fn look(capture: &mut Surveyed, learner: &mut Learner, stop: &AtomicBool) -> Fingerprint {
    let mut fingerprint = Fingerprint::default();
    let source: io::Result<Box<dyn Read + '_>> = match &capture.head {
        Some((head, _)) => Ok(Box::new(&head[..])),
        None if is_pipe(&capture.path) => return fingerprint,
        None => File::open(&capture.path).map(|file| Box::new(file) as Box<dyn Read>),
    };
    let opened = source
        .map_err(|error| format!("it can't be opened: {error}"))
        .and_then(|source| Capture::open(source).map_err(|error| error.to_string()));
    let mut frames = match opened {
        Ok(frames) => frames,
        Err(why) => {
            capture.error = Some(why);
            return fingerprint;
        }
    };
    let mut first_ns = None;
    while let Some(packet) = frames.next_packet() {
        fingerprint.see(&packet);
        if let Ok(found) = Datagram::find(&packet, 0) {
            if let Some(at_ns) = packet.timestamp_ns {
                first_ns = Some(first_ns.map_or(at_ns, |first_ns: u64| first_ns.min(at_ns)));
            }
            learner.observe(&Ends::of(&packet), &found.info);
        }
        if fingerprint.frames().is_multiple_of(STOP_FRAMES) && stop.load(Ordering::Relaxed) {
            break;
        }
    }
    capture.first_ns = first_ns;
    fingerprint
}

/// A pipe can be read only once.
fn is_pipe(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| !data.is_file())
}
