// The charts, each a uPlot; colours come from the style sheet so that they follow the theme.

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const clear = "transparent";
const fmt = new Intl.NumberFormat("en", { maximumSignificantDigits: 6, useGrouping: false });
const say = (v) => (v === null || v === undefined || v !== v ? "–" : Math.abs(v) >= 1e15 ? v.toExponential(3) : fmt.format(v));

function timeWords(about) {
  if (about.kind !== "dates") return (v) => say(v);
  const ends = (v, length) => Math.abs(v / length - Math.round(v / length)) < 1e-9;
  const daily = ends(about.start, 86400) && ends(about.step, 86400);
  const whole = ends(about.start, 60) && ends(about.step, 60);
  return (v) => {
    const text = new Date(Math.round(v * 1000)).toISOString().replace("T", " ");
    return daily ? text.slice(0, 10) : whole ? text.slice(0, 16) : text.slice(0, 19);
  };
}

// A regime's colour as a line: a shade darker or lighter where it would fade into the paper.
function inked(hex) {
  const parts = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const light = (0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2]) / 255;
  const dark = document.documentElement.dataset.theme === "dark";
  const toward = dark ? Math.max(0, 0.55 - light) : -Math.max(0, light - 0.55);
  const shifted = parts.map((part) => Math.round(toward > 0 ? part + (255 - part) * toward : part * (1 + toward)));
  return `rgb(${shifted.join(", ")})`;
}

const AXIS = 58; // room of the vertical axis, the same in stacked charts

function axis(more) {
  return Object.assign(
    { stroke: colour("soft"), grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid"), width: 1, size: 5 },
      font: "12px system-ui, sans-serif" },
    more,
  );
}

function compact(v) {
  return Math.abs(v) >= 1e5 || (v !== 0 && Math.abs(v) < 1e-3)
    ? Intl.NumberFormat("en", { notation: v && Math.abs(v) < 1e-3 ? "scientific" : "compact", maximumSignificantDigits: 4 }).format(v)
    : fmt.format(v);
}

// Dates the same way everywhere: largest unit first, hours of a whole day.
const DATES = [
  [3600 * 24 * 365, "{YYYY}", null, null, null, null, null, null, 1],
  [3600 * 24 * 28, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [3600 * 24, "{MMM} {D}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MMM} {D}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{MMM} {D}", null, null, null, 1],
  [0.001, ":{ss}.{fff}", "\n{YYYY}-{MM}-{DD} {HH}:{mm}", null, "\n{MMM} {D} {HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
];
const timeAxis = (times) => axis(times.kind === "dates" ? { values: DATES, space: 70 } : { values: (u, t) => t.map(compact), space: 70 });

const valueAxis = (more) => axis(Object.assign({ size: AXIS, values: (u, ticks) => ticks.map(compact) }, more));
const line = (name, more) => Object.assign({ stroke: colour(name), width: 1.3, points: { show: false } }, more);
const edge = { stroke: clear, width: 0, points: { show: false } };

function base(place, height, more) {
  const time = (more.times || {}).kind === "dates";
  delete more.times;
  return Object.assign(
    {
      width: Math.max(place.clientWidth, 200), height, legend: { show: false }, padding: [8, 12, 0, 0],
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false, setScale: false } },
      scales: { x: { time } },
    },
    more,
  );
}

function draw(place, height, options, data) {
  place.replaceChildren();
  return new uPlot(base(place, height, options), data, place);
}

// A filled rectangle in the look of a regime, in canvas pixels.
function regimeBlock(context, look, left, top, width, height) {
  context.fillStyle = look.colour;
  context.fillRect(left, top, width, height);
  if (!look.stripe) return;
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.strokeStyle = "rgba(0, 0, 0, .5)";
  context.lineWidth = 2;
  const lean = look.stripe === "/" ? 1 : -1;
  context.beginPath();
  for (let at = left - height; at < left + width + height; at += 8) {
    context.moveTo(at, top + height);
    context.lineTo(at + lean * height, top);
  }
  context.stroke();
  context.restore();
}

