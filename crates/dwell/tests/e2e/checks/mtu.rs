//! Packets around the MTU, and how hosts learn of it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use anyhow::ensure;
use dwell_lab::corpus;
use dwell_lab::lab::Lab;
use socket2::SockRef;

use crate::site::{self, SERVERS, Site, edit, reload};
use crate::web::{Web, servers};

/// IPv4 and ICMP, IPv6 and ICMPv6: what a ping is longer than what it carries.
const PING_BYTES: [u32; 2] = [28, 48];

/// The replies to a few pings of `total` bytes with their headers, and what ping said.
fn ping(site: &Site, server: &str, total: u32, more: &[&str]) -> anyhow::Result<(usize, String)> {
    let headers = PING_BYTES[usize::from(server.contains(':'))];
    let size = (total - headers).to_string();
    let mut arguments = vec!["-s", &size, "-c", "2", "-i", "0.2", "-W", "2"];
    arguments.extend(more);
    arguments.push(server);
    let (summary, said) = site.ping(&arguments)?;
    Ok((summary.replies.len(), said))
}

pub(super) fn ping_sizes(lab: &mut Lab) -> anyhow::Result<()> {
    let site = Site::thin(lab, &site::settings())?;
    let mtu = site.relays.ingress.status()?.tun.mtu;
    // Ethernet − IPv4 and UDP − the seal − a raw record.
    ensure!(mtu == 1500 - 28 - 22 - 2, "the TUN's MTU is {mtu}");
    for server in servers() {
        for total in [mtu - 1, mtu] {
            let (replies, said) = ping(&site, server, total, &["-M", "do"])?;
            ensure!(replies == 2, "{total} bytes: {said}");
        }
        // The hosts' networks take these, the tunnel does not.
        for total in [mtu + 1, 1500] {
            let (replies, said) = ping(&site, server, total, &["-M", "do"])?;
            ensure!(replies == 0, "{total} bytes went through whole: {said}");
            ensure!(said.contains(&mtu.to_string()), "nobody reported the MTU: {said}");
        }
        for total in [mtu - 1, mtu, mtu + 1, 1500, 4000] {
            // Cut on the way, or by the sender, which now knows.
            let (replies, said) = ping(&site, server, total, &["-M", "dont"])?;
            ensure!(replies > 0, "{total} bytes, cut as needed: {said}");
        }
    }
    site.verify_lossless()?;
    Ok(())
}

/// Checks what the relay itself does with a packet that is too long for the path: the TUN is asked to
/// take more than that.
pub(super) fn too_big(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::thin(lab, &site::settings())?;
    let path = site.relays.ingress.status()?.tun.mtu;
    edit(&site.relays.ingress, &[("offload = true", "offload = true\nmtu = 1500")])?;
    reload(&mut site.relays.ingress, "configuration taken")?;
    let mtu = site.relays.ingress.status()?.tun.mtu;
    ensure!(mtu == 1500, "the TUN's MTU is {mtu} after the reload");
    for server in servers() {
        let (replies, said) = ping(&site, server, 1500, &["-M", "do"])?;
        ensure!(replies == 0, "went through whole: {said}");
        ensure!(said.contains(&path.to_string()), "nobody reported the MTU: {said}");
        let (replies, said) = ping(&site, server, path, &["-M", "do"])?;
        ensure!(replies == 2, "a packet that fits: {said}");
    }
    let refused = site.relays.ingress.status()?.peers[0].tx.send_errors["too_big"];
    ensure!(refused > 0, "the relay did not count what it refused");
    let web = Web::start(&site, 200_000, 100_000)?;
    web.fetch_all(&site.pair.client)
}

/// TCP connections keep within the tunnel's MTU from the start.
pub(super) fn mss(lab: &mut Lab) -> anyhow::Result<()> {
    let site = Site::thin(lab, &site::settings())?;
    let mtu = site.relays.ingress.status()?.tun.mtu;
    for server in servers() {
        let headers = if server.contains(':') { 60 } else { 40 };
        // Timestamps take 12 more.
        let fitting = mtu - headers - 12..=mtu - headers;
        let listener = site.pair.server.run(|| TcpListener::bind((*server, 8080)))??;
        let mut client = site.pair.client.run(|| TcpStream::connect((*server, 8080)))??;
        let (mut service, _) = listener.accept()?;
        for end in [&client, &service] {
            let mss = SockRef::from(end).tcp_mss()?;
            ensure!(fitting.contains(&mss), "{server}: MSS {mss} for an MTU of {mtu}");
        }
        let sent = corpus::incompressible(50_000, 1);
        let copy = sent.clone();
        let writer = std::thread::spawn(move || service.write_all(&copy));
        let mut got = Vec::new();
        client.read_to_end(&mut got)?;
        ensure!(matches!(writer.join(), Ok(Ok(()))) && got == sent, "{server}: not what was sent");
    }
    let tx = &site.verify_lossless()?[0].peers[0].tx;
    ensure!(tx.send_errors["too_big"] == 0, "too long all the same: {tx:#?}");
    ensure!(site.is_connected()?, "no way to {}", SERVERS[0]);
    Ok(())
}
