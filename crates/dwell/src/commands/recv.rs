//! `dwell recv`: waits for what a `dwell send` sends.

use std::io::{self, IsTerminal as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use dwell_base::ByteSize;
use dwell_proxy::security::Security;
use dwell_proxy::transfer::{
    BASES_MAX, Broken, Code, Event, Existing, FILE_PORT, OneTimeKey, Place, Receive, TransferError,
    receive,
};
use dwell_relay::io::address::reachable_addresses;

use super::proxy::{Protection, duration};
use super::transfer::{INTERRUPTED, LEFT_OUT, prepare, printable};
use dwell_cli::terminal;
use events::Shown;

const AFTER_HELP: &str = "\
Examples:
  dwell recv                        into this directory, under the names that the sender has
  dwell recv backup.img             under this name
  dwell recv /srv/in                into this directory, if it is one
  dwell recv --keep /srv/in         one transfer after the other, with the same code
  dwell recv --overwrite            replace files that differ
  dwell recv --basis /srv/dumps     copy from yesterday's dump there what is the same in today's
  dwell recv - | tar x              to a pipe
  dwell recv --psk transfer.psk --listen 7000 backup.img

It prints the command to type on the other machine, with a code for this receiver, and the other
addresses of this machine, if it has several: use one that the other machine can reach. What comes
has a hidden name that ends in .dwell-part until it is complete and verified. After an interruption
that stays, and the next transfer of the same name to the same place goes on with it; remove it if
there is to be none. To a pipe bytes go as they come: there only the exit code says whether it was
all.

Nothing is replaced that is there, unless --overwrite says so. With it, or with --no-clobber, a
directory is received file by file into the one that is there.

With --basis PATH what is like a file there is copied and not sent: like the file PATH, or the one
in the directory PATH that is likeliest to be like it, by its path, name, length and time. Who
sends learns which chunks of these files are the same as its own, and gets a hash of each: of a
chunk that it knows but for a few bytes, or of a short file all of which is one chunk, it can try
what they are until the hash is right. Name nothing that has passwords or keys in it.

Exit codes:
  0    all of it is there, and it is what was sent; with --keep, it was ended while nothing came
  1    it is not
  2    the command line is wrong
  3    all is there but what is named
  130  it was interrupted";

/// Wait for files from a `dwell send`
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Recv {
    /// The name for what comes, a directory to receive into, or - for standard output [default: this directory]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Address and port to listen at: ADDRESS:PORT, ADDRESS or PORT [default: port 7735 of all addresses]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen)]
    listen: Option<SocketAddr>,
    /// Stay after a transfer, for others; until interrupted
    #[arg(short, long)]
    keep: bool,
    /// Replace files that are there and differ
    #[arg(short, long, visible_alias = "force", visible_short_alias = 'f')]
    overwrite: bool,
    /// Leave files that are there as they are, and receive the others
    #[arg(short, long, conflicts_with = "overwrite")]
    no_clobber: bool,
    /// Copy what is the same from this file, or from the likeliest one in this directory; up to eight times
    #[arg(long, value_name = "PATH")]
    basis: Vec<PathBuf>,
    /// Make symbolic links that lead out of what comes, too
    #[arg(long)]
    links_outside: bool,
    /// The memory for what a sender may refer to again; with --keep a sixteenth of it for each transfer. Each takes as much again at most, or 64MiB, for what it knows of entries
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    memory_max: ByteSize,
    #[command(flatten)]
    protection: Protection,
    /// The longest time that a sender has to show that it knows the key
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    handshake_time: Duration,
    /// Print nothing but the command to type there, and errors
    #[arg(short, long)]
    quiet: bool,
    /// Print a line of JSON on standard output when a transfer begins and when it ends, in place of what is said of it otherwise; the command to type there, and why it ends with an error, go to standard error all the same
    #[arg(long)]
    json: bool,
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(everywhere(port));
    }
    if let Ok(ip) = text.parse() {
        return Ok(SocketAddr::new(ip, FILE_PORT));
    }
    text.parse().map_err(|_| "write ADDRESS:PORT, as 0.0.0.0:7735 or [::]:7735".to_owned())
}

fn everywhere(port: u16) -> SocketAddr {
    // A kernel without IPv6 can't listen at its addresses.
    let has_ipv6 = Path::new("/proc/net/if_inet6").exists();
    if has_ipv6 {
        (Ipv6Addr::UNSPECIFIED, port).into()
    } else {
        (Ipv4Addr::UNSPECIFIED, port).into()
    }
}

