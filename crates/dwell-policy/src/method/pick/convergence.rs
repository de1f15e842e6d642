//! How soon the choice is what the linear programme has, from cold and where contents take turns: in virtual time, with what codecs
//! were measured to cost and to leave.

use super::*;

const MBIT: f64 = 125_000.0;
/// What a trial is made of, and a batch, in bytes.
const TRIAL_LEN: f64 = 196_608.0;
const BATCH_LEN: f64 = 14_000.0;
/// What is chosen has to carry this part of what the best codec does: others have to carry 3 % more to be chosen.
const PART: f64 = 0.95;
const RATES_MBIT: [f64; 4] = [1.0, 10.0, 50.0, 200.0];

/// What is assumed of zstd -3, 1, 3, 6, 9, 12 and 15, and of models of order 4, 6 and 12, as by the relay, which uses models up to
/// 30 Mbit/s.
const ASSUMED: [f64; 10] = [4.0, 7.0, 11.0, 20.0, 30.0, 60.0, 110.0, 100.0, 180.0, 240.0];
const ZSTD: usize = 7;
/// The one to begin with where no rate is known.
const FIRST: usize = 1;

/// What each costs a byte, what it leaves in use with 1 MiB of history, and what in trials: measured in batches of 14,000 bytes, on a
/// Xeon of 2.7 GHz.
struct Content {
    cost_ns: [f64; 10],
    in_use: [f64; 10],
    in_trials: [f64; 10],
}

const PROSE: Content = Content {
    cost_ns: [3.8, 5.5, 9.0, 16.8, 25.5, 36.0, 85.0, 75.0, 110.0, 280.0],
    in_use: [0.620, 0.382, 0.364, 0.341, 0.332, 0.325, 0.321, 0.253, 0.238, 0.246],
    in_trials: [0.626, 0.394, 0.375, 0.356, 0.351, 0.348, 0.345, 0.263, 0.255, 0.257],
};
/// The rows of `pg_dump --inserts` after `pgbench`: accounts, and the history.
const ACCOUNTS: Content = Content {
    cost_ns: [0.6, 0.8, 0.8, 5.5, 7.0, 11.0, 9.0, 12.5, 12.5, 15.0],
    in_use: [0.0337, 0.0199, 0.0202, 0.0151, 0.0154, 0.0155, 0.0154, 0.0133, 0.0129, 0.0130],
    in_trials: [0.0336, 0.0183, 0.0177, 0.0156, 0.0158, 0.0159, 0.0157, 0.0135, 0.0136, 0.0137],
};
const HISTORY: Content = Content {
    cost_ns: [2.8, 1.9, 4.8, 11.5, 14.5, 23.0, 57.0, 29.0, 35.0, 42.0],
    in_use: [0.221, 0.146, 0.149, 0.137, 0.130, 0.126, 0.126, 0.088, 0.088, 0.088],
    in_trials: [0.225, 0.148, 0.150, 0.139, 0.133, 0.129, 0.128, 0.093, 0.092, 0.092],
};
const JSON: Content = Content {
    cost_ns: [4.6, 4.3, 6.5, 12.7, 18.2, 27.0, 75.0, 46.0, 65.0, 115.0],
    in_use: [0.453, 0.272, 0.275, 0.233, 0.218, 0.216, 0.217, 0.204, 0.190, 0.173],
    in_trials: [0.446, 0.270, 0.272, 0.246, 0.237, 0.236, 0.234, 0.211, 0.209, 0.183],
};
const LOGS: Content = Content {
    cost_ns: [1.2, 1.9, 2.1, 8.0, 9.7, 11.0, 20.5, 20.0, 22.0, 25.0],
    in_use: [0.102, 0.0855, 0.0888, 0.0775, 0.0688, 0.0682, 0.0677, 0.0508, 0.0449, 0.0431],
    in_trials: [0.103, 0.0850, 0.0877, 0.0745, 0.0660, 0.0653, 0.0652, 0.0505, 0.0450, 0.0425],
};
const NOISE: Content = Content {
    cost_ns: [0.4, 0.6, 0.8, 1.9, 1.9, 2.2, 6.0, 630.0, 900.0, 700.0],
    in_use: [1.0; 10],
    in_trials: [1.0; 10],
};

