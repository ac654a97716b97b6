// One chart of the live page: drawn from numbers, redrawn when they change, read with the pointer or the arrow keys.
// Every text goes in as text; nothing is parsed as markup. reading.js stands before it.
const SVG = "http://www.w3.org/2000/svg";
const MANY = 150;
const SMOOTH = new Set(["law", "rival", "second_rival", "forecast", "run"]);
const QUIET = new Set(["plateau", "limit"]);
let clips = 0;

export { format };
export const el = (name, attributes = {}, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== "" && value !== null && value !== undefined) node.setAttribute(key, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
};
const draw = (name, attributes, text) => {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, typeof value === "number" ? Math.round(value * 10) / 10 : value);
  if (text !== undefined) node.textContent = text;
  return node;
};

const tick = (value, spacing) => {
  const size = Math.abs(value);
  if (size >= 1e6) return `${format(value / 1e6)}M`;
  if (size >= 1e4) return `${format(value / 1e3)}k`;
  if (size > 0 && spacing < 1e-3) return value.toExponential(Math.max(0, Math.min(2, Math.floor(Math.log10(size)) - Math.floor(Math.log10(spacing))))).replaceAll("-", "−");
  return value.toFixed(Math.max(0, -Math.floor(Math.log10(spacing) + 1e-9))).replace("-", "−");
};

export const ticks = (low, high, most, whole) => {
  const raw = (high - low) / most, power = 10 ** Math.floor(Math.log10(raw));
  let spacing = power * ([1, 2, 2.5, 5].find((step) => step * power >= raw && !(step === 2.5 && whole && power < 10)) ?? 10);
  if (whole) spacing = Math.max(1, Math.round(spacing));
  const found = [];
  for (let i = Math.ceil(low / spacing - 1e-9); i * spacing <= high + spacing * 1e-9 && found.length < 50; i += 1) found.push(i * spacing);
  return [found, spacing];
};

const visible = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const figure = entry.target.figure;
    figure.seen = entry.isIntersecting;
    if (figure.seen) figure.later();
  }
}, { rootMargin: "400px" });
const sized = new ResizeObserver((entries) => {
  for (const entry of entries) {
    const figure = entry.target.figure;
    if (Math.abs(figure.width - entry.contentRect.width) > 1) { figure.dirty = true; figure.later(); }
  }
});

export class Figure {
  // model: {title, xLabel, yLabel, lines: [{name, role, x, y, low, high, band, look}], marks: [{x, label}], range, caption, subject}
  constructor(wide) {
    this.wide = wide;
    this.seen = this.dirty = false;
    this.width = 0;
    this.pending = false;
    this.at = null;
    this.title = el("h3");
    this.legend = el("ul", { class: "legend" });
    this.svg = draw("svg", { class: "chart", tabindex: "0", role: "img", viewBox: wide ? "0 0 876 350" : "0 0 416 240" });
    this.caption = el("figcaption");
    this.root = wide ? el("figure", { class: "wide" }, this.title, this.legend, this.svg, this.caption) : el("figure", {}, this.title, this.svg, this.legend, this.caption);
    this.root.figure = this;
    this.clip = `clip${(clips += 1)}`;
    this.box = el("div", { class: "readout", role: "status" });
    this.listen();
    visible.observe(this.root);
    sized.observe(this.root);
  }

  remove() { visible.unobserve(this.root); sized.unobserve(this.root); this.root.remove(); }

  update(model) {
    this.model = model;
    this.title.replaceChildren(el("bdi", {}, model.title));
    this.title.hidden = !model.title;
    this.dirty = true;
    this.later();
  }

