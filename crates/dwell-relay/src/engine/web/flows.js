'use strict';
/* The flows of a node over time, as far as this page has seen them: a node counts flows only while somebody looks, and keeps
   no past of them. What it sends are counters; what is kept of them are differences, in steps of each length that is plotted. */
class Flows {
  /* `steps` are those lengths in seconds, with how many of each are kept. */
  constructor(steps, keptMax = 256) {
    this.steps = steps;
    this.keptMax = keptMax;
    this.at = 0;
    this.known = new Map();
    this.slots = [];
  }

  static key(flow) { return [flow.peer, flow.protocol, flow.source, flow.destination].join('\n'); }

  /* Takes what the node says of its flows in this second, since 1970. */
  take(unixS, flows) {
    /* The clock was set back: what was is in a time that is to come. */
    if (unixS < this.at) this.known.clear();
    if (unixS === this.at) return;
    for (const flow of flows) {
      const key = Flows.key(flow);
      const before = this.known.get(key);
      const kept = before || { pasts: this.steps.map(() => new Map()) };
      const difference = this.since(before, flow, unixS);
      if (difference) this.add(kept, difference, unixS);
      Object.assign(kept, { flow, at: unixS });
      /* The one that was seen last is the last to be forgotten. */
      this.known.delete(key);
      this.known.set(key, kept);
    }
    this.at = unixS;
    for (const key of this.known.keys()) {
      if (this.known.size <= this.keptMax) break;
      if (key !== this.chosen) this.known.delete(key);
    }
  }

  /* What a flow did since it was last heard of. Nothing is known of one that was there before and is new here. */
  since(before, flow, unixS) {
    const goesOn = before && before.flow.packets <= flow.packets && before.flow.for_ns <= flow.for_ns;
    const isNew = this.at > 0 && flow.for_ns <= (unixS - this.at + 1) * 1e9;
    if (!goesOn && !isNew) return null;
    const more = (name) => flow[name] - (goesOn ? before.flow[name] : 0);
    return { seconds: unixS - (goesOn ? before.at : this.at), bytes: more('bytes'), link: more('link_bytes'), plain: more('plain_bytes'),
      sent: more('sent_packets'), waits: more('sojourn_sum_ns'), longest: flow.sojourn_max_ns, dropped: more('dropped') };
  }

  add(kept, difference, unixS) {
    this.steps.forEach(({ step, count }, at) => {
      const past = kept.pasts[at];
      const slot = Math.floor(unixS / step);
      const sum = past.get(slot);
      if (sum) {
        for (const name of Object.keys(sum)) {
          sum[name] = name === 'longest' ? Math.max(sum[name], difference[name]) : sum[name] + difference[name];
        }
      } else {
        past.set(slot, { ...difference });
      }
      for (const old of past.keys()) {
        if (old > slot - count) break;
        past.delete(old);
      }
    });
  }

  /* The measures of a flow by name, for each step of this length; the last is the latest. */
  series(key, length) {
    const which = this.steps.findIndex((it) => it.step === length);
    const { step, count } = this.steps[which];
    const kept = this.known.get(key);
    const last = Math.floor(this.at / step);
    const series = { offered_bps: [], link_bps: [], plain_bps: [], mean_ns: [], longest_ns: [], dropped_per_s: [] };
    for (let slot = last - count + 1; slot <= last; slot += 1) {
      const sum = kept && kept.pasts[which].get(slot);
      const perSecond = (value) => (sum && sum.seconds > 0 ? value(sum) / sum.seconds : null);
      series.offered_bps.push(perSecond((it) => it.bytes * 8));
      series.link_bps.push(perSecond((it) => it.link * 8));
      series.plain_bps.push(perSecond((it) => it.plain * 8));
      series.dropped_per_s.push(perSecond((it) => it.dropped));
      series.mean_ns.push(sum && sum.sent > 0 ? sum.waits / sum.sent : null);
      series.longest_ns.push(sum && sum.sent > 0 ? sum.longest : null);
    }
    return series;
  }

  /* The measures of a flow in the latest second, null where nothing is known. */
  latest(key) {
    const kept = this.known.get(key);
    const sum = kept && kept.pasts[0].get(Math.floor(this.at / this.steps[0].step));
    const perSecond = (value) => (sum && sum.seconds > 0 ? value / sum.seconds : null);
    return { offered_bps: perSecond(sum && sum.bytes * 8), link_bps: perSecond(sum && sum.link * 8), plain_bps: perSecond(sum && sum.plain * 8),
      mean_ns: sum && sum.sent > 0 ? sum.waits / sum.sent : null, dropped_per_s: perSecond(sum && sum.dropped) };
  }

  /* The flows to this peer, or to all, that sent most in the time of these steps: at most so many, each in a place that it
     keeps for as long as it is one of them, so that its colour stays. A place may be empty. */
  most(length, peer, count) {
    const which = this.steps.findIndex((it) => it.step === length);
    const since = Math.floor(this.at / length) - this.steps[which].count;
    const sums = [];
    for (const [key, kept] of this.known) {
      if (peer && kept.flow.peer !== peer) continue;
      let bytes = 0;
      for (const [slot, sum] of kept.pasts[which]) if (slot > since) bytes += sum.bytes;
      if (bytes > 0) sums.push([key, bytes]);
    }
    const first = sums.sort((a, b) => b[1] - a[1]).slice(0, count).map(([key]) => key);
    this.slots = Array.from({ length: count }, (_, at) => (first.includes(this.slots[at]) ? this.slots[at] : undefined));
    for (const key of first) if (!this.slots.includes(key)) this.slots[this.slots.indexOf(undefined)] = key;
    return this.slots;
  }
}
