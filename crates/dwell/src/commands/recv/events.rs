//! What happens at a receiver, in words or as JSON, a line each.

use std::collections::HashMap;
use std::net::SocketAddr;

use dwell_base::time::duration_ns;
use dwell_cli::terminal;
use dwell_proxy::transfer::{Broken, Kept, Offer, Progress, Summary};
use dwell_report::human;
use serde_json::{Value, json};

use crate::commands::transfer::{Meter, done, printable, show_left_out};

/// Shows transfers: each when it begins and when it has ended, and how far those are that are under way.
pub(super) struct Shown {
    quiet: bool,
    json: bool,
    /// True if the receiver stays, so that several may be under way.
    stays: bool,
    meter: Meter,
    under_way: HashMap<SocketAddr, Option<Progress>>,
}

impl Shown {
    pub(super) fn new(quiet: bool, json: bool, stays: bool) -> Self {
        let meter = Meter::new(quiet || json);
        Self { quiet: quiet || json, json, stays, meter, under_way: HashMap::new() }
    }

    /// A transfer begins.
    pub(super) fn begun(&mut self, from: SocketAddr, offer: &Offer) {
        self.meter.clear();
        self.under_way.insert(from, None);
        if !self.quiet {
            terminal::note(&offered(from, offer));
        }
        if self.json {
            let name = (!offer.name.is_empty()).then_some(&offer.name);
            print(&json!({
                "event": "begun", "from": whole(from), "name": name, "files": offer.files,
                "bytes": offer.bytes,
            }));
        }
    }

    /// A transfer is so far.
    pub(super) fn progress(&mut self, from: SocketAddr, progress: &Progress) {
        // One that has ended since is not shown again.
        let Some(known) = self.under_way.get_mut(&from) else { return };
        *known = Some(*progress);
        let others = self.under_way.len() - 1;
        match together(self.under_way.values().flatten()).filter(|_| others > 0) {
            Some(all) => self.meter.show_all(&all, self.under_way.len()),
            None => self.meter.show(progress),
        }
    }

    /// A transfer has come to its end, or not.
    pub(super) fn ended(&mut self, from: Option<SocketAddr>, result: &Result<Summary, Broken>) {
        self.meter.clear();
        let from = from.or_else(|| self.under_way.keys().next().copied());
        if let Some(from) = from {
            self.under_way.remove(&from);
        }
        match result {
            Ok(summary) => self.received(from, summary),
            Err(broken) => self.failed(from, broken),
        }
    }

    fn received(&self, from: Option<SocketAddr>, summary: &Summary) {
        if !self.json {
            show_left_out(summary);
        }
        if !self.quiet {
            let whose = from.filter(|_| self.stays).map(|from| format!(" from {}", address(from)));
            let (name, whose) = (printable(&summary.name), whose.unwrap_or_default());
            terminal::note(&format!("received {name}{whose}: {}", done(summary)));
        }
        if self.json {
            print(&received(from, summary));
        }
    }

    fn failed(&self, from: Option<SocketAddr>, broken: &Broken) {
        if self.json {
            print(&failed(from, broken));
            return;
        }
        if let Some(from) = from.filter(|_| self.stays) {
            let (from, why) = (address(from), printable(&broken.to_string()));
            terminal::complain("dwell", &format!("a transfer from {from} failed: {why}"));
        }
        if let Some(kept) = &broken.kept {
            terminal::note(&shown_kept(kept));
        }
    }
}

fn failed(from: Option<SocketAddr>, broken: &Broken) -> Value {
    let part = broken.kept.as_ref();
    let part =
        part.map(|kept| json!({ "path": kept.path.display().to_string(), "bytes": kept.bytes }));
    json!({
        "event": "failed", "from": from.map(whole), "error": broken.to_string(), "part": part,
    })
}

