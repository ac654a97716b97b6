// The live page: keeps what the server says of each run and shows it. Every text goes in as text. Charts are those of panel.js, the list that of list.js.
"use strict";
(() => {
  const LOST = 12; // seconds without a word from the server
  const ANSWERS = { none: "no sign of a problem", info: "info", warning: "warning", critical: "critical", not_logged: "not logged" };
  const { format, panel, along, list: { el, text, fill, spark, filters } } = globalThis.groupwise;
  const find = (name) => document.getElementById(name);
  const filter = filters(find("filters"), () => later());
  const runs = new Map(), ticked = new Set(), grid = new Map();
  let expected = 0, skew = 0, heard = 0, since = null, ended = false, refused = false, full = 0, chosen = "metric", abscissa = "step", queued = false, source = null;

  // Words
  const now = () => Date.now() / 1000 + skew;
  const lasting = (seconds) => {
    const s = Math.max(0, seconds);
    if (s < 100) return `${Math.round(s)} s`;
    if (s < 6000) return `${Math.round(s / 60)} min`;
    return s < 172800 ? `${format(Math.round(s / 360) / 10)} h` : `${Math.round(s / 86400)} days`;
  };
  const clock = (seconds) => new Date((seconds - skew) * 1000).toLocaleTimeString([], { hour12: false });
  const age = (state) => {
    if (!state?.grew) return state?.waiting ? "waiting for the log" : "no rows yet";
    const gone = now() - state.grew, silent = state.pace > 0 && gone > Math.max(30, 10 * state.pace);
    if (state.ended) return `finished ${lasting(gone)} ago`;
    return `${silent ? "no new row for" : "newest row"} ${lasting(gone)}${silent ? "" : " ago"}${state.pace ? `, one every ${lasting(state.pace)}${silent ? " before" : ""}` : ""}`;
  };
  const shortly = (state) => (!state?.grew ? "–" : `${lasting(now() - state.grew)} ago`);
  const stands = (run) => {
    const found = run.judged?.judgement;
    if (!found) return ["", run.judged?.problem ? "not judged" : run.state?.rows ? "being judged" : "no rows yet"];
    return [found.state, run.judged.head];
  };
  const failing = (run) => ["failing", "failed"].includes(run.judged?.judgement?.state);
  const failedFrom = (run) => {
    const found = run.judged?.judgement;
    return failing(run) ? found.first_sign?.step ?? found.since_step : null;
  };
  const shade = (run) => (failedFrom(run) === null ? null : [failedFrom(run), null]);
  const track = (run, key) => run.tracks?.find((one) => one.key === key);

  // The run that is looked at: the one asked for, else the first that fails
  const asked = () => runs.get(Number(/^#run-(\d+)$/.exec(location.hash)?.[1]) - 1);
  const selected = () => asked() ?? [...runs.values()].find(failing) ?? runs.get(0);

  const showRun = () => {
    const run = selected();
    if (!run) return;
    const { state, judged } = run, found = judged?.judgement, [kind, words] = stands(run);
    find("banner").className = `banner ${kind}`;
    text(find("name"), state?.name ?? "");
    find("where").className = state?.ended ? "ended" : "";
    text(find("state"), words + (failedFrom(run) === null ? "" : ` since step ${format(failedFrom(run))}`));
    text(find("headline"), judged?.headline ?? judged?.problem ?? "");
    fill(find("lines"), judged?.lines ?? [], ([label, said]) => el("div", {}, el("dt", {}, label), el("dd", {}, said)));
    const behind = found && judged.last_step !== null ? state.rows - judged.rows : 0;
    text(find("judged"), behind > 0 ? `Judged at step ${format(judged.last_step)}; ${format(behind)} ${behind === 1 ? "row has" : "rows have"} come since.` : "");
    text(find("forecast"), judged?.forecast ?? "");
    const problem = state?.problem ? [`${state.waiting ? "Waiting" : "Not read"}: ${state.problem}.`] : [];
    const events = (state?.events ?? []).slice(-5).map((event) => `${clock(event.at)}: ${event.said}`);
    fill(find("events"), [...problem, ...events], (one) => el("li", {}, one));
    find("report").href = `report/${run.id + 1}`;
    find("report").parentElement.hidden = !state?.rows;
    showCompletions(run);
    showChecks(found);
    showCharts(run);
  };

  // Rollouts: what is in sight is asked for.
  const ask = (what) => fetch(what).then((answer) => (answer.ok ? answer.json() : Promise.reject(answer)));
  const rolloutsOf = (run) => {
    let about = { version: 0, counts: {}, here: {}, range: [0, 1] };
    const take = (found) => {
      if (found.version > about.version) {
        const grown = about.version ? (found.counts.newest ?? 0) - (about.counts.newest ?? 0) : 0;
        about = { ...found, here: found.counts };
        run.viewer?.update(grown);
      }
      return found;
    };
    const some = (view, from, most, more = "") => ask(`rollouts/${run.id + 1}?view=${view}&from=${from}&most=${most}${more}`).then(take);
    return {
      about: () => about,
      page: (view, number) => some(view, number * groupwise.PAGE, groupwise.PAGE),
      place: (id) => (about.counts.newest ?? 0) - 1 - id,
      whole: (id) => some("newest", about.counts.newest - 1 - id, 1, "&whole"),
      look: () => some("newest", 0, 0).then(({ stale }) => { if (stale) setTimeout(() => { if (selected() === run) run.source.look(); }, 2000); }, () => {}),
    };
  };
  const showCompletions = (run) => {
    const { completions } = run, home = find("completions");
    find("rollouts").hidden = home.hidden = !completions?.count;
    text(find("no-completions"), completions?.count ? "" : completions?.missing ?? "");
    if (!completions?.count) return;
    if (home.run !== run.id) {
      home.run = run.id;
      run.source = rolloutsOf(run);
      run.viewer = groupwise.viewer(home, run.source);
      run.looked = null;
    }
    if (run.looked !== completions) run.source.look();
    run.looked = completions;
  };
  const showChecks = (found) => {
    const checks = found?.checks ?? [], each = found?.environments?.worst ?? [];
    find("checks").parentElement.hidden = !checks.length;
    fill(find("checks"), checks, (one) => el("li", {}, el("b", {}, `${one.check.replaceAll("_", " ")}: ${ANSWERS[one.status]}. `), one.message));
    find("environments").parentElement.hidden = !each.length;
    fill(find("environments"), each, (one) => el("li", {}, `${one.kind} `, el("bdi", {}, one.name), ` ${one.course}, ${format(one.before)} → ${format(one.after)}`));
    find("to-log").parentElement.hidden = !found?.not_logged.length;
    fill(find("to-log"), found?.not_logged ?? [], (one) => el("li", {}, one));
  };

  // Charts: the metric with the rewards that the judgement speaks of, then the signals that moved, then the rest.
  const unitOf = (one) => (one && one.unit !== one.title.toLowerCase() ? one.unit : "");
  const smoothing = () => Number(find("smoothing").value);
  const place = (home, key, model) => {
    let made = grid.get(key);
    if (!made) {
      const root = el("figure", {}, el("div"), el("figcaption", { class: "small" }));
      made = { root, panel: panel(root.firstChild, model), caption: root.lastChild };
      grid.set(key, made);
    } else made.panel.update(model);
    if (made.root.parentElement !== home) home.append(made.root);
    return made;
  };

  const showCharts = (run) => {
    const names = ["step", ...(run.state?.axes ?? []).map(({ name }) => name)], pick = find("along");
    fill(pick, names, (name) => el("option", { value: name }, name));
    pick.value = names.includes(abscissa) ? abscissa : "step";
    pick.parentElement.hidden = names.length < 2;
    const axis = run.state?.axes?.find(({ name }) => name === pick.value);
    const shown = [run, run.tracks, run.judged, smoothing(), pick.value, axis && run.state];
    if (shown.every((one, i) => one === showCharts.shown?.[i])) return;
    showCharts.shown = shown;
    const moved = run.judged?.moved ?? [], named = (one) => [one.key, one.column, one.title].some((name) => moved.includes(name));
    const common = { shade: shade(run), sync: "run", smoothing: smoothing() }, wanted = new Set(["metric"]), tracks = run.tracks ?? [];
    const main = track(run, "metric"), beside = tracks.filter((one) => one !== main && one.unit === "reward" && (named(one) || one.key === "eval/reward"));
    const logged = ({ x, y }) => ({ name: "logged", role: "observed", x, y });
    const lines = beside.length ? [main, ...beside].filter(Boolean).map(({ title, x, y }, colour) => ({ name: title, role: "run", colour, x, y })) : main ? [logged(main)] : [];
    place(find("main-chart"), "metric", along({ title: main?.title ?? "", unit: unitOf(main), lines, y_range: beside.length ? null : main?.y_range ?? null, ...common }, axis));
    const rest = tracks.filter((one) => one !== main && !beside.includes(one)), other = (one) => one.key.startsWith("log/") && !named(one);
    for (const one of [...rest.filter(named), ...rest.filter((each) => !named(each))]) {
      wanted.add(one.key);
      const made = place(find(other(one) ? "others" : "charts"), one.key, along({ title: one.title, unit: unitOf(one), lines: [logged(one)], y_range: one.y_range, ...common }, axis));
      text(made.caption, `${one.about} Key: ${one.column}.`.trim());
      made.root.classList.toggle("moved", named(one));
    }
    for (const [key, made] of grid) {
      if (wanted.has(key)) continue;
      made.panel.remove();
      made.root.remove();
      grid.delete(key);
    }
    for (const home of ["charts", "others"]) {
      const order = [...find(home).children].sort((a, b) => b.classList.contains("moved") - a.classList.contains("moved"));
      if (order.some((one, i) => one !== find(home).children[i])) find(home).append(...order);
    }
    find("others").parentElement.hidden = !find("others").children.length;
    const others = find("others").children.length;
    text(find("others").previousElementSibling, `${others} other ${others === 1 ? "key" : "keys"}`);
  };

  // Several runs
  const rowOf = (run) => {
    const box = el("input", { type: "checkbox", "aria-label": "overlay" });
    box.addEventListener("change", () => { ticked[box.checked ? "add" : "delete"](run.id); later(); });
    const row = { box, link: el("a", { href: `#run-${run.id + 1}` }, el("bdi")), state: el("span"), spark: el("td", { class: "spark" }), step: el("td", { class: "n" }), age: el("td", { class: "age" }) };
    row.root = el("tr", {}, el("td", {}, el("label", {}, box, el("i", { class: `swatch r${run.id % 8}` }))), el("td", {}, row.state), el("td", { class: "name" }, row.link), row.spark, row.step, row.age);
    return row;
  };

  const showRuns = () => {
    const body = find("runs"), several = expected > 1;
    find("overview").hidden = !several;
    if (!several) return;
    const heads = {}, counts = {};
    for (const run of [...runs.values()].sort((a, b) => a.id - b.id)) {
      run.row ??= rowOf(run);
      if (run.row.root.parentElement !== body) body.append(run.row.root);
      const [kind, words] = stands(run), { row } = run;
      heads[kind || "open"] = kind ? words : "no judgement";
      counts[kind || "open"] = (counts[kind || "open"] ?? 0) + 1;
      row.root.hidden = !filter.keeps(kind || "open", `${run.state?.name ?? ""} ${run.judged?.judgement?.headline ?? ""}`);
      row.root.classList.toggle("selected", run === selected());
      row.box.checked = ticked.has(run.id);
      text(row.link.firstChild, run.state?.name ?? "");
      row.state.className = `state ${kind}`;
      text(row.state, words);
      fill(row.spark, [track(run, "metric") ?? null], spark);
      text(row.step, run.state?.step === null || run.state === undefined ? "–" : format(run.state.step));
    }
    filter.count(heads, counts);
    showOverlay();
  };
  const showAges = () => {
    for (const { row, state } of runs.values()) if (row) text(row.age, shortly(state));
    const state = selected()?.state;
    if (state) text(find("where"), `${state.rows ? `step ${format(state.step)} · ` : ""}${age(state)}`);
  };

  const showOverlay = () => {
    const names = new Map([...runs.values()].flatMap((run) => (run.tracks ?? []).map((one) => [one.key, one.title])));
    const picker = find("compared");
    fill(picker, [...names], ([key, name]) => el("option", { value: key }, name));
    picker.value = names.has(chosen) ? chosen : "metric";
    const shown = [...ticked].sort((a, b) => a - b).map((id) => [runs.get(id), track(runs.get(id), picker.value)]).filter(([, one]) => one);
    const lines = shown.map(([run, one]) => ({ name: run.state.name, role: "run", colour: run.id % 8, x: one.x, y: one.y }));
    const model = { title: names.get(picker.value) ?? "", unit: unitOf(shown[0]?.[1]), lines, smoothing: smoothing() };
    if (showOverlay.panel) showOverlay.panel.update(model); else showOverlay.panel = panel(find("overlay"), model);
  };

  const show = () => {
    queued = false;
    showRuns();
    showRun();
    showAges();
    document.title = `${expected > 1 ? `${expected} runs` : runs.get(0)?.state?.name ?? "waiting"} – groupwise watch`;
  };
  const later = () => {
    if (!queued) requestAnimationFrame(show);
    queued = true;
  };

  // What the server says
  const take = (part) => (message) => {
    const run = runs.get(message.id) ?? { id: message.id };
    if (!runs.has(run.id) && run.id < 8) ticked.add(run.id);
    runs.set(run.id, run);
    run[part] = message[part];
    later();
  };
  const said = {
    hello: (message) => {
      expected = message.runs;
      skew = message.now - Date.now() / 1000;
      ended = refused = false;
      full = 0;
    },
    full: (message) => { full = message.most; since ??= Date.now(); },
    beat: (message) => { skew = message.now - Date.now() / 1000; },
    bye: () => { ended = true; since = Date.now(); },
    ...Object.fromEntries(["state", "tracks", "completions", "judged"].map((part) => [part, take(part)])),
  };

  const connect = () => {
    source = new EventSource("events");
    for (const [name, does] of Object.entries(said)) {
      source.addEventListener(name, (event) => {
        heard = Date.now();
        if (name !== "bye" && name !== "full") since = null;
        does(JSON.parse(event.data));
        about();
      });
    }
    source.onerror = () => {
      since ??= Date.now();
      if (source.readyState === EventSource.CLOSED) {
        fetch("live.css").then(({ status }) => status === 403, () => false).then((no) => {
          refused = no; // a watcher that was started anew has another address
          if (!no) setTimeout(connect, 3000);
          about();
        });
      }
      about();
    };
  };

  const about = () => {
    const link = find("link");
    if (since === null && heard && Date.now() - heard > LOST * 1000) since = heard;
    const at = since === null ? "" : new Date(since).toLocaleTimeString([], { hour12: false });
    link.className = since === null ? (heard ? "alive" : "") : "lost";
    const why = refused ? `The watcher of this page has ended, and another answers here: open the address that it printed.`
      : full ? `${full} pages of this watcher are open, and no more are served: close one; trying again.`
        : ended ? `The watcher was stopped at ${at}; this is what it had read.`
          : `No connection since ${at}; trying again. This is what was read before.`;
    text(link, since === null ? (heard ? "live" : "connecting") : why);
    document.body.classList.toggle("offline", since !== null);
  };

  find("along").addEventListener("change", (event) => {
    abscissa = event.target.value;
    for (const { panel: one } of grid.values()) one.reset();
    later();
  });
  find("smoothing").addEventListener("input", later);
  find("compared").addEventListener("change", (event) => { chosen = event.target.value; later(); });
  find("whole").addEventListener("click", () => { grid.get("metric")?.panel.reset(); showOverlay.panel?.reset(); });
  addEventListener("hashchange", later);
  setInterval(() => { about(); showAges(); }, 1000);
  connect();
})();
