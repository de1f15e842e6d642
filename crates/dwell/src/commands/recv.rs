//! `dwell recv`: waits for one file from a `dwell send`.

use std::io::{self, IsTerminal as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use dwell_proxy::security::Security;
use dwell_proxy::transfer::{
    FILE_PORT, OneTimeKey, Place, Receive, Stale, TransferError, receive, remove_stale,
};
use dwell_relay::io::address::reachable_addresses;
use dwell_report::human;

use super::proxy::{Protection, duration};
use super::transfer::{INTERRUPTED, Meter, done, hide, printable};
use dwell_cli::terminal;

const AFTER_HELP: &str = "\
Examples:
  dwell recv                        into this directory, under the name that the sender has for it
  dwell recv backup.img             into this file
  dwell recv - | tar x              to a pipe
  dwell recv --psk transfer.psk --listen 7000 --force backup.img

It prints the command to type on the other machine, with a key for this one transfer, and the other
addresses of this machine, if it has several: use one that the other machine can reach. What comes
is written under another name and gets its own when it is complete and verified; otherwise nothing
is left of it. What a receiver leaves behind that was killed, the next one for the same place
removes. To a pipe it goes as it comes: there only the exit code says whether it was all.

Exit codes:
  0    all of it is there, and it is what was sent
  1    it is not, and nothing is left
  2    the command line is wrong
  130  it was interrupted, and nothing is left";

/// Wait for a file from a `dwell send`
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Recv {
    /// The file to write, or - for standard output [default: the name that the sender has for it,
    /// in this directory]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Address and port to listen at: ADDRESS:PORT, ADDRESS or PORT [default: port 7735 of all addresses]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen)]
    listen: Option<SocketAddr>,
    /// Replace a file that is there
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    protection: Protection,
    /// The longest time that a sender has to show that it knows the key
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    handshake_time: Duration,
    /// Print nothing but the command to type there, and errors
    #[arg(short, long)]
    quiet: bool,
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
        hide();
        let listen = self.listen.unwrap_or_else(|| everywhere(FILE_PORT));
        let place = match &self.file {
            None => Place::Directory(PathBuf::from(".")),
            Some(file) if file == Path::new("-") => {
                ensure!(
                    !io::stdout().is_terminal(),
                    "standard output is a terminal: name a file, or lead it into a pipe"
                );
                Place::Stdout
            }
            Some(file) => Place::File(file.clone()),
        };
        if let (Some(file), false) = (&self.file, self.force) {
            let exists = place_is_file(&place) && file.exists();
            ensure!(
                !exists,
                "{} exists: use another name, or --force to replace it",
                file.display()
            );
        }
        let (security, shown_key) = self.security(listen)?;
        let stale = remove_stale(&place);
        if !self.quiet {
            stale.iter().for_each(|stale| terminal::note(&removed(stale)));
        }
        let mut meter = Meter::new(self.quiet);
        let quiet = self.quiet;
        let job = Receive {
            listen,
            security,
            place,
            replace: self.force,
            handshake: self.handshake_time,
        };
        let hosts = hosts(listen.ip());
        let ready = |at: SocketAddr| {
            terminal::note(&invitation(hosts.first().copied(), at, &shown_key));
            if !quiet && let Some(note) = other_hosts(&hosts, at) {
                terminal::note(&note);
            }
        };
        let begun = |from: SocketAddr, name: &str, bytes: Option<u64>| {
            if !quiet {
                terminal::note(&offered(from, name, bytes));
            }
        };
        let received = receive(job, ready, begun, |progress| meter.show(progress));
        meter.clear();
        match received {
            Ok(summary) => {
                if !self.quiet {
                    let name = printable(&summary.name);
                    terminal::note(&format!("received {name}: {}", done(&summary)));
                }
                Ok(ExitCode::SUCCESS)
            }
            Err(TransferError::Interrupted) => Ok(ExitCode::from(INTERRUPTED)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the security that is used, and the options that the sender needs to match it.
    fn security(&self, listen: SocketAddr) -> anyhow::Result<(Security, String)> {
        if self.protection.is_chosen() {
            let place = format!("who connects to {listen}");
            let loopback = listen.ip().is_loopback();
            let security = self.protection.security(&place, loopback, None)?;
            return Ok((security, self.protection.like_this()));
        }
        let key = OneTimeKey::random().context("the operating system gives no random bytes")?;
        Ok((Security::Psk(key.secret()), format!("--key {}", key.reveal().as_str())))
    }
}

fn place_is_file(place: &Place) -> bool {
    matches!(place, Place::File(_))
}

/// Returns the command for the other machine, if this one has an address that others can reach.
fn invitation(host: Option<IpAddr>, at: SocketAddr, key: &str) -> String {
    let loopback = || match at {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let shown = SocketAddr::new(host.unwrap_or_else(loopback), at.port());
    format!("on the other machine: dwell send FILE {shown} {key}")
}

/// Returns a remark on this machine's other addresses, if there are any.
fn other_hosts(hosts: &[IpAddr], at: SocketAddr) -> Option<String> {
    const SHOWN_MAX: usize = 8;
    match hosts {
        [] => Some(
            "this machine has no address that others can reach: only programs on it can connect"
                .to_owned(),
        ),
        [_] => None,
        [_, others @ ..] => {
            let shown = others.iter().take(SHOWN_MAX);
            let mut list: Vec<_> =
                shown.map(|&host| SocketAddr::new(host, at.port()).to_string()).collect();
            if others.len() > SHOWN_MAX {
                list.push(format!("{} more", others.len() - SHOWN_MAX));
            }
            Some(format!("if that address can't be reached from there: {}", list.join(", ")))
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

fn removed(stale: &Stale) -> String {
    let name = printable(&stale.path.file_name().unwrap_or_default().to_string_lossy());
    let bytes = human::bytes(stale.bytes);
    format!("removed {name}, {bytes}, which a receiver that was killed had left behind")
}

fn offered(from: SocketAddr, name: &str, bytes: Option<u64>) -> String {
    let from = from.ip().to_canonical();
    let name = if name.is_empty() { "a pipe".to_owned() } else { printable(name) };
    match bytes {
        Some(bytes) => format!("{name}, {}, from {from}", human::bytes(bytes)),
        None => format!("{name} from {from}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invitation_can_be_pasted() {
        let at: std::net::SocketAddr = "192.0.2.7:7735".parse().unwrap();
        let line = "on the other machine: dwell send FILE 192.0.2.7:7735 --key abc";
        assert_eq!(hosts(at.ip()), [at.ip()]);
        assert_eq!(invitation(Some(at.ip()), at, "--key abc"), line);
        let everywhere = "[::]:9".parse().unwrap();
        let line = "on the other machine: dwell send FILE 10.0.0.1:9 -";
        assert_eq!(invitation(Some([10, 0, 0, 1].into()), everywhere, "-"), line);
        let alone = invitation(None, everywhere, "");
        assert!(alone.contains("[::1]:9"), "{alone}");
    }

    #[test]
    fn all_addresses_are_named() {
        let at: SocketAddr = "[::]:9".parse().unwrap();
        let hosts: Vec<IpAddr> =
            ["10.0.0.1", "2001:db8::7"].map(|host| host.parse().unwrap()).to_vec();
        assert!(other_hosts(&[], at).unwrap().contains("no address that others can reach"));
        assert_eq!(other_hosts(&hosts[..1], at), None);
        assert!(other_hosts(&hosts, at).unwrap().ends_with(": [2001:db8::7]:9"));
        assert!(other_hosts(&vec![hosts[0]; 20], at).unwrap().ends_with(", 11 more"));
    }

    /// Whoever listens at all addresses of one kind can't be reached at those of the other kind.
    #[test]
    fn only_addresses_that_lead_here_are_named() {
        assert!(hosts(Ipv4Addr::UNSPECIFIED.into()).iter().all(IpAddr::is_ipv4));
        assert!(hosts(Ipv6Addr::UNSPECIFIED.into()).iter().all(|host| !host.is_loopback()));
    }

    #[test]
    fn offers_are_harmless_on_a_terminal() {
        let from = "[::ffff:192.0.2.7]:1".parse().unwrap();
        assert_eq!(offered(from, "a\u{202e}b", None), "a?b from 192.0.2.7");
        assert_eq!(offered(from, "", Some(5)), "a pipe, 5 B, from 192.0.2.7");
    }
}
