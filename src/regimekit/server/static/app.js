// The page around the views: routing, keyboard shortcuts, theme, token dialog, notices.

import { get, onUnauthorized } from "./api.js";
import { alertsView } from "./alerts.js";
import { h, setTheme } from "./dom.js";
import { overview } from "./overview.js";
import { streamView } from "./stream.js";

const main = document.getElementById("main");
const status = document.getElementById("status");
const notice = document.getElementById("notice");
const dialog = document.getElementById("dialog");
let view = null;

export const page = {
  compiled: true,
  status(text, kind = "") {
    status.textContent = text;
    status.className = `status ${kind}`;
  },
  notice(text) {
    notice.textContent = text || "";
    notice.hidden = !text;
  },
};

function route() {
  view?.stop();
  page.notice("");
  main.replaceChildren();
  const match = location.hash.match(/^#\/s\/(.+)$/);
  const key = match ? decodeURIComponent(match[1]) : null;
  document.title = key ? `${key} · regimekit` : "regimekit";
  const alerts = location.hash === "#/alerts";
  document.getElementById("crumb").textContent = key || (alerts ? "alerts" : "all streams");
  view = key ? streamView(main, key, page) : alerts ? alertsView(main, page) : overview(main, page);
}

const KEYS = [
  ["/", "search streams"], ["↑ ↓ ← →", "select a stream; in a chart, ← → pan"],
  ["+ −", "zoom"], ["0", "whole history"], ["l", "live values"], ["r", "save a report"], ["Esc", "all streams"],
  ["t", "light or dark theme"], ["?", "keyboard shortcuts"],
];

function showKeys() {
  dialog.replaceChildren(
    h("h2", {}, "Keyboard shortcuts"),
    h("dl", { class: "keys" }, KEYS.flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    h("form", { method: "dialog" }, h("button", {}, "Close")),
  );
  dialog.showModal();
}

function askForToken() {
  return new Promise((answer) => {
    const input = h("input", { type: "password", autocomplete: "off", "aria-label": "Token", required: true });
    dialog.replaceChildren(
      h("h2", {}, "Token required"),
      h("p", {}, "Create a token with `regimekit token add`. It is stored until you close this tab."),
      h("form", { method: "dialog", onsubmit: () => { sessionStorage.setItem("token", input.value.trim()); answer(true); } },
        input, h("button", {}, "Continue")),
    );
    dialog.addEventListener("cancel", () => answer(false), { once: true });
    if (!dialog.open) dialog.showModal();
  });
}

// Concurrent requests share one dialog.
let asking = null;
onUnauthorized(() => (asking ??= askForToken().finally(() => { asking = null; })));

function theme() {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  view?.repaint?.();
}

function typing(target) {
  return target.closest?.("input, textarea, select, dialog");
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && !dialog.open) {
    document.activeElement?.blur();
    if (location.hash.length > 2) location.hash = "#/";
    return;
  }
  if (typing(event.target)) return;
  if (event.key === "t") theme();
  else if (event.key === "?") showKeys();
  else if (view?.key?.(event)) event.preventDefault();
});

async function checkReadiness() {
  const ready = await get("/readyz").catch(() => null);
  page.compiled = ready?.compiled ?? true;
  document.getElementById("uncompiled").hidden = page.compiled;
  if (!ready) setTimeout(checkReadiness, 2000);
}

document.getElementById("theme").addEventListener("click", () => theme());
document.getElementById("help").addEventListener("click", showKeys);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  setTheme();
  view?.repaint?.();
});
setTheme();
addEventListener("hashchange", route);
await checkReadiness();
route();
