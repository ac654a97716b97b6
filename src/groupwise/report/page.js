// Draws every chart of the page from the results embedded in it; requests nothing. assets/panel.js stands before it.
(() => {
  "use strict";
  const results = JSON.parse(document.getElementById("groupwise-results").textContent);
  for (const home of document.querySelectorAll("[data-chart]")) {
    const chart = home.dataset.chart.split("/").reduce((value, key) => value[key], results);
    groupwise.panel(home, { ...chart, sync: home.dataset.sync || "" });
  }
})();
