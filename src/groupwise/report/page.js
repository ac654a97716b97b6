// Draws every chart of the page, and shows its completions, from the results embedded in it; requests nothing. assets/panel.js stands before it.
(() => {
  "use strict";
  const results = JSON.parse(document.getElementById("groupwise-results").textContent);
  const found = (path) => path.split("/").reduce((value, key) => value[key], results);
  for (const home of document.querySelectorAll("[data-chart]")) groupwise.panel(home, { ...found(home.dataset.chart), sync: home.dataset.sync || "" });
  for (const home of document.querySelectorAll("[data-viewer]")) groupwise.viewer(home, groupwise.held(found(home.dataset.viewer)));
})();
