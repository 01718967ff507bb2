// DOM helpers and number formats. Text is always inserted as text, so names cannot contain markup.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "value") element.value = value;
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Replace the children only if something changed, so that focus and unfinished input are kept.
export function fill(element, ...children) {
  const made = h("div", {}, ...children);
  if (made.innerHTML !== element.innerHTML || !made.childElementCount) {
    element.replaceChildren(...made.childNodes);
  }
}

export function percent(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;
}

export function ago(seconds) {
  if (seconds < 2) return "just now";
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

export function clock(at) {
  return new Date(1000 * at).toLocaleString("sv"); // 2026-03-01 12:00:00, in local time
}

// Set the theme of the page: the given one, the stored one, or that of the system. Return its name.
export function setTheme(name) {
  if (name) localStorage.setItem("theme", name);
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  return (document.documentElement.dataset.theme = name || localStorage.getItem("theme") || system);
}