impl Content {
    fn carried(&self, link: f64, codec: usize) -> Carried {
        let point = CodecPoint::new(self.cost_ns[codec], self.in_use[codec]);
        Processor::default().carried(link, point)
    }

    /// The most that any codec carries.
    fn most(&self, link: f64) -> f64 {
        let is_possible = possible(link);
        let all = (0..10).filter(|&codec| is_possible(codec));
        all.map(|codec| self.carried(link, codec).rate).fold(0.0, f64::max)
    }
}

fn possible(link: f64) -> impl Fn(usize) -> bool {
    move |codec| codec < ZSTD || link <= 30.0 * MBIT
}

/// A sender that always has more: of each of its contents so many bytes by turns.
struct Sender<'a> {
    pick: CodecPick<usize>,
    turns: &'a [(&'a Content, f64)],
    link: f64,
    now_ns: f64,
    bytes: f64,
    reviewed_ns: f64,
    trial: Option<(f64, Vec<Tried<usize>>, u64)>,
    /// What measurements are off by, in turns.
    noise: usize,
}

impl<'a> Sender<'a> {
    fn new(turns: &'a [(&'a Content, f64)], mbit: f64) -> Self {
        let of = |(codec, &cost_ns)| Assumed {
            codec,
            cost_ns,
            receiver_bytes: f64::from(codec >= ZSTD),
        };
        let assumed: Vec<_> = ASSUMED.iter().enumerate().map(of).collect();
        let pick = CodecPick::new(&assumed, FIRST);
        let (link, trial) = (mbit * MBIT, None);
        Self { pick, turns, link, now_ns: 1.0, bytes: 0.0, reviewed_ns: 0.0, trial, noise: 0 }
    }

    fn content(&self) -> &'a Content {
        let mut at = self.bytes % self.turns.iter().map(|it| it.1).sum::<f64>();
        let found = self.turns.iter().find(|it| {
            at -= it.1;
            at < 0.0
        });
        found.unwrap_or(&self.turns[0]).0
    }

    /// A factor within 5 %.
    fn noise(&mut self) -> f64 {
        self.noise += 1;
        1.0 + 0.01 * ((self.noise * 7) % 11) as f64 - 0.05
    }

    /// Sends one batch, as much of it raw as there is no time for.
    fn batch(&mut self) {
        let (content, codec) = (self.content(), self.pick.present().unwrap());
        let Carried { rate, compressed } = content.carried(self.link, codec);
        let len = BATCH_LEN * compressed / rate;
        self.bytes += BATCH_LEN;
        self.now_ns += 1e9 * BATCH_LEN / rate;
        let now = Instant::from_ns(self.now_ns as u64);
        let left = content.in_use[codec] * len * self.noise();
        let took_ns = content.cost_ns[codec] * len * self.noise();
        self.pick.compressed(len as u64, left.min(len) as u64, took_ns as u64);
        if let Some((_, results, took_ns)) = self.trial.take_if(|it| it.0 <= now.as_ns() as f64) {
            self.pick.tried(now, &results, took_ns);
        }
        let list = self.pick.due_trial(now, Some(self.link), possible(self.link));
        if !list.is_empty() {
            let mut took_ns = 0.0;
            let results: Vec<_> = list
                .into_iter()
                .map(|codec| {
                    let cost_ns = content.cost_ns[codec] * self.noise();
                    took_ns += cost_ns * TRIAL_LEN;
                    Tried { codec, point: CodecPoint::new(cost_ns, content.in_trials[codec]) }
                })
                .collect();
            self.trial = Some((self.now_ns + took_ns, results, took_ns as u64));
        }
        if self.now_ns - self.reviewed_ns >= 5e6 {
            self.reviewed_ns = self.now_ns;
            self.pick.review(now, Some(self.link), possible(self.link));
        }
    }
}

