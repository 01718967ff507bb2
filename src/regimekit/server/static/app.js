// The frame of the page: which view is shown, keys, theme, the token, notices.

import { get, onUnauthorised } from "./api.js";
import { h } from "./dom.js";
import { overview } from "./overview.js";
import { streamView } from "./stream.js";

const main = document.getElementById("main");
const status = document.getElementById("status");
const notice = document.getElementById("notice");
const dialog = document.getElementById("dialog");
let view = null;

export const page = {
  preparing: false,
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
  document.getElementById("crumb").textContent = key || "all streams";
  view = key ? streamView(main, key, page) : overview(main, page);
}

const KEYS = [
  ["/", "search the streams"], ["↑ ↓ ← →", "move among streams; in a chart, ← → pan"],
  ["+ −", "zoom"], ["0", "the whole history"], ["l", "back to live"], ["r", "save a report"], ["Esc", "all streams"],
  ["t", "light or dark"], ["?", "these keys"],
];

function showKeys() {
  dialog.replaceChildren(
    h("h2", {}, "Keys"),
    h("dl", { class: "keys" }, KEYS.flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    h("form", { method: "dialog" }, h("button", {}, "Close")),
  );
  dialog.showModal();
}

function askForToken() {
  return new Promise((answer) => {
    const input = h("input", { type: "password", autocomplete: "off", "aria-label": "Token", required: true });
    dialog.replaceChildren(
      h("h2", {}, "A token, please"),
      h("p", {}, "This service asks who you are. Tokens are made with `regimekit token add`; this one is kept until you close the tab."),
      h("form", { method: "dialog", onsubmit: () => { sessionStorage.setItem("token", input.value.trim()); answer(true); } },
        input, h("button", {}, "Go on")),
    );
    dialog.addEventListener("cancel", () => answer(false), { once: true });
    if (!dialog.open) dialog.showModal();
  });
}

let asking = null;
onUnauthorised(() => (asking ??= askForToken().finally(() => { asking = null; })));

function theme(next) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
  const chosen = next || (now === "dark" ? "light" : "dark");
  document.documentElement.dataset.theme = chosen;
  localStorage.setItem("theme", chosen);
  view?.repaint?.();
}

function typing(target) {
  return target.closest?.("input, textarea, select, dialog");
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && !dialog.open) {
    document.activeElement?.blur();
    if (location.hash.startsWith("#/s/")) location.hash = "#/";
    return;
  }
  if (typing(event.target)) return;
  if (event.key === "t") theme();
  else if (event.key === "?") showKeys();
  else if (view?.key?.(event)) event.preventDefault();
});

// On a new machine the kernels are compiled once, for a minute or more; the page says so meanwhile.
async function watchCompiling() {
  const ready = await get("/readyz").catch(() => null);
  page.preparing = Boolean(ready) && !ready.compiled;
  document.getElementById("preparing").hidden = !page.preparing;
  if (!ready?.compiled) setTimeout(watchCompiling, 2000);
}

document.getElementById("theme").addEventListener("click", () => theme());
document.getElementById("help").addEventListener("click", showKeys);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view?.repaint?.());
const kept = localStorage.getItem("theme");
if (kept) document.documentElement.dataset.theme = kept;
addEventListener("hashchange", route);
await watchCompiling();
route();
