/* Holds the arithmetic of flows.js, which stands before this, to made-up messages. Returns what is wrong. */
const bad = [];
const same = (what, is, expected) => {
  if (JSON.stringify(is) !== JSON.stringify(expected)) bad.push(`${what}: ${JSON.stringify(is)}, not ${JSON.stringify(expected)}`);
};
const steps = [{ step: 1, count: 5 }, { step: 10, count: 3 }];
const flow = (source, seconds, more = {}) => ({ peer: 'hub', protocol: 6, source, destination: 'b', packets: 10 * seconds, bytes: 1000 * seconds,
  bps: 8000, for_ns: seconds * 1e9, sent_packets: 10 * seconds, sent_bytes: 1000 * seconds, plain_bytes: 1500 * seconds,
  link_bytes: 600 * seconds, sojourn_sum_ns: 70 * seconds, sojourn_max_ns: 9, dropped: 2 * seconds, ...more });
const last = (flows, source, name, length = 1) => flows.series(Flows.key(flow(source, 0)), length)[name];

/* What was there before has no past; counters become rates, means and ratios. */
let flows = new Flows(steps);
flows.take(100, [flow('a', 50)]);
same('at first', last(flows, 'a', 'offered_bps'), [null, null, null, null, null]);
flows.take(101, [flow('a', 51)]);
for (const [name, value] of [['offered_bps', 8000], ['link_bps', 4800], ['plain_bps', 12000], ['mean_ns', 7], ['longest_ns', 9], ['dropped_per_s', 2]]) {
  same(name, last(flows, 'a', name), [null, null, null, null, value]);
}
same('the latest', flows.latest(Flows.key(flow('a', 0))), { offered_bps: 8000, link_bps: 4800, plain_bps: 12000, mean_ns: 7, dropped_per_s: 2 });
/* The same second again is nothing new; one without the flow is a gap; the rate after it is the mean. */
flows.take(101, [flow('a', 60)]);
flows.take(102, []);
flows.take(103, [flow('a', 53, { sojourn_max_ns: 30 })]);
same('a gap', last(flows, 'a', 'offered_bps'), [null, null, 8000, null, 8000]);
same('longer steps', last(flows, 'a', 'offered_bps', 10), [null, null, 8000]);
same('the longest of a step', last(flows, 'a', 'longest_ns', 10), [null, null, 30]);
same('nothing known', flows.latest('nobody').offered_bps, null);
/* One that began since counts from its beginning; one that was counted from 0 again begins again. */
flows.take(104, [flow('a', 54), flow('c', 1)]);
same('a new one', last(flows, 'c', 'offered_bps')[4], 8000);
flows.take(105, [flow('a', 0.5, { packets: 900 }), flow('c', 2)]);
same('counted again', last(flows, 'a', 'offered_bps')[4], 4000);
/* Nothing was sent: no wait, and no ratio. */
flows.take(106, [flow('a', 1.5, { packets: 900, sent_packets: 5, bytes: 500, link_bytes: 300, plain_bytes: 750 })]);
same('silent', [last(flows, 'a', 'offered_bps')[4], last(flows, 'a', 'mean_ns')[4]], [0, null]);
/* No more is kept than is plotted. */
for (let at = 107; at < 400; at += 1) flows.take(at, [flow('c', at)]);
same('kept', [...flows.known.get(Flows.key(flow('c', 0))).pasts].map((past) => past.size), [5, 3]);
/* The clock was set back. */
flows.take(50, [flow('c', 500)]);
same('set back', last(flows, 'c', 'offered_bps'), [null, null, null, null, null]);

/* Too many: those that were silent for longest go, but not the one that is looked at. */
flows = new Flows(steps, 3);
flows.chosen = Flows.key(flow('f0', 0));
for (let at = 1; at < 9; at += 1) flows.take(at, [flow(`f${at - 1}`, 1)]);
same('those known', [...flows.known.values()].map((it) => it.flow.source), ['f0', 'f6', 'f7']);

/* Those that sent most keep their places. */
flows = new Flows(steps);
const all = (at, rates) => flows.take(at, rates.map((bytes, index) => flow(`f${index}`, at, { bytes: bytes * at })));
all(1, [5, 9, 7]);
all(2, [5, 9, 7]);
const named = (slots) => slots.map((key) => key && key.split('\n')[2]);
same('two of three', named(flows.most(1, '', 2)), ['f1', 'f2']);
flows.take(3, [flow('f0', 3, { bytes: 900 }), flow('f1', 3, { bytes: 27 }), flow('f2', 3, { bytes: 21 })]);
same('one comes', named(flows.most(1, '', 2)), ['f1', 'f0']);
same('all peers', named(flows.most(1, 'hub', 4)), ['f1', 'f0', 'f2', null].map((it) => it ?? undefined));
same('no such peer', named(flows.most(1, 'depot', 2)), [undefined, undefined]);
return bad;