/// When it was converged for good within ten seconds: in nanoseconds, and after how many bytes; and the codecs by then.
fn converged(content: &Content, mbit: f64) -> (f64, f64, Vec<(u64, usize)>) {
    let turns = [(content, 1.0)];
    let mut sender = Sender::new(&turns, mbit);
    let (mut last, mut used) = ((0.0, 0.0), vec![(0, FIRST)]);
    while sender.now_ns < 10e9 {
        sender.batch();
        let codec = sender.pick.present().unwrap();
        if used.last().unwrap().1 != codec {
            used.push(((sender.now_ns / 1e6) as u64, codec));
        }
        let is_good = content.carried(sender.link, codec).rate >= PART * content.most(sender.link);
        if !is_good {
            last = (sender.now_ns, sender.bytes);
        }
    }
    (last.0, last.1, used)
}

/// The most bytes until then, and changes in all, in which codecs that are used for once are two.
const BYTES_MAX: f64 = 900.0 * 1024.0;
const USED_MAX: usize = 5;

/// By content, the milliseconds over links of these rates.
#[test]
fn from_cold_it_has_converged_within_a_second() {
    let contents = [
        ("prose", &PROSE, [700.0, 200.0, 50.0, 10.0]),
        ("accounts", &ACCOUNTS, [60.0, 20.0, 10.0, 10.0]),
        ("history", &HISTORY, [300.0, 80.0, 30.0, 10.0]),
        ("JSON", &JSON, [550.0, 130.0, 30.0, 10.0]),
        ("logs", &LOGS, [170.0, 40.0, 20.0, 10.0]),
        ("noise", &NOISE, [10.0; 4]),
    ];
    let mut late = Vec::new();
    for (name, content, most_ms) in contents {
        for (mbit, most_ms) in RATES_MBIT.into_iter().zip(most_ms) {
            let (ns, bytes, used) = converged(content, mbit);
            if ns > 1e6 * most_ms || bytes > BYTES_MAX || used.len() > USED_MAX {
                late.push((name, mbit, ns / 1e6, bytes / 1024.0, used));
            }
        }
    }
    assert!(late.is_empty(), "{late:?}");
}

/// Contents by turns, as in a dump of a database: what is carried from the second second on, by what is carried with one codec all
/// the time, the best one.
#[test]
fn contents_that_take_turns_have_a_codec_that_is_good_for_all_of_them() {
    let mixes: [(&str, &[(&Content, f64)]); 3] = [
        ("dump", &[(&ACCOUNTS, 28e6), (&HISTORY, 1.5e6)]),
        ("prose and noise", &[(&PROSE, 262_144.0), (&NOISE, 262_144.0)]),
        ("JSON and logs", &[(&JSON, 2e6), (&LOGS, 2e6)]),
    ];
    for (name, turns) in mixes {
        for mbit in RATES_MBIT {
            let mut sender = Sender::new(turns, mbit);
            while sender.now_ns < 1e9 {
                sender.batch();
            }
            let from_ns = sender.now_ns;
            let (mut changes, mut codec) = (0, sender.pick.present());
            // What the best single codec takes for the same bytes.
            let mut alone_ns = [0.0; 10];
            while sender.now_ns < 31e9 {
                let content = sender.content();
                for (at, ns) in alone_ns.iter_mut().enumerate() {
                    *ns += BATCH_LEN * 1e9 / content.carried(sender.link, at).rate;
                }
                sender.batch();
                let is = sender.pick.present();
                changes += usize::from(std::mem::replace(&mut codec, is) != is);
            }
            let is_possible = possible(sender.link);
            let all = (0..10).filter(|&at| is_possible(at)).map(|at| alone_ns[at]);
            let part = all.fold(f64::INFINITY, f64::min) / (sender.now_ns - from_ns);
            assert!(part > PART && changes <= 6, "{name}, {mbit}: {part} {changes}");
        }
    }
}
