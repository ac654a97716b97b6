// The list of a fleet: shows the runs that the filters keep, as many at a time as a page draws at once. assets/list.js stands before it.
(() => {
  "use strict";
  const MOST = 200;
  const { el, text, spark, filters } = groupwise.list;
  const find = (name) => document.getElementById(name);
  const { heads, counts, runs } = JSON.parse(find("groupwise-results").textContent);
  const ORDERS = { state: () => 0, path: (a, b) => (a.run < b.run ? -1 : 1), step: (a, b) => (b.step ?? -1) - (a.step ?? -1) };
  const number = (value) => (value === null ? "–" : value.toLocaleString("en-US"));
  let room = MOST;

  const rowOf = (run) => el("tr", {},
    el("td", {}, el("span", { class: `state ${run.state}` }, heads[run.state])),
    el("td", { class: "spark" }, spark({ x: run.reward.map((_, i) => i), y: run.reward, y_range: [0, 1] })),
    el("td", { class: "name" }, el("bdi", {}, ...run.run.split(/(?<=[/_.-])/).flatMap((part) => [part, el("wbr")]))),
    el("td", { class: "n" }, number(run.step)),
    el("td", { class: "said" }, run.headline, ...[run.cause, run.do].filter(Boolean).map((words) => el("small", {}, words))));

  const show = () => {
    const kept = runs.filter((run) => filter.keeps(run.state, `${run.run} ${run.headline} ${run.cause}`));
    const shown = kept.sort(ORDERS[find("order").value]).slice(0, room);
    find("runs").replaceChildren(...shown.map(rowOf));
    text(find("shown"), `${number(shown.length)} of ${number(runs.length)} runs${shown.length < kept.length ? `; ${number(kept.length)} match` : ""}`);
    find("more").hidden = shown.length === kept.length;
  };
  const anew = () => { room = MOST; show(); };

  const filter = filters(find("filters"), anew);
  filter.count(heads, counts);
  find("order").addEventListener("change", anew);
  find("more").addEventListener("click", () => { room += 5 * MOST; show(); });
  show();
})();
