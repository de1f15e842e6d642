//! Our side of the comparison with the kernel's TCP.

use dwell_sim::World;
use dwell_sim::scenario::{Options, Scenario};

use crate::table::mean;

const SEEDS: u64 = 3;

/// The rows of the comparison with Linux (`validate/kernel-line.sh`): 10 Mbit/s, 20 ms each way, a queue of 120 ms. Segments are
/// answered one by one, or as Linux does by default, two together or after 40 ms.
pub(crate) fn print() {
    println!("| | Mbit/s | mean wait | delayed: Mbit/s | mean wait |\n|---|---:|---:|---:|---:|");
    for (flavour, flows, loss) in [
        ("cubic", 1, 0.0),
        ("cubic", 4, 0.0),
        ("bbr", 1, 0.0),
        ("bbr", 4, 0.0),
        ("bbr", 1, 0.005),
        ("cubic", 1, 0.005),
    ] {
        let cells = ["", "delayed_ack = \"40ms\""].map(|delayed| {
            let link = |more: &str| {
                format!(
                    "rate = \"10mbit\"\ndelay = \"20ms\"\nbuffer_packets = 102\nqueue = \"drop-tail\"\nloss = {loss}\n{more}\n"
                )
            };
            let text = format!(
                "[about]\ntitle = \"a link in the lab\"\n[run]\nwarm_up = \"10s\"\nmeasure = \"40s\"\ndrain = \"0s\"\n\
                 [topology]\nkind = \"graph\"\n[link.l]\nfrom = \"a\"\nto = \"b\"\n{}\
                 [link.back]\nfrom = \"b\"\nto = \"a\"\n{}\
                 [flow.f]\nfrom = \"a\"\nto = \"b\"\nkind = \"tcp\"\nflavour = \"{flavour}\"\ncount = {flows}\n\
                 rto_min = \"200ms\"\nwindow = 20000\nstart_until = \"10ms\"\n{delayed}\n[scheme]\npreset = \"none\"\n",
                link("observe = true"),
                link("")
            );
            let nothing = |_: &str| Err("no files".to_owned());
            let parsed = Scenario::parse(&text, "linux", "linux", &Options::default(), &nothing);
            let scenario = parsed.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
            let runs: Vec<[f64; 5]> = (1..=SEEDS)
                .map(|seed| {
                    let world = World::new(&scenario.points[0].plan, seed);
                    let metrics = world.expect("a possible plan").run().metrics();
                    [metrics["throughput_bps"], metrics["l.wait_mean_s"], 0.0, 0.0, 0.0]
                })
                .collect();
            let here = mean(&runs);
            format!("{:.2} | {:.1} ms", here[0] / 1e6, here[1] * 1e3)
        });
        println!("| {flows} {flavour}, loss {loss} | {} | {} |", cells[0], cells[1]);
    }
}
