// Values under the pointer. Reads the results embedded in the page; requests nothing. reading.js stands before it.
(() => {
  "use strict";
  const results = JSON.parse(document.getElementById("groupwise-results").textContent);
  const smooth = new Set(["law", "rival", "second_rival", "forecast"]);
  const quiet = new Set(["plateau", "limit", "unstable", "unsafe"]);

  const attach = (svg) => {
    const [run, section, index] = svg.dataset.chart.split("/");
    const chart = results.runs[run].charts[section][index];
    const numbers = (name) => svg.dataset[name].split(" ").map(Number);
    const [left, top, right, bottom] = numbers("box");
    const [x0, x1] = numbers("x"), [y0, y1] = numbers("y");
    const lines = chart.lines.filter((line) => line.x.length && !quiet.has(line.role));
    const stepped = lines.filter((line) => !smooth.has(line.role) || line.role === "forecast");
    const anchors = [...new Set((chart.x_scale === "log2" || !stepped.length ? lines : stepped).flatMap((line) => line.x))].sort((a, b) => a - b);
    if (!anchors.length) return;
    const scaled = chart.x_scale === "log2" ? Math.log2 : (x) => x;
    const unscaled = chart.x_scale === "log2" ? (x) => 2 ** x : (x) => x;
    const toX = (x) => left + (right - left) * (scaled(x) - scaled(x0)) / (scaled(x1) - scaled(x0));
    const level = chart.y_scale === "log10" ? Math.log10 : (y) => y;
    const toY = (y) => bottom - (bottom - top) * (level(y) - level(y0)) / (level(y1) - level(y0));
    let layer = null, box = null, place = -1;

    const hide = () => { layer?.remove(); box?.remove(); layer = box = null; place = -1; };
    const entry = (line, x) => {
      if (smooth.has(line.role)) {
        if (x < line.x[0] || x > line.x[line.x.length - 1]) return null;
        const value = between(line, "y", x);
        return { line, x, value, low: line.low && between(line, "low", x), high: line.high && between(line, "high", x) };
      }
      const i = nearest(line.x, x);
      if (Math.abs(scaled(line.x[i]) - scaled(x)) > (scaled(x1) - scaled(x0)) / 60) return null;
      return { line, x: line.x[i], value: line.y[i] };
    };
    const show = (at) => {
      hide();
      place = at;
      const x = anchors[at];
      layer = document.createElementNS(svg.namespaceURI, "g");
      const rule = document.createElementNS(svg.namespaceURI, "line");
      for (const [name, value] of Object.entries({ class: "cursor", x1: toX(x), x2: toX(x), y1: top, y2: bottom })) rule.setAttribute(name, value);
      layer.append(rule);
      box = document.createElement("div");
      box.className = "readout";
      box.setAttribute("role", "status");
      const head = document.createElement("b");
      head.textContent = `${chart.x_label.split(",")[0]} ${format(x)}`;
      box.append(head);
      for (const line of lines) {
        const found = entry(line, x);
        if (!found) continue;
        const row = document.createElement("div");
        const range = found.low === undefined || found.low === null ? "" : ` (${format(found.low)} to ${format(found.high)})`;
        const own = found.x === x ? "" : `, ${chart.x_label.split(",")[0]} ${format(found.x)}`;
        row.textContent = found.value === null ? `${line.name}${range}` : `${line.name} ${format(found.value)}${range}${own}`;
        if (found.value === null && !range) continue;
        box.append(row);
        if (found.value !== null && found.value >= y0 && found.value <= y1) {
          const dot = document.createElementNS(svg.namespaceURI, "circle");
          for (const [name, value] of Object.entries({ class: "dot", cx: toX(found.x), cy: toY(found.value), r: 4 })) dot.setAttribute(name, value);
          layer.append(dot);
        }
      }
      svg.append(layer);
      const figure = svg.parentElement, frame = svg.getBoundingClientRect(), home = figure.getBoundingClientRect();
      figure.append(box);
      const scale = frame.width / svg.viewBox.baseVal.width;
      const pointer = frame.left - home.left + toX(x) * scale;
      const wanted = pointer + 14 + box.offsetWidth > home.width ? pointer - 14 - box.offsetWidth : pointer + 14;
      box.style.left = `${Math.max(0, Math.min(wanted, home.width - box.offsetWidth))}px`;
      box.style.top = `${frame.top - home.top + top * scale + 4}px`;
    };
    svg.addEventListener("pointermove", (event) => {
      const frame = svg.getBoundingClientRect();
      const part = ((event.clientX - frame.left) * svg.viewBox.baseVal.width / frame.width - left) / (right - left);
      const x = unscaled(scaled(x0) + part * (scaled(x1) - scaled(x0)));
      if (x < x0 || x > x1) { hide(); return; }
      const at = nearest(anchors, x);
      if (at !== place) show(at);
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
      if (event.key === "Escape") hide();
      if (move === undefined) return;
      event.preventDefault();
      show(Math.max(0, Math.min(anchors.length - 1, place < 0 ? (move < 0 ? anchors.length - 1 : 0) : place + move)));
    });
  };
  document.querySelectorAll("svg.chart[data-chart]").forEach(attach);
})();
