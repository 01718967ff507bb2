// Columns as `packing.py` wrote them: whole numbers, differenced, bytes of one rank together.

async function inflate(text) {
  const raw = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

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
  const whole = {};
  const columns = {};
  let start = 0;
  const next = () => readBlock(bytes, (start += 4 * n) - 4 * n, n);
  for (const column of payload.columns) {
    const steps = next();
    if (column.minus) for (let t = 0; t < n; t++) steps[t] += whole[column.minus][t];
    whole[column.name] = steps;
    const values = new Float64Array(n);
    const power = 10 ** Math.abs(column.exponent);
    // Dividing by a whole power of ten gives the very decimals that were written.
    if (column.exponent < 0) for (let t = 0; t < n; t++) values[t] = (column.base + steps[t]) / power;
    else for (let t = 0; t < n; t++) values[t] = (column.base + steps[t]) * power;
    if (column.holes) {
      const holes = next();
      for (let t = 0; t < n; t++) if (holes[t]) values[t] = NaN;
    }
    for (const t in column.far) values[t] = column.far[t];
    columns[column.name] = values;
  }
  return columns;
}

function readTimes(about, columns, n) {
  const x = new Float64Array(n);
  x[0] = about.start;
  const gap = columns.gap;
  for (let t = 1; t < n; t++) x[t] = gap ? x[t - 1] + gap[t] : about.start + t * about.step;
  return x;
}
