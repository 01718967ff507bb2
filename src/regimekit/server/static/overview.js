// Overview: one card per stream.

import { get, request, streamPath } from "./api.js";
import { regimeChip, sparkline } from "./chart.js";
import { formatNumber } from "./assets/charts.js";
import { ago, h, percent } from "./dom.js";

const REFRESH_INTERVAL = 2000; // milliseconds
const PAGE_SIZE = 120; // streams

export function overview(main, page) {
  let limit = PAGE_SIZE;
  let timer = null;
  let stopped = false;
  const search = h("input", { type: "search", placeholder: "Search streams  ( / )", "aria-label": "Search streams", oninput: refresh });
  const sort = h("select", { "aria-label": "Sort by", onchange: refresh },
    [["key", "name"], ["latest", "latest observation"], ["change", "P(change)"], ["rows", "number of observations"]]
      .map(([value, text]) => h("option", { value }, `by ${text}`)));
  const count = h("span", { class: "muted" });
  const grid = h("div", { class: "cards" });
  const more = h("button", { class: "more", hidden: true, onclick: () => { limit += PAGE_SIZE; refresh(); } }, "Show more");
  const key_ = h("input", { name: "key", required: true, placeholder: "name of a new stream", "aria-label": "Name of a new stream", pattern: "[A-Za-z0-9][A-Za-z0-9._:@\\-]{0,127}" });
  const model = h("input", { name: "model", placeholder: "model (auto)", "aria-label": "Model of a new stream", size: 14 });
  const create = h("form", { class: "bar", id: "new-stream", onsubmit: async (event) => {
    event.preventDefault();
    try {
      await request("PUT", streamPath(key_.value.trim()), model.value.trim() ? { model: model.value.trim() } : {});
      location.hash = `#/s/${encodeURIComponent(key_.value.trim())}`;
    } catch (error) {
      page.notice(error.message);
    }
  } }, key_, model, h("button", {}, "Create stream"));
  main.append(h("div", { class: "bar" }, search, sort, count), grid, more, create);

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
      page.notice(error.status ? error.message : "The service does not answer. Retrying.");
    }
    timer = setTimeout(refresh, REFRESH_INTERVAL);
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
    ? "No stream matches."
    : "No streams. Create one below, or with PUT /streams/NAME, and send observations to it.");
}

function card(stream) {
  const names = stream.regime_name ? { [stream.regime]: stream.regime_name } : {};
  // The first regime of a stream opens with its first observation; that is no event for a person.
  const event = stream.last_event?.since > 0 ? stream.last_event : null;
  const p = stream.change_probability;
  return h("a", { class: "card", href: `#/s/${encodeURIComponent(stream.key)}`, "data-key": stream.key },
    h("div", { class: "card-head" },
      h("span", { class: `dot ${stream.health}`, title: stream.health }),
      h("strong", { class: "name" }, stream.key),
      stream.open_alerts ? h("span", { class: `tag ${stream.severity}`, title: "Open alerts" }, `${stream.open_alerts} ${stream.open_alerts === 1 ? "alert" : "alerts"}`) : null,
      h("span", { class: "muted" }, stream.health === "live" ? formatNumber(stream.spark?.at(-1)) : stream.health)),
    sparkline(stream.spark || [], stream.spark_regimes || []),
    h("div", { class: "card-foot" },
      regimeChip(stream.regime, names),
      h("span", { class: p > 0.5 ? "alarm" : "muted", title: "Probability that the regime has just changed" }, `P(change) ${percent(p)}`)),
    h("div", { class: "card-note muted" },
      stream.rows < stream.warmup ? `learning: ${stream.rows} of ${stream.warmup} rows` : event ? `${event.kind}${event.regime >= 0 ? `, ${event.regime_name || `regime ${event.regime}`}` : ""}, ${ago(Date.now() / 1000 - event.received)}` : `${stream.rows} observations, no events`));
}