impl Recv {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        prepare();
        let listen = self.listen.unwrap_or_else(|| everywhere(FILE_PORT));
        let place = self.place()?;
        self.check_memory()?;
        self.check_bases(&place)?;
        ensure!(
            !self.json || !matches!(place, Place::Stdout),
            "--json writes to standard output, where the file is to go: name a file"
        );
        let (security, access) = self.security(listen)?;
        let mut shown = Shown::new(self.quiet, self.json, self.keep);
        let quiet = self.quiet;
        let existing = match (self.overwrite, self.no_clobber) {
            (true, _) => Existing::Replace,
            (_, true) => Existing::Keep,
            _ => Existing::Refuse,
        };
        let job = Receive {
            listen,
            security,
            place,
            existing,
            bases: self.basis.clone(),
            allows_links_outside: self.links_outside,
            memory_bytes_max: self.memory_max.0,
            handshake: self.handshake_time,
            stays: self.keep,
        };
        let hosts = hosts(listen.ip());
        let received = receive(job, |event| match event {
            Event::Listening(at) => {
                terminal::note(&invitation(hosts.first().copied(), at, &access));
                if !quiet && let Some(note) = other_hosts(&hosts, at, &access) {
                    terminal::note(&note);
                }
            }
            Event::Begun(from, offer) => shown.begun(from, offer),
            Event::Progress(from, progress) => shown.progress(from, progress),
            Event::Ended(from, result) => shown.ended(Some(from), result),
        });
        let result = match received {
            Ok(None) => return Ok(ExitCode::SUCCESS),
            Ok(Some(summary)) => Ok(summary),
            Err(broken) => Err(broken),
        };
        if !self.keep {
            shown.ended(None, &result);
        }
        match result {
            Ok(summary) if summary.left_out == 0 => Ok(ExitCode::SUCCESS),
            Ok(_) => Ok(ExitCode::from(LEFT_OUT)),
            Err(Broken { error: TransferError::Interrupted, .. }) => {
                Ok(ExitCode::from(INTERRUPTED))
            }
            // It may have a path of the sender's in it.
            Err(Broken { error, .. }) => Err(anyhow::Error::msg(printable(&error.to_string()))),
        }
    }

    /// Fails if there are bases where nothing can be copied, or too many.
    fn check_bases(&self, place: &Place) -> anyhow::Result<()> {
        let fits = self.basis.len() <= BASES_MAX;
        ensure!(
            fits,
            "--basis can be given {BASES_MAX} times: name a directory that has all of them"
        );
        ensure!(
            self.basis.is_empty() || !matches!(place, Place::Stdout),
            "--basis is for files, and standard output is none: name a file"
        );
        Ok(())
    }

    /// Fails if the memory is less than every sender counts on.
    fn check_memory(&self) -> anyhow::Result<()> {
        const MIB: u64 = 1 << 20;
        let least = Receive::memory_bytes_min(self.keep).div_ceil(MIB);
        let why = if self.keep { ": --keep is for 16 transfers at a time" } else { "" };
        ensure!(
            self.memory_max.0 >= least * MIB,
            "--memory-max {} is less than every sender counts on: a receiver needs {least} MiB{why}",
            self.memory_max
        );
        Ok(())
    }

    fn place(&self) -> anyhow::Result<Place> {
        let Some(file) = &self.file else { return Ok(Place::Directory(PathBuf::from("."))) };
        if file == Path::new("-") {
            ensure!(
                !io::stdout().is_terminal(),
                "standard output is a terminal: name a file, or lead it into a pipe"
            );
            ensure!(!self.keep, "standard output takes one transfer, and --keep is for several");
            return Ok(Place::Stdout);
        }
        if file.is_dir() {
            return Ok(Place::Directory(file.clone()));
        }
        let may_be_there = self.overwrite || self.no_clobber;
        ensure!(
            may_be_there || file.symlink_metadata().is_err(),
            "{} exists: use another name, or --overwrite to replace it",
            file.display()
        );
        Ok(Place::File(file.clone()))
    }

    /// Returns the security that is used, and what the sender needs to match it.
    fn security(&self, listen: SocketAddr) -> anyhow::Result<(Security, Access)> {
        if self.protection.is_chosen() {
            let place = format!("who connects to {listen}");
            let loopback = listen.ip().is_loopback();
            let security = self.protection.security(&place, loopback, None)?;
            return Ok((security, Access::Options(self.protection.like_this())));
        }
        let key = OneTimeKey::random().context("the operating system gives no random bytes")?;
        Ok((Security::Psk(key.secret()), Access::Key(key)))
    }
}

/// What a sender needs besides the address.
enum Access {
    Key(OneTimeKey),
    Options(String),
}

