//! The relays' UDP ports belong to them: no other user of the machine shares them.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::chown;

use anyhow::{Context, ensure};
use dwell_lab::lab::{Host, Lab, Process};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;
use socket2::{Domain, Socket, Type};

use crate::harness::Skip;
use crate::site::{self, EGRESS, INGRESS, Site, edit, is_up, kill, launch, wait_until};

/// Nobody, in every `/etc/passwd`.
const NOBODY: u32 = 65_534;
/// Anybody else.
const SOMEBODY: u32 = 12_345;

/// The egress goes on as nobody.
fn with_nobody(site: &mut Site) -> anyhow::Result<Process> {
    kill(site.relays.egress.process())?;
    for file in ["pair.psk", "egress.toml"] {
        chown(site.directory.join("relays").join(file), Some(NOBODY), Some(NOBODY))?;
    }
    edit(&site.relays.egress, &[("[node]\n", "[node]\nuser = \"nobody\"\n")])?;
    let log = site.directory.join("nobody.log");
    let nobody = launch(&site.pair.egress, site.relays.egress.config(), &log)?;
    wait_until("the relay of another user is up", || {
        let both = site.relays.egress.status().is_ok();
        Ok(both && is_up(&site.relays.egress)? && is_up(&site.relays.ingress)?)
    })?;
    Ok(nobody)
}

/// Tries, as this user, to share the port of a relay, and to be the one that its peer reaches.
/// Returns what the kernel let happen.
fn steal(host: &Host, uid: u32, port: SocketAddr, peer: SocketAddr) -> anyhow::Result<Vec<String>> {
    host.run(|| {
        // Only this thread is somebody else, and has no capabilities any more.
        let user = Uid::from_raw(uid);
        if let Err(error) = set_thread_res_uid(user, user, user) {
            return Err(Skip(format!("cannot become user {uid} here: {error}")).into());
        }
        let mut stolen = Vec::new();
        let any = SocketAddr::from(([0, 0, 0, 0], port.port()));
        for (address, share) in [port, any].into_iter().flat_map(|at| (0..4).map(move |n| (at, n)))
        {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
            socket.set_reuse_address(share & 1 != 0)?;
            socket.set_reuse_port(share & 2 != 0)?;
            if socket.bind(&address.into()).is_ok() {
                let connected = socket.connect(&peer.into()).is_ok();
                stolen.push(format!("{address}, options {share}, connected {connected}"));
            }
        }
        Ok(stolen)
    })?
}

pub(super) fn are_not_shared(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::thin(lab, &site::settings())?;
    // One relay remains root, the other one becomes nobody.
    let _nobody = with_nobody(&mut site)?;
    for (host, uid, port, peer) in [
        (&site.pair.ingress, NOBODY, INGRESS, EGRESS),
        (&site.pair.egress, SOMEBODY, EGRESS, INGRESS),
    ] {
        let stolen = steal(host, uid, port.into(), peer.into())?;
        ensure!(stolen.is_empty(), "user {uid} shares a relay's port: {stolen:?}");
    }
    ensure!(site.is_connected()?, "nothing passes any more");
    Ok(())
}

/// The sockets that a relay has: user, and peer in hexadecimal digits (zero for the listener).
fn sockets(host: &Host) -> anyhow::Result<Vec<(u32, String)>> {
    let text = host.run(|| fs::read_to_string("/proc/thread-self/net/udp"))??;
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_ours = fields.get(1)?.ends_with(":1E35"); // 7733
        Some((fields.get(7)?.parse().ok()?, (*fields.get(2)?).to_owned())).filter(|_| is_ours)
    };
    Ok(text.lines().filter_map(of_line).collect())
}

/// The peer moves after privileges were dropped: the socket to its new address shares the port of
/// one that was made before.
pub(super) fn are_shared_after_roaming(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::thin(lab, &site::settings())?;
    let _nobody = with_nobody(&mut site)?;
    let ingress = &site.pair.ingress;
    ingress.output("ip", &["address", "del", "10.0.0.1/24", "dev", "thin0"])?;
    ingress.address("thin0", "10.0.0.9/24")?;
    // The plain ways went with the address; only the tunnel's are asked for.
    wait_until("the peer has moved", || {
        let status = site.relays.egress.status()?;
        Ok(status.peers[0].endpoint.as_deref() == Some("10.0.0.9:7733"))
    })?;
    let log = || fs::read_to_string(site.directory.join("nobody.log")).unwrap_or_default();
    wait_until("both hear each other there", || {
        Ok(is_up(&site.relays.ingress)? && is_up(&site.relays.egress)?)
    })
    .with_context(log)?;
    let sockets = sockets(&site.pair.egress)?;
    ensure!(sockets.iter().all(|(uid, _)| *uid == NOBODY), "sockets of others: {sockets:?}");
    let peers: Vec<&str> = sockets.iter().map(|(_, peer)| peer.as_str()).collect();
    ensure!(peers.contains(&"0900000A:1E35"), "no socket to the new address: {peers:?}, {}", log());
    ensure!(peers.contains(&"00000000:0000"), "no listener: {peers:?}");
    ensure!(!log().contains("cannot reach"), "{}", log());
    wait_until("packets pass", || site.is_connected()).with_context(log)
}
