// Three charts over one time axis (the series, the ribbon of regimes, the weights) and their zoom.

class Timeline {
  constructor(places, s, looks, times, onMove) {
    Object.assign(this, { places, s, looks, times, onMove });
    this.stays = stays(s.regime, s.none);
    this.full = [s.x[0], Math.max(s.x[s.x.length - 1], s.x[0] + times.step)];
    [this.min, this.max] = this.full;
    this.build();
  }

  get plotWidth() {
    return Math.max(this.places.series.clientWidth - AXIS - 12, 100);
  }

  build() {
    for (const chart of this.charts || []) chart.destroy();
    this.gather();
    const small = this.places.series.clientWidth < 600;
    this.series = this.drawSeries(small ? 250 : 340);
    this.ribbon = this.drawRibbon(34);
    this.weight = this.drawWeights(small ? 110 : 120);
    this.charts = [this.series, this.ribbon, this.weight];
  }

  gather() {
    this.shown = windowOf(this.s, this.min, this.max, this.plotWidth);
    const [first, last] = rowsWithin(this.s.x, this.min, this.max);
    this.range = bulk(this.s, first, last);
    document.body.dataset.bucket = this.shown.size;
    document.getElementById("range-key").hidden = this.shown.size === 1;
  }

  data() {
    const d = this.shown;
    return {
      series: [d.x, d.high, d.low, d.upper, d.lower, d.y, d.mean, d.up, d.down],
      ribbon: [d.x, d.x.map(() => null)],
      weight: [d.x, d.weight, d.least, d.change],
    };
  }

  move(min, max) {
    const [start, end] = this.full;
    const least = 4 * this.times.step;
    const width = Math.min(Math.max(max - min, least), end - start);
    this.min = Math.max(start, Math.min(min, end - width));
    this.max = this.min + width;
    this.gather();
    const data = this.data();
    for (const name of ["series", "ribbon", "weight"])
      this[name].batch(() => {
        this[name].setData(data[name], false);
        this[name].setScale("x", { min: this.min, max: this.max });
      });
  }

  around(row) {
    const half = 60 * this.times.step;
    this.move(this.s.x[row] - half, this.s.x[row] + half);
  }

  between(a, b) {
    const last = this.s.x.length - 1;
    const from = this.s.x[Math.max(a, 0)];
    const to = this.s.x[Math.min(b, last)];
    const margin = 0.15 * (to - from) + this.times.step;
    this.move(from - margin, to + margin);
  }

