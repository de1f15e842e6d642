//! The comparison with Linux in virtual time: `validate/linux/cases.txt` says what, `validate/linux/line.sh` runs it there.

use std::collections::BTreeMap;

use dwell_sim::World;
use dwell_sim::scenario::{Options, Scenario};

mod tables;
mod verdict;

pub(crate) use tables::compare;

const FROM_S: f64 = 10.0;
const UNTIL_S: f64 = 40.0;
/// Runs here, with seeds of their own.
const SEEDS: u64 = 60;
/// A packet with Ethernet's header, which both count on the link, and its data in Linux (time stamps take 12 bytes) and here.
const WIRE: f64 = 1_514.0;
const DATA: f64 = 1_448.0;
const DATA_HERE: f64 = WIRE - 40.0;
/// Keys of a case that begin with this are the flow's, the others the link's.
const FLOW: &str = "flow ";
/// Ends the title of a case that has the runs of the one before in Linux, and something changed here.
const TEST: &str = " *(test)*";

/// A line of the list of cases.
struct Case<'a> {
    title: &'a str,
    words: BTreeMap<&'a str, &'a str>,
    link: &'a str,
}

impl<'a> Case<'a> {
    fn read(line: &'a str) -> Self {
        let parts: Vec<&str> = line.split(" | ").collect();
        let [title, _, words, link] = parts[..] else { panic!("{line}") };
        let words = words.split(' ').map(|word| word.split_once('=').expect("NAME=VALUE"));
        Self { title, words: words.collect(), link }
    }

    fn rate_bps(&self) -> f64 {
        let mbit = self.words["rate"].strip_suffix("mbit").expect("mbit");
        mbit.parse::<f64>().expect("a number") * 1e6
    }

    /// What a packet takes on the link.
    fn transmission_s(&self) -> f64 {
        WIRE * 8.0 / self.rate_bps()
    }

    /// The least propagation towards the receiver, in seconds.
    fn there_s(&self) -> f64 {
        let ms = |word: Option<&str>| word?.strip_suffix("ms")?.parse::<f64>().ok();
        let mut words = self.words["there"].split(',');
        let middle = ms(words.next()).expect("ms");
        (middle - ms(words.next()).unwrap_or(0.0)) / 1e3
    }

    fn loses(&self) -> bool {
        self.link.contains("loss =")
    }

    fn is_datagrams(&self) -> bool {
        self.words.contains_key("poisson")
    }

    /// The same as a scenario. A packet leaves Linux's link when its transmission begins, so that here the propagation is
    /// shorter by that.
    fn scenario(&self, window_bytes: f64) -> String {
        let there_ns = (self.there_s() - self.transmission_s()) * 1e9;
        let keys = keys(self.link);
        let is_flow = |line: &&str| line.trim_start().starts_with(FLOW);
        let link: Vec<&str> = keys.lines().filter(|line| !is_flow(line)).collect();
        let flow: String = keys
            .lines()
            .filter(is_flow)
            .map(|line| format!("\n{}", &line.trim_start()[FLOW.len()..]))
            .collect();
        format!(
            "[about]\ntitle = \"as in Linux\"\n[run]\nwarm_up = \"{FROM_S}s\"\nmeasure = \"{}s\"\ndrain = \"1s\"\n\
             [topology]\nkind = \"graph\"\n[link.l]\nfrom = \"a\"\nto = \"b\"\nrate = \"{}\"\ndelay = \"{there_ns:.0}ns\"\n\
             observe = true\n{}\n[link.out]\nfrom = \"b\"\nto = \"c\"\nrate = \"100gbit\"\ndelay = \"0s\"\nobserve = true\n\
             [link.back]\nfrom = \"c\"\nto = \"a\"\nrate = \"1gbit\"\ndelay = \"{}\"\n\
             [flow.f]\nfrom = \"a\"\nto = \"c\"\npacket_bytes = {WIRE}\n{}\n[scheme]\npreset = \"none\"\n",
            UNTIL_S - FROM_S,
            self.words["rate"],
            link.join("\n"),
            self.words["back"],
            self.traffic(window_bytes, &flow) + &flow
        )
    }

    /// What the flow is, without the keys that `others` has.
    fn traffic(&self, window_bytes: f64, others: &str) -> String {
        if let Some(rate) = self.words.get("poisson") {
            return format!("kind = \"poisson\"\nrate = \"{rate}bit\"");
        }
        let flavour = self.words["tcp"].replace("reno", "newreno");
        let window = match self.words.get("reader") {
            None => "window = 20000".to_owned(),
            Some(reader) => {
                let numbers: Vec<f64> = reader.split(',').filter_map(|n| n.parse().ok()).collect();
                let [_, rate, every] = numbers[..] else { panic!("{reader}") };
                let (packets, rate) = ((window_bytes / DATA).round(), rate * DATA_HERE / DATA);
                let every = match every >= 0.1 {
                    true => format!("\nread_every = \"{:.0}ms\"", every * 1e3),
                    false => String::new(),
                };
                format!(
                    "window = {packets:.0}\nannounced = {packets:.0}\nread_rate = \"{rate:.0}bit\"{every}"
                )
            }
        };
        let all = format!(
            "kind = \"tcp\"\nflavour = \"{flavour}\"\nlike = \"linux\"\ncount = {}\nrto_min = \"200ms\"\ndelayed_ack = \"40ms\"\n\
             start = \"100ms\"\nstart_until = \"1s\"\n{window}",
            self.words["flows"]
        );
        let key = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        let has = |line: &&str| !others.lines().any(|other| key(other) == key(line));
        all.lines().filter(has).collect::<Vec<_>>().join("\n")
    }