/// Returns the command for the other machine, if this one has an address that others can reach.
fn invitation(host: Option<IpAddr>, at: SocketAddr, access: &Access) -> String {
    let loopback = || match at {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let at = SocketAddr::new(host.unwrap_or_else(loopback), at.port());
    match access {
        Access::Key(key) => {
            let code = Code { at, key: key.clone() };
            format!("on the other machine: dwell send FILE {}", code.reveal().as_str())
        }
        Access::Options(options) => format!("on the other machine: dwell send FILE {at} {options}"),
    }
}

/// Returns a remark on this machine's other addresses, if there are any.
fn other_hosts(hosts: &[IpAddr], at: SocketAddr, access: &Access) -> Option<String> {
    const SHOWN_MAX: usize = 8;
    match hosts {
        [] => Some(
            "this machine has no address that others can reach: only programs on it can connect"
                .to_owned(),
        ),
        [_] => None,
        [first, others @ ..] => {
            let shown = others.iter().take(SHOWN_MAX);
            let mut list: Vec<_> =
                shown.map(|&host| SocketAddr::new(host, at.port()).to_string()).collect();
            if others.len() > SHOWN_MAX {
                list.push(format!("{} more", others.len() - SHOWN_MAX));
            }
            let list = list.join(", ");
            Some(match access {
                Access::Key(key) => format!(
                    "if {first} can't be reached from there: dwell send FILE ADDRESS --key {}, where \
                     ADDRESS is {list}",
                    key.reveal().as_str()
                ),
                Access::Options(_) => format!("if {first} can't be reached from there: {list}"),
            })
        }
    }
}

/// The addresses that lead to who listens there, the likeliest first: the one that this machine would use
/// to talk to the rest of the world, and then those of its interfaces. None if nobody else can
/// reach it.
fn hosts(at: IpAddr) -> Vec<IpAddr> {
    if !at.is_unspecified() {
        return vec![at.to_canonical()];
    }
    let interfaces = reachable_addresses().unwrap_or_else(|error| {
        tracing::debug!("the addresses of this machine can't be listed: {error}");
        Vec::new()
    });
    let default = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let default = default.into_iter().filter_map(towards_the_world);
    let mut hosts = Vec::new();
    for host in default.chain(interfaces) {
        let serves = at.is_ipv6() || host.is_ipv4();
        if serves && !host.is_loopback() && !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}

/// The address from which this machine would talk to the rest of the world, if it has a route
/// there. Nothing is sent.
fn towards_the_world(from: IpAddr) -> Option<IpAddr> {
    // Addresses for documentation: nobody has them, and the default route leads there.
    let to = if from.is_ipv4() { "192.0.2.1:9" } else { "[2001:db8::1]:9" };
    let socket = UdpSocket::bind((from, 0)).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

mod events;

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Access {
        Access::Options(text.to_owned())
    }

    #[test]
    fn an_invitation_can_be_pasted() {
        let at: std::net::SocketAddr = "192.0.2.7:7735".parse().unwrap();
        let line = "on the other machine: dwell send FILE 192.0.2.7:7735 --psk x";
        assert_eq!(hosts(at.ip()), [at.ip()]);
        assert_eq!(invitation(Some(at.ip()), at, &options("--psk x")), line);
        let everywhere = "[::]:9".parse().unwrap();
        let line = "on the other machine: dwell send FILE 10.0.0.1:9 -";
        assert_eq!(invitation(Some([10, 0, 0, 1].into()), everywhere, &options("-")), line);
        let alone = invitation(None, everywhere, &options(""));
        assert!(alone.contains("[::1]:9"), "{alone}");
        let key = OneTimeKey::random().unwrap();
        let line = invitation(None, at, &Access::Key(key.clone()));
        let code: Code = line.rsplit_once(' ').unwrap().1.parse().unwrap();
        assert_eq!(code.at, "127.0.0.1:7735".parse().unwrap());
        assert_eq!(code.key.reveal(), key.reveal());
    }

    #[test]
    fn all_addresses_are_named() {
        let at: SocketAddr = "[::]:9".parse().unwrap();
        let hosts: Vec<IpAddr> =
            ["10.0.0.1", "2001:db8::7"].map(|host| host.parse().unwrap()).to_vec();
        let other = |hosts: &[IpAddr]| other_hosts(hosts, at, &options(""));
        assert!(other(&[]).unwrap().contains("no address that others can reach"));
        assert_eq!(other(&hosts[..1]), None);
        assert!(other(&hosts).unwrap().ends_with(": [2001:db8::7]:9"));
        assert!(other(&vec![hosts[0]; 20]).unwrap().ends_with(", 11 more"));
        let key = Access::Key(OneTimeKey::random().unwrap());
        assert!(other_hosts(&hosts, at, &key).unwrap().contains("FILE ADDRESS --key "));
    }

    /// Whoever listens at all addresses of one kind can't be reached at those of the other kind.
    #[test]
    fn only_addresses_that_lead_here_are_named() {
        assert!(hosts(Ipv4Addr::UNSPECIFIED.into()).iter().all(IpAddr::is_ipv4));
        assert!(hosts(Ipv6Addr::UNSPECIFIED.into()).iter().all(|host| !host.is_loopback()));
    }
}
