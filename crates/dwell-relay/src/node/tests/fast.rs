//! Fast and long paths that lose a little: what is on its way there is much more than elsewhere.

use dwell_base::Rate;
use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_testkit::{LinkSpec, extent};

use super::contexts::{assert_sound, peers};
use super::harness::*;

const RUNNING: &str = "scheme = \"host-pair\"\ncodec = \"zstd:1\"\nhistory = \"host-pair\"\n\
                       history_mode = \"running\"";
const TEXT: Traffic = Traffic { flows: 20, six: true, payload_max: 1_308, random: 0.4 };
const SECONDS: u64 = 5;

#[derive(Clone, Copy, Debug)]
struct Path {
    mbps: u64,
    rtt_ms: u64,
    loss: f64,
}

#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Of packets that came in the last seconds.
    goodput_mbps: u64,
    lost_generations: u64,
    gaps: u64,
    /// Packets that did not come, of a million.
    lost_ppm: u64,
    encoded_again: u64,
}

/// One end sends more than the link takes, for some seconds.
fn load(path: Path, seed: u64) -> Outcome {
    let Path { mbps, rtt_ms, loss } = path;
    let link = LinkSpec::new()
        .with_rate(Rate::from_mbps(mbps))
        .with_delay_ns(rtt_ms * MILLI_NS / 2)
        .with_loss(loss);
    let rate = format!("{}kbit", mbps * 1_000 * 98 / 100);
    let configs = [0, 1].map(|side| config_of(side, true, &rate, RUNNING));
    let mut net = Net::new(&configs, &link, seed);
    net.set_traffic(TEXT);
    net.run_to(4_000);
    // Half of it is noise, and the rest becomes next to nothing: twice the link's rate fills it.
    let spacing_ns = 700 * 8 * 1_000 / (2 * mbps);
    let packets = SECONDS * SECOND_NS / spacing_ns;
    net.net.with_node(net.ends[0], |end, _, _| end.source(at_ms(4_000), packets, spacing_ns));
    net.run_to(4_000 + SECONDS * 1_000 + 8_000);
    assert_sound(&net);
    let [from, to] = peers(&net);
    let came: usize = net.end(1).env.delivered.iter().map(Vec::len).sum();
    Outcome {
        goodput_mbps: came as u64 * 8 / SECONDS / 1_000_000,
        lost_generations: to.rx.contexts.lost_generations,
        gaps: to.rx.contexts.gaps,
        lost_ppm: (from.tx.sent.packets - to.rx.packets.packets) * 1_000_000 / from.tx.sent.packets,
        encoded_again: from.tx.contexts.encoded_again_packets,
    }
}

/// As much comes as without loss.
#[test]
fn generations_go_on_where_much_is_on_its_way() {
    let paths = vec![(100, 100, &[0.001, 0.01][..]), (10, 600, &[0.01]), (50, 600, &[0.001])];
    for (mbps, rtt_ms, losses) in extent::cases(2, paths) {
        let whole = load(Path { mbps, rtt_ms, loss: 0.0 }, 1);
        for &loss in losses {
            let path = Path { mbps, rtt_ms, loss };
            let Outcome { goodput_mbps, lost_generations, gaps, lost_ppm, encoded_again } =
                load(path, 1);
            println!(
                "{path:?}: {goodput_mbps} of {} Mbit/s, {lost_generations} generations lost, {gaps} gaps, \
                 {lost_ppm} ppm of packets lost, {encoded_again} encoded again",
                whole.goodput_mbps
            );
            assert!(gaps > 0, "{path:?}");
            let most = u64::from(loss >= 0.005);
            assert!(lost_generations <= most, "{path:?}: {lost_generations}");
            assert!(lost_ppm == 0 || lost_generations > 0, "{path:?}: {lost_ppm}");
            assert!(goodput_mbps * 100 >= whole.goodput_mbps * 95, "{path:?}: {goodput_mbps}");
        }
    }
}