  common(more) {
    const zoom = (u) => {
      if (u.select.width < 4) return;
      const [a, b] = [u.select.left, u.select.left + u.select.width].map((at) => u.posToVal(at, "x"));
      u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      this.move(a, b);
    };
    const everything = () => () => {
      this.move(...this.full);
      return null;
    };
    const hooks = Object.assign({ setSelect: [zoom], setCursor: [(u) => this.onMove(u.cursor.idx)] }, more.hooks);
    const cursor = {
      y: false, points: { show: false }, drag: { x: true, y: false, setScale: false }, bind: { dblclick: everything },
      // The cursor is shared; a drag belongs to one chart, which then moves all three.
      sync: { key: "timeline", filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
    };
    return Object.assign(more, { hooks, cursor, times: this.times });
  }

  xScale() {
    return { time: this.times.kind === "dates", min: this.min, max: this.max, auto: false };
  }

  drawSeries(height) {
    const many = () => (this.shown.size > 1 ? colour("range") : clear);
    const dots = { show: (u) => this.shown.size === 1 && this.shown.x.length < this.plotWidth / 5, size: 4, fill: colour("observed") };
    return draw(
      this.places.series, height,
      this.common({
        scales: { x: this.xScale(), y: { range: () => this.range } },
        axes: [axis({ size: 6, space: 70, values: (u, t) => t.map(() => "") }), valueAxis({})],
        series: [
          {}, edge, edge, edge, edge, line("observed", { points: dots, width: 1 }),
          line("forecast", { width: 1.6 }), edge, edge,
        ],
        bands: [{ series: [1, 2], fill: many }, { series: [3, 4], fill: colour("band") }],
        hooks: { draw: [(u) => this.drawOutliers(u)] },
      }),
      this.data().series,
    );
  }

  // Crosses where outliers lie, triangles on the edge for those beyond it; a crowd is thinned.
  drawOutliers(u) {
    const { ctx: context, bbox } = u;
    const r = 3.2 * devicePixelRatio;
    const [low, high] = this.range;
    context.save();
    context.strokeStyle = context.fillStyle = colour("outlier");
    context.lineWidth = 1.6 * devicePixelRatio;
    context.beginPath();
    for (const column of [u.data[7], u.data[8]]) {
      let above = -Infinity;
      let below = -Infinity;
      column.forEach((value, j) => {
        const x = u.data[0][j];
        if (value === null || x < this.min || x > this.max) return;
        const left = u.valToPos(x, "x", true);
        if (value > high) above = this.onEdge(context, left, above, bbox.top + 2, r, 1);
        else if (value < low) below = this.onEdge(context, left, below, bbox.top + bbox.height - 2, r, -1);
        else cross(context, left, u.valToPos(value, "y", true), r);
      });
    }
    context.stroke();
    context.restore();
  }

  onEdge(context, left, previous, tip, r, down) {
    if (left - previous < 5 * r) return previous;
    triangle(context, left, tip, r, down);
    return left;
  }

  drawRibbon(height) {
    const none = { show: false };
    return draw(
      this.places.ribbon, height,
      this.common({
        padding: [4, 12, 4, 0],
        scales: { x: this.xScale(), y: { range: [0, 1] } },
        axes: [none, valueAxis({ values: (u, t) => t.map(() => ""), grid: none, ticks: none })],
        series: [{}, edge],
        hooks: { draw: [(u) => this.drawStays(u)] },
      }),
      this.data().ribbon,
    );
  }

  drawStays(u) {
    const { ctx: context, bbox } = u;
    context.save();
    context.beginPath();
    context.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    context.clip();
    context.font = `600 ${11 * devicePixelRatio}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    let drawn = -Infinity; // canvas pixels up to here are filled: short stays do not pile up
    for (const [regime, first, last] of this.visible()) {
      const left = Math.max(u.valToPos(this.s.x[first], "x", true), bbox.left, drawn);
      const after = last + 1 < this.s.x.length ? this.s.x[last + 1] : this.s.x[last] + this.times.step;
      const right = Math.min(u.valToPos(after, "x", true), bbox.left + bbox.width);
      if (right - left < 0.5) continue;
      regimeBlock(context, this.looks[regime], left, bbox.top, right - left, bbox.height);
      label(context, this.looks[regime].name, (left + right) / 2, bbox.top + bbox.height / 2, right - left);
      drawn = right;
    }
    context.restore();
  }

  visible() {
    return this.stays.filter((stay) => this.s.x[stay[1]] <= this.max && this.s.x[stay[2]] + this.times.step >= this.min);
  }

  drawWeights(height) {
    return draw(
      this.places.weight, height,
      this.common({
        scales: { x: this.xScale(), y: { range: [-0.03, 1.05] } },
        axes: [timeAxis(this.times), valueAxis({ splits: () => [0, 0.5, 1] })],
        series: [{}, line("weight", { width: 1 }), edge, line("change", { width: 1.4 })],
        bands: [{ series: [1, 2], fill: colour("range") }],
      }),
      this.data().weight,
    );
  }
}

function cross(context, x, y, r) {
  context.moveTo(x - r, y - r);
  context.lineTo(x + r, y + r);
  context.moveTo(x - r, y + r);
  context.lineTo(x + r, y - r);
}

function triangle(context, x, tip, r, down) {
  const path = new Path2D();
  path.moveTo(x, tip);
  path.lineTo(x - r, tip + down * 1.8 * r);
  path.lineTo(x + r, tip + down * 1.8 * r);
  path.closePath();
  context.fill(path);
}

function label(context, text, x, y, room) {
  const width = context.measureText(text).width + 6 * devicePixelRatio;
  if (room < width + 4) return;
  const height = 14 * devicePixelRatio;
  context.fillStyle = "rgba(255, 255, 255, .82)";
  context.fillRect(x - width / 2, y - height / 2, width, height);
  context.fillStyle = "#111";
  context.fillText(text, x, y);
}
