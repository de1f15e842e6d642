//! Faults of two relays at the ends of a thin link, while they are working.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter, Write as _};
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use dwell_lab::lab::topology::{Pair, THIN_DEVICE};
use dwell_lab::lab::{Host, Lab, LabError};
use dwell_lab::relays::{Relay, RelayError, Relays};

/// A fault, or a change under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// `kill -9` of the clients' relay; a supervisor starts it again.
    KillIngress,
    /// The same of the servers' relay.
    KillEgress,
    /// The servers' relay is stopped for a while and continues, like a machine that sleeps.
    Freeze,
    /// The link loses everything for a while; no host is notified.
    LinkDown,
    /// The clients' relay gets another address.
    Address,
    /// The disk that the servers' relay logs to is full.
    LogFull,
    /// The pipe that it logs to is closed at the other end.
    LogClosed,
    /// Nobody reads the pipe that it logs to.
    LogUnread,
    /// Both relays get another scheme and another codec, four times.
    Reload,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 9] = [
        Self::KillIngress,
        Self::KillEgress,
        Self::Freeze,
        Self::LinkDown,
        Self::Address,
        Self::LogFull,
        Self::LogClosed,
        Self::LogUnread,
        Self::Reload,
    ];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KillIngress => "kill-ingress",
            Self::KillEgress => "kill-egress",
            Self::Freeze => "freeze",
            Self::LinkDown => "link-down",
            Self::Address => "address",
            Self::LogFull => "log-full",
            Self::LogClosed => "log-closed",
            Self::LogUnread => "log-unread",
            Self::Reload => "reload",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|fault| fault.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("\"{text}\" is no fault; there are {names}")
        })
    }
}

/// The durations of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultTiming {
    /// The time from the end of a relay until it is started again.
    pub restart: Duration,
    /// The time for which the link is down, or a relay frozen.
    pub outage: Duration,
}

impl Default for FaultTiming {
    /// As `packaging/dwell.service` restarts, and an outage that is longer than a peer's patience.
    fn default() -> Self {
        Self { restart: Duration::from_secs(2), outage: Duration::from_secs(10) }
    }
}

/// The time at which a fault began, and the time at which its cause was removed.
#[derive(Clone, Copy, Debug)]
pub struct Struck {
    /// The beginning.
    pub began: Instant,
    /// The time from which on nothing is wrong any more; for faults that stay, the beginning.
    pub cleared: Instant,
}

/// A fault that is prepared.
#[derive(Debug)]
pub struct Trap {
    fault: Fault,
    timing: FaultTiming,
    /// The pipe that is logged to.
    pipe: Option<(PipeReader, PipeWriter)>,
    /// The disk that is logged to.
    disk: Option<PathBuf>,
}

const DISK_BYTES: u32 = 64 << 10;
const PAGE_BYTES: u64 = 4096;
/// The number of reports that are asked for while nothing takes the log: far more than a pipe
/// holds.
const REPORTS: usize = 1_000;
/// A pipe that nobody reads is full after so many times as many, even if most of the signals are merged.
const ROUNDS_MAX: u32 = 20;
const FILL_PIPE: &str = "fill the pipe that a relay logs to";
/// The relays' configurations one after another: scheme and codec.
const RELOADS: [(&str, &str); 4] =
    [("packet", "lz4"), ("chutq-dcf", "zstd:1"), ("flow", "deflate:1"), ("edge", "zstd:3")];
/// The address that the clients' relay gets.
const NEW_ADDRESS: &str = "10.0.0.9/24";
const OLD_ADDRESS: &str = "10.0.0.1/24";

