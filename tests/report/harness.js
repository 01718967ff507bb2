// Runs the scripts of a report in Node with stubs for the page and uPlot, and prints what was drawn.
const fs = require("fs");
const html = fs.readFileSync(process.argv[2], "utf8");
const scripts = [...html.matchAll(/<script>([\s\S]*?)<\/script>/g)].map((match) => match[1]);
const json = html.match(/<script type="application\/json" id="data">([\s\S]*?)<\/script>/)[1];
const calls = { fillRect: 0, moveTo: 0, fillText: 0, fill: 0 };
const context = new Proxy({ measureText: (text) => ({ width: 7 * text.length }) }, {
  get: (target, name) => target[name] ?? (() => name in calls && calls[name]++),
  set: () => true,
});
const elements = {};
const element = (id) => (elements[id] ??= {
  id, clientWidth: 1200, dataset: {}, textContent: id === "data" ? json : "", replaceChildren() {}, scrollIntoView() {},
});
const samples = [...html.matchAll(/class="sample" data-regime="(\d+)"/g)].map(([, regime]) => ({ ...element("sample" + regime), dataset: { regime } }));
const root = { dataset: {} };
const listeners = {};
globalThis.document = {
  documentElement: root, body: { dataset: {} }, getElementById: (id) => (id === "coordinate" ? null : element(id)),
  querySelectorAll: () => samples, addEventListener() {}, createElement: () => ({}),
};
globalThis.getComputedStyle = () => ({ getPropertyValue: (name) => (name.startsWith("--regime") ? "#0072B2" : name) });
globalThis.matchMedia = () => ({ matches: false, addEventListener() {} });
globalThis.addEventListener = (name, listener) => (listeners[name] = listener);
globalThis.devicePixelRatio = 1;
globalThis.innerWidth = 1200;
globalThis.Path2D = class { moveTo() {} lineTo() {} closePath() {} };
globalThis.uPlot = class {
  static paths = { bars: () => null };
  constructor(options, data, place) {
    Object.assign(this, { options, data, place, ctx: context, bbox: { left: 58, top: 8, width: 1130, height: 300 } });
    this.scales = { x: { min: options.scales.x.min ?? data[0][0], max: options.scales.x.max ?? data[0].at(-1) } };
    this.paint();
  }
  paint() {
    for (const hook of this.options.hooks?.draw ?? []) hook(this);
  }
  valToPos(value, axis) {
    const { min, max } = this.scales.x;
    return axis === "x" ? 58 + (1130 * (value - min)) / (max - min) : 100;
  }
  setData(data) {
    this.data = data;
  }
  setScale(axis, range) {
    this.scales[axis] = range;
    this.paint();
  }
  batch(work) {
    work();
  }
  destroy() {
    this.destroyed = true;
  }
};
(0, eval)(scripts.at(-1));
const waiting = setInterval(() => {
  const page = globalThis.regimekitReport;
  if (!page) return;
  clearInterval(waiting);
  const { timeline } = page;
  const charts = [...timeline.charts, ...page.charts.slice(1)];
  const found = {
    places: charts.map((chart) => chart.place.id),
    aligned: charts.every((chart) => chart.data.every((column) => column.length === chart.data[0].length) && chart.options.series.length === chart.data.length),
    y: Array.from(page.columns.y0, (v) => (Number.isNaN(v) ? null : v)),
    regime: Array.from(page.columns.regime), last: page.x.at(-1), calls, full: timeline.full, bucket: document.body.dataset.bucket,
    segments: timeline.segments, range: timeline.range,
  };
  page.press({ dataset: { zoom: "in" }, id: "" });
  found.zoomed = [timeline.min, timeline.max];
  const row = page.describeRow(100).map((node) => node.textContent ?? node).join("");
  found.row = row;
  page.press({ dataset: { around: "120" }, id: "" });
  found.around = [timeline.min, timeline.max];
  page.press({ dataset: {}, id: "theme" });
  found.theme = root.dataset.theme;
  listeners.beforeprint();
  found.printed = root.dataset.theme;
  console.log(JSON.stringify(found));
}, 20);
