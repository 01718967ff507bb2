// View of one stream: its latest observations, or a window of its history.

import { follow, get, save, streamPath } from "./api.js";
import { Chart, first, regimeChip } from "./chart.js";
import { formatNumber } from "./assets/charts.js";
import { ago, h, percent } from "./dom.js";
import { Panels } from "./panels.js";

const LIVE_ROWS = 240; // observations of the live window
const HORIZON = 12; // forecast steps
const PANELS_INTERVAL = 2500; // milliseconds between updates of the panels

export function streamView(main, key, page) {
  const view = new StreamView(main, key, page);
  view.start();
  return view;
}

class StreamView {
  constructor(main, key, page) {
    Object.assign(this, { main, page, name: key, rows: [], segments: [], events: [], steps: [], names: {}, span: null, stopped: false });
    this.head = h("div", { class: "facts", id: "facts" });
    this.readout = h("p", { class: "readout muted" });
    this.place = h("div", { class: "plot", role: "img", "aria-label": "Observations, forecasts and regimes" });
    this.liveButton = h("button", { onclick: () => this.goLive(), title: "l" }, "Live");
    const tools = h("div", { class: "tools", role: "toolbar", "aria-label": "Time window" },
      this.liveButton,
      h("button", { onclick: () => this.whole(), title: "0" }, "All"),
      h("button", { onclick: () => this.zoom(0.5), title: "+", "aria-label": "Zoom in" }, "+"),
      h("button", { onclick: () => this.zoom(2), title: "-", "aria-label": "Zoom out" }, "−"),
      h("button", { onclick: () => this.pan(-0.5), title: "←", "aria-label": "Earlier" }, "◀"),
      h("button", { onclick: () => this.pan(0.5), title: "→", "aria-label": "Later" }, "▶"),
      h("button", { onclick: () => this.report(), title: "r: download a report as one HTML file" }, "Report"),
      this.where = h("span", { class: "muted", id: "where" }));
    this.panels = new Panels(key, () => this.refreshPanels());
    main.append(this.head, h("section", { class: "panel chart" }, tools, legend(), this.place, this.readout), this.panels.element);
    this.chart = new Chart(this.place, this.readout, {
      select: (from, to) => this.showWindow(from, to),
      wheel: ({ zoom, pan, at }) => (pan ? this.pan(pan) : this.zoom(zoom, at)),
    });
  }

  async start() {
    try {
      this.info = await get(streamPath(this.name));
      await this.loadLive();
    } catch (error) {
      if (this.stopped) return;
      this.page.notice(error.status ? error.message : "The service does not answer. Retrying.");
      this.again = setTimeout(() => this.start(), 2000); // the stream may be created later
      return;
    }
    this.page.notice("");
    this.unfollow = follow(this.name, this.info.rows, {
      observation: (row) => this.arrived(row),
      event: () => { this.panelsDue = true; },
      state: (state) => this.connection(state),
    });
    this.ticker = setInterval(() => this.tick(), 500);
    this.refreshPanels();
  }

  async loadLive() {
    const from = Math.max(0, this.info.rows - LIVE_ROWS);
    const window = await get(streamPath(this.name, `/observations?from=${from}`));
    this.rows = window.observations;
    this.segments = window.segments;
    this.events = (await get(streamPath(this.name, `/events?since=${from}`))).events;
    await this.loadSteps();
    this.show();
  }

  async loadSteps() {
    const possible = this.rows.length && this.page.compiled; // too slow without compiled kernels
    try {
      this.steps = possible ? (await get(streamPath(this.name, `/forecast?horizon=${HORIZON}`))).steps : [];
    } catch (error) {
      this.steps = []; // a model with covariates needs future covariates
    }
  }

  arrived(row) {
    this.info.rows = Math.max(this.info.rows, row.seq + 1);
    Object.assign(this.info, { regime: row.regime, regime_name: row.regime_name, change_probability: row.change_probability, last_received: row.received });
    if (row.seq <= (this.rows.at(-1)?.seq ?? -1)) return;
    this.rows.push(row);
    this.rows.splice(0, Math.max(0, this.rows.length - LIVE_ROWS));
    this.stepsDue = this.panelsDue = this.dirty = true;
  }