fn received(from: Option<SocketAddr>, summary: &Summary) -> Value {
    let Progress { bytes, reused_bytes, link_bytes, elapsed, .. } = summary.progress;
    let blake3 = summary
        .blake3
        .map(|hash| hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    json!({
        "event": "received", "from": from.map(whole), "name": summary.name, "files": summary.files,
        "bytes": bytes, "reused_bytes": reused_bytes, "basis_bytes": summary.basis_bytes,
        "link_bytes": link_bytes, "elapsed_ns": duration_ns(elapsed), "blake3": blake3,
        "left_out": summary.left_out, "kept_files": summary.kept,
    })
}

/// Writes a line to standard output. If nobody reads it any more, what comes is received all the same.
fn print(line: &Value) {
    if let Err(error) = terminal::print(&format!("{line}\n")) {
        tracing::warn!("standard output can't be written: {error}");
    }
}

fn address(from: SocketAddr) -> String {
    from.ip().to_canonical().to_string()
}

/// An address with its port: two transfers from one host differ in it.
fn whole(from: SocketAddr) -> String {
    SocketAddr::new(from.ip().to_canonical(), from.port()).to_string()
}

/// How far several transfers are together; none if none of them has come anywhere.
fn together<'a>(all: impl Iterator<Item = &'a Progress>) -> Option<Progress> {
    all.copied().reduce(|a, b| Progress {
        bytes: a.bytes + b.bytes,
        reused_bytes: a.reused_bytes + b.reused_bytes,
        link_bytes: a.link_bytes + b.link_bytes,
        total: a.total.zip(b.total).map(|(a, b)| a.saturating_add(b)),
        elapsed: a.elapsed.max(b.elapsed),
    })
}

fn offered(from: SocketAddr, offer: &Offer) -> String {
    let from = address(from);
    let name = if offer.name.is_empty() { "a pipe".to_owned() } else { printable(&offer.name) };
    let files = match offer.files {
        files if offer.is_tree => format!(", {}", human::counted(files, "file")),
        _ => String::new(),
    };
    match offer.bytes {
        Some(bytes) => format!("{name}{files}, {}, from {from}", human::bytes(bytes)),
        None => format!("{name} from {from}"),
    }
}

fn shown_kept(kept: &Kept) -> String {
    let path = printable(&kept.path.display().to_string());
    format!(
        "what has come stays in {path} ({}), and the next transfer of the same to here goes on with it",
        human::bytes(kept.bytes)
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dwell_proxy::transfer::TransferError;

    use super::*;

    #[test]
    fn offers_are_harmless_on_a_terminal() {
        let from = "[::ffff:192.0.2.7]:1".parse().unwrap();
        let offer = |name: &str, bytes, is_tree| {
            offered(
                from,
                &Offer {
                    name: name.to_owned(),
                    bytes,
                    files: 2,
                    others: 1,
                    is_tree,
                    is_eager: true,
                    window_log2: 0,
                },
            )
        };
        assert_eq!(offer("a\u{202e}b", None, false), "a?b from 192.0.2.7");
        assert_eq!(offer("", Some(5), false), "a pipe, 5 B, from 192.0.2.7");
        assert_eq!(offer("a", Some(5), true), "a, 2 files, 5 B, from 192.0.2.7");
    }

    #[test]
    fn two_transfers_from_one_host_differ() {
        let from = |text: &str| Some(text.parse().unwrap());
        let said = |from| failed(from, &TransferError::Interrupted.into())["from"].clone();
        assert_eq!(said(from("[::ffff:192.0.2.7]:5001")), "192.0.2.7:5001");
        assert_eq!(said(from("[2001:db8::7]:5002")), "[2001:db8::7]:5002");
        assert_eq!(said(None), Value::Null);
    }

    #[test]
    fn several_transfers_are_shown_together() {
        let of = |bytes, total, s| Progress {
            bytes,
            reused_bytes: bytes / 2,
            link_bytes: bytes / 4,
            total,
            elapsed: Duration::from_secs(s),
        };
        assert!(together([].iter()).is_none());
        let all = together([of(100, Some(200), 3), of(20, Some(30), 5)].iter()).unwrap();
        assert_eq!((all.bytes, all.reused_bytes, all.link_bytes), (120, 60, 30));
        assert_eq!((all.total, all.elapsed), (Some(230), Duration::from_secs(5)));
        let all = together([of(100, Some(200), 3), of(20, None, 5)].iter()).unwrap();
        assert_eq!(all.total, None, "a pipe");
    }
}
