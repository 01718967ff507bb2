// The report page: decodes the data, draws the charts, and redraws them if theme or width changes.

const HINT = matchMedia("(pointer: coarse)").matches
  ? "Zoom with the buttons; tap the chart for values."
  : "Drag over the chart to zoom, double-click to reset, point at it for values.";
const byId = (id) => document.getElementById(id);
const theme = () => document.documentElement.dataset.theme;

// ---- Decoding of columns encoded by packing.py

async function inflate(text) {
  const raw = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Differences of integers, zigzag encoded, the four bytes of all values grouped by significance.
function readBlock(bytes, start, length) {
  const found = new Float64Array(length);
  let sum = 0;
  for (let t = 0; t < length; t++) {
    const at = start + t;
    const folded =
      (bytes[at] | (bytes[at + length] << 8) | (bytes[at + 2 * length] << 16) | (bytes[at + 3 * length] << 24)) >>> 0;
    sum += folded % 2 ? -(folded + 1) / 2 : folded / 2;
    found[t] = sum;
  }
  return found;
}

async function unpack(payload) {
  const bytes = await inflate(payload.data);
  const n = payload.length;
  const integers = {};
  const columns = {};
  let start = 0;
  const next = () => readBlock(bytes, (start += 4 * n) - 4 * n, n);
  for (const column of payload.columns) {
    const steps = next();
    if (column.minus) for (let t = 0; t < n; t++) steps[t] += integers[column.minus][t];
    integers[column.name] = steps;
    const power = 10 ** Math.abs(column.exponent);
    // Division by an integer power of ten returns the exact decimals that were encoded.
    const values = steps.map((k) => (column.exponent < 0 ? (column.base + k) / power : (column.base + k) * power));
    if (column.missing) {
      const missing = next();
      for (let t = 0; t < n; t++) if (missing[t]) values[t] = NaN;
    }
    for (const t in column.extreme) values[t] = column.extreme[t];
    columns[column.name] = values;
  }
  return columns;
}

function readTimes(times, gap, n) {
  const x = new Float64Array(n);
  x[0] = times.start;
  for (let t = 1; t < n; t++) x[t] = gap ? x[t - 1] + gap[t] : times.start + t * times.step;
  return x;
}

// ---- Page

class Page {
  constructor(data, columns) {
    this.data = data;
    this.columns = columns;
    this.formatTime = timeFormatter(data.times);
    this.x = readTimes(data.times, columns.gap, data.columns.length);
    this.coordinate = 0;
    this.build();
    this.listen();
    this.showReadout(null);
  }

  get series() {
    const c = this.columns;
    const j = this.coordinate;
    return {
      x: this.x, y: c["y" + j], mean: c["mean" + j], lower: c["lower" + j], upper: c["upper" + j],
      weight: c.weight, change: c.change, outlier: c.outlier, regime: c.regime, none: this.data.none,
    };
  }

  build() {
    const { data } = this;
    const window = this.timeline && [this.timeline.min, this.timeline.max];
    const places = { series: byId("chart-series"), ribbon: byId("chart-ribbon"), weight: byId("chart-weight") };
    for (const chart of this.charts || []) chart.destroy();
    this.timeline = new Timeline(places, this.series, data.names, data.times, {
      onCursor: (j) => this.showReadout(j),
      onWindow: (shown) => {
        document.body.dataset.bucket = shown.size;
        byId("range-key").hidden = shown.size === 1;
      },
    });
    if (window) this.timeline.move(...window);
    this.charts = [
      this.timeline, drawPit(byId("chart-pit"), data.pit, data.counted), drawCoverage(byId("chart-coverage"), data.coverage),
    ];
    if (data.ahead.length) this.charts.push(drawForecast(byId("chart-next"), this.series, data.ahead[this.coordinate], data.times));
    const range = sampleRange(Object.values(data.samples));
    for (const place of document.querySelectorAll(".sample")) {
      const id = Number(place.dataset.regime);
      this.charts.push(drawSample(place, data.samples[id], id, range));
    }
    document.body.dataset.ready = "yes";
  }

  listen() {
    document.addEventListener("click", (event) => this.press(event.target.closest("button")));
    const chosen = byId("coordinate");
    if (chosen) chosen.onchange = () => ((this.coordinate = Number(chosen.value)), this.build());
    let width = innerWidth;
    let waiting = 0;
    addEventListener("resize", () => {
      if (innerWidth === width) return; // the address bar of a phone changes the height only
      width = innerWidth;
      clearTimeout(waiting);
      waiting = setTimeout(() => this.build(), 120);
    });
    let before = null;
    addEventListener("beforeprint", () => {
      before = theme();
      document.documentElement.dataset.paper = "yes"; // page width and light colours
      this.setTheme("light");
    });
    addEventListener("afterprint", () => {
      delete document.documentElement.dataset.paper;
      this.setTheme(before);
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (change) => this.setTheme(change.matches ? "dark" : "light"));
  }

  setTheme(name) {
    document.documentElement.dataset.theme = name;
    this.build();
  }

  press(button) {
    if (!button) return;
    const { zoom, around, from, to } = button.dataset;
    if (button.id === "theme") this.setTheme(theme() === "dark" ? "light" : "dark");
    else if (zoom) this.zoom(zoom);
    else if (around || from) {
      if (around) this.timeline.around(Number(around));
      else this.timeline.between(Number(from), Number(to));
      byId("series").scrollIntoView();
    }
  }

  zoom(how) {
    const { min, max, full } = this.timeline;
    const width = max - min;
    const middle = (min + max) / 2;
    const windows = {
      all: full,
      in: [middle - width / 4, middle + width / 4],
      out: [middle - width, middle + width],
      left: [min - width / 2, max - width / 2],
      right: [min + width / 2, max + width / 2],
      end: [full[1] - 300 * this.data.times.step, full[1]],
    };
    this.timeline.move(...windows[how]);
  }

  // Values under the cursor, or the hint.
  showReadout(j) {
    const place = byId("readout");
    const shown = this.timeline && this.timeline.shown;
    if (j === null || j === undefined || !shown || !shown.rows[j]) return (place.textContent = HINT);
    place.replaceChildren(...(shown.size === 1 ? this.describeRow(shown.rows[j][0]) : this.describeBucket(shown, j)));
  }

  describeRow(t) {
    const s = this.series;
    const flag = s.outlier[t] ? " (outlier)" : "";
    return facts(this.formatTime(s.x[t]), [
      ["observed", formatNumber(s.y[t]) + flag],
      ["forecast", `${formatNumber(s.mean[t])} (${formatNumber(s.lower[t])} to ${formatNumber(s.upper[t])})`],
      ["weight", formatNumber(s.weight[t])], ["P(change)", formatNumber(s.change[t])], ["regime", this.regimeName(t)],
    ]);
  }

  describeBucket(shown, j) {
    const s = this.series;
    const [a, b] = shown.rows[j];
    const outliers = s.outlier.slice(a, b + 1).reduce((sum, flag) => sum + flag, 0);
    return facts(`${this.formatTime(s.x[a])} to ${this.formatTime(s.x[b])}`, [
      ["observations", b - a + 1], ["observed", `${formatNumber(shown.low[j])} to ${formatNumber(shown.high[j])}`],
      ["mean forecast", formatNumber(shown.mean[j])], ["outliers", outliers], ["largest P(change)", formatNumber(shown.change[j])],
      ["regime", this.regimeName((a + b) >> 1)],
    ]);
  }

  regimeName(t) {
    const regime = this.columns.regime[t];
    return regime === this.data.none ? "none yet" : this.data.names[regime];
  }
}

function facts(head, pairs) {
  const nodes = [head];
  for (const [name, value] of pairs) {
    const strong = document.createElement("b");
    strong.textContent = value;
    nodes.push(` · ${name} `, strong);
  }
  return nodes;
}

async function open() {
  document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  try {
    const data = JSON.parse(byId("data").textContent);
    globalThis.regimekitReport = new Page(data, await unpack(data.columns));
  } catch (error) {
    byId("readout").textContent = `The charts cannot be drawn in this browser (${error.message}); the tables are complete.`;
    throw error;
  }
}

open();
