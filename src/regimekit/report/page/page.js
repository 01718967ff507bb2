// Puts the page together, and keeps it right when the theme, the width or the paper changes.

const HINT = matchMedia("(pointer: coarse)").matches
  ? "Zoom with the buttons; tap the chart for numbers."
  : "Drag over the chart to zoom, double-click to see everything, point at it for numbers.";
const byId = (id) => document.getElementById(id);

class Page {
  constructor(data, columns) {
    this.data = data;
    this.columns = columns;
    this.words = timeWords(data.times);
    this.x = readTimes(data.times, columns, data.columns.length);
    this.coordinate = 0;
    this.build();
    this.listen();
    this.tell(null);
  }

  get stream() {
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
    this.timeline = new Timeline(places, this.stream, data.looks, data.times, (j) => this.tell(j));
    if (window) this.timeline.move(...window);
    this.charts = [...this.timeline.charts, drawPit(byId("chart-pit"), data), drawCoverage(byId("chart-coverage"), data)];
    if (data.ahead.length) this.charts.push(drawNext(byId("chart-next"), this.stream, data.ahead[this.coordinate], data.times));
    const range = sampleRange(data.samples);
    for (const place of document.querySelectorAll(".sample")) {
      const id = place.dataset.regime;
      this.charts.push(drawSample(place, data.samples[id], data.looks[id], range));
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
      if (innerWidth === width) return; // a phone's address bar comes and goes
      width = innerWidth;
      clearTimeout(waiting);
      waiting = setTimeout(() => this.build(), 120);
    });
    let before = null;
    addEventListener("beforeprint", () => {
      before = theme();
      document.documentElement.dataset.paper = "yes"; // drawn as wide as a sheet, in light colours
      this.paint("light");
    });
    addEventListener("afterprint", () => {
      delete document.documentElement.dataset.paper;
      this.paint(before);
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (change) => this.paint(change.matches ? "dark" : "light"));
  }

  paint(name) {
    document.documentElement.dataset.theme = name;
    this.build();
  }

  press(button) {
    if (!button) return;
    const { zoom, around, from, to } = button.dataset;
    if (button.id === "theme") this.paint(theme() === "dark" ? "light" : "dark");
    else if (zoom) this.zoom(zoom);
    else if (around || from) {
      if (around) this.timeline.around(Number(around));
      else this.timeline.between(Number(from), Number(to));
      byId("series").scrollIntoView();
    }
  }

  zoom(how) {
    const line = this.timeline;
    const { min, max, full } = line;
    const width = max - min;
    const middle = (min + max) / 2;
    if (how === "all") line.move(...full);
    if (how === "in") line.move(middle - width / 4, middle + width / 4);
    if (how === "out") line.move(middle - width, middle + width);
    if (how === "left") line.move(min - width / 2, max - width / 2);
    if (how === "right") line.move(min + width / 2, max + width / 2);
    if (how === "end") line.move(full[1] - 300 * this.data.times.step, full[1]);
  }

  // One line about what is under the cursor.
  tell(j) {
    const place = byId("readout");
    const shown = this.timeline && this.timeline.shown;
    if (j === null || j === undefined || !shown || !shown.rows[j]) return (place.textContent = HINT);
    place.replaceChildren(...(shown.size === 1 ? this.one(shown.rows[j][0]) : this.many(shown, j)));
  }

  one(t) {
    const s = this.stream;
    const wild = s.outlier[t] ? " (outlier)" : "";
    return facts(this.words(s.x[t]), [
      ["observed", say(s.y[t]) + wild], ["forecast", `${say(s.mean[t])} (${say(s.lower[t])} to ${say(s.upper[t])})`],
      ["weight", say(s.weight[t])], ["P(change)", say(s.change[t])], ["regime", this.regime(t)],
    ]);
  }

  many(shown, j) {
    const s = this.stream;
    const [a, b] = shown.rows[j];
    let wild = 0;
    for (let t = a; t <= b; t++) wild += s.outlier[t];
    return facts(`${this.words(s.x[a])} to ${this.words(s.x[b])}`, [
      ["observations", b - a + 1], ["observed", `${say(shown.low[j])} to ${say(shown.high[j])}`],
      ["forecast, mean", say(shown.mean[j])], ["outliers", wild], ["largest P(change)", say(shown.change[j])],
      ["regime", this.regime((a + b) >> 1)],
    ]);
  }

  regime(t) {
    const regime = this.columns.regime[t];
    return regime === this.data.none ? "none yet" : this.data.looks[regime].name;
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

const theme = () => document.documentElement.dataset.theme;

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
