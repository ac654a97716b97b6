// The live page: takes what changed from the server, keeps it, and shows it. Every text goes in as text.
import { Figure, el, format } from "/live_chart.js";

const LOST = 12; // seconds without a word from the server
const LOOKS = 8;
const runs = new Map();
let metric = "reward", expected = 0, skew = 0, heard = 0, since = null, ended = false, chosen = "metric", compare = null, source = null;
const overview = document.getElementById("overview"), home = document.getElementById("runs"), link = document.getElementById("link");

const now = () => Date.now() / 1000 + skew;
const ago = (seconds) => {
  const s = Math.max(0, seconds);
  if (s < 100) return `${Math.round(s)} s`;
  if (s < 6000) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${format(Math.round(s / 360) / 10)} h` : `${Math.round(s / 86400)} days`;
};
const clock = (seconds) => new Date((seconds - skew) * 1000).toLocaleTimeString([], { hour12: false });
const text = (node, words) => { if (node.textContent !== words) node.textContent = words; };
const span = (...ranges) => {
  const known = ranges.filter((range) => range);
  return [Math.min(...known.map((range) => range[0])), Math.max(...known.map((range) => range[1]))];
};

// One run
const build = (run) => {
  const view = {
    name: el("bdi"), said: el("span"), tone: el("span", { class: "tone" }), age: el("p", { class: "age" }), events: el("ul", { class: "notes events" }),
    headline: el("h2", { class: "headline" }), lede: el("p", { class: "lede" }), judged: el("p", { class: "small" }), facts: el("dl", { class: "facts" }),
    metric: new Figure(true), grid: el("div", { class: "grid" }), figures: new Map(), more: el("div", { class: "more" }), samples: el("div", { class: "samples" }),
  };
  view.link = el("a", { href: `/report/${run.id + 1}`, target: "_blank", rel: "noopener" }, "The whole report as of now");
  view.root = el("article", { class: "run", id: `run-${run.id + 1}` },
    el("header", {}, el("p", { class: "run-name" }, view.name, view.said, view.tone), view.age, view.events, view.headline, view.lede, view.facts, view.judged),
    view.metric.root, el("section", {}, view.grid), view.samples, view.more, el("p", { class: "small" }, view.link));
  run.view = view;
};

const tone = (node, run) => {
  const known = run.verdict?.verdict;
  node.className = `tone ${known ? known.tone : "nothing"}`;
  text(node, known ? known.word : run.verdict?.problem ? "not judged" : run.tracks.length ? "being judged" : "no rows yet");
};

const behind = (run) => {
  const state = run.state;
  if (state.waiting) return ["waiting", ""];
  if (state.problem) return ["not read", "stale"];
  if (!state.grew) return ["", ""];
  const age = now() - state.grew, silent = state.pace > 0 && age > Math.max(30, 10 * state.pace);
  return [ago(age), silent ? "stale" : ""];
};

const tell = (run) => {
  const { view, state } = run;
  const [age, stale] = behind(run);
  const pace = state.pace ? `one every ${ago(state.pace)}` : "";
  let words = state.problem ? `${state.waiting ? "Waiting" : "Not read"}: ${state.problem}. ` : "";
  if (state.step !== null && state.grew) {
    words += stale && !state.problem ? `No new row for ${age}${pace ? ` (before, ${pace})` : ""}: step ${format(state.step)} is the newest.` : `Newest row: step ${format(state.step)}, ${ago(now() - state.grew)} ago${pace ? ` (${pace})` : ""}.`;
  }
  if (!state.follows) words += " This format is read whole whenever it changes.";
  text(view.age, words);
  view.age.className = `age ${stale}`;
  const verdict = run.verdict;
  if (verdict) {
    const rows = state.rows - (verdict.rows ?? state.rows);
    text(view.judged, `Judged ${ago(now() - verdict.at)} ago${verdict.step === null ? "" : `, at step ${format(verdict.step)}`}${rows > 0 ? `; ${format(rows)} ${rows === 1 ? "row has" : "rows have"} come since` : ""}.`);
  } else text(view.judged, run.tracks.length ? "The law is being fitted; the lines are what was logged." : "");
  if (run.row) {
    text(run.row.age, age);
    run.row.age.className = `n ${stale}`;
  }
};

const lines = (track, overlays) => {
  const raw = { name: "logged", role: "observed", x: track.x, y: track.y };
  const means = track.mean_x.length ? [{ name: `mean of ${track.mean_size} rows`, role: "averaged", x: track.mean_x, y: track.mean_y }] : [];
  return [raw, ...means, ...overlays];
};

const show = (run) => {
  const { view, state, verdict } = run;
  text(view.name, run.name);
  text(view.said, state.step === null ? " · " : ` · ${format(state.rows)} ${state.rows === 1 ? "row" : "rows"}, step ${format(state.first)} to ${format(state.step)} · `);
  tone(view.tone, run);
  view.events.replaceChildren(...state.events.slice(-5).map((event) => el("li", {}, `${clock(event.at)}: ${event.said}`)));
  view.events.hidden = !state.events.length;
  const judged = verdict?.verdict;
  text(view.headline, judged ? judged.headline : verdict?.problem || "");
  view.headline.hidden = !view.headline.textContent;
  text(view.lede, judged ? judged.sentences.join(" ") : "");
  view.facts.replaceChildren(...(verdict?.facts || []).map(([name, value, more]) => el("div", {}, el("dt", {}, name), el("dd", {}, value, el("small", {}, more)))));
  view.facts.hidden = !verdict?.facts?.length;
  view.link.parentElement.hidden = state.step === null;
  drawRun(run);
  tell(run);
};

const REPLACED = { spread: ["reward_std_within_group", "reward_std_batch"], dead_groups: ["dead_group_share"] };
const drawRun = (run) => {
  const { view, verdict } = run, wanted = new Set();
  const main = run.tracks.find((track) => track.key === "metric");
  view.metric.root.hidden = !main;
  if (main) {
    const overlays = verdict?.lines || [];
    view.metric.update({
      title: main.title, xLabel: "step", yLabel: main.unit, lines: lines(main, overlays), marks: verdict?.marks || [], subject: main.column,
      range: span(main.y_range, overlays.length ? verdict.y_range : null), caption: main.mean_x.length ? `Dots are means of ${main.mean_size} rows that do not overlap.` : "",
    });
  }
  const place = (key) => {
    wanted.add(key);
    let figure = view.figures.get(key);
    if (!figure) { figure = new Figure(false); view.figures.set(key, figure); view.grid.append(figure.root); }
    return figure;
  };
  const groups = verdict?.groups || [], replaced = new Set(groups.flatMap((chart) => REPLACED[chart.key] || []));
  for (const chart of groups) {
    place(chart.key).update({ title: chart.title, xLabel: chart.x_label, yLabel: chart.y_label, lines: chart.lines, range: chart.y_range, caption: `${chart.caption} Up to step ${format(verdict.step)}.` });
  }
  for (const track of run.tracks) {
    if (track.key === "metric" || replaced.has(track.key)) continue;
    place(track.key).update({ title: track.title, xLabel: "step", yLabel: track.unit, lines: lines(track, []), range: track.y_range, caption: track.about, subject: track.column });
  }
  for (const [key, figure] of view.figures) if (!wanted.has(key)) { figure.remove(); view.figures.delete(key); }
};

const showMore = (run) => {
  const { view, verdict } = run;
  const said = verdict?.said || [], notes = [...(verdict?.missing || []), ...(verdict?.notes || [])];
  const was = view.more.querySelector("details")?.open;
  view.more.replaceChildren(...said.flatMap(([name, sentence], i) => [...(i && said[i - 1][0] === name ? [] : [el("h3", {}, name)]), el("p", {}, sentence)]));
  if (notes.length) {
    const details = el("details", {}, el("summary", {}, "Notes"), el("ul", { class: "notes" }, ...notes.map((note) => el("li", {}, el("bdi", {}, note)))));
    details.open = Boolean(was);
    view.more.append(details);
  }
};

const showSamples = (run) => {
  const { view } = run, was = view.samples.querySelector("details")?.open ?? true;
  view.samples.replaceChildren();
  if (!run.samples.length) return;
  const details = el("details", {}, el("summary", {}, `Completions of step ${format(run.samples[0].step)}`));
  for (const sample of run.samples) {
    details.append(el("div", { class: "sample" },
      el("p", { class: "small" }, `reward ${format(sample.reward)}`), el("pre", { class: "prompt", dir: "auto" }, sample.prompt), el("pre", { class: "completion", dir: "auto" }, sample.completion)));
  }
  details.open = was;
  view.samples.append(details);
};

// Several runs
const title = () => { document.title = `${runs.size > 1 ? `${runs.size} runs` : [...runs.values()][0]?.name ?? "waiting"} – groupwise watch`; };

const outline = () => {
  if (expected < 2) return;
  const body = el("tbody");
  for (const run of runs.values()) {
    const row = { name: el("bdi", {}, run.name), tone: el("span", { class: "tone" }), step: el("td", { class: "n" }), value: el("td", { class: "n" }), age: el("td", { class: "n" }) };
    row.root = el("tr", { tabindex: "-1" }, el("td", {}, el("i", { class: `swatch ${look(run)}` }), el("a", { href: `#run-${run.id + 1}` }, row.name)), el("td", {}, row.tone), row.step, row.value, row.age);
    row.root.addEventListener("pointerenter", () => { run.marked = true; drawOverview(); });
    row.root.addEventListener("pointerleave", () => { run.marked = false; drawOverview(); });
    run.row = row;
    body.append(row.root);
  }
  const head = el("thead", {}, el("tr", {}, ...["Run", "Verdict", "Step", "Recent mean", "Newest row"].map((name, i) => el("th", { class: i > 1 ? "n" : "", scope: "col" }, name))));
  const picker = el("select", { id: "compared", "aria-label": "What is compared" });
  picker.addEventListener("change", () => { chosen = picker.value; drawOverview(); });
  compare ??= new Figure(true);
  overview.replaceChildren(el("h1", {}, `${expected} runs`), el("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "Table: runs" }, el("table", {}, head, body)), el("p", { class: "small" }, el("label", { for: "compared" }, "Side by side: "), picker), compare.root);
  overview.picker = picker;
};

const look = (run) => `r${run.id % LOOKS} d${Math.floor(run.id / LOOKS) % 3}${run.marked ? " marked" : ""}`;
const late = (track) => track && (track.mean_y.length ? track.mean_y[track.mean_y.length - 1] : track.y[track.y.length - 1]);

const drawOverview = () => {
  if (expected < 2 || !overview.picker) return;
  const names = new Map();
  for (const run of runs.values()) {
    for (const track of run.tracks) if (!names.has(track.key)) names.set(track.key, track.title);
    const main = run.tracks.find((track) => track.key === "metric");
    tone(run.row.tone, run);
    text(run.row.name, run.name);
    text(run.row.step, run.state.step === null ? "–" : format(run.state.step));
    text(run.row.value, main ? format(late(main)) : "–");
  }
  const options = [...names].map(([key, name]) => `${key}\u0000${name}`).join("\u0001");
  if (overview.options !== options) {
    overview.options = options;
    overview.picker.replaceChildren(...[...names].map(([key, name]) => el("option", { value: key }, name)));
    if (!names.has(chosen)) chosen = names.keys().next().value;
    overview.picker.value = chosen ?? "";
  }
  const shown = [...runs.values()].map((run) => ({ run, track: run.tracks.find((track) => track.key === chosen) })).filter((one) => one.track);
  compare.root.hidden = !shown.length;
  if (!shown.length) return;
  const made = shown.map(({ run, track }) => ({ name: run.name, role: "run", look: look(run), x: track.mean_x.length ? track.mean_x : track.x, y: track.mean_x.length ? track.mean_y : track.y }));
  made.sort((a, b) => a.look.includes("marked") - b.look.includes("marked"));
  const values = made.flatMap((line) => line.y), low = Math.min(...values), high = Math.max(...values), pad = 0.05 * (high - low) || 0.05 * Math.abs(high) || 0.5;
  const rows = [...new Set(shown.map(({ track }) => track.mean_x.length ? track.mean_size : 1))];
  const caption = rows.length === 1 && rows[0] === 1 ? "" : `Each line joins means of ${Math.min(...rows)}${rows.length > 1 ? ` to ${Math.max(...rows)}` : ""} neighbouring rows.`;
  compare.update({ title: "", xLabel: "step", yLabel: shown[0].track.unit, lines: made, range: [low - pad, high + pad], caption });
};

let queued = false;
const redrawOverview = () => {
  if (queued) return;
  queued = true;
  requestAnimationFrame(() => { queued = false; drawOverview(); });
};

// What the server says
const take = {
  hello: (message) => {
    expected = message.runs;
    metric = message.metric;
    skew = message.now - Date.now() / 1000;
    ended = false;
  },
  run: (message) => {
    const old = runs.get(message.id);
    const run = old || { id: message.id };
    Object.assign(run, message);
    run.name = run.state.name;
    runs.set(run.id, run);
    if (!old) {
      build(run);
      home.append(run.view.root);
    }
    if (!old && runs.size === expected) outline();
    title();
    show(run);
    showMore(run);
    showSamples(run);
    redrawOverview();
  },
  change: (message) => {
    const run = runs.get(message.id);
    if (!run) return;
    run.state = message.state;
    run.name = run.state.name;
    for (const change of message.tracks) {
      const track = run.tracks.find((one) => one.key === change.key);
      if (!track) continue;
      for (const [x, y, from] of [["x", "y", "from"], ["mean_x", "mean_y", "mean_from"]]) {
        track[x].splice(change[from], Infinity, ...change[x]);
        track[y].splice(change[from], Infinity, ...change[y]);
      }
      for (const name of ["title", "unit", "column", "about", "rows", "mean_size", "y_range"]) if (name in change) track[name] = change[name];
    }
    show(run);
    if (message.samples) { run.samples = message.samples; showSamples(run); }
    redrawOverview();
  },
  verdict: (message) => {
    const run = runs.get(message.id);
    if (!run) return;
    run.verdict = message.verdict;
    show(run);
    showMore(run);
    redrawOverview();
  },
  beat: (message) => { skew = message.now - Date.now() / 1000; },
  bye: () => { ended = true; since = Date.now(); },
};

const connect = () => {
  source = new EventSource("/events");
  for (const [name, does] of Object.entries(take)) {
    source.addEventListener(name, (event) => {
      heard = Date.now();
      if (name !== "bye") since = null;
      does(JSON.parse(event.data));
      about();
    });
  }
  source.onerror = () => {
    since ??= Date.now();
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
    about();
  };
};

const about = () => {
  if (since === null && heard && Date.now() - heard > LOST * 1000) since = heard;
  const at = since === null ? "" : new Date(since).toLocaleTimeString([], { hour12: false });
  link.className = since === null ? (heard ? "alive" : "") : "lost";
  text(link, since === null ? (heard ? "live" : "connecting") : ended ? `The watcher was stopped at ${at}; this is what it had read.` : `No connection since ${at}; trying again. This is what was read before.`);
  document.body.classList.toggle("offline", since !== null);
};

setInterval(() => { about(); for (const run of runs.values()) tell(run); }, 1000);
connect();
