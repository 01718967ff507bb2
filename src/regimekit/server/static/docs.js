// The API as a page, made from /openapi.json: parameters, examples, and a form to send each request.

import { h, setTheme } from "./dom.js";

setTheme();
const main = document.getElementById("main");
const answer = await fetch("/openapi.json");
const document_ = await answer.json();
const token = h("input", { type: "password", placeholder: "token, if the service needs one", "aria-label": "Token", value: sessionStorage.getItem("token") || "",
  onchange: () => sessionStorage.setItem("token", token.value.trim()) });

function resolve(schema) {
  return schema?.$ref ? document_.components.schemas[schema.$ref.split("/").at(-1)] : schema || {};
}

function example(content) {
  const schema = resolve(content.schema);
  return content.example ?? schema.example ?? schema.examples?.[0] ?? schema.oneOf?.map(resolve).find((one) => one.example)?.example ?? null;
}

function typeName(schema) {
  const found = resolve(schema);
  if (found.enum) return found.enum.join(" | ");
  if (found.anyOf) return found.anyOf.map(typeName).filter((name) => name !== "null").join(" | ");
  return found.type || "";
}

function operation(path, method, entry) {
  const inputs = Object.fromEntries((entry.parameters || []).map((parameter) =>
    [parameter.name, h("input", { "aria-label": parameter.name, value: parameter.schema?.default === undefined || parameter.in === "path" ? "" : String(parameter.schema.default ?? "") })]));
  const json = entry.requestBody?.content?.["application/json"];
  const body = json ? h("textarea", { rows: 5, "aria-label": "Body", spellcheck: "false" }, JSON.stringify(example(json), null, 1)) : null;
  const result = h("pre", { class: "result", hidden: true });
  return h("details", { class: "operation panel", id: entry.operationId },
    h("summary", {}, h("span", { class: `tag method ${method}` }, method.toUpperCase()), h("code", {}, path), h("span", { class: "muted" }, entry.summary || "")),
    h("p", {}, entry.description || ""),
    Object.keys(inputs).length ? h("table", { class: "numbers" }, h("tbody", {}, entry.parameters.map((parameter) => h("tr", {},
      h("td", {}, h("code", {}, parameter.name), parameter.required ? " *" : ""), h("td", { class: "muted" }, parameter.in), h("td", { class: "muted" }, typeName(parameter.schema)),
      h("td", {}, inputs[parameter.name]), h("td", { class: "muted small" }, parameter.description || ""))))) : null,
    body ? h("label", { class: "block" }, "Body", body) : null,
    h("button", { onclick: () => send(path, method, entry, inputs, body, result) }, "Send"), result,
    h("p", { class: "muted small" }, Object.entries(entry.responses).map(([code, response]) => `${code}: ${response.description}`).join(" ")));
}

async function send(path, method, entry, inputs, body, result) {
  const query = new URLSearchParams();
  for (const parameter of entry.parameters || []) {
    const value = inputs[parameter.name].value;
    if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, encodeURIComponent(value));
    else if (parameter.in === "query" && value !== "") query.set(parameter.name, value);
  }
  const headers = { ...(token.value ? { authorization: `Bearer ${token.value}` } : {}), ...(body ? { "content-type": "application/json" } : {}) };
  result.hidden = false;
  result.textContent = "…";
  try {
    const control = new AbortController();
    setTimeout(() => control.abort(), 10000); // event streams do not end
    const response = await fetch(`${path}${query.size ? `?${query}` : ""}`, { method: method.toUpperCase(), headers, body: body?.value, signal: control.signal });
    const text = await response.text();
    result.textContent = `${response.status} ${response.statusText}\n${pretty(text).slice(0, 20000)}`;
  } catch (error) {
    result.textContent = String(error.message);
  }
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 1);
  } catch {
    return text;
  }
}

const groups = new Map();
for (const [path, operations] of Object.entries(document_.paths)) {
  for (const [method, entry] of Object.entries(operations)) {
    const tag = entry.tags?.[0] || "other";
    if (!groups.has(tag)) groups.set(tag, []);
    groups.get(tag).push(operation(path, method, entry));
  }
}
main.append(h("div", { class: "bar" }, h("h1", {}, `${document_.info.title} ${document_.info.version}`), token), h("p", {}, document_.info.description || ""),
  ...[...groups].map(([tag, operations]) => h("section", { class: "group" }, h("h2", {}, tag), operations)));
const stored = localStorage.getItem("theme");
if (stored) document.documentElement.dataset.theme = stored;