    fn run(&self, seed: u64, window_bytes: f64) -> Numbers {
        let text = self.scenario(window_bytes);
        let nothing = |_: &str| Err("no files".to_owned());
        let parsed = Scenario::parse(&text, "linux", "linux", &Options::default(), &nothing);
        let scenario = parsed.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let world = World::new(&scenario.points[0].plan, seed).expect("a possible plan");
        let mut losses = Losses::default();
        let travel_ns = self.there_s() * 1e9;
        let metrics = world.run_observed(|sighting| losses.see(sighting, travel_ns)).metrics();
        let get = |name: &str| metrics.get(name).copied().unwrap_or(f64::NAN);
        let delays = ["mean", "p50", "p90", "p99"];
        Numbers {
            rate: get("f.throughput_bps") / WIRE * DATA,
            wait: get("l.wait_mean_s"),
            drops: metrics.get("l.queue_dropped").copied().unwrap_or(0.0),
            marks: metrics.get("l.queue_marked").copied().unwrap_or(0.0),
            window: window_bytes,
            lost: losses.share(),
            run: losses.run(),
            delays: delays.map(|which| get(&format!("f.delay_{which}_s"))),
        }
    }
}

/// Keys with commas between them, as lines; a comma within brackets stays.
fn keys(text: &str) -> String {
    let mut depth = 0;
    let put = |c: char| {
        depth += i32::from("[{".contains(c)) - i32::from("]}".contains(c));
        if c == ',' && depth == 0 { '\n' } else { c }
    };
    text.chars().map(put).collect()
}

/// What packets begin on the link, and which of them come out of it.
#[derive(Default)]
struct Losses {
    begun_ns: std::collections::VecDeque<u64>,
    /// Lengths of runs of losses that have ended, their number, and the run that goes on.
    lost: u64,
    runs: u64,
    now: u64,
    arrived: u64,
}

impl Losses {
    fn see(&mut self, sighting: &dwell_sim::world::Sighting, travel_ns: f64) {
        let dwell_sim::world::Sighting::Packet(seen) = sighting else { return };
        match seen.link {
            0 => self.begun_ns.push_back(seen.at_ns),
            1 => self.arrive(seen.at_ns, travel_ns),
            _ => {}
        }
    }

    /// With a link that loses nothing else, whatever began long enough before is lost.
    fn arrive(&mut self, at_ns: u64, travel_ns: f64) {
        while let Some(begun_ns) = self.begun_ns.pop_front() {
            if begun_ns as f64 + travel_ns + 2.0 >= at_ns as f64 {
                self.arrived += 1;
                self.lost += self.now;
                self.runs += u64::from(self.now > 0);
                self.now = 0;
                return;
            }
            self.now += 1;
        }
    }

    fn share(&self) -> f64 {
        self.lost as f64 / (self.lost + self.arrived).max(1) as f64
    }

    fn run(&self) -> f64 {
        self.lost as f64 / self.runs.max(1) as f64
    }
}

/// What is measured of a run.
#[derive(Clone, Copy, Default)]
struct Numbers {
    /// Bits of data that a second brings.
    rate: f64,
    wait: f64,
    /// Packets that the queue has dropped, and marked.
    drops: f64,
    marks: f64,
    window: f64,
    lost: f64,
    run: f64,
    delays: [f64; 4],
}

impl Numbers {
    /// Reads a line of `validate/linux/line.sh`.
    fn read(line: &str) -> Self {
        // What is not said is not nothing.
        let missing = f64::NAN;
        let mut out = Self {
            rate: missing,
            wait: missing,
            drops: missing,
            marks: missing,
            ..Self::default()
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        for part in words.chunk_by(|_, next| next.parse::<f64>().is_ok()) {
            let numbers: Vec<f64> = part[1..].iter().filter_map(|word| word.parse().ok()).collect();
            match (part[0], &numbers[..]) {
                ("bytes", bytes) => out.rate = bytes.iter().sum::<f64>() * 8.0 / (UNTIL_S - FROM_S),
                ("wait", [wait, _]) => out.wait = *wait,
                ("drops", [drops]) => out.drops = *drops,
                ("marks", [marks]) => out.marks = *marks,
                ("window", [window]) => out.window = *window,
                ("datagrams", [_, lost, run, delays @ ..]) => {
                    (out.lost, out.run) = (*lost, *run);
                    out.delays = delays.try_into().expect("four delays");
                }
                _ => {}
            }
        }
        out
    }
}
