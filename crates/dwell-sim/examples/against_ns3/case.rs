//! The bottlenecks, what goes through them, and the same as scenarios.

use dwell_sim::World;
use dwell_sim::scenario::{Options, Scenario};

pub(crate) const FROM_S: u64 = 10;
pub(crate) const UNTIL_S: u64 = 60;
const SEEDS: u64 = 3;
/// Where single losses decide, three runs say nothing.
const SEEDS_WITH_LOSS: u64 = 20;
/// ns-3's single BBR behaves in one of two ways after each measurement of the least round trip.
const SEEDS_OF_ONE_BBR: u64 = 10;

/// A bottleneck, and what goes through it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) queue: &'static str,
    /// ns-3's name for it.
    pub(crate) tcp: &'static str,
    pub(crate) flows: u32,
    pub(crate) mbps: f64,
    rtt_ms: f64,
    limit: u32,
    pub(crate) ecn: bool,
    pub(crate) loss: f64,
    /// Mbit/s of packets that come by chance, in place of TCP.
    pub(crate) poisson: f64,
    pub(crate) seeds: u64,
    /// What is changed, in ns-3 or here, to test an explanation.
    pub(crate) test: Test,
}

/// What is changed to test why a case deviates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    /// Nothing.
    None,
    /// Our CUBIC like ns-3's, ns-3's with a slow start that ends at the threshold.
    Cubic,
    /// Our BBR like ns-3's, beside those of its runs in which nothing waited for half a round trip.
    Bbr,
    /// Our queue and our recovery like ns-3's.
    Queue,
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
            seeds: SEEDS,
            test: Test::None,
        }
    }
}

/// All cases; one that is changed to test an explanation comes after the one that it explains.
pub(crate) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for poisson in [9.0, 11.0] {
        for queue in ["fifo", "codel", "fq_codel", "pie"] {
            out.push(Case { queue, poisson, limit: 1_000, ..Case::default() });
        }
    }
    let fast = Case { mbps: 50.0, rtt_ms: 80.0, ..Case::default() };
    for tcp in ["NewReno", "Cubic"] {
        for queue in ["fifo", "codel", "fq_codel", "pie"] {
            out.push(Case { queue, tcp, ..Case::default() });
        }
        for queue in ["codel", "fq_codel", "pie"] {
            out.push(Case { queue, tcp, ecn: true, ..Case::default() });
        }
        out.push(Case { tcp, limit: 300, ..fast.clone() });
        out.push(Case { queue: "fq_codel", tcp, limit: 1_000, ..fast.clone() });
        let (loss, seeds) = (0.001, SEEDS_WITH_LOSS);
        out.push(Case { tcp, flows: 1, loss, seeds, ..Case::default() });
    }
    for flows in [1, 4] {
        let seeds = if flows == 1 { SEEDS_OF_ONE_BBR } else { SEEDS };
        out.push(Case { tcp: "Bbr", flows, seeds, ..Case::default() });
        out.push(Case { tcp: "Bbr", flows, limit: 1_000, seeds, ..fast.clone() });
    }
    out.push(Case { tcp: "Bbr", queue: "fq_codel", ..Case::default() });
    out.push(Case { tcp: "Bbr", flows: 1, loss: 0.01, ..Case::default() });
    out.into_iter().flat_map(Case::with_tests).collect()
}

impl Case {
    /// Returns the case and the same with what tests its explanation.
    fn with_tests(self) -> Vec<Self> {
        let test = match (self.tcp, self.queue) {
            ("Cubic", _) => Some(Test::Cubic),
            ("Bbr", "fifo") if self.flows == 1 && self.loss == 0.0 => Some(Test::Bbr),
            ("NewReno", "fq_codel") if self.poisson == 0.0 => Some(Test::Queue),
            _ => None,
        };
        let tested = test.map(|test| Self { test, ..self.clone() });
        [Some(self), tested].into_iter().flatten().collect()
    }

    /// The words that ns-3's program takes.
    pub(crate) fn words(&self) -> String {
        let tcp = if self.test == Test::Cubic { "CubicBounded" } else { self.tcp };
        format!(
            "--queue={} --tcp={tcp} --flows={} --rate={:.0} --rtt={} --limit={} --ecn={} --loss={} \
             --poisson={:.0}",
            self.queue,
            self.flows,
            self.mbps * 1e6,
            self.rtt_ms / 1e3,
            self.limit,
            u8::from(self.ecn),
            self.loss,
            self.poisson * 1e6
        )
    }

    pub(crate) fn name(&self) -> String {
        let traffic = match self.poisson > 0.0 {
            true => format!("Poisson, {} Mbit/s", self.poisson),
            false => format!("{} {}", self.flows, self.tcp),
        };
        let loss =
            if self.loss > 0.0 { format!(", loss {} %", self.loss * 100.0) } else { String::new() };
        let ecn = if self.ecn { ", ECN" } else { "" };
        let test = if self.test == Test::None { "" } else { " *(test)*" };
        format!(
            "{}{ecn} | {traffic}{loss}{test} | {} Mbit/s, {} ms",
            self.queue, self.mbps, self.rtt_ms
        )
    }

    /// The round trip without queues.
    pub(crate) fn rtt_s(&self) -> f64 {
        self.rtt_ms / 1e3
    }

    /// What a packet takes on the link.
    pub(crate) fn transmission_s(&self) -> f64 {
        1_500.0 * 8.0 / (self.mbps * 1e6)
    }

    /// What packets wait for in ns-3's device, which has a queue of one packet behind the discipline. Those that are
    /// managed see the wait before it only, so that with TCP, which follows their drops, that is compared.
    pub(crate) fn behind_s(&self) -> f64 {
        match (self.queue, self.poisson > 0.0) {
            (_, true) => self.transmission_s() * (self.poisson / self.mbps).min(1.0),
            ("fifo", false) => self.transmission_s(),
            _ => 0.0,
        }
    }

    /// The same network as a scenario.
    fn scenario(&self) -> String {
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
                let like = match name == "fq-codel" && self.test == Test::Queue {
                    true => "\nlike = \"ns-3\"",
                    false => "",
                };
                format!("queue = \"{name}\"\nbuffer_packets = {}\necn = {ecn}{like}", self.limit)
            }
        };
        let loss = if self.loss > 0.0 { format!("loss = {}", self.loss) } else { String::new() };
        let traffic = self.traffic();
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

    fn traffic(&self) -> String {
        if self.poisson > 0.0 {
            let bps = self.poisson * 1e6 / f64::from(self.flows);
            return format!("kind = \"poisson\"\npacket_bytes = 1500\nrate = \"{bps:.0}bit\"");
        }
        format!(
            "kind = \"tcp\"\nflavour = \"{}\"\necn = {}\nwindow = 20000\nstart_until = \"1s\"\n\
             like = \"{}\"",
            self.tcp.to_lowercase(),
            self.ecn,
            if self.test == Test::None { "rfc" } else { "ns-3" }
        )
    }

    /// Throughput, mean wait, drops, marks and fairness here.
    pub(crate) fn run(&self, seed: u64) -> [f64; 5] {
        let text = self.scenario();
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
}
