// All streams at a glance.

import { get } from "./api.js";
import { ago, h, number, percent, svg } from "./dom.js";
import { regimeColour, regimeName } from "./palette.js";

const EVERY = 2000;
const PAGE = 120;

export function overview(main, page) {
  let limit = PAGE;
  let timer = null;
  let stopped = false;
  const search = h("input", { type: "search", placeholder: "Search streams  ( / )", "aria-label": "Search streams", oninput: refresh });
  const sort = h("select", { "aria-label": "Sort by", onchange: refresh },
    [["key", "name"], ["latest", "latest value"], ["change", "P(change)"], ["rows", "length"]]
      .map(([value, text]) => h("option", { value }, `by ${text}`)));
  const count = h("span", { class: "muted" });
  const grid = h("div", { class: "cards" });
  const more = h("button", { class: "more", hidden: true, onclick: () => { limit += PAGE; refresh(); } }, "Show more");
  main.append(h("div", { class: "bar" }, search, sort, count), grid, more);

  async function refresh() {
    clearTimeout(timer);
    try {
      const query = new URLSearchParams({ search: search.value, sort: sort.value, limit: Math.min(limit, 500) });
      const found = await get(`/streams?${query}`);
      if (stopped) return;
      show(found);
      page.status("live", "live");
      page.notice("");
    } catch (error) {
      if (stopped) return;
      page.status("reconnecting…", "lost");
      page.notice(error.status ? error.message : "The service does not answer; trying again.");
    }
    timer = setTimeout(refresh, EVERY);
  }

  function show(found) {
    count.textContent = `${found.total} ${found.total === 1 ? "stream" : "streams"}`;
    more.hidden = found.total <= found.streams.length || limit >= 500;
    const focused = document.activeElement?.dataset?.key;
    grid.replaceChildren(...found.streams.map(card));
    if (!found.streams.length) grid.append(empty(search.value));
    if (focused) grid.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  function key(event) {
    if (event.key === "/") { search.focus(); return true; }
    const cards = [...grid.querySelectorAll("a.card")];
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns(cards), ArrowUp: -columns(cards) }[event.key];
    if (!step || !cards.length) return false;
    const now = cards.indexOf(document.activeElement);
    cards[Math.max(0, Math.min(cards.length - 1, now < 0 ? 0 : now + step))].focus();
    return true;
  }

  refresh();
  return { stop() { stopped = true; clearTimeout(timer); }, key, repaint: refresh };
}

function columns(cards) {
  const top = cards[0]?.offsetTop;
  return cards.filter((card) => card.offsetTop === top).length || 1;
}

function empty(search) {
  return h("p", { class: "empty" }, search
    ? "No stream has this in its name."
    : "There is no stream yet. Make one with PUT /streams/NAME and send it observations.");
}

function card(stream) {
  const names = stream.regime_name ? { [stream.regime]: stream.regime_name } : {};
  const event = stream.last_event;
  const p = stream.change_probability;
  return h("a", { class: "card", href: `#/s/${encodeURIComponent(stream.key)}`, "data-key": stream.key },
    h("div", { class: "card-head" },
      h("span", { class: `dot ${stream.health}`, title: stream.health }),
      h("strong", { class: "name" }, stream.key),
      h("span", { class: "muted" }, stream.health === "live" ? number(stream.spark?.at(-1)) : stream.health)),
    sparkline(stream.spark || [], stream.spark_regimes || []),
    h("div", { class: "card-foot" },
      h("span", { class: "chip", "--chip": regimeColour(stream.regime) }, regimeName(stream.regime, names)),
      h("span", { class: p > 0.5 ? "alarm" : "muted", title: "probability that the regime has just changed" }, `P(change) ${percent(p)}`)),
    h("div", { class: "card-note muted" },
      event ? `${event.kind}${event.regime >= 0 ? `, ${event.regime_name || `regime ${event.regime}`}` : ""}, ${ago(Date.now() / 1000 - event.received)}` : `${stream.rows} observations, no event yet`));
}

// Pieces of one regime share a colour; the middle 96 % set the height, so a spike flattens nothing.
export function sparkline(values, regimes, range = null, width = 240, height = 44) {
  const seen = values.filter((value) => value !== null).sort((a, b) => a - b);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", class: "spark", "aria-hidden": "true" });
  if (seen.length < 2) return picture;
  const [low, high] = range || [seen[Math.floor(0.02 * (seen.length - 1))], seen[Math.ceil(0.98 * (seen.length - 1))]];
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
