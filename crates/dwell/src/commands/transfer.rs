//! The progress and summary that `dwell send` and `dwell recv` show.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use dwell_base::time::duration_ns;
use dwell_confine::privilege;
use dwell_proxy::transfer::{Progress, Summary};
use dwell_report::human;

/// The exit code of what was interrupted.
pub(super) const INTERRUPTED: u8 = 130;
/// Before this has passed nothing is said.
const QUIET: Duration = Duration::from_secs(2);

/// Keeps other processes of this user from looking at the key in this one's memory.
pub(super) fn hide() {
    if let Err(error) = privilege::hide() {
        tracing::warn!("other processes may look at this one's memory: {error}");
    }
}

/// Shows how far it is, in one line of the terminal; nothing if standard error is none.
pub(super) struct Meter {
    shows: bool,
    shown: bool,
}

impl Meter {
    pub(super) fn new(quiet: bool) -> Self {
        Self { shows: !quiet && io::stderr().is_terminal(), shown: false }
    }

    pub(super) fn show(&mut self, progress: &Progress) {
        if !self.shows || progress.elapsed < QUIET {
            return;
        }
        self.shown = true;
        // If nobody sees it, nothing is lost.
        let _ = write!(io::stderr().lock(), "\r{}\x1b[K", line(progress));
    }

    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

fn line(progress: &Progress) -> String {
    let Progress { bytes, total, elapsed, .. } = *progress;
    let so_far = match total {
        Some(total) => format!(
            "{} of {} ({})",
            human::bytes(bytes),
            human::bytes(total),
            human::share(bytes, total)
        ),
        None => human::bytes(bytes),
    };
    let left = total.and_then(|total| left(bytes, total, elapsed));
    let left = left.map_or_else(String::new, |left| format!(", {} left", human::duration(left)));
    format!("{so_far}, {}, ratio {}{left}", rate(bytes, elapsed), ratio(progress))
}

/// Returns a line on what has been transferred.
pub(super) fn done(summary: &Summary) -> String {
    let progress = &summary.progress;
    let elapsed = duration_ns(progress.elapsed);
    let sha256: String = summary.sha256.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "{} in {}, {}, ratio {}, SHA-256 {sha256}",
        human::bytes(progress.bytes),
        human::duration(elapsed),
        rate(progress.bytes, progress.elapsed),
        ratio(progress),
    )
}

fn rate(bytes: u64, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    if seconds <= 0.0 {
        return human::NOTHING.to_owned();
    }
    format!("{}/s", human::bytes((bytes as f64 / seconds) as u64))
}

fn ratio(progress: &Progress) -> String {
    let known = progress.bytes > 0;
    human::ratio(known.then(|| progress.link_bytes as f64 / progress.bytes as f64))
}

/// The time that is left, in nanoseconds, at the speed so far.
fn left(bytes: u64, total: u64, elapsed: Duration) -> Option<u64> {
    if bytes == 0 {
        return None;
    }
    let left = elapsed.as_secs_f64() * total.saturating_sub(bytes) as f64 / bytes as f64;
    Some((left * 1e9) as u64)
}

/// A name from elsewhere, without what would confuse a terminal.
pub(super) fn printable(name: &str) -> String {
    let shown = |c: char| {
        let invisible = c.is_control()
            || ('\u{200b}'..='\u{200f}').contains(&c)
            || ('\u{202a}'..='\u{202e}').contains(&c)
            || ('\u{2066}'..='\u{2069}').contains(&c);
        if invisible { '?' } else { c }
    };
    name.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        let progress = Progress {
            bytes: 25_000_000,
            link_bytes: 5_000_000,
            total: Some(100_000_000),
            elapsed: Duration::from_secs(10),
        };
        let expected = "25.0 MB of 100.0 MB (25.0 %), 2.5 MB/s, ratio 0.200, 30.00 s left";
        assert_eq!(line(&progress), expected);
        let pipe = Progress { total: None, ..progress };
        assert_eq!(line(&pipe), "25.0 MB, 2.5 MB/s, ratio 0.200");
        let start = Progress { bytes: 0, link_bytes: 0, ..progress };
        assert_eq!(line(&start), "0 B of 100.0 MB (0 %), 0 B/s, ratio -");
    }
}
