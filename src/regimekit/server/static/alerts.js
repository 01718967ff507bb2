// Alerts: open and resolved ones; rules, receivers and mute windows with forms to create them.

import { get, request } from "./api.js";
import { ago, clock, h } from "./dom.js";

const REFRESH_INTERVAL = 3000; // milliseconds
// Settings of each kind of rule: name, default value, unit or meaning.
const SETTINGS = {
  anomaly: [["threshold", 0.9999, "anomaly score"], ["count", 2, "anomalous rows"], ["window", 10, "of the latest rows"], ["quiet", 100, "rows until resolved"], ["warmup", 60, "first rows ignored"], ["budget", 2, "alerts per 10 000 rows"]],
  "regime change": [["dwell", 20, "rows that it must last"], ["quiet", 1000, "rows until it counts as usual"], ["warmup", 60, "first rows ignored"], ["budget", 2, "alerts per 10 000 rows"]],
  fault: [["dwell", 5, "rows that it must last"]],
  "forecast limit": [["above", "", "upper limit"], ["below", "", "lower limit"], ["horizon", 12, "steps ahead"], ["probability", 0.5, "of a crossing"]],
  stale: [["seconds", 600, "without an observation"]],
};
const FORMATS = { json: "URL, gets signed JSON", slack: "URL of an incoming webhook", email: "mailto:name@host", alertmanager: "URL of Alertmanager" };

export function alertsView(main, page) {
  let timer = null;
  let stopped = false;
  const lists = Object.fromEntries(["open", "resolved", "rules", "receivers", "mutes"].map((name) => [name, h("div", { class: "body" })]));
  const act = (work) => async (...given) => {
    try {
      await work(...given);
      page.notice("");
    } catch (error) {
      page.notice(error.message);
    }
    refresh();
  };
  main.append(h("div", { class: "panels" },
    panel("Open alerts", lists.open, "wide"), panel("Resolved alerts", lists.resolved),
    panel("Rules", lists.rules, "wide", ruleForm(act)), panel("Receivers", lists.receivers, "", receiverForm(act)),
    panel("Mute windows", lists.mutes, "", muteForm(act))));

  async function refresh() {
    clearTimeout(timer);
    try {
      const [open, resolved, rules, hooks, mutes] = await Promise.all(
        ["/alerts?state=open", "/alerts?state=resolved&limit=20", "/rules", "/webhooks", "/mutes"].map(get));
      if (stopped) return;
      show(lists.open, open.alerts, "No open alerts.", (alert) => alertRow(alert, act));
      show(lists.resolved, resolved.alerts, "None yet.", (alert) => alertRow(alert, act));
      show(lists.rules, rules.rules, "No rules. Without rules there are no alerts.", (entry) => item(ruleText(entry.rule), act(() => request("DELETE", `/rules/${entry.id}`))));
      show(lists.receivers, hooks.webhooks, "No receivers. Alerts are shown here only.", (hook) => item(hookText(hook), act(() => request("DELETE", `/webhooks/${hook.id}`))));
      show(lists.mutes, mutes.mutes, "None.", (entry) => item(muteText(entry.mute), act(() => request("DELETE", `/mutes/${entry.id}`))));
      page.status("live", "live");
    } catch (error) {
      if (!stopped) page.status("reconnecting…", "lost");
    }
    timer = setTimeout(refresh, REFRESH_INTERVAL);
  }

  refresh();
  return { stop() { stopped = true; clearTimeout(timer); } };
}

function show(place, entries, empty, row) {
  place.replaceChildren(...(entries.length ? entries.map(row) : [h("p", { class: "muted" }, empty)]));
}

function panel(title, body, size = "", form = null) {
  return h("section", { class: `panel ${size}` }, h("h2", {}, title), body, form);
}

function item(text, remove) {
  return h("div", { class: "event" }, h("span", { class: "grow" }, text), h("button", { class: "small", onclick: remove }, "Delete"));
}

function alertRow(alert, act) {
  const since = alert.start_time === null ? `row ${alert.start}` : clock(alert.start_time);
  const end = alert.resolved === null ? null : `resolved: ${alert.resolution}`;
  const seen = alert.acknowledged ? `acknowledged by ${alert.acknowledged_by}${alert.note ? `: ${alert.note}` : ""}` : null;
  const muted = alert.muted_until > Date.now() / 1000 ? `muted until ${clock(alert.muted_until)}` : null;
  return h("div", { class: `event alert ${alert.acknowledged ? "acknowledged" : ""}`, "data-alert": alert.id },
    h("span", { class: `tag ${alert.severity}` }, alert.severity),
    h("span", { class: "grow" }, h("a", { href: `#/s/${encodeURIComponent(alert.stream)}` }, h("b", {}, alert.stream)), ` ${alert.rule}: ${alert.summary}`,
      h("span", { class: "muted small block" }, [`since ${since}`, end, seen, muted].filter(Boolean).join(" · "))),
    alert.acknowledged || alert.resolved !== null ? null
      : h("button", { class: "small", onclick: act(() => request("POST", `/alerts/${alert.id}/acknowledge`, {})) }, "Acknowledge"));
}

