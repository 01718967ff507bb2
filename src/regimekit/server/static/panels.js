// Panels below the chart: events, regimes, forecasts, calibration, transitions, member weights.

import { request, streamPath } from "./api.js";
import { first, regimeChip, regimeColour, regimeName, sparkline } from "./chart.js";
import { formatNumber } from "./assets/charts.js";
import { ago, fill, h, percent } from "./dom.js";

const MIN_WEIGHT = 0.001; // members with less are not listed

export class Panels {
  constructor(key, changed) {
    this.key = key;
    this.changed = changed;
    this.outliers = false;
    this.parts = Object.fromEntries(["steps", "calibration", "weights", "regimes", "events", "transitions", "explanation"].map((name) => [name, h("div", { class: "body" })]));
    const filter = h("label", { class: "muted small" }, h("input", { type: "checkbox", onchange: (event) => { this.outliers = event.target.checked; this.repaint(); } }), " show outliers");
    this.element = h("div", { class: "panels" },
      panel("Events", this.parts.events, "tall", filter), panel("Regimes", this.parts.regimes, "tall wide"),
      panel("Forecast", this.parts.steps), panel("Calibration", this.parts.calibration),
      panel("Transitions", this.parts.transitions),
      (this.weightsPanel = panel("Member weights", this.parts.weights)),
      (this.explanationPanel = panel("Model summary", this.parts.explanation)));
    this.weightsPanel.hidden = this.explanationPanel.hidden = true;
  }

  show(data) {
    this.data = data;
    this.repaint();
  }

  repaint() {
    if (!this.data) return;
    const { report, transitions, steps } = this.data;
    this.steps(steps);
    this.calibration(report);
    this.weights(report.weights);
    this.regimes(report.regimes, report.stream);
    this.events();
    this.transitions(transitions);
    this.explanationPanel.hidden = !report.explanation;
    fill(this.parts.explanation, h("pre", {}, report.explanation || ""));
  }

  steps(steps) {
    if (!steps.length) return fill(this.parts.steps, h("p", { class: "muted" }, "No forecast available."));
    fill(this.parts.steps, h("table", { class: "numbers" },
      h("thead", {}, h("tr", {}, ["step", "median", "lower", "upper"].map((name) => h("th", {}, name)))),
      h("tbody", {}, steps.slice(0, 8).map((step) => h("tr", {},
        [step.time === null ? `+${step.step}` : place(0, step.time), ...["median", "lower", "upper"].map((name) => formatNumber(first(step[name])))].map((text) => h("td", {}, text)))))),
      h("p", { class: "muted small" }, "90 % interval"));
  }

  calibration(report) {
    const row = (name, found, wanted) => h("tr", {}, h("td", {}, name), h("td", {}, percent(found)), h("td", { class: "muted" }, wanted));
    const table = (title, c) => h("table", { class: "numbers" }, h("caption", {}, `${title} (${c.n.toLocaleString("en")})`),
      h("tbody", {}, row("inside the 90 % interval", c.coverage, "90 %"), row("below", c.below, "5 %"), row("above", c.above, "5 %"),
        c.under_median === null ? null : row("below the median", c.under_median, "50 %")));
    fill(this.parts.calibration, gauge(report.recent_calibration.coverage), table("latest", report.recent_calibration), table("all", report.calibration));
  }

  weights(weights) {
    this.weightsPanel.hidden = !weights;
    if (!weights) return;
    const sorted = Object.entries(weights).sort((a, b) => b[1] - a[1]);
    const shown = sorted.filter(([, weight], j) => j === 0 || weight >= MIN_WEIGHT);
    const rest = sorted.length - shown.length;
    fill(this.parts.weights, shown.map(([name, weight]) => h("div", { class: "bar-row" },
      h("span", {}, name), h("span", { class: "bar-track" }, h("span", { class: "bar-fill", "--share": String(weight) })), h("span", { class: "muted" }, percent(weight)))),
      rest ? h("p", { class: "muted small" }, `${rest} more with less than 0.1 % each`) : null);
  }

  regimes(regimes, stream) {
    if (this.parts.regimes.contains(document.activeElement)) return; // the user is editing a name
    const cards = regimes.filter((regime) => regime.times > 0 || regime.name).map((regime) => this.regime(regime, stream, regimes));
    this.parts.regimes.replaceChildren(...(cards.length ? cards : [h("p", { class: "muted" }, "No regimes yet.")]));
  }

