// Draws every chart of the page, and shows its completions, from the results embedded in it; requests nothing. assets/panel.js stands before it.
(() => {
  "use strict";
  const results = JSON.parse(document.getElementById("groupwise-results").textContent);
  const found = (path) => path.split("/").reduce((value, key) => value[key], results);
  for (const home of document.querySelectorAll("[data-chart]")) home.panel = groupwise.panel(home, { ...found(home.dataset.chart), sync: home.dataset.sync || "" });
  // What stands over the steps of a run can stand over its tokens or hours.
  for (const home of document.querySelectorAll("[data-axes]")) {
    const { axes } = found(home.dataset.axes), pick = document.createElement("select"), label = document.createElement("label");
    pick.append(...["step", ...axes.map((axis) => axis.name)].map((name) => new Option(name)));
    label.append("Along ", pick);
    home.append(label);
    pick.addEventListener("change", () => {
      const axis = axes.find((one) => one.name === pick.value);
      for (const chart of document.querySelectorAll(`[data-chart^="${home.dataset.axes}/"]`)) {
        chart.panel.reset();
        chart.panel.update(groupwise.along({ ...found(chart.dataset.chart), sync: chart.dataset.sync || "" }, axis));
      }
    });
  }
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      // A page that was opened from a folder may have no clipboard of its own: then a field is copied from.
      try { await navigator.clipboard.writeText(button.dataset.copy); } catch {
        const field = document.createElement("textarea");
        field.value = button.dataset.copy;
        button.after(field);
        field.select();
        document.execCommand("copy");
        field.remove();
        button.focus();
      }
      button.textContent = "Copied";
    });
  }
  for (const home of document.querySelectorAll("[data-viewer]")) groupwise.viewer(home, groupwise.held(found(home.dataset.viewer)));
})();