impl Trap {
    /// Prepares the fault; relays may be restarted for it. The pair must be joined by an emulated
    /// link.
    ///
    /// # Errors
    /// If a relay does not come back.
    pub fn set(
        lab: &Lab,
        fault: Fault,
        timing: FaultTiming,
        relays: &mut Relays,
    ) -> Result<Self, RelayError> {
        let mut trap = Self { fault, timing, pipe: None, disk: None };
        match fault {
            Fault::LogClosed | Fault::LogUnread => {
                let (reader, writer) = io::pipe().map_err(io("make a pipe"))?;
                let theirs = writer.try_clone().map_err(io("make a pipe"))?;
                trap.pipe = Some((reader, writer));
                relog(relays, theirs.into())?;
            }
            Fault::LogFull => {
                let disk = lab.directory().join("disk");
                let log = small_disk(&disk)?;
                trap.disk = Some(disk);
                relog(relays, log.into())?;
            }
            _ => {}
        }
        Ok(trap)
    }

    /// Triggers the fault; returns when its cause is removed.
    ///
    /// # Errors
    /// If it can't be triggered.
    pub fn strike(&mut self, pair: &Pair, relays: &mut Relays) -> Result<Struck, RelayError> {
        let began = Instant::now();
        let mut cleared = began;
        match self.fault {
            Fault::KillIngress => cleared = self.kill(&mut relays.ingress)?,
            Fault::KillEgress => cleared = self.kill(&mut relays.egress)?,
            Fault::Freeze => {
                relays.egress.process().signal(Signal::STOP)?;
                thread::sleep(self.timing.outage);
                relays.egress.process().signal(Signal::CONT)?;
                cleared = Instant::now();
            }
            Fault::LinkDown => {
                let link = pair.link.as_ref();
                let link = link.ok_or_else(|| failed("cut the link", "it is not emulated"))?;
                link.cut(true);
                thread::sleep(self.timing.outage);
                cleared = Instant::now();
                link.cut(false);
            }
            Fault::Address => {
                change_address(&pair.ingress)?;
                cleared = Instant::now();
            }
            Fault::LogFull => {
                let disk = self.disk.clone().unwrap_or_default();
                fill(&disk)?;
                let before = log_bytes(&disk)?;
                talk(&mut relays.egress)?;
                check_full(&disk, before)?;
            }
            Fault::LogClosed => {
                self.pipe = None; // the relay's end is open
                talk(&mut relays.egress)?;
            }
            Fault::LogUnread => {
                // On a busy machine signals are merged, and a relay logs less.
                let mut rounds = 1;
                talk(&mut relays.egress)?;
                while self.takes_more()? {
                    if rounds == ROUNDS_MAX {
                        return Err(failed(
                            FILL_PIPE,
                            "it still takes more: the relay logged too little",
                        ));
                    }
                    rounds += 1;
                    talk(&mut relays.egress)?;
                }
            }
            Fault::Reload => {
                for (scheme, codec) in RELOADS {
                    for relay in [&mut relays.egress, &mut relays.ingress] {
                        reload(relay, scheme, codec)?;
                    }
                    thread::sleep(Duration::from_millis(500));
                }
            }
        }
        Ok(Struck { began, cleared })
    }

    /// Returns false once the pipe takes nothing more: the relay's later messages are dropped.
    fn takes_more(&self) -> Result<bool, RelayError> {
        let (_, writer) = self.pipe.as_ref().ok_or_else(|| failed(FILL_PIPE, "there is none"))?;
        let mut fds = [PollFd::new(writer, PollFlags::OUT)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)).map_err(|error| io(FILL_PIPE)(error.into()))?;
        Ok(fds[0].revents().contains(PollFlags::OUT))
    }

    fn kill(&self, relay: &mut Relay) -> Result<Instant, RelayError> {
        relay.kill()?;
        thread::sleep(self.timing.restart);
        let cleared = Instant::now();
        relay.restart(None)?;
        Ok(cleared)
    }
}

/// Blocks all packets that would go past the relays, even when one of them is gone with its routes.
///
/// # Errors
/// If the routes can't be set.
pub fn block_plain_paths(pair: &Pair) -> Result<(), LabError> {
    for (host, v4, v6) in [
        (&pair.ingress, "10.2.0.0/24", "fd00:2::/64"),
        (&pair.egress, "10.1.0.0/24", "fd00:1::/64"),
    ] {
        host.output("ip", &["route", "add", "unreachable", v4, "metric", "1000"])?;
        if dwell_lab::lab::has_ipv6() {
            host.output("ip", &["-6", "route", "add", "unreachable", v6, "metric", "1000"])?;
        }
    }
    Ok(())
}

