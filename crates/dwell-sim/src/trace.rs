//! Traces of packets as pcapng, to open in Wireshark, and of windows as CSV.
//!
//! Packets have the headers that they would have, with addresses that follow from the number of the flow (10.1.x.y to
//! 10.2.x.y), and no payload: their original length is that on the link. Segments are numbered in bytes. A compressed
//! unit is a datagram to port 7733, as between relays. Check sums of TCP are zero. SYNs
//! have the 40 bytes that they take on the link, and so no options: a window of 64 KiB or more shows as 65,535.

use std::io::{self, Write};

use crate::plan::{Plan, Traffic};
use crate::world::{Seen, Sighting, What};

mod headers;

/// The time stamps are nanoseconds (`if_tsresol`).
const NANOSECONDS: u8 = 9;
/// `LINKTYPE_IPV4`: packets begin with their header of IPv4. With `LINKTYPE_RAW` libpcap refuses files of several interfaces.
const IPV4: u16 = 228;

/// Makes a plan observable at these links, by index.
pub fn observe(plan: &mut Plan, links: &[usize]) {
    for &link in links {
        if let Some(link) = plan.links.get_mut(link) {
            link.medium.is_observed = true;
        }
    }
}

/// Writes packets as pcapng, an interface for each link.
#[derive(Debug)]
pub struct Pcapng<W> {
    out: W,
    /// The interface of each link that is traced.
    interfaces: Vec<Option<u32>>,
    /// The bytes of data in a segment, by flow.
    data_bytes: Vec<u32>,
    packets_max: u64,
    written: u64,
    left_out: u64,
    frame: Vec<u8>,
}

impl<W: Write> Pcapng<W> {
    /// Begins a file for these links of a plan, by index; no more than `packets_max` packets are written.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn new(mut out: W, plan: &Plan, links: &[usize], packets_max: u64) -> io::Result<Self> {
        out.write_all(&block(0x0a0d_0d0a, &section()))?;
        let mut interfaces = vec![None; plan.links.len()];
        for (n, &link) in links.iter().enumerate() {
            let Some(of) = plan.links.get(link) else { continue };
            interfaces[link] = Some(n as u32);
            out.write_all(&block(1, &interface(&of.name)))?;
        }
        let data_bytes = |flow: &crate::plan::Flow| match &flow.traffic {
            Traffic::Tcp(config, _) => config.segment_bytes.saturating_sub(config.header_bytes),
            _ => 0,
        };
        let data_bytes = plan.flows.iter().map(data_bytes).collect();
        Ok(Self {
            out,
            interfaces,
            data_bytes,
            packets_max,
            written: 0,
            left_out: 0,
            frame: Vec::new(),
        })
    }

    /// Writes a packet, if its link is traced and there is room.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn packet(&mut self, seen: &Seen) -> io::Result<()> {
        let Some(Some(interface)) = self.interfaces.get(seen.link).copied() else { return Ok(()) };
        if self.written == self.packets_max {
            self.left_out += 1;
            return Ok(());
        }
        self.written += 1;
        headers::write(seen, self.data_bytes[seen.flow], &mut self.frame);
        let captured = self.frame.len() as u32;
        let mut body = Vec::with_capacity(20 + self.frame.len() + 3);
        body.extend(interface.to_le_bytes());
        body.extend(((seen.at_ns >> 32) as u32).to_le_bytes());
        body.extend((seen.at_ns as u32).to_le_bytes());
        body.extend(captured.to_le_bytes());
        body.extend(seen.bytes.max(captured).to_le_bytes());
        body.extend_from_slice(&self.frame);
        self.out.write_all(&block(6, &body))
    }

    /// The packets that are written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The packets of traced links for which there was no room.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Ends the file.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Returns a line of a trace of windows, under the heading `seconds,flow,packets,threshold`; none for a packet.
pub fn window_line(sighting: &Sighting) -> Option<String> {
    match *sighting {
        Sighting::Window { at_ns, flow, packets, threshold } => {
            let (s, ns) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
            Some(format!("{s}.{ns:09},{flow},{packets:.3},{threshold:.3}\n"))
        }
        Sighting::Packet(_) => None,
    }
}

/// A block: its type, its length at both ends, padded to four bytes.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padding = body.len().wrapping_neg() % 4;
    let len = (12 + body.len() + padding) as u32;
    let mut out = Vec::with_capacity(len as usize);
    out.extend(kind.to_le_bytes());
    out.extend(len.to_le_bytes());
    out.extend_from_slice(body);
    out.extend_from_slice(&[0; 3][..padding]);
    out.extend(len.to_le_bytes());
    out
}

fn section() -> Vec<u8> {
    let mut body = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
    body.extend(1u16.to_le_bytes());
    body.extend(0u16.to_le_bytes());
    body.extend(u64::MAX.to_le_bytes()); // its length is not said
    body
}

fn interface(name: &str) -> Vec<u8> {
    let mut body = IPV4.to_le_bytes().to_vec();
    body.extend(0u16.to_le_bytes());
    body.extend(0u32.to_le_bytes()); // packets are as long as they are
    let mut option = |code: u16, value: &[u8]| {
        body.extend(code.to_le_bytes());
        body.extend((value.len() as u16).to_le_bytes());
        body.extend_from_slice(value);
        body.extend_from_slice(&[0; 3][..value.len().wrapping_neg() % 4]);
    };
    option(2, name.as_bytes());
    option(9, &[NANOSECONDS]);
    option(0, &[]);
    body
}

#[cfg(test)]
mod tests;
