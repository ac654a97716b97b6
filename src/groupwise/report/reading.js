// How a value is written and found on a line: put before page.js in a report and before live_chart.js on the live page.
const format = (value) => {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e15)) return value.toExponential(2).replaceAll("-", "−");
  const digits = size >= 1000 ? 0 : Math.max(0, 3 - Math.floor(Math.log10(size || 1)));
  return value.toLocaleString("en", { maximumFractionDigits: Math.min(digits, 8) }).replace("-", "−");
};
const nearest = (xs, x) => {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle; else high = middle;
  }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
};
const between = (line, name, x) => {
  const xs = line.x, ys = line[name];
  let i = nearest(xs, x);
  if (xs[i] > x && i > 0) i -= 1;
  if (i >= xs.length - 1 || ys[i] === null || ys[i + 1] === null || xs[i] > x) return ys[i];
  return ys[i] + (ys[i + 1] - ys[i]) * (x - xs[i]) / (xs[i + 1] - xs[i]);
};
