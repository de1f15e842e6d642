//! Progress on standard error: one line that changes on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal as _, Write as _};

use dwell_report::human;

use super::measure::{Payload, Progress};

pub(super) struct Live {
    is_terminal: bool,
    runs: usize,
    begun: usize,
}

impl Live {
    pub(super) fn new(runs: usize) -> Self {
        let says_it_can = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self { is_terminal: io::stderr().is_terminal() && says_it_can, runs, begun: 0 }
    }

    /// Something is prepared.
    pub(super) fn preparing(&self, what: &str) {
        if self.is_terminal {
            self.show(&format!("{}{what}", self.position(self.begun + 1)));
        }
    }

    /// A download begins.
    pub(super) fn begin(&mut self, run: &str, payload: &Payload) {
        self.begun += 1;
        if !self.is_terminal {
            let size = human::bytes(payload.body.len() as u64);
            let position = self.position(self.begun);
            dwell_cli::terminal::note(&format!("{position}{run}: {}, {size}", payload.name));
        }
    }

    /// It goes on.
    pub(super) fn progress(&self, run: &str, payload: &Payload, progress: Progress) {
        if !self.is_terminal {
            return;
        }
        let whole = payload.body.len() as u64;
        let goodput = progress.bytes as f64 * 8.0 / progress.elapsed.as_secs_f64();
        self.show(&format!(
            "{}{run}, {:<6} {} {:>7} of {}  {:>12}  {:>7} on the link",
            self.position(self.begun),
            payload.name,
            bar(progress.bytes, whole),
            human::bytes(progress.bytes),
            human::bytes(whole),
            human::rate(goodput as u64),
            human::bytes(progress.link_data_bytes),
        ));
    }

    fn position(&self, run: usize) -> String {
        format!("[{run}/{}] ", self.runs)
    }

    fn show(&self, line: &str) {
        let mut err = io::stderr().lock();
        // A line that wraps could not be taken back.
        let line: String = line.chars().take(columns().saturating_sub(1)).collect();
        // If nobody sees it, nobody misses it.
        let _ = write!(err, "\r\x1b[K{line}");
        let _ = err.flush();
    }
}

impl Drop for Live {
    /// Leaves no trace of the line.
    fn drop(&mut self) {
        if self.is_terminal {
            self.show("");
        }
    }
}

fn bar(part: u64, whole: u64) -> String {
    const WIDTH: usize = 20;
    let filled = (part as f64 / whole.max(1) as f64 * WIDTH as f64) as usize;
    (0..WIDTH).map(|at| if at < filled { '#' } else { '.' }).collect()
}

fn columns() -> usize {
    const USUAL: usize = 80;
    match rustix::termios::tcgetwinsize(io::stderr()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => USUAL,
    }
}
