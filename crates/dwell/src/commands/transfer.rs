//! The progress and summary that `dwell send` and `dwell recv` show.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use dwell_base::time::duration_ns;
use dwell_cli::terminal;
use dwell_confine::{memory, privilege};
use dwell_proxy::transfer::{Progress, Summary};
use dwell_report::human;

/// The exit code of what was interrupted.
pub(super) const INTERRUPTED: u8 = 130;
/// The exit code if all came but what is named.
pub(super) const LEFT_OUT: u8 = 3;
/// Before this has passed nothing is said.
const QUIET: Duration = Duration::from_secs(2);

/// Prepares this process for a transfer: other processes of this user must not look at the key in its memory, and the
/// memory of a model goes back to the system when another codec takes its place. To be called before there are threads.
pub(super) fn prepare() {
    memory::give_back_large();
    hide();
}

fn hide() {
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
        self.show_all(progress, 1);
    }

    /// Shows how far several transfers are together.
    pub(super) fn show_all(&mut self, progress: &Progress, transfers: usize) {
        if !self.shows || progress.elapsed < QUIET {
            return;
        }
        self.shown = true;
        let several =
            if transfers > 1 { format!("{transfers} transfers: ") } else { String::new() };
        // If nobody sees it, nothing is lost.
        let _ = write!(io::stderr().lock(), "\r{several}{}\x1b[K", line(progress));
    }

    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

fn line(progress: &Progress) -> String {
    let Progress { bytes, reused_bytes, total, elapsed, .. } = *progress;
    let so_far = match total {
        Some(total) => format!(
            "{} of {} ({})",
            human::bytes(bytes),
            human::bytes(total),
            human::share(bytes, total)
        ),
        None => human::bytes(bytes),
    };
    let left = total.and_then(|total| left(bytes, reused_bytes, total, elapsed));
    let left = left.map_or_else(String::new, |left| format!(", {} left", human::duration(left)));
    let there = there(progress);
    format!("{so_far}{there}, {}, ratio {}{left}", rate(progress), ratio(progress))
}

/// Returns a line on what has been transferred.
pub(super) fn done(summary: &Summary) -> String {
    let progress = &summary.progress;
    let elapsed = duration_ns(progress.elapsed);
    let there = match summary.basis_bytes {
        0 => there(progress),
        bytes => {
            let (reused, bytes) = (human::bytes(progress.reused_bytes), human::bytes(bytes));
            format!(" ({reused} of it were there, {bytes} in a basis)")
        }
    };
    let hash: String = match summary.blake3 {
        Some(hash) => {
            let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            format!(", BLAKE3 {hash}")
        }
        None => format!(", {}", human::counted(summary.files, "file")),
    };
    let kept = match summary.kept {
        0 => String::new(),
        1 => ", 1 stayed as it was".to_owned(),
        kept => format!(", {} stayed as they were", human::count(kept)),
    };
    format!(
        "{}{there} in {}, {}, ratio {}{kept}{hash}",
        human::bytes(progress.bytes),
        human::duration(elapsed),
        rate(progress),
        ratio(progress),
    )
}

/// Names what was left out.
pub(super) fn show_left_out(summary: &Summary) {
    for remark in &summary.remarks {
        terminal::complain("left out", &printable(remark));
    }
    let more = summary.left_out.saturating_sub(summary.remarks.len() as u64);
    if more > 0 {
        terminal::complain("left out", &format!("{more} more"));
    }
    if summary.left_out_there > 0 {
        let count = summary.left_out_there;
        terminal::complain("left out", &format!("{count} by the receiver, which names them"));
    }
}

fn there(progress: &Progress) -> String {
    match progress.reused_bytes {
        0 => String::new(),
        bytes => format!(" ({} of it were there)", human::bytes(bytes)),
    }
}

/// The bytes that came, and not those that were there.
fn moved(progress: &Progress) -> u64 {
    progress.bytes.saturating_sub(progress.reused_bytes)
}

fn rate(progress: &Progress) -> String {
    let seconds = progress.elapsed.as_secs_f64();
    if seconds <= 0.0 {
        return human::NOTHING.to_owned();
    }
    format!("{}/s", human::bytes((moved(progress) as f64 / seconds) as u64))
}

fn ratio(progress: &Progress) -> String {
    let moved = moved(progress);
    human::ratio((moved > 0).then(|| progress.link_bytes as f64 / moved as f64))
}

/// The time that is left, in nanoseconds, at the speed so far of what was not there.
fn left(bytes: u64, reused_bytes: u64, total: u64, elapsed: Duration) -> Option<u64> {
    let moved = bytes.saturating_sub(reused_bytes);
    if moved == 0 {
        return None;
    }
    let left = elapsed.as_secs_f64() * total.saturating_sub(bytes) as f64 / moved as f64;
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

    /// The memory of a model is mapped each time, and so goes back: glibc would take the second from a heap otherwise, where it
    /// stays.
    #[cfg(target_env = "gnu")]
    #[test]
    fn what_is_large_is_mapped_again_and_again() {
        prepare();
        for round in 1..10_u8 {
            let model = vec![round; 16 << 20];
            // What is mapped has its own pages, which begin with two words of the allocator's.
            let words = 2 * size_of::<usize>();
            let place = model.as_ptr().addr() % rustix::param::page_size();
            // The first may take what another test has left in a heap.
            assert!(place == words || round == 1, "{round}");
        }
    }

    #[test]
    fn a_line_says_how_far_it_is() {
        let progress = Progress {
            bytes: 25_000_000,
            reused_bytes: 0,
            link_bytes: 5_000_000,
            total: Some(100_000_000),
            elapsed: Duration::from_secs(10),
        };
        let expected = "25.0 MB of 100.0 MB (25.0 %), 2.5 MB/s, ratio 0.200, 30.00 s left";
        assert_eq!(line(&progress), expected);
        let pipe = Progress { total: None, ..progress };
        assert_eq!(line(&pipe), "25.0 MB, 2.5 MB/s, ratio 0.200");
        let again = Progress { reused_bytes: 20_000_000, link_bytes: 1_000_000, ..progress };
        let expected = "25.0 MB of 100.0 MB (25.0 %) (20.0 MB of it were there), 500.0 kB/s, ratio 0.200, \
                        2 min 30 s left";
        assert_eq!(line(&again), expected);
        let start = Progress { bytes: 0, link_bytes: 0, ..progress };
        assert_eq!(line(&start), "0 B of 100.0 MB (0 %), 0 B/s, ratio -");
    }
}