function ruleText(rule) {
  const where = rule.stream ?? (rule.prefix ? `${rule.prefix}…` : "all streams");
  const known = (SETTINGS[rule.kind] || []).filter(([name]) => rule[name] !== null && rule[name] !== undefined);
  return `${rule.name} (${rule.severity}): ${rule.kind}, ${where}; ${known.map(([name]) => `${name} ${rule[name]}`).join(", ")}`;
}

function hookText(hook) {
  const state = hook.last_error ? `failed: ${hook.last_error}` : hook.last_delivered ? `sent ${ago(Date.now() / 1000 - hook.last_delivered)}` : "nothing sent yet";
  return `${hook.format}: ${hook.url}, ${hook.prefix ? `${hook.prefix}…` : "all streams"}, from ${hook.severity}; ${state}`;
}

function muteText(mute) {
  const when = mute.daily ? `daily ${mute.daily} ${mute.timezone}` : `${clock(mute.start)} to ${clock(mute.end)}`;
  return `${mute.prefix ? `${mute.prefix}…` : "all streams"}: ${when} ${mute.note || ""}`;
}

function field(label, input) {
  return h("label", { class: "field" }, h("span", { class: "muted small" }, label), input);
}

function choice(name, values) {
  return h("select", { name }, values.map((value) => h("option", { value }, value)));
}

// A form inside a closed <details>; `send` gets an object of the filled fields.
function form(title, fields, send, id) {
  const element = h("form", { class: "create", id, onsubmit: async (event) => {
    event.preventDefault();
    const given = Object.fromEntries([...new FormData(element)].filter(([, value]) => value !== ""));
    await send(given, element);
  } }, fields, h("button", {}, "Create"));
  return h("details", {}, h("summary", {}, title), element);
}

function ruleForm(act) {
  const settings = h("span", { class: "fields" });
  const kind = choice("kind", Object.keys(SETTINGS));
  const update = () => settings.replaceChildren(...SETTINGS[kind.value].map(([name, value, text]) =>
    field(`${name}: ${text}`, h("input", { name, type: "number", step: "any", value: String(value) }))));
  kind.addEventListener("change", update);
  update();
  return form("New rule", [field("name", h("input", { name: "name", required: true, maxlength: 80 })), field("kind", kind),
    field("streams beginning with", h("input", { name: "prefix" })), field("severity", choice("severity", ["info", "warning", "critical"])), settings],
  act(async (given, element) => {
    const numbers = SETTINGS[given.kind].map(([name]) => name).filter((name) => name in given);
    for (const name of numbers) given[name] = Number(given[name]);
    await request("POST", "/rules", given);
    element.reset();
    update();
  }), "new-rule");
}

function receiverForm(act) {
  const secret = h("p", { class: "small" });
  const format = choice("format", Object.keys(FORMATS));
  const url = h("input", { name: "url", required: true, placeholder: FORMATS.json });
  format.addEventListener("change", () => { url.placeholder = FORMATS[format.value]; });
  return form("New receiver", [field("format", format), field("address", url), field("streams beginning with", h("input", { name: "prefix" })),
    field("lowest severity", choice("severity", ["info", "warning", "critical"])), secret],
  act(async (given, element) => {
    const kinds = ["alert opened", "alert resolved"];
    const made = await request("POST", "/webhooks", { ...given, kinds });
    element.reset();
    secret.textContent = given.format === "json" ? `Secret of the signature, shown once: ${made.secret}` : "";
  }), "new-receiver");
}

function muteForm(act) {
  return form("New mute window", [field("streams beginning with", h("input", { name: "prefix" })),
    field("from", h("input", { name: "start", type: "datetime-local", required: true })), field("to", h("input", { name: "end", type: "datetime-local", required: true })),
    field("note", h("input", { name: "note" }))],
  act(async (given, element) => {
    for (const name of ["start", "end"]) given[name] = new Date(given[name]).getTime() / 1000;
    await request("POST", "/mutes", given);
    element.reset();
  }), "new-mute");
}
