//! Our side of the comparison with the kernel's TCP.

use dwell_sim::World;
use dwell_sim::scenario::{Options, Scenario};

const SEEDS: u64 = 40;
/// What a probe takes where nothing waits: 20 ms each way, and its own transmissions of 84 bytes and Ethernet's 14.
const PROBE_S: f64 = 0.02 + 98.0 * 8.0 / 10e6;
/// A packet of 1,500 bytes has 1,514 on the lab's link, with Ethernet's header.
const ON_LINK: f64 = 1_514.0 / 1_500.0;
/// The greatest deviation of Student's t from the mean, for ten runs and 95 %.
const STUDENT: f64 = 2.023;

/// The rows of the comparison with Linux (`validate/kernel-line.sh`): 10 Mbit/s, 20 ms each way, a queue of 120 ms, and a probe
/// of 84 bytes each 50 ms, as `ping` sends them. Segments are answered two together or after 40 ms, as Linux does by default.
pub(crate) fn print() {
    println!("| | like | Mbit/s | wait of packets | of the probe |\n|---|---|---:|---:|---:|");
    for (flavour, flows, loss) in [
        ("cubic", 1, 0.0),
        ("cubic", 4, 0.0),
        ("bbr", 1, 0.0),
        ("bbr", 4, 0.0),
        ("bbr", 1, 0.005),
        ("cubic", 1, 0.005),
    ] {
        let likes: &[&str] = if flavour == "bbr" { &["linux"] } else { &["rfc", "linux"] };
        for like in likes {
            let [rate, wait, probe] = row(flavour, flows, loss, like);
            println!(
                "| {flows} {flavour}, loss {} % | {like} | {:.2} ± {:.2} | {:.1} ± {:.1} ms | {:.1} ± {:.1} ms |",
                loss * 100.0,
                rate.0 / 1e6,
                rate.1 / 1e6,
                wait.0 * 1e3,
                wait.1 * 1e3,
                probe.0 * 1e3,
                probe.1 * 1e3
            );
        }
    }
}

/// Throughput, the mean wait of packets and that of the probe, each with the half of its 95 % interval.
fn row(flavour: &str, flows: u32, loss: f64, like: &str) -> [(f64, f64); 3] {
    let text = scenario(flavour, flows, loss, like);
    let nothing = |_: &str| Err("no files".to_owned());
    let parsed = Scenario::parse(&text, "linux", "linux", &Options::default(), &nothing);
    let scenario = parsed.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let runs: Vec<[f64; 3]> = (1..=SEEDS)
        .map(|seed| {
            let world = World::new(&scenario.points[0].plan, seed);
            let metrics = world.expect("a possible plan").run().metrics();
            let probe = metrics["ping.delay_mean_s"] - PROBE_S;
            [metrics["f.throughput_bps"] / ON_LINK, metrics["l.wait_mean_s"], probe]
        })
        .collect();
    std::array::from_fn(|n| {
        let count = runs.len() as f64;
        let mean = runs.iter().map(|run| run[n]).sum::<f64>() / count;
        let squares = runs.iter().map(|run| (run[n] - mean).powi(2)).sum::<f64>();
        (mean, STUDENT * (squares / (count - 1.0) / count).sqrt())
    })
}

fn scenario(flavour: &str, flows: u32, loss: f64, like: &str) -> String {
    let link = |more: &str| {
        format!(
            "rate = \"10mbit\"\ndelay = \"20ms\"\nbuffer_packets = 100\nqueue = \"drop-tail\"\nloss = {loss}\n{more}\n"
        )
    };
    format!(
        "[about]\ntitle = \"a link in the lab\"\n[run]\nwarm_up = \"10s\"\nmeasure = \"40s\"\ndrain = \"0s\"\n\
         [topology]\nkind = \"graph\"\n[link.l]\nfrom = \"a\"\nto = \"b\"\n{}\
         [link.back]\nfrom = \"b\"\nto = \"a\"\n{}\
         [flow.f]\nfrom = \"a\"\nto = \"b\"\nkind = \"tcp\"\nflavour = \"{flavour}\"\ncount = {flows}\n\
         rto_min = \"200ms\"\nwindow = 20000\nstart_until = \"10ms\"\ndelayed_ack = \"40ms\"\nlike = \"{like}\"\n\
         packet_bytes = 1514\n\
         [flow.ping]\nfrom = \"a\"\nto = \"b\"\nkind = \"cbr\"\npacket_bytes = 98\nrate = \"15680bit\"\n\
         [scheme]\npreset = \"none\"\n",
        link("observe = true"),
        link("")
    )
}
