//! Pairs that put TLS around a connection and compress nothing: stunnel and HAProxy, as their manuals have them.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use dwell_lab::lab::{Host, Process};

use super::super::bed::Bed;
use super::super::certificate;
use super::super::ends::Ends;
use super::super::program;
use super::super::tunnel::{server, spawn_logged};
use super::Carrier;

/// What is added to a port of the server for the one at the sender's router.
const STUNNEL_PORTS: u16 = 20_000;
const HAPROXY_PORTS: u16 = 30_000;

/// Starts stunnel at both ends, which know each other by a shared key.
pub(super) fn stunnel(bed: &Bed<'_>, ports: &[u16]) -> anyhow::Result<Ends> {
    let directory = directory(bed, "stunnel")?;
    let key = directory.join("key");
    // Any will do: nobody else is here.
    write(&key, &format!("bench:{}\n", "5a".repeat(32)))?;
    let config = |is_client: bool| {
        let mut text = "foreground = yes\npid =\nsyslog = no\ndebug = err\n\
                        socket = l:TCP_NODELAY=1\nsocket = r:TCP_NODELAY=1\n"
            .to_owned();
        for &port in ports {
            let between = format!("10.0.0.2:{}", port + STUNNEL_PORTS);
            let (accept, connect, client) = match is_client {
                true => (Carrier::Stunnel.address(port).to_string(), between, "yes"),
                false => (between, server(port).to_string(), "no"),
            };
            // A `String` takes everything.
            let _ = write!(
                text,
                "[port-{port}]\nclient = {client}\naccept = {accept}\nconnect = {connect}\n\
                 ciphers = PSK\nPSKsecrets = {}\n",
                key.display()
            );
        }
        text
    };
    let start = |host: &Host, name: &str, is_client: bool| {
        let file = directory.join(format!("{name}.conf"));
        write(&file, &config(is_client))?;
        run(host, "stunnel4", &[&file.to_string_lossy()], directory.join(format!("{name}.log")))
    };
    let sender = start(&bed.pair.egress, "sender", false)?;
    Ok(ends(sender, start(&bed.pair.ingress, "receiver", true)?))
}

/// Starts HAProxy at both ends, each of which knows the other's certificate.
pub(super) fn haproxy(bed: &Bed<'_>, ports: &[u16]) -> anyhow::Result<Ends> {
    let directory = directory(bed, "haproxy")?;
    for name in ["sender", "receiver"] {
        let parts = certificate::make(&directory, name)?.map(fs::read_to_string);
        let [certificate, key] = parts;
        write(&directory.join(format!("{name}.pem")), &(certificate? + &key?))?;
    }
    let file = |name: &str| directory.join(name).to_string_lossy().into_owned();
    let tls = |own: &str, other: &str| {
        format!("ssl crt {} ca-file {} verify required", file(own), file(other))
    };
    let config = |is_client: bool| {
        // Both sides of a connection that is open are left alone for a day, as by the proxies.
        let mut text = "defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 24h\n  \
                        timeout server 24h\n"
            .to_owned();
        for &port in ports {
            let between = format!("10.0.0.2:{}", port + HAPROXY_PORTS);
            let (bind, to) = match is_client {
                true => {
                    let tls = tls("receiver.pem", "sender.crt");
                    (Carrier::HaProxy.address(port).to_string(), format!("{between} {tls}"))
                }
                false => {
                    let tls = tls("sender.pem", "receiver.crt");
                    (format!("{between} {tls}"), server(port).to_string())
                }
            };
            let _ = write!(text, "listen port-{port}\n  bind {bind}\n  server other {to}\n");
        }
        text
    };
    let start = |host: &Host, name: &str, is_client: bool| {
        let at = directory.join(format!("{name}.cfg"));
        write(&at, &config(is_client))?;
        let arguments = ["-db", "-f", &at.to_string_lossy()];
        run(host, "haproxy", &arguments, directory.join(format!("{name}.log")))
    };
    let sender = start(&bed.pair.egress, "sender", false)?;
    Ok(ends(sender, start(&bed.pair.ingress, "receiver", true)?))
}

fn ends(
    (sender, sender_log): (Process, PathBuf),
    (receiver, receiver_log): (Process, PathBuf),
) -> Ends {
    Ends { sender, receiver, logs: [sender_log, receiver_log] }
}

fn run(
    host: &Host,
    name: &str,
    arguments: &[&str],
    log: PathBuf,
) -> anyhow::Result<(Process, PathBuf)> {
    let program = program::find(name).with_context(|| format!("{name} was there just now"))?;
    Ok((spawn_logged(host, &program, arguments, &log, &[])?, log))
}

fn directory(bed: &Bed<'_>, name: &str) -> anyhow::Result<PathBuf> {
    let directory = bed.lab.directory().join(name);
    fs::create_dir_all(&directory)
        .with_context(|| format!("a directory for {name} can't be made"))?;
    Ok(directory)
}

/// Writes a file that is nobody else's to read, as these programs want keys to be.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let shown = path.display();
    fs::write(path, text).with_context(|| format!("{shown} can't be written"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
        .with_context(|| format!("{shown} can't be kept from others"))
}