  connection(state) {
    this.state = state;
    if (state === "gone") this.page.notice("This stream was deleted.");
    if (state === "live") this.panelsDue = true;
    this.tick();
  }

  // Every 500 ms: draw new observations; update the panels less often.
  async tick() {
    if (this.stopped) return;
    this.showState();
    if (this.dirty) {
      this.dirty = false;
      if (!this.span) this.show();
    }
    if (this.busy || this.state !== "live") return;
    this.busy = true;
    try {
      if (this.stepsDue && !this.span) {
        this.stepsDue = false;
        await this.loadSteps();
        this.show();
      }
      if (this.panelsDue && Date.now() > (this.panelsAt || 0)) {
        this.panelsDue = false;
        this.panelsAt = Date.now() + PANELS_INTERVAL;
        await this.refreshPanels();
      }
    } catch (error) {
      this.panelsDue = true;
    } finally {
      this.busy = false;
    }
  }

  showState() {
    const since = this.info?.last_received ? Date.now() / 1000 - this.info.last_received : null;
    if (this.state === "reconnecting") {
      this.page.status("reconnecting…", "lost");
      this.page.notice("Connection lost. The data may be outdated. Retrying.");
      return;
    }
    if (this.state !== "live") return;
    const stale = since !== null && since > Math.max(30, 10 * this.meanInterval());
    this.page.status(since === null ? "waiting for the first observation" : stale ? `stale: last observation ${ago(since)}` : "live", stale ? "stale" : "live");
    this.page.notice(stale ? `No new observations. The last one arrived ${ago(since)}.` : "");
  }

  meanInterval() {
    const some = this.rows.slice(-60);
    return some.length > 1 ? (some.at(-1).received - some[0].received) / (some.length - 1) : 3;
  }

  async refreshPanels() {
    if (this.stopped) return;
    const since = this.span ? this.span.from : this.rows[0]?.seq ?? 0;
    const [report, transitions, newest, window] = await Promise.all([
      get(streamPath(this.name, "/report")),
      get(streamPath(this.name, "/transitions")),
      get(streamPath(this.name, "/events?newest=true&limit=200")),
      this.span ? null : get(streamPath(this.name, `/observations?from=${since}&points=1`)),
    ]);
    if (this.stopped) return;
    this.names = Object.fromEntries(report.regimes.filter((r) => r.name).map((r) => [r.id, r.name]));
    this.info = { ...report.stream, rows: Math.max(report.stream.rows, this.info.rows) };
    if (window) {
      this.segments = window.segments;
      this.events = newest.events.filter((event) => event.since >= since);
    }
    this.panels.show({ report, transitions, events: newest.events, steps: this.steps, names: this.names });
    this.show();
  }

  show() {
    this.facts();
    const data = this.span ? this.spanData : {
      points: this.rows, segments: this.extendedSegments(), events: this.events, steps: this.steps,
    };
    if (!data) return;
    const timed = Boolean(this.info.timed) && data.points.every((point) => point.at !== null);
    this.chart.show({ ...data, timed, names: this.names });
    this.liveButton.classList.toggle("on", !this.span);
    const shown = this.span || { from: this.rows[0]?.seq ?? 0, to: this.info.rows };
    this.where.textContent = `${shown.from} … ${shown.to} of ${this.info.rows}`;
  }

  // Extend the stored segments to the newest observation.
  extendedSegments() {
    const end = (this.rows.at(-1)?.seq ?? 0) + 1;
    const kept = this.segments.filter((segment) => segment.end > (this.rows[0]?.seq ?? 0)).map((segment) => ({ ...segment }));
    const last = kept.at(-1);
    const newest = this.rows.at(-1)?.regime ?? -1;
    if (last && last.regime === newest) last.end = end;
    else if (newest >= 0) {
      const start = this.rows.findLast((row) => row.regime !== newest)?.seq + 1 || this.rows[0].seq;
      if (last) last.end = Math.min(last.end, start);
      kept.push({ start, end, regime: newest });
    }
    return kept;
  }

