//! Managed queues, TCP and BBR against ns-3, through one bottleneck: `cases` prints what ns-3 is to run, `compare
//! FILE` runs the same here and prints the tables. `validate/ns3/run.sh` does both. `linux` prints our side of the
//! comparison with `validate/kernel-line.sh`.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::collections::BTreeMap;

use dwell_sim::World;
use dwell_sim::scenario::{Options, Scenario};

const SEEDS: u64 = 3;
const FROM_S: u64 = 10;
const UNTIL_S: u64 = 60;

/// A bottleneck, and what goes through it.
struct Case {
    queue: &'static str,
    tcp: &'static str,
    flows: u32,
    mbps: f64,
    rtt_ms: f64,
    limit: u32,
    ecn: bool,
    loss: f64,
    /// Mbit/s of packets that come by chance, in place of TCP.
    poisson: f64,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            queue: "fifo",
            tcp: "NewReno",
            flows: 4,
            mbps: 10.0,
            rtt_ms: 40.0,
            limit: 100,
            ecn: false,
            loss: 0.0,
            poisson: 0.0,
        }
    }
}

fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for poisson in [9.0, 11.0] {
        for queue in ["fifo", "codel", "fq_codel", "pie"] {
            out.push(Case { queue, poisson, limit: 1_000, ..Case::default() });
        }
    }
    for tcp in ["NewReno", "Cubic"] {
        for queue in ["fifo", "codel", "fq_codel", "pie"] {
            out.push(Case { queue, tcp, ..Case::default() });
        }
        for queue in ["codel", "fq_codel", "pie"] {
            out.push(Case { queue, tcp, ecn: true, ..Case::default() });
        }
        out.push(Case {
            queue: "fifo",
            tcp,
            mbps: 50.0,
            rtt_ms: 80.0,
            limit: 300,
            ..Case::default()
        });
        out.push(Case {
            queue: "fq_codel",
            tcp,
            mbps: 50.0,
            rtt_ms: 80.0,
            limit: 1_000,
            ..Case::default()
        });
        out.push(Case { queue: "fifo", tcp, flows: 1, loss: 0.001, ..Case::default() });
    }
    for flows in [1, 4] {
        out.push(Case { tcp: "Bbr", flows, ..Case::default() });
        out.push(Case {
            tcp: "Bbr",
            flows,
            limit: 1_000,
            mbps: 50.0,
            rtt_ms: 80.0,
            ..Case::default()
        });
    }
    out.push(Case { tcp: "Bbr", queue: "fq_codel", ..Case::default() });
    out.push(Case { tcp: "Bbr", flows: 1, loss: 0.01, ..Case::default() });
    out
}

impl Case {
    /// The words that ns-3's program takes.
    fn words(&self) -> String {
        format!(
            "--queue={} --tcp={} --flows={} --rate={:.0} --rtt={} --limit={} --ecn={} --loss={} \
             --poisson={:.0}",
            self.queue,
            self.tcp,
            self.flows,
            self.mbps * 1e6,
            self.rtt_ms / 1e3,
            self.limit,
            u8::from(self.ecn),
            self.loss,
            self.poisson * 1e6
        )
    }

    fn name(&self) -> String {
        let traffic = match self.poisson > 0.0 {
            true => format!("Poisson, {} Mbit/s", self.poisson),
            false => format!("{} {}", self.flows, self.tcp),
        };
        let loss =
            if self.loss > 0.0 { format!(", loss {} %", self.loss * 100.0) } else { String::new() };
        let ecn = if self.ecn { ", ECN" } else { "" };
        format!("{}{ecn} | {traffic}{loss} | {} Mbit/s, {} ms", self.queue, self.mbps, self.rtt_ms)
    }

    /// The same network as a scenario.
    fn scenario(&self, reno_friendly: bool) -> String {
        let (quarter, eighth) = (self.rtt_ms * 1e3 / 4.0, self.rtt_ms * 1e3 / 8.0);
        let rate = format!("{:.0}kbit", self.mbps * 1e3);
        let ecn = self.ecn;
        let queue = match self.queue {
            // One packet more waits in ns-3's device, and ns-2's rule counts that which comes.
            "fifo" => format!(
                "queue = \"drop-tail\"\nbuffer_packets = {}\nobserve = true",
                self.limit + 2
            ),
            name => {
                let name = name.replace('_', "-");
                format!("queue = \"{name}\"\nbuffer_packets = {}\necn = {ecn}", self.limit)
            }
        };
        let loss = if self.loss > 0.0 { format!("loss = {}", self.loss) } else { String::new() };
        let traffic = match self.poisson > 0.0 {
            true => format!(
                "kind = \"poisson\"\npacket_bytes = 1500\nrate = \"{:.0}bit\"",
                self.poisson * 1e6 / f64::from(self.flows)
            ),
            false => format!(
                "kind = \"tcp\"\nflavour = \"{}\"\necn = {ecn}\nwindow = 20000\nstart_until = \"1s\"\n\
                 reno_friendly = {reno_friendly}",
                self.tcp.to_lowercase()
            ),
        };
        let mut text = format!(
            "[about]\ntitle = \"a bottleneck\"\n[run]\nwarm_up = \"{FROM_S}s\"\nmeasure = \"{}s\"\ndrain = \"0s\"\n\
             [topology]\nkind = \"graph\"\n[link.slow]\nfrom = \"l\"\nto = \"r\"\nrate = \"{rate}\"\n\
             delay = \"{quarter:.0}us\"\n{queue}\n{loss}\n\
             [link.slow-back]\nfrom = \"r\"\nto = \"l\"\nrate = \"{rate}\"\ndelay = \"{quarter:.0}us\"\n",
            UNTIL_S - FROM_S
        );
        for n in 0..self.flows {
            text += &format!(
                "[link.in{n}]\nfrom = \"s{n}\"\nto = \"l\"\nrate = \"1gbit\"\ndelay = \"{eighth:.0}us\"\n\
                 duplex = true\n[link.out{n}]\nfrom = \"r\"\nto = \"d{n}\"\nrate = \"1gbit\"\n\
                 delay = \"{eighth:.0}us\"\nduplex = true\n\
                 [flow.f{n}]\nfrom = \"s{n}\"\nto = \"d{n}\"\ngroup = \"all\"\n{traffic}\n"
            );
        }
        text + "[scheme]\npreset = \"none\"\n"
    }

