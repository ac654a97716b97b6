// The list of runs of every page: groupwise.list holds what its rows are made of and the filters above it. Every text goes in as text.
//
// el(name, attributes, ...children), text(node, words), fill(node, entries, make), spark({x, y, y_range}): a curve as <svg>
// filters(home, changed): a button a state and a search; .keeps(state, words) says whether a row is shown, .count({state: its words},
//                         {state: runs}) makes the buttons and says how many runs there are of each
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

  const filters = (home, changed) => {
    const off = new Set(), buttons = new Map();
    const search = el("input", { type: "search", placeholder: "Path or words", "aria-label": "Show runs with these words" });
    search.addEventListener("input", changed);
    home.replaceChildren(search);
    const made = (state, head) => {
      const number = el("span"), button = el("button", { type: "button", "aria-pressed": "true" }, el("span", { class: `state ${state}` }, head), " ", number);
      button.addEventListener("click", () => {
        off[off.has(state) ? "delete" : "add"](state);
        button.setAttribute("aria-pressed", String(!off.has(state)));
        changed();
      });
      search.before(button);
      buttons.set(state, [button, number]);
    };
    const keeps = (state, words) => !off.has(state) && search.value.toLowerCase().split(/\s+/).every((word) => words.toLowerCase().includes(word));
    const count = (heads, runs) => {
      for (const [state, head] of Object.entries(heads)) if (!buttons.has(state)) made(state, head);
      for (const [state, [button, number]] of buttons) {
        button.hidden = !runs[state];
        text(number, (runs[state] ?? 0).toLocaleString("en-US"));
      }
    };
    return { keeps, count };
  };

  globalThis.groupwise = { ...globalThis.groupwise, list: { el, text, fill, spark, filters } };
})();
