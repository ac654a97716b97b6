// The list of runs of every page: groupwise.list holds what its rows are made of and the filters above it. Every text goes in as text.
//
// el(name, attributes, ...children), text(node, words), fill(node, entries, make), spark({x, y, y_range}): a curve as <svg>
// filters(home, heads, changed): a button a state ({state: its words}) and a search; .keeps(state, words) says whether a row is shown,
//                                .count({state: runs}) how many there are of each
(() => {
  "use strict";
  const SPARK = [96, 20], SVG = "http://www.w3.org/2000/svg";

  const el = (name, attributes = {}, ...children) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const text = (node, words) => { if (node.textContent !== words) node.textContent = words; };
  // One child for each entry; where the entries are what they were the children stay, and so does what is selected or focused there.
  const fill = (node, entries, make) => {
    const shown = JSON.stringify(entries);
    if (node.shown === shown) return;
    node.shown = shown;
    node.replaceChildren(...entries.map(make));
  };

  const spark = (one) => {
    const ys = (one?.y ?? []).map((y, i) => [one.x[i], y]).filter(([, y]) => y !== null), [width, height] = SPARK;
    const svg = document.createElementNS(SVG, "svg"), path = document.createElementNS(SVG, "polyline");
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("aria-hidden", "true");
    if (ys.length > 1) {
      const [x0, x1] = [ys[0][0], ys[ys.length - 1][0]], [low, high] = one.y_range;
      const at = ([x, y]) => `${(width * (x - x0) / (x1 - x0 || 1)).toFixed(1)},${(height - 1 - (height - 2) * (Math.min(high, Math.max(low, y)) - low) / (high - low || 1)).toFixed(1)}`;
      path.setAttribute("points", ys.map(at).join(" "));
    }
    svg.append(path);
    return svg;
  };

  const filters = (home, heads, changed) => {
    const off = new Set(), buttons = new Map();
    const search = el("input", { type: "search", placeholder: "Path or words", "aria-label": "Show runs with these words" });
    search.addEventListener("input", changed);
    for (const [state, head] of Object.entries(heads)) {
      const count = el("span"), button = el("button", { type: "button", class: "state", "aria-pressed": "true" }, el("span", { class: state }, head), " ", count);
      button.firstChild.classList.add("state");
      button.addEventListener("click", () => {
        off[off.has(state) ? "delete" : "add"](state);
        button.setAttribute("aria-pressed", String(!off.has(state)));
        changed();
      });
      buttons.set(state, [button, count]);
    }
    home.replaceChildren(...[...buttons.values()].map(([button]) => button), search);
    const keeps = (state, words) => !off.has(state) && search.value.toLowerCase().split(/\s+/).every((word) => words.toLowerCase().includes(word));
    const count = (runs) => {
      for (const [state, [button, shown]] of buttons) {
        button.hidden = !runs[state];
        text(shown, (runs[state] ?? 0).toLocaleString("en-US"));
      }
    };
    return { keeps, count };
  };

  globalThis.groupwise = { ...globalThis.groupwise, list: { el, text, fill, spark, filters } };
})();
