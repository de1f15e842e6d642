//! A link on which nearly nothing happens.

use std::time::Duration;

use anyhow::ensure;
use dwell_lab::lab::Lab;
use dwell_lab::lab::topology::THIN_DEVICE;

use crate::site::{self, Site};
use crate::web::servers;

/// In the middle of the keep-alive interval a link is silent; what is permitted here is one
/// exchange of reports, and what the kernels say to each other.
const IDLE_BYTES_MAX: u64 = 600;

pub(super) fn idle(lab: &mut Lab) -> anyhow::Result<()> {
    let site = Site::thin(lab, &site::settings())?;
    for server in servers() {
        let (summary, said) = site.ping(&["-c", "20", "-i", "0.02", "-W", "2", server])?;
        ensure!(summary.replies.len() == 20, "{said}");
    }
    for status in site.verify_lossless()? {
        let peer = &status.peers[0];
        ensure!(peer.waiting_packets == 0 && peer.waiting_bytes == 0, "{peer:#?}");
    }
    // The reports on the pings pass.
    std::thread::sleep(Duration::from_millis(2500));
    let sent = || -> anyhow::Result<u64> {
        let (ingress, egress) = (&site.pair.ingress, &site.pair.egress);
        Ok(ingress.tx_bytes(THIN_DEVICE)? + egress.tx_bytes(THIN_DEVICE)?)
    };
    let before = sent()?;
    std::thread::sleep(Duration::from_secs(4));
    let bytes = sent()? - before;
    ensure!(bytes <= IDLE_BYTES_MAX, "{bytes} bytes in 4 s on an idle link");
    println!("{bytes} bytes in 4 s");
    Ok(())
}
