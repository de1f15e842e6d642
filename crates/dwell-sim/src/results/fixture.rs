//! A scenario with made-up runs, for the tests of evaluations.

use std::collections::BTreeMap;

use crate::scenario::{Options, Scenario, Value};

use super::record::{RunRecord, Task};
use super::store::Store;

/// The code that the runs are of.
pub(super) const CODE: &str = "test";

const TEXT: &str = r#"
[about]
title = "A test"
paper = "Somebody 2026"
figure = "Fig. 1"
note = "What to know."

[run]
warm_up = "1s"
measure = "1s"
bin = "1s"
replications = 2

[topology]
kind = "parking-lot"
relays = 2
rate = "100mbit"
buffer_packets = 100

[traffic]
kind = "on-off"
packet_bytes = 500
rate = "60mbit"
on = "250us"
off = "50us"

[scheme]
preset = "none"

[compress]
ratio = 0.7
time = "200us"

[[sweep]]
scheme.preset = ["none", "packet"]
[[sweep]]
compress.ratio = [0.7, 0.95]
quick = [0.7]

[[figure]]
id = "lines"
title = "Discards"
x = "compress.ratio"
y = "100 * target.discard"
series = ["scheme.preset"]

[[figure]]
id = "times"
title = "Delays by time"
kind = "timeline"
y = { "delay [ms]" = "1000 * target.delay_mean_s" }
where = { scheme.preset = "packet" }

[[figure]]
id = "shares"
title = "How late"
kind = "cdf"
x = 1e-6
y = { "target" = "target.excess_s" }
where = { scheme.preset = "packet", compress.ratio = 0.7 }

[[paper]]
place = "Section 1"
quantity = "discards"
where = { scheme.preset = "none", compress.ratio = 0.7 }
metric = "100 * target.discard"
value = 1.6
unit = "%"

[[paper]]
place = "Section 2"
quantity = "the largest"
where = { scheme.preset = "packet", compress.ratio = 0.7 }
metric = "100 * target.discard"
over = "max"
says = "very little"

[[paper]]
place = "Section 3"
quantity = "change"
where = { scheme.preset = "packet", compress.ratio = 0.7 }
against = { scheme.preset = "none" }
metric = "target.discard"
value = -70
reference = -80

[[paper]]
place = "Section 4"
quantity = "not run yet"
where = { scheme.preset = "packet", compress.ratio = 0.95 }
metric = "target.discard"
value = 0
comment = "it is rare"
"#;

/// Two schemes, two ratios, two seeds.
pub(super) fn scenario() -> Scenario {
    read(&Options::default())
}

/// The scenario with only one of the ratios.
pub(super) fn quick() -> Scenario {
    read(&Options { is_quick: true, ..Options::default() })
}

fn read(options: &Options) -> Scenario {
    let no_files = |name: &str| Err(format!("there is no file {name}"));
    Scenario::parse(TEXT, "x.toml", "test/x", options, &no_files).unwrap()
}

/// Of every 100 packets, `none` discards 1 with the first seed and 2 with the second, `packet`
/// 0.5 and 0.4; `packet` has not run at a ratio of 0.95.
pub(super) fn store(scenario: &Scenario) -> Store {
    let mut store = Store::default();
    for task in Task::all(scenario) {
        let is = |path: &str, value: Value| task.point.meets(&[(path.to_owned(), value)]);
        let is_first = task.seed == 1;
        let discard = match is("scheme.preset", Value::Text("none".to_owned())) {
            true if is_first => 0.01,
            true => 0.02,
            false if is("compress.ratio", Value::Real(0.95)) => continue,
            false if is_first => 0.005,
            false => 0.004,
        };
        let delays_s = vec![(0.5, 0.001), (1.5, if is_first { 0.002 } else { 9.0 })];
        let excess_s =
            if is_first { vec![(0.0, 3.0), (2e-6, 1.0)] } else { vec![(0.0, 2.0), (1e-6, 2.0)] };
        store.put(RunRecord {
            key: task.key(CODE),
            scenario: scenario.id.clone(),
            point: BTreeMap::new(),
            seed: task.seed,
            code: CODE.to_owned(),
            source_packets: 100,
            metrics: BTreeMap::from([("target.discard".to_owned(), discard)]),
            series: BTreeMap::from([
                ("target.delay_mean_s".to_owned(), delays_s),
                ("target.excess_s".to_owned(), excess_s),
            ]),
        });
    }
    store
}
