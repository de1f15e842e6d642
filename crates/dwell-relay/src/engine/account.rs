//! What an operator asks first: since when peers are up, what passes now, and what was saved so far.
//!
//! Nothing wakes the relay for it: the counters are looked at whenever peers are looked after, and when
//! somebody asks.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_report::recent::{Totals, saved};
use dwell_report::savings::{FILE_LEN, Savings};
use dwell_report::status::{PeerState, Saved, SavingsStatus, Status};

use crate::config::SavingsConfig;
use crate::io::clock::Clock;

/// The account is written this often at most.
const WRITE_NS: u64 = 60 * SECOND_NS;
/// Rates of less time than this say little.
const WINDOW_NS_MIN: u64 = 5 * SECOND_NS;
const DAY_NS: u64 = 86_400 * SECOND_NS;

/// The account of a node, and what is known of its peers since they were last looked at.
#[derive(Debug)]
pub(super) struct Account {
    savings: Savings,
    /// Where it outlives the process. Open since before privileges were dropped.
    file: Option<File>,
    write_at: Instant,
    peers: BTreeMap<String, Seen>,
}

/// A peer as it was seen.
#[derive(Debug)]
struct Seen {
    is_up: bool,
    since: Instant,
    saved: Saved,
    /// The latest counters, and those before them.
    totals: [(Instant, Totals); 2],
}

impl Account {
    /// Opens the account of a node, or begins one. Without a file to write to it ends with the process; a
    /// warning says so.
    pub(super) fn open(config: &SavingsConfig, now: Instant) -> Self {
        let begun = Savings::new(today());
        let (savings, file) = match &config.file {
            None => (begun, None),
            Some(path) => match open(path) {
                Ok((file, Some(kept))) => (kept, Some(file)),
                Ok((file, None)) => (begun, Some(file)),
                Err(error) => {
                    tracing::warn!("{}", explain(path, &error));
                    (begun, None)
                }
            },
        };
        Self { savings, file, write_at: now + WRITE_NS, peers: BTreeMap::new() }
    }

    /// A peer is up now, or is not any more.
    pub(super) fn changed(&mut self, peer: &str, is_up: bool, now: Instant) {
        if let Some(seen) = self.peers.get_mut(peer) {
            (seen.is_up, seen.since) = (is_up, now);
        }
    }

    /// Takes the counters of all peers into the account, and writes it if it is time.
    pub(super) fn look(&mut self, status: &Status, now: Instant) {
        self.peers.retain(|name, _| status.peers.iter().any(|peer| peer.name == *name));
        for peer in &status.peers {
            let (totals, sum) = (Totals::of(peer), saved(&peer.tx));
            let is_up = peer.state == PeerState::Up;
            let seen = self.peers.entry(peer.name.clone()).or_insert_with(|| Seen {
                is_up,
                since: now,
                saved: Saved::default(),
                totals: [(now, totals); 2],
            });
            if seen.is_up != is_up {
                (seen.is_up, seen.since) = (is_up, now);
            }
            self.savings.add(today(), difference(sum, seen.saved));
            seen.saved = sum;
            if now.since_ns(seen.totals[0].0) >= WINDOW_NS_MIN {
                seen.totals = [(now, totals), seen.totals[0]];
            }
        }
        if now >= self.write_at {
            self.write_at = now + WRITE_NS;
            self.write();
        }
    }

    /// Fills in what it knows.
    pub(super) fn fill(&self, status: &mut Status, config: &SavingsConfig, now: Instant) {
        status.savings = SavingsStatus {
            kept: self.file.is_some(),
            cost_per_gb: config.cost_per_gb,
            currency: config.currency.clone(),
            ..self.savings.status(today())
        };
        for peer in &mut status.peers {
            let Some(seen) = self.peers.get(&peer.name) else { continue };
            let since = difference(saved(&peer.tx), seen.saved);
            let sums = &mut status.savings;
            for sum in [&mut sums.today, &mut sums.days_30, &mut sums.total] {
                *sum = sum.plus(since);
            }
            peer.state_for_ns = now.since_ns(seen.since);
            // The newer of the two, unless it is too new.
            let old_enough = |(at, _): &&(Instant, Totals)| now.since_ns(*at) >= WINDOW_NS_MIN;
            let before = seen.totals.iter().find(old_enough).unwrap_or(&seen.totals[1]);
            let window_ns = now.since_ns(before.0);
            peer.recent = Totals::of(peer).since(&before.1, window_ns, peer.rate_bps);
        }
    }

    /// Writes the account. It goes on without its file if that fails.
    pub(super) fn write(&mut self) {
        let Some(file) = &self.file else { return };
        let (place, line) = self.savings.next_slot();
        if let Err(error) = file.write_all_at(&line, place as u64) {
            tracing::warn!(
                "the account of savings can't be written any more, and ends with this process: {error}"
            );
            self.file = None;
        }
    }
}