function drawPit(place, data) {
  const n = data.pit.length;
  const flat = 1 / n;
  const noise = data.counted ? 1.96 * Math.sqrt((flat * (1 - flat)) / data.counted) : 0;
  const x = data.pit.map((_, j) => (j + 0.5) / n);
  const all = (v) => x.map(() => v);
  const top = 1.15 * Math.max(flat + noise, ...data.pit);
  return draw(
    place, 240,
    {
      scales: { x: { time: false, range: [0, 1] }, y: { range: [0, top] } },
      axes: [axis({ values: (u, ticks) => ticks.map(compact) }), valueAxis({ values: (u, t) => t.map((v) => compact(100 * v) + " %") })],
      series: [
        {}, { stroke: clear, fill: colour("half"), paths: uPlot.paths.bars({ size: [0.94, Infinity] }), points: { show: false } },
        edge, edge, line("ink", { dash: [5, 4], width: 1 }),
      ],
      bands: [{ series: [2, 3], fill: colour("range") }],
    },
    [x, data.pit, all(flat + noise), all(Math.max(flat - noise, 0)), all(flat)],
  );
}

function drawCoverage(place, data) {
  const levels = [0, ...data.coverage.map((pair) => pair[0]), 1];
  const shares = [0, ...data.coverage.map((pair) => pair[1]), 1];
  const percent = (u, ticks) => ticks.map((v) => Math.round(100 * v) + " %");
  return draw(
    place, 240,
    {
      padding: [8, 26, 0, 0],
      scales: { x: { time: false, range: [0, 1] }, y: { range: [0, 1.02] } },
      axes: [axis({ values: percent }), valueAxis({ values: percent })],
      series: [
        {}, line("ink", { dash: [5, 4], width: 1 }),
        line("forecast", { width: 2, points: { show: true, size: 6, fill: colour("forecast"), stroke: colour("forecast") } }),
      ],
    },
    [levels, levels, shares],
  );
}

// A stay of a regime; all of them share the vertical axis.
function drawSample(place, sample, look, range) {
  const steps = sample.values.map((_, j) => j);
  return draw(
    place, 96,
    {
      padding: [4, 0, 4, 0],
      scales: { x: { time: false }, y: { range } },
      axes: [{ show: false }, valueAxis({ size: 48, space: 22, font: "10px system-ui, sans-serif" })],
      series: [{}, { stroke: inked(look.colour), width: 1.6, spanGaps: true, points: { show: sample.values.length < 40, size: 4, fill: inked(look.colour) } }],
    },
    [steps, sample.values],
  );
}

function sampleRange(samples) {
  const seen = Object.values(samples).flatMap((s) => s.values).filter((v) => v !== null).sort((a, b) => a - b);
  if (!seen.length) return [-1, 1];
  const low = seen[Math.floor(0.005 * seen.length)];
  const high = seen[Math.min(seen.length - 1, Math.floor(0.995 * seen.length))];
  const margin = 0.08 * (high - low) || 1;
  return [low - margin, high + margin];
}

// The latest observations and what comes next.
function drawNext(place, s, ahead, times) {
  const n = s.x.length;
  const past = Math.min(n, Math.max(60, 3 * ahead.x.length));
  const x = [...s.x.slice(n - past), ...ahead.x];
  const before = (column) => [...Array.from(column.slice(n - past), (v) => (v === v ? v : null)), ...ahead.x.map(() => null)];
  const after = (values) => [...Array(past).fill(null), ...values];
  const [low, high] = bulk(s, n - past, n - 1);
  const reach = (values, pick) => values.reduce((a, b) => pick(a, b));
  const room = 3 * (high - low); // a band that widens beyond all measure does not flatten the rest
  const range = [
    Math.max(Math.min(low, reach(ahead.lower, Math.min)), low - room),
    Math.min(Math.max(high, reach(ahead.upper, Math.max)), high + room),
  ];
  return draw(
    place, 280,
    {
      times, scales: { x: { time: times.kind === "dates" }, y: { range } },
      axes: [timeAxis(times), valueAxis({})],
      series: [
        {}, line("observed", { points: { show: past <= 120, size: 4, fill: colour("observed") } }),
        edge, edge, edge, edge, line("forecast", { width: 2 }),
      ],
      bands: [{ series: [2, 3], fill: colour("band") }, { series: [4, 5], fill: colour("half") }],
    },
    [x, before(s.y), after(ahead.upper), after(ahead.lower), after(ahead.high), after(ahead.low), after(ahead.median)],
  );
}
