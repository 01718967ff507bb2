// One colour per regime, the same everywhere; the colours live in the style sheet, by theme.

const COUNT = 10;

export function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function regimeColour(id) {
  return id < 0 ? css("--faint") : css(`--regime-${id % COUNT}`);
}

export function regimeName(id, names = {}) {
  if (id < 0) return "not known yet";
  return names[id] ? `${names[id]}` : `regime ${id}`;
}