fn today() -> u32 {
    u32::try_from(Clock::unix_ns() / DAY_NS).unwrap_or(u32::MAX)
}

/// What was added to counters that begin again when a peer does.
fn difference(now: Saved, before: Saved) -> Saved {
    let is_later = now.plain_bytes >= before.plain_bytes && now.taken_bytes >= before.taken_bytes;
    let before = if is_later { before } else { Saved::default() };
    Saved {
        plain_bytes: now.plain_bytes - before.plain_bytes,
        taken_bytes: now.taken_bytes - before.taken_bytes,
    }
}

/// Opens the file, and reads what it holds. One that holds something else is left as it is.
fn open(path: &Path) -> io::Result<(File, Option<Savings>)> {
    const NOFOLLOW: i32 = libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    let file = options.mode(0o640).custom_flags(NOFOLLOW).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > FILE_LEN as u64 {
        return Err(io::Error::other("it is no account of savings"));
    }
    let mut bytes = vec![0; metadata.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    let savings = Savings::read(&bytes);
    if savings.is_none() && !bytes.is_empty() {
        if !bytes.contains(&b'{') {
            return Err(io::Error::other("it is no account of savings"));
        }
        tracing::warn!("{} is damaged: the account of savings begins again", path.display());
    }
    Ok((file, savings))
}

fn explain(path: &Path, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => format!(
            "there is no such directory; make it (mkdir -p {}), or write file = \"none\" under [savings]",
            path.parent().unwrap_or(Path::new("/")).display()
        ),
        _ => format!("{error}; name another file under [savings], or write file = \"none\""),
    };
    format!(
        "savings are counted from this start on only, as {} can't be used: {remedy}",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use dwell_report::status::{PeerStatus, TxStatus};

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_ns(seconds * SECOND_NS)
    }

    fn status(plain_bytes: u64, link_bytes: u64) -> Status {
        let tx = TxStatus { plain_bytes, link_bytes, ..TxStatus::default() };
        let peer = PeerStatus { name: "hub".to_owned(), tx, ..PeerStatus::default() };
        Status { peers: vec![peer], ..Status::default() }
    }

    fn total(account: &Account, config: &SavingsConfig) -> (u64, u64, bool) {
        let mut status = Status::default();
        account.fill(&mut status, config, at(100));
        let SavingsStatus { total, kept, .. } = status.savings;
        (total.plain_bytes, total.taken_bytes, kept)
    }

    struct Directory(std::path::PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let name = format!("dwell-account-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_account_outlives_processes_and_counters() {
        let directory = Directory::new("life");
        let file = Some(directory.0.join("a.savings"));
        let config = SavingsConfig { file, ..SavingsConfig::default() };
        for run in 1..=3 {
            let mut account = Account::open(&config, at(0));
            account.look(&status(60, 30), at(1));
            account.look(&status(100, 50), at(2));
            // The peer's counters begin again.
            account.look(&status(7, 3), at(3));
            account.write();
            assert_eq!(total(&account, &config), (107 * run, 53 * run, true));
        }
        let path = config.file.as_ref().unwrap();
        assert_eq!(std::fs::metadata(path).unwrap().len(), FILE_LEN as u64);
    }

    #[test]
    fn files_of_others_are_left_as_they_are() {
        let directory = Directory::new("others");
        let path = directory.0.join("relay.toml");
        let text = "name = \"precious\"\n".repeat(3);
        std::fs::write(&path, &text).unwrap();
        let config = SavingsConfig { file: Some(path.clone()), ..SavingsConfig::default() };
        let mut account = Account::open(&config, at(0));
        account.look(&status(10, 5), at(1));
        account.write();
        assert_eq!(total(&account, &config), (10, 5, false));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        let nowhere = Some(directory.0.join("not/there.savings"));
        let nowhere = SavingsConfig { file: nowhere, ..SavingsConfig::default() };
        assert!(!total(&Account::open(&nowhere, at(0)), &nowhere).2);
    }

    #[test]
    fn rates_and_states_are_of_the_time_since() {
        let config = SavingsConfig { file: None, ..SavingsConfig::default() };
        let mut account = Account::open(&config, at(0));
        account.look(&status(0, 0), at(10));
        account.look(&status(0, 1_000), at(20));
        account.changed("hub", true, at(21));
        let mut asked = status(0, 9_000);
        account.fill(&mut asked, &config, at(28));
        let peer = &asked.peers[0];
        assert_eq!(peer.state_for_ns, 7 * SECOND_NS);
        let recent = peer.recent.unwrap();
        assert_eq!((recent.window_ns, recent.link_bps), (8 * SECOND_NS, 8_000));
        // Right after a look it is the one before that counts.
        account.fill(&mut asked, &config, at(21));
        assert_eq!(asked.peers[0].recent.unwrap().window_ns, 11 * SECOND_NS);
    }
}
