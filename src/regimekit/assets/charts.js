// Charts of the HTML report and of live pages, drawn with uPlot (global `uPlot`).
// The colours are variables of style.css, so that charts follow the theme.
// The report inlines this module without its `export` keywords; the server serves it as it is.

// ---- Styles and texts

const REGIME_COLOURS = 7; // variables --regime-0 .. --regime-6; beyond, colours repeat with stripes
const AXIS_WIDTH = 58; // smallest width of a value axis, CSS pixels
const FONT = "12px system-ui, sans-serif";
const TRANSPARENT = "transparent";
const formatter = new Intl.NumberFormat("en", { maximumSignificantDigits: 6, useGrouping: false });
const largeFormatter = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

// Date formats of uPlot: largest unit first, 24 hours.
const DATE_FORMATS = [
  [3600 * 24 * 365, "{YYYY}", null, null, null, null, null, null, 1],
  [3600 * 24 * 28, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [3600 * 24, "{MMM} {D}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MMM} {D}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{MMM} {D}", null, null, null, 1],
  [0.001, ":{ss}.{fff}", "\n{YYYY}-{MM}-{DD} {HH}:{mm}", null, "\n{MMM} {D} {HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
];

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

// Colour and stripe of a regime, the same for an id in every chart and figure.
export function regimeStyle(id) {
  if (id < 0) return { colour: colour("faint"), stripe: "" };
  const lap = Math.floor(id / REGIME_COLOURS);
  return { colour: colour(`regime-${id % REGIME_COLOURS}`), stripe: ["", "/", "\\"][lap % 3] };
}

// A regime colour for a line: darker or lighter if it has too little contrast with the background.
export function lineColour(hex) {
  const parts = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const lightness = (0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2]) / 255;
  const dark = document.documentElement.dataset.theme === "dark";
  const shift = dark ? Math.max(0, 0.55 - lightness) : -Math.max(0, lightness - 0.55);
  const shifted = parts.map((part) => Math.round(shift > 0 ? part + (255 - part) * shift : part * (1 + shift)));
  return `rgb(${shifted.join(", ")})`;
}

export function formatNumber(v) {
  if (v === null || v === undefined || Number.isNaN(v)) return "–";
  if (Math.abs(v) >= 1e15) return v.toExponential(3);
  return (Math.abs(v) >= 1e5 ? largeFormatter : formatter).format(v);
}

// Labels of an axis: equal units, and as many digits as neighbouring ticks need to differ.
export function formatTicks(ticks) {
  const step = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : 0;
  const largest = Math.max(...ticks.map(Math.abs));
  const tiny = largest < 1e-3;
  if (largest < 1e5 && !tiny) return ticks.map((v) => formatter.format(v));
  const needed = step ? Math.ceil(Math.log10(largest / step)) + 1 : 4;
  const digits = Math.min(Math.max(needed, 4), 12);
  const wide = Intl.NumberFormat("en", { notation: tiny ? "scientific" : "compact", maximumSignificantDigits: digits });
  return ticks.map((v) => (v ? wide.format(v) : "0"));
}

// Formatter of times: `times` has kind ("dates", "numbers" or "rows"), start and step.
export function timeFormatter(times) {
  if (times.kind !== "dates") return formatNumber;
  const multiple = (v, length) => Math.abs(v / length - Math.round(v / length)) < 1e-9;
  const length = [[86400, 10], [60, 16]].find(([unit]) => multiple(times.start, unit) && multiple(times.step, unit));
  return (v) => new Date(Math.round(v * 1000)).toISOString().replace("T", " ").slice(0, length ? length[1] : 19);
}

// ---- Parts of charts

export function axis(options) {
  const ticks = { stroke: colour("grid"), width: 1 };
  return { stroke: colour("muted"), grid: ticks, ticks: { ...ticks, size: 5 }, font: FONT, ...options };
}

export const timeAxis = (times) =>
  axis({ values: times.kind === "dates" ? DATE_FORMATS : (u, ticks) => formatTicks(ticks), space: 70 });
export const valueAxis = (options) => axis({ size: AXIS_WIDTH, values: (u, ticks) => formatTicks(ticks), ...options });
// Width of a value axis with these labels, in CSS pixels.
export const axisWidth = (plot, labels) =>
  Math.max(AXIS_WIDTH, 18 + 7 * Math.max(0, ...(labels || []).map((label) => String(label ?? "").length)));

// Labels of about the length of those that an axis of this range has.
function sampleLabels([low, high]) {
  const step = 10 ** Math.floor(Math.log10((high - low) / 3 || 1));
  return formatTicks([low, low + step, high].map((v) => step * Math.round(v / step)));
}

export const line = (name, options) => ({ stroke: colour(name), width: 1.3, points: { show: false }, ...options });
export const edge = { stroke: TRANSPARENT, width: 0, points: { show: false } }; // limit of a filled band

export function drawChart(place, height, options, data) {
  place.replaceChildren();
  const common = {
    width: Math.max(place.clientWidth, 200), height, legend: { show: false }, padding: [8, 12, 0, 0],
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    cursor: { y: false, points: { show: false }, drag: { x: false, y: false, setScale: false } },
    scales: { x: { time: false } },
  };
  return new uPlot({ ...common, ...options }, data, place);
}

// Mark outliers by crosses, and those outside `range` by triangles on the edge of the plot.
// `columns` are arrays of values, null where there is no outlier, at the positions `x`; `foot` is the
// height in canvas pixels of what covers the lower edge.
export function drawOutliers(plot, x, columns, range, foot = 0) {
  const { ctx: context, bbox } = plot;
  const r = 3.2 * devicePixelRatio;
  const { min, max } = plot.scales.x;
  context.save();
  context.strokeStyle = context.fillStyle = colour("alarm");
  context.lineWidth = 1.6 * devicePixelRatio;
  context.beginPath();
  for (const column of columns) {
    // Right end of the last triangle on the upper and lower edge: overlapping ones are left out.
    const last = { 1: -Infinity, [-1]: -Infinity };
    column.forEach((value, j) => {
      if (value === null || x[j] < min || x[j] > max) return;
      const left = plot.valToPos(x[j], "x", true);
      const side = value > range[1] ? 1 : value < range[0] ? -1 : 0;
      if (!side) return cross(context, left, plot.valToPos(value, "y", true), r);
      if (left - last[side] < 5 * r) return;
      last[side] = left;
      triangle(context, left, side > 0 ? bbox.top + 2 : bbox.top + bbox.height - foot - 2, r, side);
    });
  }
  context.stroke();
  context.restore();
}

function cross(context, x, y, r) {
  context.moveTo(x - r, y - r);
  context.lineTo(x + r, y + r);
  context.moveTo(x - r, y + r);
  context.lineTo(x + r, y - r);
}

function triangle(context, x, tip, r, side) {
  const path = new Path2D();
  path.moveTo(x, tip);
  path.lineTo(x - r, tip + side * 1.8 * r);
  path.lineTo(x + r, tip + side * 1.8 * r);
  path.closePath();
  context.fill(path);
}

// Fill a ribbon of regimes. `blocks` are { regime, from, to, name } in values of x, sorted; `top` and
// `height` are canvas pixels. Blocks below half a pixel are left out, wide ones are labelled.
export function drawRibbon(plot, blocks, top, height) {
  const { ctx: context, bbox } = plot;
  context.save();
  context.beginPath();
  context.rect(bbox.left, top, bbox.width, height);
  context.clip();
  context.font = `600 ${11 * devicePixelRatio}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  let filled = -Infinity;
  for (const { regime, from, to, name } of blocks) {
    const left = Math.max(plot.valToPos(from, "x", true), bbox.left, filled);
    const right = Math.min(plot.valToPos(to, "x", true), bbox.left + bbox.width);
    if (right - left < 0.5) continue;
    fillRegime(context, regimeStyle(regime), left, top, right - left, height);
    drawLabel(context, name, (left + right) / 2, top + height / 2, right - left);
    filled = right;
  }
  context.restore();
}

function fillRegime(context, style, left, top, width, height) {
  context.fillStyle = style.colour;
  context.fillRect(left, top, width, height);
  if (!style.stripe) return;
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.strokeStyle = "rgba(0, 0, 0, .5)";
  context.lineWidth = 2;
  const lean = style.stripe === "/" ? 1 : -1;
  context.beginPath();
  for (let at = left - height; at < left + width + height; at += 8) {
    context.moveTo(at, top + height);
    context.lineTo(at + lean * height, top);
  }
  context.stroke();
  context.restore();
}

function drawLabel(context, text, x, y, room) {
  const width = context.measureText(text).width + 6 * devicePixelRatio;
  if (!text || room < width + 4) return;
  const height = 14 * devicePixelRatio;
  context.fillStyle = "rgba(255, 255, 255, .82)";
  context.fillRect(x - width / 2, y - height / 2, width, height);
  context.fillStyle = "#111";
  context.fillText(text, x, y);
}

// ---- Aggregation: columns of a stream, drawn in buckets if there are more rows than pixels

const COLUMNS = ["x", "y", "low", "high", "mean", "lower", "upper", "up", "down", "weight", "least", "change"];

function firstAtLeast(x, value) {
  let low = 0;
  let high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// First and last row of a window, one more on either side so that lines reach the edge.
export function rowsWithin(x, min, max) {
  const first = Math.max(firstAtLeast(x, min) - 1, 0);
  const last = Math.min(firstAtLeast(x, max), x.length - 1);
  return [first, Math.max(last, first)];
}

// Values of rows a .. b - 1 that are not missing.
function valuesOf(column, a, b, wanted) {
  const values = [];
  for (let t = a; t < b; t++) if (!Number.isNaN(column[t]) && (!wanted || wanted(t))) values.push(column[t]);
  return values;
}

const minimum = (values) => (values.length ? values.reduce((a, b) => Math.min(a, b)) : null);
const maximum = (values) => (values.length ? values.reduce((a, b) => Math.max(a, b)) : null);
const average = (values) => (values.length ? values.reduce((a, b) => a + b) / values.length : null);
const quantile = (values, q) => (values.length ? Float64Array.from(values).sort()[Math.floor(q * values.length)] : null);

// Buckets of `size` consecutive observations; with size 1 the observations themselves.
export function buckets(series, first, last, size) {
  const out = { size, first, rows: [] };
  for (const name of COLUMNS) out[name] = [];
  for (let a = first; a <= last; a += size) {
    const b = Math.min(a + size, last + 1);
    const regular = valuesOf(series.y, a, b, (t) => !series.outlier[t]);
    const outliers = valuesOf(series.y, a, b, (t) => series.outlier[t]);
    out.rows.push([a, b - 1]);
    out.x.push(series.x[(a + b - 1) >> 1]);
    out.low.push(minimum(regular));
    out.high.push(maximum(regular));
    out.y.push(quantile(regular, 0.5));
    out.up.push(maximum(outliers));
    out.down.push(size === 1 ? null : minimum(outliers));
    for (const name of ["mean", "lower", "upper", "weight"]) out[name].push(average(valuesOf(series[name], a, b)));
    out.least.push(quantile(valuesOf(series.weight, a, b), 0.1));
    out.change.push(maximum(valuesOf(series.change, a, b)));
  }
  return out;
}

// Buckets of the window min .. max, about one per 2.5 pixels.
export function bucketsWithin(series, min, max, width) {
  const [first, last] = rowsWithin(series.x, min, max);
  const n = last - first + 1;
  const room = Math.max(width / 2.5, 50);
  return buckets(series, first, last, n <= room * 1.6 ? 1 : Math.ceil(n / room));
}

// Range of the bulk of the regular observations, with a margin: the limits of the vertical axis.
export function robustRange(series, first, last) {
  const stride = Math.max(1, Math.floor((last - first) / 6000));
  const values = [];
  for (let t = first; t <= last; t += stride)
    if (!series.outlier[t] && !Number.isNaN(series.y[t])) values.push(series.y[t]);
  if (!values.length) return [-1, 1];
  values.sort((a, b) => a - b);
  const at = (q) => values[Math.min(values.length - 1, Math.floor(q * values.length))];
  // The second bound excludes spikes that were not flagged.
  const room = 3 * (at(0.95) - at(0.05));
  const low = Math.max(at(0.002), at(0.05) - room);
  const high = Math.min(at(0.998), at(0.95) + room);
  const margin = 0.3 * (high - low) || Math.abs(high) * 0.1 || 1;
  return [low - margin, high + margin];
}

// Segments of equal regime: [regime, first row, last row]; rows with regime `none` belong to none.
export function segments(regime, none) {
  const found = [];
  for (let t = 0; t < regime.length; t++) {
    const last = found[found.length - 1];
    if (last && last[0] === regime[t]) last[2] = t;
    else found.push([regime[t], t, t]);
  }
  return found.filter((segment) => segment[0] !== none);
}

// ---- Charts

// Three charts over one time axis (series, ribbon of regimes, weights) that zoom together.
// `places` are elements by name, `series` the columns of the stream, `names` regime names by id.
// `onCursor` gets the index under the cursor, `onWindow` the buckets of a new window.
export class Timeline {
  constructor(places, series, names, times, { onCursor, onWindow }) {
    Object.assign(this, { places, series, names, times, onCursor, onWindow });
    this.segments = segments(series.regime, series.none);
    this.full = [series.x[0], Math.max(series.x[series.x.length - 1], series.x[0] + times.step)];
    [this.min, this.max] = this.full;
    this.aggregate();
    const small = places.series.clientWidth < 600;
    this.charts = [this.drawSeries(small ? 250 : 340), this.drawRibbon(34), this.drawWeights(small ? 110 : 120)];
  }

  get plotWidth() {
    return Math.max(this.places.series.clientWidth - (this.axis || AXIS_WIDTH) - 12, 100);
  }

  aggregate() {
    this.shown = bucketsWithin(this.series, this.min, this.max, this.plotWidth);
    this.range = robustRange(this.series, ...rowsWithin(this.series.x, this.min, this.max));
    this.axis = axisWidth(null, sampleLabels(this.range)); // equal in stacked charts
    this.onWindow(this.shown);
  }

  data() {
    const d = this.shown;
    return [
      [d.x, d.high, d.low, d.upper, d.lower, d.y, d.mean, d.up, d.down],
      [d.x, d.x.map(() => null)],
      [d.x, d.weight, d.least, d.change],
    ];
  }

  move(min, max) {
    const [start, end] = this.full;
    const width = Math.min(Math.max(max - min, 4 * this.times.step), end - start);
    this.min = Math.max(start, Math.min(min, end - width));
    this.max = this.min + width;
    this.aggregate();
    const data = this.data();
    this.charts.forEach((chart, j) =>
      chart.batch(() => {
        chart.setData(data[j], false);
        chart.setScale("x", { min: this.min, max: this.max });
      }),
    );
  }

  around(row) {
    const half = 60 * this.times.step;
    this.move(this.series.x[row] - half, this.series.x[row] + half);
  }

  between(first, last) {
    const { x } = this.series;
    const from = x[Math.max(first, 0)];
    const to = x[Math.min(last, x.length - 1)];
    const margin = 0.15 * (to - from) + this.times.step;
    this.move(from - margin, to + margin);
  }

  destroy() {
    for (const chart of this.charts) chart.destroy();
  }

  draw(place, height, chart, data, options) {
    const zoom = (u) => {
      if (u.select.width < 4) return;
      const [a, b] = [u.select.left, u.select.left + u.select.width].map((at) => u.posToVal(at, "x"));
      u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      this.move(a, b);
    };
    const reset = () => () => {
      this.move(...this.full);
      return null;
    };
    const x = { time: this.times.kind === "dates", min: this.min, max: this.max, auto: false };
    return drawChart(this.places[place], height, {
      ...options,
      scales: { x, y: options.y },
      hooks: { setSelect: [zoom], setCursor: [(u) => this.onCursor(u.cursor.idx)], draw: chart ? [chart] : [] },
      cursor: {
        y: false, points: { show: false }, drag: { x: true, y: false, setScale: false }, bind: { dblclick: reset },
        // The cursor is shared; a drag belongs to one chart, which then moves all three.
        sync: { key: "timeline", filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
      },
    }, data);
  }

  drawSeries(height) {
    const spread = () => (this.shown.size > 1 ? colour("spread") : TRANSPARENT);
    const few = () => this.shown.size === 1 && this.shown.x.length < this.plotWidth / 5;
    const mark = (u) => drawOutliers(u, u.data[0], [u.data[7], u.data[8]], this.range);
    return this.draw("series", height, mark, this.data()[0], {
      y: { range: () => this.range },
      axes: [axis({ size: 6, space: 70, values: (u, ticks) => ticks.map(() => "") }), valueAxis({ size: () => this.axis })],
      series: [
        {}, edge, edge, edge, edge, line("observed", { points: { show: few, size: 4, fill: colour("observed") }, width: 1 }),
        line("accent", { width: 1.6 }), edge, edge,
      ],
      bands: [{ series: [1, 2], fill: spread }, { series: [3, 4], fill: colour("band") }],
    });
  }

  drawRibbon(height) {
    const none = { show: false };
    return this.draw("ribbon", height, (u) => drawRibbon(u, this.blocks(), u.bbox.top, u.bbox.height), this.data()[1], {
      padding: [4, 12, 4, 0],
      y: { range: [0, 1] },
      axes: [none, valueAxis({ size: () => this.axis, values: (u, ticks) => ticks.map(() => ""), grid: none, ticks: none })],
      series: [{}, edge],
    });
  }

  blocks() {
    const { x } = this.series;
    const after = (last) => (last + 1 < x.length ? x[last + 1] : x[last] + this.times.step);
    return this.segments
      .map(([regime, first, last]) => ({ regime, from: x[first], to: after(last), name: this.names[regime] }))
      .filter((block) => block.from <= this.max && block.to >= this.min);
  }

  drawWeights(height) {
    return this.draw("weight", height, null, this.data()[2], {
      y: { range: [-0.03, 1.05] },
      axes: [timeAxis(this.times), valueAxis({ size: () => this.axis, splits: () => [0, 0.5, 1] })],
      series: [{}, line("weight", { width: 1 }), edge, line("change", { width: 1.4 })],
      bands: [{ series: [1, 2], fill: colour("spread") }],
    });
  }
}

// Histogram of probability integral transforms of `n` observations, with the 95 % range if calibrated.
export function drawPit(place, pit, n) {
  const flat = 1 / pit.length;
  const noise = n ? 1.96 * Math.sqrt((flat * (1 - flat)) / n) : 0;
  const x = pit.map((_, j) => (j + 0.5) / pit.length);
  const constant = (v) => x.map(() => v);
  const bars = { stroke: TRANSPARENT, fill: colour("half"), paths: uPlot.paths.bars({ size: [0.94, Infinity] }), points: { show: false } };
  return drawChart(place, 240, {
    scales: { x: { time: false, range: [0, 1] }, y: { range: [0, 1.15 * Math.max(flat + noise, ...pit)] } },
    axes: [axis({ values: (u, ticks) => formatTicks(ticks) }), valueAxis({ values: (u, ticks) => formatTicks(ticks.map((v) => 100 * v)).map((text) => text + " %") })],
    series: [{}, bars, edge, edge, line("ink", { dash: [5, 4], width: 1 })],
    bands: [{ series: [2, 3], fill: colour("spread") }],
  }, [x, pit, constant(flat + noise), constant(Math.max(flat - noise, 0)), constant(flat)]);
}

// Coverage by level: `coverage` is a list of [level, share].
export function drawCoverage(place, coverage) {
  const levels = [0, ...coverage.map((pair) => pair[0]), 1];
  const shares = [0, ...coverage.map((pair) => pair[1]), 1];
  const percent = (u, ticks) => ticks.map((v) => Math.round(100 * v) + " %");
  const points = { show: true, size: 6, fill: colour("accent"), stroke: colour("accent") };
  return drawChart(place, 240, {
    padding: [8, 26, 0, 0],
    scales: { x: { time: false, range: [0, 1] }, y: { range: [0, 1.02] } },
    axes: [axis({ values: percent }), valueAxis({ values: percent })],
    series: [{}, line("ink", { dash: [5, 4], width: 1 }), line("accent", { width: 2, points })],
  }, [levels, levels, shares]);
}

// One segment of a regime; `range` is common to all regimes.
export function drawSample(place, values, regime, range) {
  const stroke = lineColour(regimeStyle(regime).colour);
  return drawChart(place, 96, {
    padding: [4, 0, 4, 0],
    scales: { x: { time: false }, y: { range } },
    axes: [{ show: false }, valueAxis({ size: 48, space: 22, font: "10px system-ui, sans-serif" })],
    series: [{}, { stroke, width: 1.6, spanGaps: true, points: { show: values.length < 40, size: 4, fill: stroke } }],
  }, [values.map((_, j) => j), values]);
}

// Vertical range of several samples: the bulk of all values, with a margin.
export function sampleRange(samples) {
  const values = samples.flat().filter((v) => v !== null).sort((a, b) => a - b);
  if (!values.length) return [-1, 1];
  const low = values[Math.floor(0.005 * values.length)];
  const high = values[Math.min(values.length - 1, Math.floor(0.995 * values.length))];
  const margin = 0.08 * (high - low) || 1;
  return [low - margin, high + margin];
}

// The latest observations and the forecasts of the next steps.
export function drawForecast(place, series, ahead, times) {
  const n = series.x.length;
  const past = Math.min(n, Math.max(60, 3 * ahead.x.length));
  const before = [...Array.from(series.y.slice(n - past), (v) => (Number.isNaN(v) ? null : v)), ...ahead.x.map(() => null)];
  const after = (values) => [...Array(past).fill(null), ...values];
  const [low, high] = robustRange(series, n - past, n - 1);
  const room = 3 * (high - low); // limits the axis if the band becomes very wide
  const range = [
    Math.max(Math.min(low, ...ahead.lower), low - room),
    Math.min(Math.max(high, ...ahead.upper), high + room),
  ];
  return drawChart(place, 280, {
    scales: { x: { time: times.kind === "dates" }, y: { range } },
    axes: [timeAxis(times), valueAxis({ size: axisWidth })],
    series: [
      {}, line("observed", { points: { show: past <= 120, size: 4, fill: colour("observed") } }),
      edge, edge, edge, edge, line("accent", { width: 2 }),
    ],
    bands: [{ series: [2, 3], fill: colour("band") }, { series: [4, 5], fill: colour("half") }],
  }, [
    [...series.x.slice(n - past), ...ahead.x], before,
    ...["upper", "lower", "high", "low", "median"].map((name) => after(ahead[name])),
  ]);
}
