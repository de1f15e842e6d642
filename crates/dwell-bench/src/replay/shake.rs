//! The same capture, with every packet a little earlier or later.
//!
//! A relay reads a packet some tens of microseconds after the kernel noted it, and sends a frame when it was
//! woken, not when it was due. Where few packets shrink, whether one is tried or left alone hangs on
//! which came with it, and that decides about the next: the savings are determined only so far. How
//! far is what replays of moved packets show.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context as _;
use dwell_base::Rng;
use dwell_base::time::MICRO_NS;
use dwell_trace::Capture;
use dwell_trace::replay::merge::{Merge, MergeStep};

/// The largest distance by which a packet is moved.
const MOVED_NS_MAX: u64 = 200 * MICRO_NS;
/// Of pcap with nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;
/// Packets begin with their IP header.
const LINK_TYPE_RAW: u32 = 101;

/// Writes the packets of a capture to another, moved at random by this seed; in the same order.
pub(super) fn shake(from: &Path, to: &Path, seed: u64) -> anyhow::Result<()> {
    let reported = |path: &Path| path.display().to_string();
    let capture = File::open(from).with_context(|| reported(from))?;
    let mut merge = Merge::new([Capture::open(capture).with_context(|| reported(from))?]);
    let mut out = BufWriter::new(File::create(to).with_context(|| reported(to))?);
    let mut rng = Rng::from_seed(seed);
    let mut write = |bytes: &[u8]| out.write_all(bytes).with_context(|| reported(to));
    for word in [MAGIC, 4 << 16 | 2, 0, 0, 1 << 16, LINK_TYPE_RAW] {
        write(&word.to_le_bytes())?;
    }
    let mut last_ns = 0;
    loop {
        let input = match merge.step() {
            MergeStep::Packet(input) => input,
            MergeStep::Skipped => continue,
            MergeStep::End => break,
        };
        let moved_ns = rng.below(2 * MOVED_NS_MAX + 1);
        last_ns =
            (input.at_ns.unwrap_or(last_ns) + moved_ns).saturating_sub(MOVED_NS_MAX).max(last_ns);
        let len = input.packet.len() as u32;
        let (seconds, nanos) = (last_ns / 1_000_000_000, last_ns % 1_000_000_000);
        for word in [seconds as u32, nanos as u32, len, input.wire_len.unwrap_or(len)] {
            write(&word.to_le_bytes())?;
        }
        write(input.packet)?;
    }
    out.flush().with_context(|| reported(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(path: &Path) -> Vec<(u64, Vec<u8>)> {
        let mut merge = Merge::new([Capture::open(File::open(path).unwrap()).unwrap()]);
        let mut packets = Vec::new();
        loop {
            match merge.step() {
                MergeStep::Packet(input) => {
                    packets.push((input.at_ns.unwrap(), input.packet.to_vec()));
                }
                MergeStep::Skipped => {}
                MergeStep::End => return packets,
            }
        }
    }

    #[test]
    fn packets_are_moved_by_little_and_keep_their_order() {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/captures/nfs-write.pcap");
        let to = std::env::temp_dir().join(format!("dwell-shaken-{}.pcap", std::process::id()));
        shake(&from, &to, 3).unwrap();
        let (before, after) = (packets(&from), packets(&to));
        std::fs::remove_file(&to).unwrap();
        assert_eq!(before.len(), after.len());
        let mut moved = 0;
        let mut latest_ns = 0;
        for ((before_ns, packet), (after_ns, same)) in before.iter().zip(&after) {
            assert_eq!(packet, same);
            // No earlier than one that stood before it and was moved back.
            latest_ns = latest_ns.max(*before_ns);
            assert!(*after_ns <= latest_ns + MOVED_NS_MAX && before_ns - MOVED_NS_MAX <= *after_ns);
            moved += usize::from(before_ns != after_ns);
        }
        assert!(moved > before.len() / 2, "{moved}");
        assert!(after.is_sorted_by_key(|(at_ns, _)| *at_ns));
    }
}
