// What is drawn of a window: every observation if there is room, else one bucket per few pixels.

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

// Rows first .. last of the window, one more on either side so that lines run to the edge.
function rowsWithin(x, min, max) {
  const first = Math.max(firstAtLeast(x, min) - 1, 0);
  const last = Math.min(firstAtLeast(x, max), x.length - 1);
  return [first, Math.max(last, first)];
}

function mean(column, a, b) {
  let sum = 0;
  let n = 0;
  for (let t = a; t < b; t++) if (column[t] === column[t]) (sum += column[t]), n++;
  return n ? sum / n : null;
}

// The q-quantile; of few values and small q the least.
function quantile(column, a, b, q, wanted) {
  const seen = [];
  for (let t = a; t < b; t++) if (column[t] === column[t] && (!wanted || wanted(t))) seen.push(column[t]);
  if (!seen.length) return null;
  return Float64Array.from(seen).sort()[Math.floor(q * seen.length)];
}

function extreme(column, a, b, sign, wanted) {
  let best = null;
  for (let t = a; t < b; t++) {
    const v = column[t];
    if (v === v && (!wanted || wanted(t)) && (best === null || sign * v > sign * best)) best = v;
  }
  return best;
}

const SHOWN = ["x", "y", "low", "high", "mean", "lower", "upper", "up", "down", "weight", "least", "change"];

// Buckets of `size` neighbouring observations; with size 1 the observations themselves.
function buckets(s, first, last, size) {
  const out = { size, first, rows: [] };
  for (const name of SHOWN) out[name] = [];
  const calm = (t) => !s.outlier[t];
  const wild = (t) => s.outlier[t] === 1;
  for (let a = first; a <= last; a += size) {
    const b = Math.min(a + size, last + 1);
    out.rows.push([a, b - 1]);
    out.x.push(s.x[(a + b - 1) >> 1]);
    const high = extreme(s.y, a, b, 1, calm);
    const low = extreme(s.y, a, b, -1, calm);
    out.high.push(high);
    out.low.push(low);
    out.y.push(size === 1 ? high : quantile(s.y, a, b, 0.5, calm));
    for (const name of ["mean", "lower", "upper", "weight"]) out[name].push(mean(s[name], a, b));
    out.up.push(extreme(s.y, a, b, 1, wild));
    out.down.push(size === 1 ? null : extreme(s.y, a, b, -1, wild));
    out.least.push(quantile(s.weight, a, b, 0.1));
    out.change.push(extreme(s.change, a, b, 1));
  }
  return out;
}

function windowOf(s, min, max, width) {
  const [first, last] = rowsWithin(s.x, min, max);
  const n = last - first + 1;
  const room = Math.max(width / 2.5, 50); // about one bucket per two and a half pixels
  return buckets(s, first, last, n <= room * 1.6 ? 1 : Math.ceil(n / room));
}

// The bulk of what is observed in a window, with a margin: what the vertical axis shows.
function bulk(s, first, last) {
  const seen = [];
  const stride = Math.max(1, Math.floor((last - first) / 6000));
  for (let t = first; t <= last; t += stride) if (!s.outlier[t] && s.y[t] === s.y[t]) seen.push(s.y[t]);
  if (!seen.length) return [-1, 1];
  seen.sort((a, b) => a - b);
  const at = (q) => seen[Math.min(seen.length - 1, Math.floor(q * seen.length))];
  // Nearly all of it, but nothing far beyond where most of it lies: a spike nobody flagged.
  const room = 3 * (at(0.95) - at(0.05));
  const low = Math.max(at(0.002), at(0.05) - room);
  const high = Math.min(at(0.998), at(0.95) + room);
  const margin = 0.3 * (high - low) || Math.abs(high) * 0.1 || 1;
  return [low - margin, high + margin];
}

// Neighbouring observations in one regime: [regime, first row, last row].
function stays(regime, none) {
  const found = [];
  for (let t = 0; t < regime.length; t++) {
    const last = found[found.length - 1];
    if (last && last[0] === regime[t]) last[2] = t;
    else found.push([regime[t], t, t]);
  }
  return found.filter((stay) => stay[0] !== none);
}
