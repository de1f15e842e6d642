//! What an analysis says before a link is known: how many bytes could be saved at most, and if
//! not, why not.

use dwell_base::Rate;

use super::{
    Answer, CLOSED_SHARE_MIN, MISSING_SHARE_MAX, SAVING_MIN, Verdict, list, percent, signed,
};
use crate::analysis::{Analysis, Grouping, Over};
use crate::replay::link::Link;
use crate::replay::nature::{Nature, nature_of_port};
use crate::summary::{CodecSummary, Summary};

/// How many packets a block has, where the answer is about blocks: what relays begin with.
const BLOCK_PACKETS: usize = 5;

/// What a way of pressing would make of the bytes on an Ethernet between two relays.
struct Way {
    what: String,
    saving: f64,
}

/// Judges an analysis. Nothing is known of the link, so that it speaks of bytes only, and of the
/// most that could be saved: by pressing everything.
pub fn judge_traffic(analysis: &Analysis, summary: &Summary) -> Verdict {
    let mut ways: Vec<Way> = summary.codecs.iter().filter_map(single).collect();
    ways.extend(blocks(analysis));
    let best = ways.into_iter().max_by(|a, b| a.saving.total_cmp(&b.saving));
    let missing = missing_share(analysis);
    let is_payload = analysis.settings.over == Over::Payload;
    let answer = match &best {
        None => Answer::Unknown,
        // What was measured is not what relays would press, or too little of it: it may well be
        // the headers alone, which always shrink.
        Some(_) if is_payload || missing > MISSING_SHARE_MAX => Answer::Unknown,
        Some(best) if best.saving >= SAVING_MIN => Answer::Yes,
        Some(_) => Answer::No,
    };
    let mut sentences = vec![match &best {
        None => {
            "Nothing was compressed, so that nothing is known of what could be saved.".to_owned()
        }
        Some(_) if is_payload => {
            "Payloads were compressed without their headers, and relays press \
            whole packets: analyse with `--over packet` to know what they would save."
                .to_owned()
        }
        Some(best) => format!(
            "At most, with {}, relays would put {} of the bytes{} on an Ethernet, their own \
             headers included.",
            best.what,
            signed(-best.saving),
            if missing > 0.0 { " of what was captured whole" } else { "" }
        ),
    }];
    sentences.extend(closed_sentence(analysis));
    if missing > MISSING_SHARE_MAX {
        sentences.push(format!(
            "{} of the bytes are of packets that were cut off in the capture: capture whole \
             packets (`tcpdump -s 0`) to know more.",
            percent(missing)
        ));
    }
    if answer != Answer::Unknown {
        sentences.push(
            "What that does to delays and drops depends on the link: `dwell trace replay FILE \
             --rate RATE` tells."
                .to_owned(),
        );
    }
    Verdict { answer, best: None, sentences }
}

/// Bytes on the link with relays over bytes without, for packets in datagrams of their own.
fn saving(pressed_bytes: u64, datagrams: u64, packets: u64, bytes: u64) -> Option<f64> {
    let link = Link::ethernet(Rate::from_mbps(1));
    let frames = link.relay_frames(false);
    let overhead = u64::from(frames.frame_bytes + frames.pressed_unit_bytes);
    let without = bytes + packets * u64::from(link.overhead_bytes);
    let with = pressed_bytes + datagrams * overhead;
    (bytes > 0).then(|| 1.0 - with as f64 / without as f64)
}

fn single(codec: &CodecSummary) -> Option<Way> {
    let all = &codec.all;
    let saving = saving(all.sums.sent_bytes, all.packets, all.packets, all.bytes)?;
    Some(Way { what: format!("every packet pressed by itself with {}", codec.codec), saving })
}

fn blocks(analysis: &Analysis) -> Option<Way> {
    let codec = analysis.settings.block_codec?;
    let sums = analysis.blocks.of(Grouping::Link, BLOCK_PACKETS)?;
    let room = u64::from(Link::ethernet(Rate::from_mbps(1)).relay_frames(false).units_bytes_max);
    // A block that is longer than a datagram takes several.
    let datagrams = sums.blocks.max(sums.plain.div_ceil(room));
    let saving = saving(sums.plain, datagrams, analysis.blocks.packets, sums.bytes)?;
    Some(Way { what: format!("blocks of {BLOCK_PACKETS} packets and {codec}"), saving })
}

/// The share of the bytes that no codec saw, since their packets were cut off: by bytes, as it is
/// the long packets that are cut, and short ones are whole whatever the capture's limit was.
fn missing_share(analysis: &Analysis) -> f64 {
    let (ip, has_codecs) = (analysis.ip(), !analysis.settings.codecs.is_empty());
    if ip.bytes == 0 || (!has_codecs && analysis.settings.block_codec.is_none()) {
        return 0.0;
    }
    if has_codecs && analysis.settings.over == Over::Packet {
        let measured = analysis.sizes.iter().map(|size| size.measured_bytes);
        let measured = measured.fold(0, u64::saturating_add).min(ip.bytes);
        return 1.0 - measured as f64 / ip.bytes as f64;
    }
    // Blocks are made of some batches only, and payloads are shorter than their packets.
    let cut = analysis.files.iter().map(|file| file.cut_packets).fold(0, u64::saturating_add);
    cut as f64 / ip.packets as f64
}