  facts() {
    const { info } = this;
    this.head.replaceChildren(
      h("h1", {}, this.name),
      regimeChip(info.regime, this.names, "big"),
      fact("P(change)", percent(info.change_probability)), fact("latest", formatNumber(lastValue(this.rows))),
      fact("observations", info.rows.toLocaleString("en")), fact("regimes", info.regimes),
      fact("outliers", info.outliers.toLocaleString("en")), fact("model", info.model));
  }

  async showWindow(from, to) {
    const end = this.info.rows;
    const width = Math.max(8, Math.round(to - from));
    from = Math.max(0, Math.min(Math.round(from), end - Math.min(width, end)));
    to = Math.min(end, from + width);
    if (to >= end && width <= LIVE_ROWS && to - from >= Math.min(LIVE_ROWS, end)) return this.goLive();
    this.span = { from, to };
    const asked = (this.asked = (this.asked || 0) + 1);
    const points = Math.min(1500, Math.max(200, this.place.clientWidth));
    const [window, found] = await Promise.all([
      get(streamPath(this.name, `/observations?from=${from}&to=${to}&points=${points}`)),
      get(streamPath(this.name, `/events?since=${from}&limit=2000`)),
    ]).catch(() => []);
    if (!window || asked !== this.asked || !this.span) return;
    this.spanData = {
      points: window.aggregated ? window.buckets : window.observations,
      segments: window.segments, events: found.events.filter((event) => event.since < to), steps: [],
    };
    this.show();
  }

  goLive() {
    this.span = null;
    this.panelsDue = true;
    this.show();
  }

  whole() {
    this.showWindow(0, this.info.rows);
  }

  async report() {
    try {
      await save(streamPath(this.name, "/report?format=html"), `${this.name}.html`);
    } catch (error) {
      this.page.notice(error.message);
    }
  }

  bounds() {
    return this.span || { from: this.rows[0]?.seq ?? 0, to: this.info.rows };
  }

  zoom(factor, at = 0.5) {
    const { from, to } = this.bounds();
    const width = Math.min(this.info.rows, (to - from) * factor);
    const left = from + at * (to - from - width);
    this.showWindow(left, left + width);
  }

  pan(share) {
    const { from, to } = this.bounds();
    const move = share * (to - from);
    if (to + move >= this.info.rows && to - from <= LIVE_ROWS) return this.goLive();
    this.showWindow(from + move, to + move);
  }

  key(event) {
    const action = {
      l: () => this.goLive(), r: () => this.report(), 0: () => this.whole(), "+": () => this.zoom(0.5), "=": () => this.zoom(0.5),
      "-": () => this.zoom(2), ArrowLeft: () => this.pan(-0.25), ArrowRight: () => this.pan(0.25),
    }[event.key];
    action?.();
    return Boolean(action);
  }

  repaint() {
    this.chart.build();
    this.panels.repaint();
    this.facts();
  }

  stop() {
    this.stopped = true;
    this.unfollow?.();
    clearInterval(this.ticker);
    clearTimeout(this.again);
    this.chart.stop();
  }
}

function legend() {
  const entry = (mark, text) => h("span", {}, mark, text);
  return h("div", { class: "legend" },
    entry(h("i", { class: "line observed" }), "observed"), entry(h("i", { class: "line forecast" }), "forecast made before"),
    entry(h("i", { class: "box band" }), "90 % interval"), entry(h("i", { class: "mark" }, "×"), "outlier"),
    entry(h("i", { class: "line change" }), "change of regime"));
}

function fact(name, value) {
  return h("span", { class: "fact" }, h("span", { class: "muted" }, name), h("b", { "data-fact": name }, String(value)));
}

function lastValue(rows) {
  const row = rows.findLast((one) => one.y !== null);
  return row ? first(row.y) : null;
}
