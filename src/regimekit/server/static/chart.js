// The chart of a live stream, and names, chips and sparklines of regimes. Colours and parts of charts are
// those of the report (assets/charts.js).
//
// This module does not know the service. `Chart.show` takes
//   points:   [{seq, at, y, mean, lower, upper, outlier, regime, weight}], or buckets
//             [{seq, at, n, y, y_min, y_max, mean, lower, upper, outliers}]
//   segments: [{start, end, regime}]  over sequence numbers
//   events:   [{since, kind, regime}]
//   steps:    [{step, mean, lower, upper}]  forecasts after the last point
//   timed:    whether the x axis shows `at` (seconds since 1970) instead of `seq`
//   names:    {regime: name}

import { axisWidth, colour, drawChart, drawOutliers, drawRibbon, edge, formatNumber, line, lineColour, regimeStyle, timeAxis, valueAxis } from "./assets/charts.js";
import { clock, h, svg } from "./dom.js";

const HINT = matchMedia("(pointer: coarse)").matches
  ? "Zoom and pan with the buttons; tap the chart for values."
  : "Zoom: drag or mouse wheel. Pan: shift and mouse wheel.";
const RIBBON_HEIGHT = 20; // pixels
const CHART_HEIGHT = 340; // pixels

export class Chart {
  constructor(container, readout, { select, wheel }) {
    this.container = container;
    this.readout = readout;
    this.on = { select, wheel };
    this.data = { points: [], segments: [], events: [], steps: [], timed: false, names: {} };
    this.resizer = new ResizeObserver(() => this.resize());
    this.resizer.observe(container);
  }

  show(data) {
    const rebuilt = !this.plot || data.timed !== this.data.timed;
    this.data = data;
    if (rebuilt) this.build();
    else this.plot.setData(this.columns());
    this.showHint();
  }

  build() {
    this.plot?.destroy();
    const { timed } = this.data;
    const kind = timed ? "dates" : "rows";
    const ahead = { dash: [5, 4], width: 1.4 };
    this.plot = drawChart(this.container, CHART_HEIGHT, {
      padding: [10, 14, 0, 0],
      tzDate: (seconds) => new Date(1000 * seconds),
      cursor: { drag: { x: true, y: false, setScale: false }, points: { show: false } },
      scales: { x: { time: timed }, y: { range: () => this.range() } },
      axes: [timeAxis({ kind }), valueAxis({ size: axisWidth })],
      series: [{}, edge, edge, edge, edge, line("accent", { width: 1.6 }),
        line("observed", { points: { size: 4, fill: colour("observed") } }), edge, edge, line("accent", ahead)],
      bands: [
        { series: [1, 2], fill: colour("band") },
        { series: [3, 4], fill: colour("spread") },
        { series: [7, 8], fill: colour("ahead") },
      ],
      hooks: {
        draw: [(plot) => this.decorate(plot)],
        setSelect: [(plot) => this.selected(plot)],
        setCursor: [(plot) => this.describe(plot.cursor.idx)],
      },
    }, this.columns());
    this.plot.over.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  x(point) {
    return this.data.timed ? point.at : point.seq;
  }

  // Forecasts have no time: they continue at the mean interval of the last points.
  ahead() {
    const { points, steps } = this.data;
    if (!points.length || !steps.length) return [];
    const last = this.x(points.at(-1));
    const some = points.slice(-30);
    const gap = (some.length > 1 && (last - this.x(some[0])) / (some.length - 1)) || 1;
    return steps.map((step) => ({ ...step, x: last + gap * step.step }));
  }

  columns() {
    const { points } = this.data;
    const ahead = this.ahead();
    const blank = ahead.map(() => null);
    const past = points.map(() => null);
    const of = (name) => [...points.map((point) => first(point[name])), ...blank];
    const later = (name) => [...past.slice(0, -1), ...(past.length ? [first(points.at(-1)[name === "mean" ? "mean" : name])] : []), ...ahead.map((step) => first(step[name]))];
    const wide = points.some((point) => point.n > 1);
    return [
      [...points.map((point) => this.x(point)), ...ahead.map((step) => step.x)],
      of("upper"), of("lower"),
      wide ? of("y_max") : of("none"), wide ? of("y_min") : of("none"),
      of("mean"), of("y"), later("upper"), later("lower"), later("mean"),
    ];
  }

  // The middle 98 % of the values set the scale; an outlier beyond it is marked at the edge.
  range() {
    const values = this.data.points.flatMap((p) => [first(p.y), first(p.lower), first(p.upper)]).concat(this.data.steps.flatMap((s) => [first(s.lower), first(s.upper)]))
      .filter((value) => Number.isFinite(value)).sort((a, b) => a - b);
    if (!values.length) return [0, 1];
    const low = values[Math.floor(0.01 * (values.length - 1))];
    const high = values[Math.ceil(0.99 * (values.length - 1))];
    const room = (high - low || Math.abs(high) || 1) * 0.08;
    return [low - 2 * room, high + room];
  }

  decorate(plot) {
    const { bbox, ctx } = plot;
    const height = RIBBON_HEIGHT * devicePixelRatio;
    const blocks = this.data.segments.map(({ start, end, regime }) =>
      ({ regime, from: this.xOf(start), to: this.xOf(end), name: regimeName(regime, this.data.names) }));
    ctx.save();
    ctx.globalAlpha = 0.08;
    drawRibbon(plot, blocks.map((block) => ({ ...block, name: "" })), bbox.top, bbox.height - height);
    ctx.restore();
    drawRibbon(plot, blocks, bbox.top + bbox.height - height, height);
    this.eventLines(plot);
    const { min, max } = plot.scales.y;
    const bottom = plot.posToVal(bbox.top + bbox.height - height, "y", true);
    const marked = this.data.points.map((point) => (!(point.outlier || point.outliers > 0) ? null : point.n > 1 ? farthest(point) : first(point.y)));
    drawOutliers(plot, this.data.points.map((point) => this.x(point)), [marked], [Math.max(min, bottom), max], height);
  }

  eventLines(plot) {
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.lineWidth = ratio;
    for (const event of this.data.events) {
      if (event.kind === "outlier") continue;
      const x = plot.valToPos(this.xOf(event.since), "x", true);
      ctx.strokeStyle = regimeColour(event.regime);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  xOf(seq) {
    const { points } = this.data;
    if (!this.data.timed) return seq;
    if (!points.length) return 0;
    let low = 0;
    let high = points.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle].seq < seq) low = middle + 1;
      else high = middle;
    }
    return points[low].at;
  }