    /// Throughput, mean wait, drops, marks and fairness here.
    fn run(&self, seed: u64, reno_friendly: bool) -> [f64; 5] {
        let text = self.scenario(reno_friendly);
        let nothing = |_: &str| Err("no files".to_owned());
        let parsed = Scenario::parse(&text, "case", "case", &Options::default(), &nothing);
        let scenario = parsed.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let outcome = World::new(&scenario.points[0].plan, seed).expect("a possible plan").run();
        let metrics = outcome.metrics();
        let get = |name: &str| metrics.get(name).copied().unwrap_or(0.0);
        let is_tcp = self.poisson == 0.0;
        let rate = if is_tcp { get("throughput_bps") } else { get("slow.rate_bps") };
        let fairness = if is_tcp { get("jain") } else { 1.0 };
        [
            rate,
            get("slow.wait_mean_s"),
            get("slow.queue_dropped"),
            get("slow.queue_marked"),
            fairness,
        ]
    }

    /// What packets wait for in ns-3's device, which has a queue of one packet behind the discipline. Those that are
    /// managed see the wait before it only, so that with TCP, which follows their drops, that is compared.
    fn behind_s(&self) -> f64 {
        let packet_s = 1_500.0 * 8.0 / (self.mbps * 1e6);
        match (self.queue, self.poisson > 0.0) {
            (_, true) => packet_s * (self.poisson / self.mbps).min(1.0),
            ("fifo", false) => packet_s,
            _ => 0.0,
        }
    }
}

fn mean(runs: &[[f64; 5]]) -> [f64; 5] {
    std::array::from_fn(|n| runs.iter().map(|run| run[n]).sum::<f64>() / runs.len() as f64)
}

/// Lines of `case|seed|throughput wait wait_max drops marks fairness`.
fn theirs(text: &str) -> BTreeMap<usize, Vec<[f64; 5]>> {
    let mut out: BTreeMap<usize, Vec<[f64; 5]>> = BTreeMap::new();
    for line in text.lines() {
        let mut parts = line.split('|');
        let case = parts.next().and_then(|case| case.parse().ok()).expect("the number of a case");
        let numbers: Vec<f64> = parts
            .nth(1)
            .expect("numbers")
            .split(' ')
            .map(|n| n.parse().expect("a number"))
            .collect();
        let [rate, wait, _, drops, marks, fairness] = numbers[..] else { panic!("{line}") };
        out.entry(case).or_default().push([rate, wait, drops, marks, fairness]);
    }
    out
}

fn compare(text: &str) {
    let theirs = theirs(text);
    println!(
        "| queue | traffic | link | Mbit/s, ns-3 | here | | mean wait, ns-3 | here | | drops + marks, ns-3 | here | fairness, ns-3 | here |"
    );
    println!("|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (n, case) in cases().iter().enumerate() {
        let Some(runs) = theirs.get(&n) else { continue };
        let mut there = mean(runs);
        there[1] += case.behind_s();
        print_row(&case.name(), case, there, true);
        if case.tcp == "Cubic" {
            let name = case.name().replace("Cubic", "Cubic, here as in ns-3");
            print_row(&name, case, there, false);
        }
    }
}

fn print_row(name: &str, case: &Case, there: [f64; 5], reno_friendly: bool) {
    let ours: Vec<[f64; 5]> = (1..=SEEDS).map(|seed| case.run(seed, reno_friendly)).collect();
    let here = mean(&ours);
    let percent = |n: usize| (here[n] / there[n] - 1.0) * 100.0;
    println!(
        "| {name} | {:.2} | {:.2} | {:+.1} % | {:.1} ms | {:.1} ms | {:+.0} % | {:.0} | {:.0} | {:.2} | {:.2} |",
        there[0] / 1e6,
        here[0] / 1e6,
        percent(0),
        there[1] * 1e3,
        here[1] * 1e3,
        percent(1),
        there[2] + there[3],
        here[2] + here[3],
        there[4],
        here[4]
    );
}

/// The rows of the comparison with Linux (`validate/kernel-line.sh`): 10 Mbit/s, 20 ms each way, a queue of 120 ms. Segments are
/// answered one by one, or as Linux does by default, two together or after 40 ms.
fn linux() {
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

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["cases"] => {
            for (n, case) in cases().iter().enumerate() {
                for seed in 1..=SEEDS {
                    println!(
                        "{n}|{seed}|{} --seed={seed} --from={FROM_S} --until={UNTIL_S}",
                        case.words()
                    );
                }
            }
        }
        ["linux"] => linux(),
        ["compare", file] => compare(&std::fs::read_to_string(file).expect("ns-3's numbers")),
        _ => panic!("cases, compare FILE, or linux"),
    }
}