/// Starts the servers' relay again with another log.
fn relog(relays: &mut Relays, errors: std::process::Stdio) -> Result<(), RelayError> {
    relays.egress.process().stop()?;
    relays.egress.restart(Some(errors))?;
    relays.wait_until_up()
}

/// Opens a file on a disk of a few pages.
fn small_disk(place: &std::path::Path) -> Result<File, RelayError> {
    // The disk of an earlier fault; its file is gone with the mount.
    let _ = Command::new("umount").arg(place).stderr(std::process::Stdio::null()).status();
    fs::create_dir_all(place).map_err(io("make a directory"))?;
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", &format!("size={DISK_BYTES}"), "none"]).arg(place);
    let status = mount.status().map_err(io("mount a small disk"))?;
    if !status.success() {
        return Err(io("mount a small disk")(io::Error::other(status.to_string())));
    }
    let open = File::options().append(true).create(true).open(place.join("log"));
    open.map_err(io("open a log"))
}

/// Fills a disk to its last byte.
fn fill(disk: &std::path::Path) -> Result<(), RelayError> {
    let mut file = File::create(disk.join("filler")).map_err(io("make a file"))?;
    for piece in [4096, 1] {
        while file.write(&vec![0; piece]).is_ok_and(|len| len > 0) {}
    }
    Ok(())
}

fn log_bytes(disk: &std::path::Path) -> Result<u64, RelayError> {
    let file = fs::metadata(disk.join("log")).map_err(io("check a log"))?;
    Ok(file.len())
}

/// Checks that there was a log, and that on the full disk it took no more than the rest of its last
/// page.
fn check_full(disk: &std::path::Path, before: u64) -> Result<(), RelayError> {
    let what = "fill the disk that a relay logs to";
    let grew = log_bytes(disk)?.saturating_sub(before);
    if before == 0 || grew > PAGE_BYTES {
        return Err(failed(what, &format!("the log had {before} bytes, and {grew} were added")));
    }
    let mut file = File::options().append(true).open(disk.join("filler")).map_err(io(what))?;
    match file.write_all(&[0]) {
        Err(_) => Ok(()),
        Ok(()) => Err(failed(what, "there is room again")),
    }
}

/// Makes a relay log much.
fn talk(relay: &mut Relay) -> Result<(), RelayError> {
    for _ in 0..REPORTS {
        relay.process().signal(Signal::USR1)?;
        // Pending signals of one kind are merged.
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn change_address(host: &Host) -> Result<(), LabError> {
    host.output("ip", &["address", "del", OLD_ADDRESS, "dev", THIN_DEVICE])?;
    host.address(THIN_DEVICE, NEW_ADDRESS)
}

fn reload(relay: &mut Relay, scheme: &str, codec: &str) -> Result<(), RelayError> {
    let text = fs::read_to_string(relay.config()).map_err(io("read a configuration"))?;
    let lines: Vec<String> = text
        .lines()
        .map(|line| match line.split_once(" = ") {
            Some(("scheme", _)) => format!("scheme = \"{scheme}\""),
            Some(("codec", _)) => format!("codec = \"{codec}\""),
            _ => line.to_owned(),
        })
        .collect();
    fs::write(relay.config(), lines.join("\n") + "\n").map_err(io("write a configuration"))?;
    Ok(relay.process().signal(Signal::HUP)?)
}

fn failed(what: &str, why: &str) -> RelayError {
    io(what)(io::Error::other(why.to_owned()))
}

fn io(what: &str) -> impl FnOnce(io::Error) -> RelayError {
    let what = what.to_owned();
    move |source| RelayError::Io { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for fault in Fault::ALL {
            assert_eq!(fault.to_string().parse(), Ok(fault));
        }
        assert!("fire".parse::<Fault>().is_err_and(|why| why.contains("kill-ingress")));
    }
}
