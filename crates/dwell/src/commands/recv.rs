//! `dwell recv`: waits for one file from a `dwell send`.

use std::io::{self, IsTerminal as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use dwell_proxy::security::Security;
use dwell_proxy::transfer::{FILE_PORT, OneTimeKey, Place, Receive, TransferError, receive};
use dwell_report::human;

use super::proxy::{Protection, duration};
use super::transfer::{INTERRUPTED, Meter, done, printable};
use crate::terminal;

const AFTER_HELP: &str = "\
Examples:
  dwell recv                        into this folder, under the name that the sender has for it
  dwell recv backup.img             into this file
  dwell recv - | tar x              to a pipe
  dwell recv --psk transfer.psk --listen 7000 --force backup.img

It prints the command to type on the other machine, with a key for this one transfer. What comes
is written under another name and gets its own when it is complete and verified; otherwise nothing
is left of it. To a pipe it goes as it comes: there only the exit code tells whether it was all.

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
    /// in this folder]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Where to listen: ADDRESS:PORT, ADDRESS or PORT [default: port 7735 of all addresses]
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
        let listen = self.listen.unwrap_or_else(|| everywhere(FILE_PORT));
        let place = match &self.file {
            None => Place::Folder(PathBuf::from(".")),
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
        let mut meter = Meter::new(self.quiet);
        let quiet = self.quiet;
        let job = Receive {
            listen,
            security,
            place,
            replace: self.force,
            handshake: self.handshake_time,
        };
        let ready = |at: SocketAddr| terminal::note(&invitation(at, &shown_key));
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

    /// How it is protected, and what the sender must say to that.
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

/// What to type on the other machine.
fn invitation(at: SocketAddr, key: &str) -> String {
    let host = if at.ip().is_unspecified() { own_address(at) } else { at.ip() };
    let shown = SocketAddr::new(host.to_canonical(), at.port());
    format!("on the other machine: dwell send FILE {shown} {key}")
}

/// The address that leads to this machine, as far as it can tell: the one that it would use to
/// talk to the rest of the world. Nothing is sent for that.
fn own_address(at: SocketAddr) -> IpAddr {
    let towards = |from: &str, to: &str| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    // Addresses for documentation: nobody has them, and the default route leads there.
    towards("0.0.0.0:0", "192.0.2.1:9").or_else(|| towards("[::]:0", "[2001:db8::1]:9")).unwrap_or(
        match at {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        },
    )
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
        let at = "192.0.2.7:7735".parse().unwrap();
        let line = "on the other machine: dwell send FILE 192.0.2.7:7735 --key abc";
        assert_eq!(invitation(at, "--key abc"), line);
        let everywhere = invitation("[::]:9".parse().unwrap(), "");
        assert!(!everywhere.contains("[::]"), "{everywhere}");
    }

    #[test]
    fn offers_are_harmless_on_a_terminal() {
        let from = "[::ffff:192.0.2.7]:1".parse().unwrap();
        assert_eq!(offered(from, "a\u{202e}b", None), "a?b from 192.0.2.7");
        assert_eq!(offered(from, "", Some(5)), "a pipe, 5 B, from 192.0.2.7");
    }
}