  seqOf(x) {
    const { points } = this.data;
    if (!points.length) return 0;
    const [a, b] = [points[0], points.at(-1)];
    if (points.length < 2 || x <= this.x(a) || x >= this.x(b)) {
      const slope = (b.seq - a.seq) / (this.x(b) - this.x(a) || 1);
      return Math.round((x <= this.x(a) ? a.seq + (x - this.x(a)) * slope : b.seq + (x - this.x(b)) * slope));
    }
    const i = points.findIndex((point) => this.x(point) >= x);
    const [p, q] = [points[i - 1], points[i]];
    return Math.round(p.seq + ((x - this.x(p)) / (this.x(q) - this.x(p) || 1)) * (q.seq - p.seq));
  }

  selected(plot) {
    const { left, width } = plot.select;
    if (width < 6) return;
    const from = this.seqOf(plot.posToVal(left, "x"));
    const to = this.seqOf(plot.posToVal(left + width, "x")) + 1;
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.on.select(from, to);
  }

  wheel(event) {
    event.preventDefault();
    const share = (event.clientX - this.plot.over.getBoundingClientRect().left) / this.plot.over.clientWidth;
    const along = event.shiftKey ? event.deltaY : event.deltaX;
    if (Math.abs(along) > Math.abs(event.shiftKey ? 0 : event.deltaY)) this.on.wheel({ pan: along / 600 });
    else this.on.wheel({ zoom: Math.exp(event.deltaY / 500), at: share });
  }

  describe(idx) {
    const point = idx === null || idx === undefined ? null : this.data.points[idx];
    if (!point) return this.showHint();
    const when = point.at ? clock(point.at) : `observation ${point.seq}`;
    const parts = point.n > 1
      ? [when, `${point.n} observations`, `y ${formatNumber(point.y_min)} … ${formatNumber(point.y_max)}`, `${point.outliers} outliers`]
      : [when, `y ${formatNumber(first(point.y))}`, `forecast ${formatNumber(first(point.mean))} (${formatNumber(first(point.lower))} … ${formatNumber(first(point.upper))})`,
        regimeName(point.regime, this.data.names), `weight ${formatNumber(point.weight)}`];
    this.readout.textContent = parts.join("  ·  ");
  }

  showHint() {
    if (this.plot?.cursor.idx !== null && this.plot?.cursor.left >= 0) return;
    this.readout.textContent = HINT;
  }

  resize() {
    const width = this.container.clientWidth;
    if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: CHART_HEIGHT });
  }

  stop() {
    this.resizer.disconnect();
    this.plot?.destroy();
  }
}

// Of an observation with several coordinates, charts show the first.
export function first(value) {
  const one = Array.isArray(value) ? value[0] : value;
  return one === undefined ? null : one;
}

function farthest(point) {
  return point.y_max - point.upper > point.lower - point.y_min ? point.y_max : point.y_min;
}

// The colour of a regime for lines and borders, with enough contrast on the background.
export function regimeColour(id) {
  const { colour: fill } = regimeStyle(id);
  return id < 0 ? fill : lineColour(fill);
}

// The name of a regime on its colour, as in the ribbon.
export function regimeChip(id, names = {}, size = "") {
  const { colour: fill, stripe } = regimeStyle(id);
  const kind = { "": "", "/": "stripe-up", "\\": "stripe-down" }[stripe];
  return h("span", { class: `chip ${kind} ${size}`, "--chip": fill }, h("b", {}, regimeName(id, names)));
}

export function regimeName(id, names = {}) {
  if (id < 0) return "unknown regime";
  return names[id] ? `${names[id]}` : `regime ${id}`;
}

// A small line chart coloured by regime. The middle 96 % of the values set the scale, so that an
// outlier does not flatten it.
export function sparkline(values, regimes, range = null, width = 240, height = 44) {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", class: "spark", "aria-hidden": "true" });
  if (sorted.length < 2) return picture;
  const [low, high] = range || [sorted[Math.floor(0.02 * (sorted.length - 1))], sorted[Math.ceil(0.98 * (sorted.length - 1))]];
  const x = (i) => (i / (values.length - 1)) * width;
  const y = (value) => height - 4 - ((Math.max(low, Math.min(high, value)) - low) / (high - low || 1)) * (height - 8);
  let piece = [];
  values.forEach((value, i) => {
    if (value !== null) piece.push(`${x(i).toFixed(1)},${y(value).toFixed(1)}`);
    const last = i === values.length - 1;
    if (piece.length && (last || regimes[i + 1] !== regimes[i])) {
      picture.append(svg("polyline", { points: piece.join(" "), fill: "none", stroke: regimeColour(regimes[i]), "stroke-width": 1.6, "vector-effect": "non-scaling-stroke" }));
      piece = value === null ? [] : [piece.at(-1)];
    }
  });
  return picture;
}