  later() {
    if (!this.dirty || !this.seen || this.pending || !this.model) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.redraw(); });
  }

  redraw() {
    this.dirty = false;
    const model = this.model, lines = model.lines.filter((line) => line.x.length);
    this.drawLegend(lines);
    const key = model.subject ? [" Key: ", el("span", { class: "key" }, el("bdi", {}, model.subject)), "."] : [];
    this.caption.replaceChildren(model.caption || "", ...key);
    this.width = this.root.getBoundingClientRect().width || 400;
    const width = Math.max(260, this.width), height = this.wide ? (width < 560 ? 300 : 350) : 240;
    const plateau = lines.find((line) => line.role === "plateau");
    this.area = { left: 50, top: 24, right: width - (plateau ? 80 : 14), bottom: height - 38 };
    this.svg.setAttribute("viewBox", `0 0 ${Math.round(width)} ${height}`);
    this.svg.setAttribute("aria-label", `${model.title || "chart"}: ${model.yLabel} against ${model.xLabel}. Arrow keys read values.`);
    this.scale(lines, model);
    this.svg.replaceChildren(...this.axes(model), ...this.paint(lines), ...this.rules(model), ...(plateau ? this.plateau(plateau) : []));
    if (this.at !== null) this.show(this.at);
  }

  scale(lines, model) {
    const drawn = lines.filter((line) => line.role !== "plateau");
    let x0 = Infinity, x1 = -Infinity;
    for (const line of drawn) { x0 = Math.min(x0, line.x[0]); x1 = Math.max(x1, line.x[line.x.length - 1]); }
    if (x0 > x1) [x0, x1] = [0, 1];
    const pad = 0.015 * (x1 - x0) || 1;
    this.x = [x0 - pad, x1 + pad];
    this.y = model.range[1] > model.range[0] ? model.range : [model.range[0] - 0.5, model.range[0] + 0.5];
  }

  toX(x) { return this.area.left + (this.area.right - this.area.left) * (x - this.x[0]) / (this.x[1] - this.x[0]); }
  toY(y) { return this.area.bottom - (this.area.bottom - this.area.top) * (y - this.y[0]) / (this.y[1] - this.y[0]); }

  axes(model) {
    const { left, top, right, bottom } = this.area, made = [];
    const [ys, fine] = ticks(this.y[0], this.y[1], 5, false);
    for (const y of ys) {
      made.push(draw("line", { class: "grid-line", x1: left, x2: right, y1: this.toY(y), y2: this.toY(y) }));
      made.push(draw("text", { class: "tick end", x: left - 6, y: this.toY(y) + 4 }, tick(y, fine)));
    }
    made.push(draw("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
    const [xs, broad] = ticks(this.x[0], this.x[1], Math.max(3, Math.min(7, Math.floor((right - left) / 85))), true);
    for (const x of xs) {
      made.push(draw("line", { class: "axis", x1: this.toX(x), x2: this.toX(x), y1: bottom, y2: bottom + 3 }));
      made.push(draw("text", { class: "tick middle", x: this.toX(x), y: bottom + 16 }, tick(x, broad)));
    }
    made.push(draw("text", { class: "tick middle", x: (left + right) / 2, y: bottom + 32 }, model.xLabel));
    made.push(draw("text", { class: "tick", x: 6, y: top - 10 }, model.yLabel));
    const clip = draw("clipPath", { id: this.clip });
    clip.append(draw("rect", { x: left, y: top - 2, width: Math.max(1, right - left), height: bottom - top + 4 }));
    made.push(clip);
    return made;
  }

  paint(lines) {
    const group = draw("g", { "clip-path": `url(#${this.clip})` });
    const number = (value) => Math.round(value * 10) / 10;
    const place = (x, y) => `${number(this.toX(x))} ${number(this.toY(y))}`;
    for (const line of lines) {
      if (line.role === "plateau") continue;
      const look = `${line.role} ${line.look || ""}`.trim();
      if (line.low && line.low.length) {
        const upper = [], lower = [];
        line.x.forEach((x, i) => { if (line.low[i] !== null && line.high[i] !== null) { upper.push(place(x, line.high[i])); lower.push(place(x, line.low[i])); } });
        if (upper.length) group.append(draw("path", { class: `band ${look}`, d: `M${upper.join("L")}L${lower.reverse().join("L")}Z` }));
      }
      const dots = line.role === "averaged" || line.role === "held_out" || (line.role === "observed" && line.x.length <= MANY);
      let path = "", pen = false;
      line.x.forEach((x, i) => {
        const y = line.y[i];
        if (y === null || y === undefined) { pen = false; return; }
        path += dots ? `M${place(x, y)}h0` : `${pen ? "L" : "M"}${place(x, y)}`;
        pen = true;
      });
      if (path) group.append(draw("path", { class: `line ${look}${dots ? " dots" : ""}`, d: path }));
    }
    return [group];
  }

  rules(model) {
    const { top, right, bottom, left } = this.area, made = [];
    for (const mark of model.marks || []) {
      const x = this.toX(mark.x);
      if (x < left || x > right) continue;
      made.push(draw("line", { class: "rule", x1: x, x2: x, y1: top, y2: bottom }));
      made.push(draw("text", { class: x > right - 120 ? "tick end" : "tick", x: x > right - 120 ? x - 4 : x + 4, y: top - 2 }, mark.label));
    }
    return made;
  }

  plateau(line) {
    const value = line.y[0];
    if (value === null || value < this.y[0] || value > this.y[1]) return [];
    const low = Math.max(this.y[0], line.low?.[0] ?? this.y[0]), high = Math.min(this.y[1], line.high?.[0] ?? this.y[1]);
    const x = this.area.right + 8, y = this.toY(value);
    return [
      draw("line", { class: "plateau-line", x1: x, x2: x, y1: this.toY(low), y2: this.toY(high) }),
      draw("line", { class: "plateau-line", x1: x - 4, x2: x + 4, y1: y, y2: y }),
      draw("text", { class: "plateau-text", x: x + 8, y: y - 2 }, "plateau"),
      draw("text", { class: "plateau-text", x: x + 8, y: y + 12 }, format(value)),
    ];
  }

  drawLegend(lines) {
    const named = lines.filter((line) => line.role !== "plateau");
    const said = named.some((line) => line.role !== "observed" && line.role !== "averaged");
    this.legend.hidden = !said;
    if (!said) return;
    this.legend.replaceChildren(...named.map((line) => {
      const few = line.role === "observed" && line.x.length <= MANY ? " few" : "";
      const band = line.low?.length ? " band" : "", only = band && !line.y.some((value) => value !== null) ? " only" : "";
      return el("li", {}, el("i", { class: `${line.role} ${line.look || ""}${few}${band}${only}` }), el("bdi", {}, line.name), line.band ? `, ${line.band}` : "");
    }));
  }

  // Reading values
  anchors() {
    const lines = this.model.lines.filter((line) => line.x.length && !QUIET.has(line.role));
    const stepped = lines.filter((line) => !SMOOTH.has(line.role) || line.role === "forecast" || line.role === "run");
    return [...new Set((stepped.length ? stepped : lines).flatMap((line) => line.x))].sort((a, b) => a - b);
  }

  entry(line, x) {
    if (SMOOTH.has(line.role)) {
      if (x < line.x[0] || x > line.x[line.x.length - 1]) return null;
      const value = between(line, "y", x), ends = line.low?.length;
      return { line, x, value, low: ends ? between(line, "low", x) : null, high: ends ? between(line, "high", x) : null };
    }
    const i = nearest(line.x, x);
    return Math.abs(line.x[i] - x) > (this.x[1] - this.x[0]) / 60 ? null : { line, x: line.x[i], value: line.y[i] };
  }

  hide() { this.cursor?.remove(); this.box.remove(); this.cursor = null; this.at = null; }

  show(x) {
    this.cursor?.remove();
    this.at = x;
    const { top, bottom } = this.area, axis = this.model.xLabel;
    this.cursor = draw("g", {});
    this.cursor.append(draw("line", { class: "cursor", x1: this.toX(x), x2: this.toX(x), y1: top, y2: bottom }));
    const found = this.model.lines.filter((line) => line.x.length && !QUIET.has(line.role)).map((line) => this.entry(line, x)).filter((one) => one !== null);
    if (found.length && found.every((one) => one.line.role === "run")) found.sort((a, b) => b.value - a.value);
    this.box.replaceChildren(el("b", {}, `${axis} ${format(x)}`));
    for (const one of found) {
      const range = one.low === undefined || one.low === null ? "" : ` (${format(one.low)} to ${format(one.high)})`;
      if (one.value === null && !range) continue;
      const own = one.x === x ? "" : `, ${axis} ${format(one.x)}`;
      this.box.append(el("div", {}, el("bdi", {}, one.line.name), one.value === null ? range : ` ${format(one.value)}${range}${own}`));
      if (one.value !== null && one.value >= this.y[0] && one.value <= this.y[1]) this.cursor.append(draw("circle", { class: "dot", cx: this.toX(one.x), cy: this.toY(one.value), r: 4 }));
    }
    this.svg.append(this.cursor);
    this.root.append(this.box);
    const frame = this.svg.getBoundingClientRect(), home = this.root.getBoundingClientRect();
    const pointer = frame.left - home.left + this.toX(x);
    const wanted = pointer + 14 + this.box.offsetWidth > home.width ? pointer - 14 - this.box.offsetWidth : pointer + 14;
    this.box.style.left = `${Math.max(0, Math.min(wanted, home.width - this.box.offsetWidth))}px`;
    this.box.style.top = `${frame.top - home.top + top + 4}px`;
  }

  listen() {
    this.svg.addEventListener("pointermove", (event) => {
      if (!this.model || !this.area) return;
      const frame = this.svg.getBoundingClientRect();
      const part = ((event.clientX - frame.left) * this.svg.viewBox.baseVal.width / frame.width - this.area.left) / (this.area.right - this.area.left);
      const x = this.x[0] + part * (this.x[1] - this.x[0]), anchors = this.anchors();
      if (part < 0 || part > 1 || !anchors.length) { this.hide(); return; }
      const at = anchors[nearest(anchors, x)];
      if (at !== this.at) this.show(at);
    });
    this.svg.addEventListener("pointerleave", () => this.hide());
    this.svg.addEventListener("blur", () => this.hide());
    this.svg.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
      if (event.key === "Escape") this.hide();
      if (move === undefined || !this.model) return;
      event.preventDefault();
      const anchors = this.anchors();
      if (!anchors.length) return;
      const start = this.at === null ? (move < 0 && Number.isFinite(move) ? anchors.length : -1) : nearest(anchors, this.at);
      const now = start + move;
      this.show(anchors[Math.max(0, Math.min(anchors.length - 1, now))]);
    });
  }
}
