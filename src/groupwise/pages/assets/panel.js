// The chart of every page, over uPlot: groupwise.panel(element, model) -> {element, update(model), zoom(from, to), reset(), remove()}.
//
// model: the JSON of a Chart (analysis/charts.py). Only `lines` must be there.
//   title, unit   words above the plot; the unit stands behind the title and in what is read aloud
//   x_label       the unit of the abscissa, "step" where absent
//   lines         [{name, role, x: [...], y: [...], low, high, band, colour, width}]; null in y is a gap. Roles: see ROLES; `colour` is
//                 0 to 7 of the palette for overlays of runs (role "run"), `band` names the band in the keys
//   shade         [from, to] is shaded as the failure; `to` null: until the end
//   marks         [{x, label}]: vertical rules
//   y_range       [low, high] until one zooms, or null: whatever the lines need
//   x_scale, y_scale  "linear", "log2", "log10"
//   sync          panels of the same name share cursor, zoom and the range of x; "" alone
//   smoothing     0 to 1: weight of an exponential mean over every "observed" line, which is drawn faint behind it; 0 none
//   small         a sparkline: low, few ticks
//   wide          has keys even where only the raw and the smoothed line are there
// The plot takes the width of its element; its height is the CSS variable --panel-height. Dragging zooms, a double click resets. With
// the keyboard: Tab, arrows (Page up and down, Home, End) move the cursor, + and - zoom about it, Escape resets. Every text goes in as text.
// Besides: groupwise.format(number), groupwise.smoothed(ys, weight), groupwise.along(model, axis): the model along another clock than the step,
// {name, x: steps, y: its values}.
(() => {
  "use strict";
  // colour, width, dash, and whether points are drawn instead of a line
  const ROLES = {
    observed: ["--c0", 1.4], faint: ["--panel-faint", 1], smooth: ["--c0", 2.2], run: ["--c0", 1.8],
    law: ["--panel-ink", 2],
    forecast: ["--c2", 2, [7, 4]], plateau: ["--c2", 1.5, [2, 4]],
    held_out: ["--c1", 1.5, null, true], evaluation: ["--c1", 2], beside: ["--c3", 2], expected: ["--panel-ink", 1.5, [6, 3]],
    limit: ["--panel-muted", 1, [3, 3]], usual: ["--panel-muted", 0], stem: ["--c0", 0, null, true],
  };
  const BANDS = { limit: "28" };
  const MOVES = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
  const FONT = '11.5px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"Noto Sans",sans-serif';
  const groups = new Map();
  const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

  const node = (name, kind, ...children) => {
    const made = document.createElement(name);
    if (kind) made.className = kind;
    made.append(...children);
    return made;
  };

  const format = (value) => {
    if (!known(value)) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-4 || size >= 1e15)) return value.toExponential(2).replaceAll("-", "−");
    const digits = size >= 1000 ? 0 : Math.max(0, 3 - Math.floor(Math.log10(size || 1)));
    return value.toLocaleString("en", { maximumFractionDigits: Math.min(digits, 8) }).replace("-", "−");
  };

  // An exponential mean that starts at the first value, as trackers draw it; gaps stay gaps.
  const smoothed = (ys, weight) => {
    let sum = 0, total = 0;
    return ys.map((y) => {
      if (!known(y)) return null;
      sum = sum * weight + (1 - weight) * y;
      total = total * weight + (1 - weight);
      return sum / total;
    });
  };

  // Ticks at round numbers, printed with as many decimals as the spacing has: .25 is never printed as 0.3.
  const spaced = (low, high, most, whole) => {
    const found = stepped(low, high, most, whole);
    return found.length > 1 || most > 8 ? found : spaced(low, high, most + 1, whole);
  };
  const stepped = (low, high, most, whole) => {
    const raw = (high - low) / Math.max(1, most), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].find((one) => one * power >= raw * (1 - 1e-9) && !(one === 2.5 && whole && power < 10));
    const spacing = whole ? Math.max(1, Math.round(step * power)) : step * power, found = [];
    for (let i = Math.ceil(low / spacing - 1e-9); i * spacing <= high + spacing * 1e-9 && found.length < 60; i += 1) found.push(i * spacing);
    return found;
  };
  const decimals = (spacing) => {
    let places = 0;
    while (places < 12 && Math.abs(spacing * 10 ** places - Math.round(spacing * 10 ** places)) > 1e-6 * spacing * 10 ** places) places += 1;
    return places;
  };
  const written = (ticks) => {
    const spacing = ticks.length > 1 ? ticks[1] - ticks[0] : Math.abs(ticks[0] || 1), largest = Math.max(...ticks.map(Math.abs));
    const power = (tick) => Number(tick.toPrecision(6)).toExponential().replace("e+", "e").replaceAll("-", "−");
    if (largest > 0 && (largest < 1e-3 || largest >= 1e9)) return ticks.map((tick) => (tick === 0 ? "0" : power(tick)));
    const [unit, name] = largest >= 1e6 ? [1e6, "M"] : largest >= 1e4 ? [1e3, "k"] : [1, ""];
    const places = decimals(spacing / unit);
    return ticks.map((tick) => (Math.abs(tick) < spacing * 1e-9 ? "0" : (tick / unit).toFixed(places).replace("-", "−") + name));
  };
  const powers = (low, high, base, most) => {
    const first = Math.ceil(Math.log(low) / Math.log(base) - 1e-9), last = Math.floor(Math.log(high) / Math.log(base) + 1e-9);
    const stride = Math.max(1, Math.ceil((last - first + 1) / Math.max(1, most))), found = [];
    for (let k = first; k <= last; k += stride) found.push(base ** k);
    return found;
  };
  const single = (tick) => (tick >= 1e-3 && tick < 1e5 ? String(Number(tick.toPrecision(6))) : tick.toExponential().replace("e+", "e").replaceAll("-", "−"));
  const axis = (scale, most, whole) => ({
    splits: (_u, _axis, low, high) => (scale === "linear" ? spaced(low, high, most(), whole) : powers(low, high, scale === "log2" ? 2 : 10, most())),
    filter: (_u, ticks) => ticks,
    values: (_u, ticks) => (!ticks.length ? [] : scale === "linear" ? written(ticks) : ticks.map(single)),
  });

  // The lines that are drawn: an observed line stands faint behind its smoothed twin.
  const drawn = (model) => {
    const lines = model.lines.filter((line) => line.x.length), made = [];
    const behind = lines.some((line) => line.role === "smooth" || line.role === "law");
    let others = 0;
    for (const given of lines) {
      const line = given.role === "beside" ? { colour: 3 + others, ...given } : given; // several of them have a colour each
      others += given.role === "beside";
      const smooth = model.smoothing > 0 && (line.role === "observed" || line.role === "run");
      if (smooth) {
        made.push({ ...line, key: "", role: line.role === "run" ? "run" : "faint", width: 1, alpha: line.role === "run" ? "55" : "" });
        made.push({ ...line, role: line.role === "run" ? "run" : "smooth", y: smoothed(line.y, model.smoothing) });
      } else made.push(behind && line.role === "observed" ? { ...line, role: "faint" } : line);
    }
    return made;
  };
  const colour = (line) => (line.colour === undefined ? ROLES[line.role]?.[0] || "--c0" : `--c${line.colour % 8}`);

  const group = (panel, name) => {
    const key = name || panel;
    if (!groups.has(key)) groups.set(key, { panels: new Set(), view: null });
    return groups.get(key);
  };
  const reach = (panels) => {
    let low = Infinity, high = -Infinity;
    for (const panel of panels) for (const line of panel.lines) { low = Math.min(low, line.x[0]); high = Math.max(high, line.x[line.x.length - 1]); }
    if (low > high) return [0, 1];
    return low === high ? [low - 1, high + 1] : [low, high];
  };

  class Panel {
    constructor(element, model) {
      this.element = element;
      this.lines = [];
      element.classList.add("panel");
      this.title = node("b");
      this.unit = node("span", "panel-unit");
      this.at = node("span", "panel-at");
      this.keys = node("ul");
      this.home = node("div", "panel-plot");
      this.home.tabIndex = 0;
      this.home.setAttribute("role", "application");
      element.replaceChildren(node("div", "panel-head", this.title, this.unit, this.keys, this.at), this.home);
      this.home.addEventListener("keydown", (event) => this.key(event));
      this.home.addEventListener("blur", () => this.point(null));
      this.sized = new ResizeObserver(() => this.fit());
      this.sized.observe(this.home);
      this.update(model);
    }

    update(model) {
      this.model = { x_label: "step", x_scale: "linear", y_scale: "linear", marks: [], sync: "", smoothing: 0, ...model };
      this.lines = drawn(this.model);
      const own = group(this, this.model.sync);
      if (this.group !== own) {
        this.group?.panels.delete(this);
        this.group = own;
        own.panels.add(this);
      }
      this.element.classList.toggle("small", Boolean(model.small));
      this.title.replaceChildren(node("bdi", "", model.title || ""));
      this.title.hidden = !model.title;
      this.unit.textContent = model.unit || "";
      this.home.setAttribute("aria-label", `${model.title || "chart"}${model.unit ? `, ${model.unit}` : ""}: arrow keys read values, plus and minus zoom, Escape resets`);
      this.drawKeys();
      this.data = this.lines.length ? this.joined() : null;
      const shape = JSON.stringify([this.model.x_label, this.model.x_scale, this.model.y_scale, this.model.sync, this.model.small, this.lines.map((line) => [line.role, line.colour, line.width, Boolean(line.low?.length)])]);
      if (this.plot && this.data && shape === this.shape) this.plot.setData(this.data, false);
      else this.clear();
      this.shape = shape;
      this.fit();
      this.follow();
      if (this.plot) this.read(this.plot);
    }

    // One abscissa for all lines: uPlot wants columns of one table.
    joined() {
      const tables = this.lines.map((line) => {
        const y = line.y.length ? line.y : line.x.map(() => null);
        return line.low?.length ? [line.x, y, line.high, line.low] : [line.x, y];
      });
      return uPlot.join(tables);
    }

    clear() {
      this.plot?.destroy();
      this.plot = null;
      this.home.replaceChildren(...(this.data ? [] : [node("p", "panel-none", "No values yet.")]));
    }

    remove() {
      this.sized.disconnect();
      this.clear();
      this.group.panels.delete(this);
      this.element.replaceChildren();
    }

    fit() {
      const width = this.home.clientWidth, height = this.home.clientHeight;
      if (!this.data || width < 40 || height < 30) return;
      if (!this.plot) this.build(width, height);
      else if (this.plot.width !== width || this.plot.height !== height) this.plot.setSize({ width, height });
    }

    paint(name) { return getComputedStyle(this.element).getPropertyValue(name).trim(); }

    build(width, height) {
      const { x_scale: xs, y_scale: ys, sync, small } = this.model, distribution = (scale) => (scale === "linear" ? { distr: 1 } : { distr: 3, log: scale === "log2" ? 2 : 10 });
      const look = { stroke: () => this.paint("--panel-muted"), font: FONT, gap: 4 };
      const rule = { stroke: () => this.paint("--panel-rule"), width: 1 };
      const series = [{}], bands = [];
      for (const line of this.lines) {
        const [, thick = 1.5, dash, dots] = ROLES[line.role] || ROLES.run, name = colour(line);
        const few = line.x.length === 1 || (line.role === "observed" || line.role === "evaluation") && line.x.length <= 40;
        series.push({
          stroke: () => this.paint(name) + (line.alpha || ""), width: dots || !thick ? 0 : line.width ?? thick, dash: dash || undefined,
          points: { show: Boolean(dots || few), size: dots ? 5 : 4, fill: () => this.paint(name), stroke: () => this.paint(name) },
        });
        if (!line.low?.length) continue;
        for (let end = 0; end < 2; end += 1) series.push({ stroke: "transparent", width: 0, points: { show: false } });
        bands.push({ series: [series.length - 2, series.length - 1], fill: () => this.paint(name) + (BANDS[line.role] || "33") });
      }
      this.plot = new uPlot({
        width, height, series, bands, pxAlign: 0, legend: { show: false }, padding: [8, 12, small ? 0 : 2, 0],
        scales: { x: { time: false, ...distribution(xs), range: () => this.span() }, y: { ...distribution(ys), range: (_u, low, high) => this.rise(low, high) } },
        axes: [
          { ...look, grid: { show: false }, ticks: { ...rule, size: 4 }, size: small ? 22 : 24, ...axis(xs, () => Math.max(2, Math.min(10, this.home.clientWidth / 80)), this.model.x_label !== "hours") },
          { ...look, grid: rule, ticks: { show: false }, size: (_u, values) => 10 + 7 * Math.max(2, ...(values || []).map((value) => value.length)), ...axis(ys, () => Math.max(2, this.home.clientHeight / (small ? 38 : 46)), false) },
        ],
        cursor: {
          y: false, drag: { x: true, y: false, setScale: false, dist: 5 }, bind: { dblclick: () => () => { this.reset(); return null; } },
          points: { size: 7, fill: (u, i) => u.series[i].stroke(u, i), width: 0 }, dataIdx: (u, i, at) => this.nearby(u.data[i], u.data[0], at),
          ...(sync ? { sync: { key: sync, scales: ["x", null], filters: { pub: (kind) => kind === "mousemove" || kind === "mouseleave" } } } : {}),
        },
        hooks: {
          drawClear: [(u) => this.shade(u)], draw: [(u) => this.rules(u)], setCursor: [(u) => this.read(u)],
          setSelect: [(u) => {
            const { left, width: wide } = u.select;
            if (wide > 4) this.zoom(u.posToVal(left, "x"), u.posToVal(left + wide, "x"));
            if (wide) u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          }],
        },
      }, this.data, this.home);
    }

    span() {
      const [low, high] = this.group.view || reach(this.group.panels);
      if (this.model.x_scale !== "linear") return [low / 1.06, high * 1.06];
      const pad = this.group.view ? 0 : 0.01 * (high - low);
      return [low - pad, high + pad];
    }

    rise(low, high) {
      const { y_range: wanted, y_scale: scale } = this.model;
      if (wanted && !this.group.view) return wanted;
      if (!known(low)) return scale === "linear" ? [0, 1] : [1, 10];
      if (scale !== "linear") return [low / 1.2, high * 1.2];
      const pad = high > low ? 0.06 * (high - low) : 0.1 * Math.abs(low) || 0.5;
      return [low - pad, high + pad];
    }

    // The row of a line that is nearest to the cursor, for lines that have no value at every step.
    nearby(ys, xs, at) {
      if (known(ys[at])) return at;
      const [low, high] = this.span();
      for (let by = 1; by < xs.length; by += 1) {
        const near = [at - by, at + by].filter((i) => i >= 0 && i < xs.length && Math.abs(xs[i] - xs[at]) <= (high - low) / 30);
        if (!near.length) return null;
        const found = near.find((i) => known(ys[i]));
        if (found !== undefined) return found;
      }
      return null;
    }

    shade(u) {
      const { shade } = this.model;
      if (!shade) return;
      const { left, top, width, height } = u.bbox, place = (x) => Math.max(left, Math.min(left + width, u.valToPos(x, "x", true)));
      const from = place(shade[0]), to = known(shade[1]) ? place(shade[1]) : left + width;
      u.ctx.fillStyle = this.paint("--panel-shade");
      u.ctx.fillRect(from, top, Math.max(0, to - from), height);
    }

    rules(u) {
      const { left, top, width, height } = u.bbox, { ctx } = u, dense = u.pxRatio ?? devicePixelRatio;
      ctx.save();
      ctx.font = FONT.replace("11.5px", `${11.5 * dense}px`);
      ctx.fillStyle = ctx.strokeStyle = this.paint("--panel-muted");
      ctx.lineWidth = dense;
      ctx.setLineDash([3 * dense, 3 * dense]);
      for (const mark of this.model.marks || []) {
        const x = u.valToPos(mark.x, "x", true);
        if (!(x >= left && x <= left + width)) continue;
        ctx.beginPath();
        ctx.moveTo(x, top);
        ctx.lineTo(x, top + height);
        ctx.stroke();
        const wide = ctx.measureText(mark.label).width, right = x + 4 * dense + wide > left + width;
        ctx.textAlign = right ? "right" : "left";
        ctx.textBaseline = "top";
        ctx.fillText(mark.label, x + (right ? -4 : 4) * dense, top + 2 * dense);
      }
      ctx.restore();
    }

    drawKeys() {
      const lines = this.lines.filter((line) => line.role !== "plateau" && (line.role !== "usual" || !this.model.small));
      this.values = new Map();
      const plain = !this.model.wide && lines.every((line) => line.role === "faint" || line.role === "observed" || line.role === "smooth");
      const several = lines.length > 1 && !plain; // a small chart of one quantity needs no keys: what is logged is read
      this.keys.replaceChildren(...lines.filter((line) => line.key !== "").slice(0, plain ? 1 : lines.length).map((line) => {
        const [, thick, dash, dots] = ROLES[line.role] || ROLES.run, value = node("span");
        const swatch = node("i", !line.y.some(known) ? "area" : dots || !thick ? "dots" : dash ? "dash" : "");
        swatch.style.setProperty("--c", `var(${colour(line)})`);
        this.values.set(line, value);
        return node("li", "", ...(several ? [swatch, node("bdi", "", line.name), line.band ? `, ${line.band}` : "", " "] : []), value);
      }));
    }

    // What stands at the cursor: beside the keys, in every panel of the group.
    read(u) {
      const at = u.cursor.idx;
      const on = known(at) && u.cursor.left >= 0;
      this.place = on ? at : null;
      this.at.textContent = on ? `${this.model.x_label} ${format(u.data[0][at])}` : "";
      let column = 1;
      for (const line of this.lines) {
        const i = on ? this.nearby(u.data[column], u.data[0], at) : null, ends = line.low?.length ? 2 : 0;
        const words = i === null ? "" : format(u.data[column][i]);
        const near = on && ends ? this.nearby(u.data[column + 1], u.data[0], at) : null;
        const range = near === null ? "" : ` (${format(u.data[column + 2][near])} to ${format(u.data[column + 1][near])})`;
        const value = this.values.get(line);
        if (value) value.textContent = words + range;
        column += 1 + ends;
      }
    }

    point(at) {
      if (!this.plot) return;
      if (at === null) this.plot.setCursor({ left: -10, top: -10 }, true, true);
      else this.plot.setCursor({ left: this.plot.valToPos(this.data[0][at], "x"), top: 10 }, true, true);
      this.place = at;
    }

    key(event) {
      if (!this.plot || event.ctrlKey || event.metaKey || event.altKey) return;
      const move = MOVES[event.key], xs = this.data[0], [low, high] = this.span();
      const first = xs.findIndex((x) => x >= low), last = xs.findLastIndex((x) => x <= high);
      if (move !== undefined) {
        const from = this.place ?? (move > 0 ? first - 1 : last + 1);
        Object.assign(this.keys.parentElement, { ariaLive: "polite", ariaAtomic: "true" }); // values with name and step
        this.point(Math.max(first, Math.min(last, from + move)));
      } else if (event.key === "Escape") { this.point(null); this.reset(); }
      else if (event.key === "+" || event.key === "=" || event.key === "-") this.closer(event.key === "-" ? 2 : 0.5, low, high);
      else return;
      event.preventDefault();
    }

    closer(factor, low, high) {
      const middle = this.place === null || this.place === undefined ? (low + high) / 2 : this.data[0][this.place];
      this.zoom(middle - (middle - low) * factor, middle + (high - middle) * factor);
    }

    zoom(from, to) {
      const [low, high] = reach(this.group.panels);
      const view = [Math.max(low, from), Math.min(high, to)];
      const inside = this.data[0].filter((x) => x >= view[0] && x <= view[1]).length;
      if (inside < 2) return;
      this.group.view = view[0] <= low && view[1] >= high ? null : view;
      this.follow();
    }

    reset() {
      this.group.view = null;
      this.follow();
    }

    // Every panel of the group takes the group's range.
    follow() {
      for (const panel of this.group.panels) {
        if (!panel.plot) continue;
        const [min, max] = panel.span();
        panel.plot.setScale("x", { min, max });
      }
    }

    redraw() { this.plot?.redraw(true, true); }
  }

  const along = (model, axis) => {
    if (!axis) return model;
    const { x, y, name } = axis, last = x.length - 2;
    const at = (step) => {
      const after = x.findIndex((one) => one > step), i = Math.max(0, Math.min(last, (after < 0 ? x.length : after) - 1));
      return y[i] + (step - x[i]) * (y[i + 1] - y[i]) / (x[i + 1] - x[i]);
    };
    return {
      ...model, x_label: name, lines: model.lines.map((line) => ({ ...line, x: line.x.map(at) })),
      marks: (model.marks ?? []).map((mark) => ({ ...mark, x: at(mark.x) })), shade: model.shade?.map((step) => (known(step) ? at(step) : step)),
    };
  };

  const every = () => [...groups.values()].flatMap((one) => [...one.panels]);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => every().forEach((panel) => panel.redraw()));
  // Paper is light whatever the screen is.
  for (const [event, on] of [["beforeprint", true], ["afterprint", false]]) addEventListener(event, () => {
    document.documentElement.classList.toggle("printing", on);
    every().forEach((panel) => { panel.fit(); panel.redraw(); });
  });

  globalThis.groupwise = { panel: (element, model) => new Panel(element, model), format, smoothed, along };
})();
