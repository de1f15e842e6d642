'use strict';
(() => {
  const NS = 'http://www.w3.org/2000/svg';
  const $ = (id) => document.getElementById(id);
  const calm = matchMedia('(prefers-reduced-motion: reduce)');
  const RANGES = { '5m': { step: 1, count: 300 }, '1h': { step: 10, count: 360 }, '1d': { step: 300, count: 288 } };
  const CLASSES_MAX = 6;
  const EVENTS_MAX = 64;
  /* Rows of the table of flows, lines in a plot of them, and for how long its rows stay where they are for who is in it. */
  const FLOWS_MAX = 12;
  const FLOWS_PLOTTED_MAX = 6;
  const HOLD_MS = 10000;
  const PROTOCOLS = { 1: 'icmp', 6: 'tcp', 17: 'udp', 58: 'icmpv6' };

  /* Text. */
  const digits = (value) => (value === 0 ? '0' : value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));
  const scaled = (value, units) => {
    let at = 0;
    while (at + 1 < units.length && value >= 999.5) { value /= 1000; at += 1; }
    return `${digits(value)} ${units[at]}`;
  };
  const rate = (bps) => scaled(bps, ['bit/s', 'kbit/s', 'Mbit/s', 'Gbit/s']);
  const time = (ns) => (ns < 1 ? '0 ms' : ns < 1e6 ? `${digits(ns / 1e3)} µs` : ns < 1e9 ? `${digits(ns / 1e6)} ms` : `${digits(ns / 1e9)} s`);
  const percent = (part) => `${digits(part * 100)} %`;
  const plainly = (value) => digits(value);
  const perSecond = (value) => `${digits(value)}/s`;
  const NONE = '–';
  const shown = (value, format) => (value === undefined || value === null ? NONE : format(value));
  const span = (ns) => {
    const s = Math.floor(ns / 1e9);
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min`;
    if (s < 172800) return `${Math.floor(s / 3600)} h`;
    return `${Math.floor(s / 86400)} days`;
  };
  /* 2026-03-01 14:05:09, here. */
  const local = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60000).toISOString().replace('T', ' ').slice(0, 19);
  const clock = (unixS, long) => local(unixS * 1000).slice(11, long ? 19 : 16);

  /* Nodes of the document; text is only ever text. */
  const make = (name, attributes, ...children) => {
    const it = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) it.setAttribute(key, value);
    it.append(...children);
    return it;
  };
  const draw = (name, attributes, text) => {
    const it = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) it.setAttribute(key, value);
    if (text !== undefined) it.textContent = text;
    return it;
  };
  const write = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  /* Changes the text of a table's cells, and its rows only where their number changes: the focus stays. */
  const fill = (table, rows, classes) => {
    const body = table.tBodies[0];
    while (body.rows.length > rows.length) body.deleteRow(-1);
    rows.forEach((cells, at) => {
      const row = body.rows[at] || body.insertRow();
      cells.forEach((text, column) => {
        const cell = row.cells[column] || row.insertCell();
        if (classes && classes[column]) cell.className = classes[column];
        write(cell, text);
      });
    });
  };

  /* What is plotted: measures, or values made of them. */
  const ratio = (at) => (at('plain_bps') > 0 ? at('link_bps') / at('plain_bps') : null);
  const PLOTS = [
    { title: 'Throughput', format: rate, lines: [
      { name: 'offered', of: (at) => at('offered_bps') },
      { name: 'on the link', of: (at) => at('link_bps') },
      { name: 'received', of: (at) => at('received_bps') },
      { name: 'received on the link', of: (at) => at('received_link_bps') }] },
    { title: 'Ratio', format: plainly, least: 1, lines: [{ name: 'on the link / without dwell', of: ratio }] },
    { title: 'Queueing delay', format: time, lines: [
      { name: 'who comes now waits', of: (at) => at('wait_ns') },
      { name: '1 in 100 longer than', of: (at) => at('p99_ns') }] },
    { title: 'Drops', format: perSecond, least: 1, lines: [{ name: 'packets dropped', of: (at) => at('dropped_per_s') }] },
    { title: 'Processor', format: percent, least: 0.01, lines: [
      { name: 'of one processor', of: (at) => (at('cpu_ppm') === null ? null : at('cpu_ppm') / 1e6) }] },
  ];

  /* One line for each class. */
  const CLASS_PLOTS = [
    { title: 'Offered by class', format: rate, of: (at) => at('offered_bps') },
    { title: 'On the link by class', format: rate, of: (at) => at('link_bps') },
    { title: 'Ratio by class: on the link / without dwell', format: plainly, least: 1, of: ratio },
    { title: 'Delay by class: 1 in 100 longer than', format: time, of: (at) => at('p99_ns') },
    { title: 'Drops by class', format: perSecond, least: 1, of: (at) => at('dropped_per_s') },
  ];

  const FLOW_PLOTS = [
    { title: 'Throughput', format: rate, lines: [
      { name: 'offered', of: (at) => at('offered_bps') },
      { name: 'on the link', of: (at) => at('link_bps') }] },
    { title: 'Ratio', format: plainly, least: 1, lines: [{ name: 'on the link / without dwell', of: ratio }] },
    { title: 'Delay', format: time, lines: [
      { name: 'packets wait, mean', of: (at) => at('mean_ns') },
      { name: 'longest', of: (at) => at('longest_ns') }] },
    { title: 'Drops', format: perSecond, least: 1, lines: [{ name: 'packets dropped', of: (at) => at('dropped_per_s') }] },
  ];

  const state = { range: '5m', scope: '', paused: false, window: null, live: null, cursor: null, drawnAt: 0, asked: 0,
    flow: null, flowOrder: [], flowsHeldAt: 0, flowsDrawnAt: 0 };
  const flows = new Flows(Object.values(RANGES));
  const plots = [];

  class Plot {
    constructor(spec, place = 'figures') {
      this.spec = spec;
      this.rows = [];
      this.end = 0;
      this.when = make('span', { class: 'when quiet' });
      this.svg = draw('svg', { role: 'img', tabindex: '0' });
      this.legend = make('ul', { class: 'legend' });
      this.table = make('table', {}, make('thead'), make('tbody'));
      const summary = make('summary', {}, `Table of ${spec.title.toLowerCase()}`);
      const scroll = make('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': `Table of ${spec.title.toLowerCase()}` }, this.table);
      this.details = make('details', {}, summary, scroll);
      this.details.addEventListener('toggle', () => this.tabulate());
      this.figure = make('figure', {}, make('figcaption', {}, spec.title, this.when), this.svg, this.legend, this.details);
      this.svg.addEventListener('keydown', (event) => this.key(event));
      this.svg.addEventListener('pointermove', (event) => this.point(event));
      this.svg.addEventListener('pointerleave', () => move(null));
      this.svg.addEventListener('blur', () => move(null));
      $(place).append(this.figure);
    }

    /* The x of a step, and back. */
    frame() {
      const box = this.svg.getBoundingClientRect();
      return { width: Math.max(box.width, 120), height: Math.max(box.height, 60), left: 66, right: 6, top: 8, bottom: 20 };
    }

    key(event) {
      const count = RANGES[state.range].count;
      const at = state.cursor === null ? count - 1 : state.cursor;
      const to = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - 30, PageDown: at + 30, Home: 0, End: count - 1 }[event.key];
      if (event.key === 'Escape') move(null);
      if (to === undefined) return;
      event.preventDefault();
      move(Math.min(Math.max(to, 0), count - 1));
    }

    point(event) {
      const { width, left, right } = this.frame();
      const x = event.clientX - this.svg.getBoundingClientRect().left;
      const count = RANGES[state.range].count;
      const at = Math.round(((x - left) / (width - left - right)) * (count - 1));
      move(at >= 0 && at < count ? at : null);
    }

    update() {
      const lines = this.spec.lines(state.window);
      this.end = this.spec.end ? this.spec.end() : state.window ? state.window.at_unix_s : 0;
      this.figure.hidden = lines.length === 0;
      this.rows = lines;
      this.paint();
      if (this.details.open) this.tabulate();
    }

    paint() {
      const { width, height, left, right, top, bottom } = this.frame();
      const { step, count } = RANGES[state.range];
      const all = this.rows.flatMap((line) => line.values).filter((value) => value !== null);
      const most = nice(Math.max(this.spec.least || 0, ...all, 1e-9));
      const x = (at) => left + ((width - left - right) * at) / (count - 1);
      const y = (value) => height - bottom - ((height - top - bottom) * value) / most;
      const parts = [];
      for (const part of [0, 0.5, 1]) {
        const at = y(most * part);
        parts.push(draw('line', { class: 'grid', x1: left, x2: width - right, y1: at, y2: at }));
        parts.push(draw('text', { x: left - 6, y: at + 4, 'text-anchor': 'end' }, this.spec.format(most * part)));
      }
      const { end } = this;
      for (const part of [0, 0.5, 1]) {
        const at = Math.round((count - 1) * part);
        const anchor = part === 0 ? 'start' : part === 1 ? 'end' : 'middle';
        const text = end ? clock(end - (count - 1 - at) * step, false) : '';
        parts.push(draw('text', { x: x(at), y: height - 5, 'text-anchor': anchor }, text));
      }
      this.rows.forEach((line, at) => parts.push(draw('path', { class: `line k${line.slot ?? at % 6}`, d: path(line.values, x, y) })));
      if (state.cursor !== null) parts.push(draw('line', { class: 'cursor', x1: x(state.cursor), x2: x(state.cursor), y1: top, y2: height - bottom }));
      this.svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
      this.svg.replaceChildren(...parts);
      this.say();
    }

    /* The legend has the values: the latest ones, or those at the cursor. */
    say() {
      const { step, count } = RANGES[state.range];
      const at = state.cursor === null ? count - 1 : state.cursor;
      const { end } = this;
      write(this.when, state.cursor === null || !end ? '' : `at ${clock(end - (count - 1 - at) * step, true)}`);
      while (this.legend.children.length > this.rows.length) this.legend.lastChild.remove();
      const said = this.rows.map((line, index) => {
        if (!this.legend.children[index]) {
          const mark = draw('svg', { viewBox: '0 0 26 8', 'aria-hidden': 'true' });
          mark.append(draw('line', { x1: 0, x2: 26, y1: 4, y2: 4 }));
          this.legend.append(make('li', {}, mark, make('span'), ' ', make('b')));
        }
        const [mark, name, value] = this.legend.children[index].children;
        mark.firstChild.setAttribute('class', `line k${line.slot ?? index % 6}`);
        const text = shown(at === count - 1 ? latest(line.values) : line.values[at], this.spec.format);
        write(name, line.name);
        write(value, text);
        return `${line.name}: ${text}`;
      });
      const label = `${this.spec.title}${this.spec.subject ? ` of ${this.spec.subject()}` : ''}${this.when.textContent ? ` ${this.when.textContent}` : ', latest'}: ${said.join('; ')}`;
      this.svg.setAttribute('aria-label', label);
      if (document.activeElement === this.svg && state.cursor !== null) write($('cursor'), label);
    }

    tabulate() {
      if (!this.details.open || !this.end) return;
      const { step, count } = RANGES[state.range];
      const head = make('tr', {}, make('th', { scope: 'col' }, 'Time'));
      this.rows.forEach((line) => head.append(make('th', { scope: 'col', class: 'n' }, line.name)));
      this.table.tHead.replaceChildren(head);
      /* The latest first, every fifth step of them: all are in the plot, where the cursor reads them. */
      const rows = [];
      for (let at = count - 1; at >= 0 && rows.length < 60; at -= count > 60 ? 5 : 1) {
        if (this.rows.every((line) => line.values[at] === null)) continue;
        const when = clock(this.end - (count - 1 - at) * step, true);
        rows.push([when, ...this.rows.map((line) => shown(line.values[at], this.spec.format))]);
      }
      fill(this.table, rows, ['', ...this.rows.map(() => 'n')]);
      for (const row of this.table.tBodies[0].rows) while (row.cells.length > this.rows.length + 1) row.deleteCell(-1);
    }
  }

  /* The last second may not be over: what is there of it is not shown as zero. */
  function latest(values) {
    return values[values.length - 1] ?? values[values.length - 2] ?? null;
  }

  function nice(value) {
    const decade = 10 ** Math.floor(Math.log10(value));
    return [1, 2, 5, 10].map((it) => it * decade).find((it) => it >= value * 0.999) || value;
  }

  function path(values, x, y) {
    let out = '';
    let pen = 'M';
    values.forEach((value, at) => {
      if (value === null) { pen = 'M'; return; }
      out += `${pen}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
      /* A point alone is a short line. */
      if (pen === 'M' && (values[at + 1] ?? null) === null) out += 'h1';
      pen = 'L';
    });
    return out;
  }

  function move(at) {
    if (state.cursor === at) return;
    state.cursor = at;
    plots.forEach((plot) => plot.paint());
  }

  const lineOf = (spec, series) => {
    const count = RANGES[state.range].count;
    const values = [];
    for (let at = 0; at < count; at += 1) {
      values.push(spec.of((name) => { const value = series[name] && series[name][at]; return value === undefined ? null : value; }));
    }
    return { name: spec.name, values };
  };

  function setUp() {
    for (const spec of PLOTS) {
      const lines = spec.lines;
      plots.push(new Plot({ ...spec, lines: (window) => lines.map((line) => lineOf(line, window ? window.series : {})) }));
    }
    for (const { of, ...spec } of CLASS_PLOTS) {
      const classes = (window) => Object.entries((window && window.classes) || {}).slice(0, CLASSES_MAX)
        .map(([name, series]) => lineOf({ name, of }, series));
      plots.push(new Plot({ ...spec, lines: classes }));
    }
    setUpFlows();
    document.body.append(make('p', { id: 'cursor', class: 'hidden', 'aria-live': 'polite' }));
    $('scope').addEventListener('change', () => choose($('scope').value));
    for (const radio of document.getElementsByName('range')) {
      radio.addEventListener('change', () => { state.range = radio.value; state.cursor = null; ask(); });
    }
    $('pause').addEventListener('click', () => {
      state.paused = !state.paused;
      write($('pause'), state.paused ? 'Go on' : 'Pause');
      if (!state.paused) ask();
    });
    const observer = new ResizeObserver(() => plots.forEach((plot) => plot.paint()));
    for (const place of ['figures', 'flow']) observer.observe($(place));
  }

  const nameOf = ({ protocol, source, destination }) => `${PROTOCOLS[protocol] || `ip${protocol}`} ${source} → ${destination}`;

  function setUpFlows() {
    const end = () => flows.at;
    const known = (key) => flows.known.get(key);
    const lines = (of) => () => flows.most(RANGES[state.range].step, state.scope, FLOWS_PLOTTED_MAX)
      .map((key, slot) => key && { ...lineOf({ name: nameOf(known(key).flow), of }, flows.series(key, RANGES[state.range].step)), slot })
      .filter(Boolean);
    plots.push(new Plot({ title: 'Offered by flow', format: rate, end, lines: lines((at) => at('offered_bps')) }, 'flow-figures'));
    plots.push(new Plot({ title: 'Delay by flow: packets wait, mean', format: time, end, lines: lines((at) => at('mean_ns')) }, 'flow-figures'));
    for (const spec of FLOW_PLOTS) {
      const chosen = () => {
        const series = state.flow && known(state.flow) && flows.series(state.flow, RANGES[state.range].step);
        return series ? spec.lines.map((line) => lineOf(line, series)) : [];
      };
      plots.push(new Plot({ ...spec, end, lines: chosen, subject: () => $('flow-name').textContent }, 'flow-plots'));
    }
    $('find').addEventListener('input', () => { state.flowOrder = []; if (state.live) listFlows(state.live); });
    $('flow-close').addEventListener('click', () => {
      const opener = $('flows').querySelector('[aria-expanded=true]');
      chooseFlow(null);
      (opener || $('find')).focus();
    });
    for (const kind of ['pointermove', 'pointerdown', 'keydown', 'focusin']) {
      $('flows').addEventListener(kind, () => { state.flowsHeldAt = Date.now(); });
    }
  }

  function chooseFlow(key) {
    state.flow = key;
    flows.chosen = key;
    $('flow').hidden = key === null;
    if (key !== null) {
      const { flow } = flows.known.get(key) || {};
      if (flow) write($('flow-name'), `${nameOf(flow)} to ${flow.peer}`);
    }
    if (state.live) listFlows(state.live);
    drawFlows();
    if (key !== null) $('flow').scrollIntoView({ block: 'nearest' });
  }

  const flowPlots = () => plots.filter((plot) => plot.spec.end);
  function drawFlows() {
    state.flowsDrawnAt = Date.now();
    flowPlots().forEach((plot) => plot.update());
  }

  /* Rows don't move under who reads them or is about to choose one. */
  function isHeld() {
    const focused = document.activeElement;
    const byKeys = $('flows').contains(focused) && focused.matches(':focus-visible');
    return state.flowOrder.length > 0 && (byKeys || Date.now() - state.flowsHeldAt < HOLD_MS);
  }

  function listFlows(live) {
    const now = new Map(live.flows.map((flow) => [Flows.key(flow), flow]));
    const sought = $('find').value.trim().toLowerCase();
    if (!isHeld()) {
      const isMeant = (flow) => (!state.scope || flow.peer === state.scope)
        && `${nameOf(flow)} ${flow.peer}`.toLowerCase().includes(sought);
      state.flowOrder = [...now].filter(([, flow]) => isMeant(flow)).map(([key]) => key).slice(0, sought ? now.size : FLOWS_MAX);
    }
    const body = $('flows').tBodies[0];
    const keys = state.flowOrder.filter((key) => flows.known.has(key));
    while (body.rows.length > keys.length) body.deleteRow(-1);
    keys.forEach((key, at) => {
      const row = body.rows[at] || flowRow(body);
      const button = row.querySelector('button');
      const { flow } = flows.known.get(key);
      const latest = flows.latest(key);
      row.dataset.flow = key;
      write(button, nameOf(flow));
      button.setAttribute('aria-expanded', String(key === state.flow));
      const offered = latest.offered_bps ?? (now.has(key) ? flow.bps : null);
      const cells = [flow.peer, shown(offered, rate), shown(latest.link_bps, rate), shown(ratio((name) => latest[name]), plainly),
        shown(latest.mean_ns, time), shown(latest.dropped_per_s, perSecond), now.has(key) ? span(flow.for_ns) : 'silent'];
      cells.forEach((text, column) => {
        const cell = row.cells[column + 1] || row.insertCell();
        cell.className = column === 0 ? '' : 'n';
        write(cell, text);
      });
    });
    write($('no-flows'), keys.length ? '' : sought ? 'None of the flows that send most is like that.' : 'None in the last seconds.');
  }

  function flowRow(body) {
    const row = body.insertRow();
    const button = make('button', { type: 'button', 'aria-controls': 'flow' });
    button.addEventListener('click', () => chooseFlow(row.dataset.flow === state.flow ? null : row.dataset.flow));
    row.append(make('th', { scope: 'row' }, button));
    return row;
  }

  function choose(scope) {
    state.scope = scope;
    state.cursor = null;
    state.flowOrder = [];
    $('scope').value = scope;
    if (state.live) describe(state.live);
    ask();
  }

  /* The past; what comes after it is added as it comes. An address with a name and password can't be fetched. */
  async function ask() {
    state.asked = Date.now();
    const { range, scope } = state;
    const query = new URLSearchParams({ range });
    if (scope) query.set('peer', scope);
    try {
      const answer = await fetch(`${location.origin}/history?${query}`, { cache: 'no-store' });
      if (answer.status === 404) {
        complain(`The node keeps no past of ${scope || 'itself'}: too many peers, or it is gone.`);
        state.window = null;
      } else if (!answer.ok) {
        complain(`The node answers: ${answer.status} ${answer.statusText}.`);
        return;
      } else {
        const window = await answer.json();
        if (range !== state.range || scope !== state.scope) return;
        state.window = window;
        complain('');
      }
      plots.forEach((plot) => plot.update());
      state.drawnAt = Date.now();
    } catch (error) {
      complain('The node does not answer.');
    }
  }

  function complain(text) {
    $('trouble').hidden = text === '';
    write($('trouble'), text);
  }

  /* Adds the present to the past on the screen. */
  function append(live) {
    const window = state.window;
    const { step, count } = RANGES[state.range];
    if (!window) return;
    /* The clock was set back: the past on the screen begins again. */
    if (live.at_unix_s < window.at_unix_s) { if (Date.now() - state.asked > 1000) ask(); return; }
    if (step > 1) { if (Date.now() - state.asked > step * 1000) ask(); return; }
    const peer = live.peers.find((it) => it.name === state.scope);
    const now = state.scope ? peer && peer.now : live.now;
    const gap = Math.min(live.at_unix_s - window.at_unix_s, count);
    if (!now || gap < 1) return;
    const push = (series, values) => {
      for (const name of Object.keys(series)) {
        for (let at = 1; at < gap; at += 1) series[name].push(null);
        series[name].push(values[name] === undefined ? null : values[name]);
        series[name].splice(0, series[name].length - count);
      }
    };
    push(window.series, now);
    for (const it of live.classes) if (window.classes[it.name]) push(window.classes[it.name], it.now);
    window.at_unix_s = live.at_unix_s;
    /* Whoever wants less motion has a step every five seconds. */
    const pause = calm.matches ? 4900 : 0;
    if (state.cursor === null && Date.now() - state.drawnAt >= pause) {
      state.drawnAt = Date.now();
      if (!document.hidden) plots.forEach((plot) => plot.update());
    }
  }

  function describe(live) {
    document.title = `${live.node}: ${live.is_up ? 'up' : 'not all up'} – dwell`;
    write($('node'), `dwell: ${live.node}`);
    write($('state'), live.state);
    $('state').className = live.is_up && live.peers.length ? 'good' : 'warn';
    write($('saved'), live.saved);
    write($('foot'), `dwell ${live.version}, running for ${span(live.uptime_ns)}. Nothing here can be changed, and there are no keys in it.`);
    const peers = live.peers.filter((peer) => !state.scope || peer.name === state.scope);
    listProblems(live);
    listPeers(live.peers);
    const sums = new Map();
    for (const peer of peers) for (const [name, count] of peer.decisions) sums.set(name, (sums.get(name) || 0) + count);
    const decisions = [...sums].sort((a, b) => b[1] - a[1]).map(([name, count]) => [name, String(count)]);
    fill($('decisions'), decisions.length ? decisions : [['nothing is sent', NONE]], ['wrap', 'n']);
    const learned = peers.flatMap((peer) => peer.classes.map((it) => [state.scope ? it.class : `${it.class} to ${peer.name}`, plainly(it.ratio), it.backing_off ? 'left alone' : 'compressed']));
    fill($('learned'), learned.length ? learned.slice(0, 16) : [['nothing yet', NONE, NONE]], ['wrap', 'n', '']);
    listFlows(live);
    listEvents(live.events);
  }

  function listProblems(live) {
    const all = live.problems.map((it) => ['this node', it]);
    if (live.configuration) all.push(['configuration', { problem: '', why: live.configuration, remedy: '' }]);
    live.peers.forEach((peer) => peer.problems.forEach((it) => all.push([peer.name, it])));
    $('problems').hidden = all.length === 0;
    const items = all.map(([name, it]) => make('li', {}, make('strong', {}, it.problem ? `${name}, ${it.problem.replaceAll('_', ' ')}` : name), `: ${it.why} `, make('em', {}, it.remedy)));
    $('problem-list').replaceChildren(...items);
  }

  function listPeers(peers) {
    const body = $('peers').tBodies[0];
    while (body.rows.length > peers.length) body.deleteRow(-1);
    peers.forEach((peer, at) => {
      const row = body.rows[at] || peerRow(body);
      const button = row.querySelector('button');
      row.dataset.peer = peer.name;
      write(button, peer.name);
      button.setAttribute('aria-label', `Plots of ${peer.name}`);
      const { now } = peer;
      const used = peer.rate_bps && now.link_bps !== undefined ? percent(now.link_bps / peer.rate_bps) : NONE;
      const cells = [`${peer.state}, ${span(peer.state_for_ns)}`, shown(now.offered_bps, rate), shown(now.link_bps, rate), used,
        shown(now.received_bps, rate), shown(ratio((name) => now[name] ?? null), plainly), shown(now.wait_ns, time),
        shown(peer.rtt_ns, time), shown(peer.loss_ppm, (ppm) => percent(ppm / 1e6)), `${peer.scheme}, ${peer.codec}`];
      cells.forEach((text, column) => {
        const cell = row.cells[column + 1] || row.insertCell();
        cell.className = column === 0 ? peer.state : column === cells.length - 1 ? '' : 'n';
        write(cell, text);
      });
    });
    const options = peers.map((peer) => peer.name);
    const select = $('scope');
    if ([...select.options].slice(1).map((it) => it.value).join('\n') !== options.join('\n')) {
      select.replaceChildren(make('option', { value: '' }, 'all peers'), ...options.map((name) => make('option', { value: name }, name)));
      if (!options.includes(state.scope)) { state.scope = ''; ask(); }
      select.value = state.scope;
    }
  }

  function peerRow(body) {
    const row = body.insertRow();
    const button = make('button', { type: 'button' });
    button.addEventListener('click', () => { choose(row.dataset.peer); $('plots').scrollIntoView(); });
    row.append(make('th', { scope: 'row' }, button));
    return row;
  }

  let lastEvent = -1;
  function listEvents(events) {
    const last = events.length ? events[events.length - 1].number : 0;
    if (last === lastEvent) return;
    lastEvent = last;
    const items = events.slice(-EVENTS_MAX).reverse().map((it) => {
      const at = it.at_unix_ns / 1e6;
      return make('li', {}, make('time', { datetime: new Date(at).toISOString() }, local(at)), make('span', { class: 'kind' }, it.kind), ` ${it.text} `, make('em', {}, it.remedy));
    });
    $('events').replaceChildren(...(items.length ? items : [make('li', {}, 'Nothing happened since the start.')]));
  }

  function listen() {
    const source = new EventSource(`${location.origin}/live`);
    source.onmessage = (event) => {
      const live = JSON.parse(event.data);
      state.live = live;
      /* The past of flows is only here: it goes on while the page stands still. */
      flows.take(live.at_unix_s, live.flows);
      write($('link'), '');
      if (state.paused) return;
      describe(live);
      append(live);
      const pause = calm.matches ? 4900 : 0;
      if (state.cursor === null && !document.hidden && Date.now() - state.flowsDrawnAt >= pause) drawFlows();
    };
    source.onopen = () => { ask(); };
    source.onerror = () => {
      write($('link'), 'The connection to the node is lost: what is shown is old. Trying again…');
      /* A refusal ends it for good; the node may only have been busy. */
      if (source.readyState === EventSource.CLOSED) { source.close(); setTimeout(listen, 5000); }
    };
  }

  setUp();
  plots.forEach((plot) => plot.update());
  listen();
})();