  regime(regime, stream, all) {
    const names = Object.fromEntries(all.map((one) => [one.id, one.name]));
    const follows = Object.entries(regime.next).sort((a, b) => b[1] - a[1]).slice(0, 3).map(([id, n]) => `${regimeName(Number(id), names)} (${n}×)`);
    const name = h("input", { class: "regime-name", value: regime.name || "", placeholder: `regime ${regime.id}`, maxlength: 80, "aria-label": `Name of regime ${regime.id}`, onchange: () => this.name(regime.id, name, note, status), onkeydown: enter });
    const note = h("input", { class: "regime-note", value: regime.note, placeholder: "note", maxlength: 2000, "aria-label": `Note on regime ${regime.id}`, onchange: () => this.name(regime.id, name, note, status), onkeydown: enter });
    const status = h("select", { class: "regime-status small", "aria-label": `Status of regime ${regime.id}`, title: "A rule of kind fault alerts on the status fault", onchange: () => this.name(regime.id, name, note, status) },
      ["unknown", "normal", "fault"].map((value) => h("option", { value, selected: value === regime.status }, value)));
    return h("article", { class: `regime ${stream.regime === regime.id ? "now" : ""}`, "--chip": regimeColour(regime.id), "data-regime": regime.id },
      h("div", { class: "regime-head" }, h("span", { class: "swatch" }), name, stream.regime === regime.id ? h("span", { class: "tag" }, "now") : null, regime.remembered ? null : h("span", { class: "tag" }, "removed")),
      shape(regime, all), h("p", { class: "small" }, regime.summary || (regime.typical === null ? "" : `typically ${formatNumber(first(regime.typical))}`)), h("div", { class: "regime-label" }, status, note),
      h("p", { class: "muted small" }, [
        `${regime.times} ${regime.times === 1 ? "stay" : "stays"}`, regime.usual_length ? `median length ${formatNumber(regime.usual_length)}` : null,
        regime.last_seen !== null ? `observations ${regime.first_seen} to ${regime.last_seen}` : null, follows.length ? `followed by ${follows.join(", ")}` : null,
      ].filter(Boolean).join(" · ")));
  }

  async name(id, name, note, status) {
    const label = { name: name.value.trim(), note: note.value.trim(), status: status.value };
    await request("PUT", streamPath(this.key, `/regimes/${id}`), label);
    document.activeElement?.blur();
    this.changed();
  }

  events() {
    const { events, names } = this.data;
    // The first regime of a stream opens with its first observation; that is no event for a person.
    const news = events.filter((event) => event.since > 0 || event.kind !== "regime opened");
    const shown = news.filter((event) => this.outliers || event.kind !== "outlier").reverse().slice(0, 60);
    if (!shown.length) return fill(this.parts.events, h("p", { class: "muted" }, "No events yet."));
    this.parts.events.replaceChildren(...shown.map((event) => this.event(event, names)));
  }

  event(event, names) {
    const who = event.regime >= 0 ? regimeName(event.regime, names) : "";
    return h("div", { class: `event ${event.acknowledged ? "acknowledged" : ""}`, "--chip": regimeColour(event.regime), "data-event": event.number },
      h("span", { class: "swatch" }),
      h("span", { class: "grow" }, h("b", {}, event.kind), who ? `: ${who}` : "",
        h("span", { class: "muted small block" }, `${place(event.seq, event.time)}${event.since !== event.seq ? `, since ${place(event.since, event.since_time)}` : ""} · ${ago(Date.now() / 1000 - event.received)}${event.acknowledged ? ` · acknowledged by ${event.acknowledged_by}` : ""}`)),
      event.acknowledged ? null : h("button", { class: "small", title: "Acknowledge this event", onclick: () => this.acknowledge(event.number) }, "Acknowledge"));
  }

  async acknowledge(number) {
    await request("POST", streamPath(this.key, `/events/${number}/acknowledge`), {});
    this.changed();
  }

  transitions({ ids, matrix }) {
    if (!ids.length) return fill(this.parts.transitions, h("p", { class: "muted" }, "No regimes yet."));
    const most = 8;
    const name = (id) => regimeChip(id, { [id]: this.data.names[id] || String(id) }, "tiny");
    fill(this.parts.transitions, h("div", { class: "scroll" }, h("table", { class: "heat" },
      h("thead", {}, h("tr", {}, h("th", {}, "from \\ to"), ids.slice(0, most).map((id) => h("th", {}, name(id))))),
      h("tbody", {}, ids.slice(0, most).map((id, i) => h("tr", {}, h("th", {}, name(id)),
        matrix[i].slice(0, most).map((p) => h("td", { "--share": p.toFixed(3) }, p < 0.005 ? "·" : p.toFixed(2)))))))),
      ids.length > most ? h("p", { class: "muted small" }, `first ${most} of ${ids.length} regimes`) : null);
  }
}

function panel(title, body, size = "", extra = null) {
  return h("section", { class: `panel ${size}` }, h("h2", {}, title, extra), body);
}

function enter(event) {
  if (event.key === "Enter") event.target.blur();
}

function gauge(coverage) {
  return h("div", { class: "gauge", role: "img", "aria-label": `coverage ${percent(coverage)}` },
    h("span", { class: "gauge-fill", "--share": String(coverage ?? 0) }), h("span", { class: "gauge-mark" }));
}

// Sparkline of the latest stay; all regimes share one vertical axis.
function shape(regime, all) {
  const values = all.flatMap((other) => other.sample).filter((value) => value !== null).sort((a, b) => a - b);
  if (!regime.sample.length || !values.length) return null;
  const range = [values[0], values.at(-1)];
  return h("div", { class: "shape", title: "Latest stay; all regimes share one vertical axis" },
    sparkline(regime.sample, regime.sample.map(() => regime.id), range));
}

// Where in the stream: the time of an observation, or its number.
function place(seq, time) {
  return time === null ? `row ${seq}` : time.replace("T", " ").replace(/(:\d\d)(\.\d+)?Z$/, "$1");
}