/// What is closed, by port; and what looks closed by its entropy.
fn closed_sentence(analysis: &Analysis) -> Option<String> {
    let total = analysis.ip().bytes;
    if total == 0 {
        return None;
    }
    let mut bytes = [0u64; Nature::ALL.len()];
    for (pair, sums) in analysis.pairs.iter() {
        let ports = pair.classes().map(|class| class.port());
        if let Some(nature) = ports.filter_map(|p| nature_of_port(pair.protocol(), p)).next() {
            bytes[nature as usize] += sums.bytes;
        }
    }
    let share = |bytes: u64| bytes as f64 / total as f64;
    let closed = share(bytes.iter().sum());
    let mut named: Vec<(f64, Nature)> = Nature::ALL
        .into_iter()
        .map(|nature| (share(bytes[nature as usize]), nature))
        .filter(|(share, _)| *share >= 0.01)
        .collect();
    named.sort_by(|a, b| b.0.total_cmp(&a.0));
    let named: Vec<String> = named
        .iter()
        .map(|(share, nature)| format!("{} {}", percent(*share), nature.words()))
        .collect();
    let even = analysis.entropy.random_share();
    let by_entropy =
        even.filter(|share| *share >= CLOSED_SHARE_MIN).map_or(String::new(), |share| {
            format!(
                " Of larger payloads, {} are as even as compressed or encrypted data.",
                percent(share)
            )
        });
    Some(match named.is_empty() {
        true => format!("By their ports, next to none of the bytes are encrypted.{by_entropy}"),
        false => format!(
            "By their ports, {} of the bytes are encrypted: {}.{by_entropy}",
            percent(closed),
            list(&named)
        ),
    })
}

#[cfg(test)]
mod tests {
    use dwell_base::Rng;

    use super::*;
    use crate::replay::samples::{pcap, tcp_v4};
    use crate::{Accounts, Batch, Capture, Clock, Press, Settings};

    struct Stopped;

    impl Clock for Stopped {
        fn now_ns(&mut self) -> u64 {
            0
        }
    }

    fn judged(port: u16, bytes: usize, captured: usize, is_noise: bool) -> Verdict {
        let spec = "zstd:1".parse().unwrap();
        let settings =
            Settings { codecs: vec![spec], block_codec: Some(spec), ..Settings::default() };
        judged_with(&settings, port, bytes, captured, is_noise)
    }

    /// Packets of `bytes`, of which the first `captured` were captured, each with an
    /// acknowledgement.
    fn judged_with(
        settings: &Settings,
        port: u16,
        bytes: usize,
        captured: usize,
        is_noise: bool,
    ) -> Verdict {
        let mut rng = Rng::from_seed(3);
        let packets: Vec<_> = (0..2000)
            .flat_map(|n| {
                let mut body = b"nobody expects the Spanish inquisition; ".repeat(40);
                body.truncate(bytes);
                if is_noise {
                    rng.fill(&mut body);
                }
                let packet = tcp_v4(port, 5000, n as u32, &body);
                let answer = tcp_v4(5000, port, n as u32, &[]);
                [(n, packet[..captured.min(packet.len())].to_vec()), (n, answer)]
            })
            .collect();
        let file = pcap(&packets);
        let mut capture = Capture::open(&file[..]).unwrap();
        let mut accounts = Accounts::new(settings);
        accounts.begin("test", capture.format());
        let mut press = Press::new(settings, Stopped).unwrap();
        let mut batch = Batch::default();
        while accounts.fill(&mut capture, &mut batch) {
            press.batch(&batch).unwrap();
        }
        press.batch(&batch).unwrap();
        accounts.end_with(None);
        let mut analysis = accounts.finish();
        analysis.merge(press.finish()).unwrap();
        let summary = Summary::of(&analysis);
        judge_traffic(&analysis, &summary)
    }

    #[test]
    fn text_is_a_yes_and_ciphers_are_a_no() {
        let text = judged(80, 1000, 9999, false);
        assert_eq!(text.answer, Answer::Yes, "{}", text.to_text());
        assert!(text.to_text().contains("dwell trace replay"), "{}", text.to_text());
        let cipher = judged(443, 1000, 9999, true);
        assert_eq!(cipher.answer, Answer::No, "{}", cipher.to_text());
        assert!(cipher.to_text().contains("100 % of the bytes are encrypted: 100 % TLS"));
    }

    #[test]
    fn headers_with_whole_acknowledgements_do_not_tell() {
        // Half of the packets are whole, and the codec makes little of them: acknowledgements.
        let verdict = judged(80, 1000, 96, false);
        let said = verdict.to_text();
        assert_eq!(verdict.answer, Answer::Unknown, "{said}");
        assert!(verdict.sentences[0].contains("of what was captured whole"), "{said}");
        assert!(said.contains("96.3 % of the bytes") && said.contains("tcpdump -s 0"), "{said}");
    }

    #[test]
    fn payloads_alone_do_not_tell() {
        let spec = "zstd:1".parse().unwrap();
        let settings =
            Settings { codecs: vec![spec], over: crate::Over::Payload, ..Settings::default() };
        let verdict = judged_with(&settings, 80, 1000, 9999, false);
        assert_eq!(verdict.answer, Answer::Unknown, "{}", verdict.to_text());
        assert!(verdict.sentences[0].contains("--over packet"), "{}", verdict.to_text());
    }
}
