// The completions of a run on every page: groupwise.viewer(element, source) -> {update()}.
//
// source.about()             {counts: {view: completions of the run}, here: {view: those that can be shown}, range: [least, largest reward], said}
// source.page(view, number)  completions of a view, PAGE at a time: a promise of {groups, rows}, as analysis/rollouts.py makes them
// source.place(id)           where a completion stands in the view "newest", -1 where it is not here
// source.whole(id)           a promise of {groups, rows} with that completion uncut, or null where there is no more of it
//
// Only the rows in sight have elements, and these are used again. Every text goes in as text. With the keyboard: Tab to the list, arrows,
// Page up and down, Home and End.
(() => {
  "use strict";
  const PAGE = 100, HEIGHT = 30, BEYOND = 6, MOST_PAGES = 60, MOST_WAITING = 2, MOST = 1e6;
  const VIEWS = {
    newest: "Newest first", zero_variance: "Zero-variance groups", truncated: "Truncated", highest: "Highest reward", lowest: "Lowest reward",
  };
  const MOVES = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
  const { format } = globalThis.groupwise;
  let viewers = 0;

  const el = (name, kind, ...children) => {
    const made = document.createElement(name);
    if (kind) made.className = kind;
    made.append(...children);
    return made;
  };
  const said = (value) => (value === null || value === undefined ? "–" : format(value));
  const words = (node, text) => { if (node.textContent !== text) node.textContent = text; };

  class Viewer {
    constructor(element, source) {
      this.source = source;
      this.name = `viewer-${(viewers += 1)}`;
      this.view = "newest";
      this.chosen = 0;
      this.pages = new Map();
      this.waiting = new Set();
      this.pool = [];
      this.pick = el("select");
      this.pick.setAttribute("aria-label", "Which completions");
      this.where = el("span", "viewer-where");
      this.note = el("p", "viewer-note");
      this.space = el("div", "viewer-space");
      this.list = el("div", "viewer-list", this.space);
      this.list.tabIndex = 0;
      this.list.setAttribute("role", "listbox");
      this.list.setAttribute("aria-label", "Completions: arrow keys choose one");
      this.detail = el("section", "viewer-detail");
      this.detail.setAttribute("aria-live", "polite");
      this.detail.tabIndex = 0;
      this.detail.setAttribute("aria-label", "The chosen completion");
      const head = el("div", "viewer-row viewer-head", ...["Step", "Group of", "Reward", "Advantage", "Length", "Completion, its end"].map((name) => el("span", "", name)));
      head.setAttribute("aria-hidden", "true");
      element.replaceChildren(el("div", "viewer-bar", this.pick, this.where), el("div", "viewer-sides", el("div", "viewer-left", head, this.list), this.detail), this.note);
      this.pick.addEventListener("change", () => this.show(this.pick.value, 0));
      this.list.addEventListener("scroll", () => this.later(), { passive: true });
      this.list.addEventListener("keydown", (event) => this.key(event));
      this.list.addEventListener("click", (event) => {
        const row = event.target.closest(".viewer-row");
        if (row) this.choose(row.index);
      });
      new ResizeObserver(() => this.later()).observe(this.list);
      this.update();
    }

    get total() { return Math.min(MOST, this.source.about().here[this.view] ?? 0); }

    // What the source holds has changed: what is looked at stays where it is.
    update(grown = 0) {
      const { counts, said: note } = this.source.about();
      this.pages.clear();
      this.shown = null;
      const options = Object.entries(VIEWS).map(([view, name]) => {
        const option = el("option", "", counts[view] === undefined ? `${name} (not logged)` : `${name} (${format(counts[view])})`);
        option.value = view;
        option.disabled = !counts[view];
        return option;
      });
      this.pick.replaceChildren(...options);
      this.pick.value = this.view;
      words(this.note, note || "");
      if (grown > 0 && this.view === "newest" && this.list.scrollTop > 0) {
        this.chosen += grown;
        this.size();
        this.list.scrollTop += grown * HEIGHT;
      }
      this.chosen = Math.max(0, Math.min(this.chosen, this.total - 1));
      this.later();
    }

    show(view, index) {
      this.view = this.pick.value = view;
      this.pages.clear();
      this.chosen = index;
      this.shown = null;
      this.size();
      this.list.scrollTop = Math.max(0, index * HEIGHT - this.list.clientHeight / 2);
      this.later();
    }

    choose(index) {
      this.chosen = Math.max(0, Math.min(index, this.total - 1));
      const top = this.chosen * HEIGHT, { scrollTop, clientHeight } = this.list;
      if (top < scrollTop) this.list.scrollTop = top;
      else if (top + HEIGHT > scrollTop + clientHeight) this.list.scrollTop = top + HEIGHT - clientHeight;
      this.later();
    }

    key(event) {
      const move = MOVES[event.key];
      if (move === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      this.choose(this.chosen + move);
    }

    // The completion at a place of the view with its group, or undefined until it has come.
    at(index) {
      const number = Math.floor(index / PAGE), page = this.pages.get(number);
      if (!page) this.bring(number);
      const row = page?.rows[index % PAGE];
      return row && { row, group: page.groups[row.group] };
    }

    bring(number) {
      const { view } = this, asked = `${view}/${number}`;
      if (this.waiting.has(asked) || this.waiting.size >= MOST_WAITING) return;
      this.waiting.add(asked);
      this.source.page(view, number).then((page) => {
        if (page && view === this.view) this.pages.set(number, page);
        for (const [old] of this.pages) if (this.pages.size > MOST_PAGES) this.pages.delete(old);
      }, () => new Promise((again) => setTimeout(again, 2000))).finally(() => {
        this.waiting.delete(asked);
        this.later();
      });
    }

    later() {
      if (!this.queued) requestAnimationFrame(() => this.draw());
      this.queued = true;
    }

    size() {
      const height = `${this.total * HEIGHT}px`;
      if (this.space.style.height !== height) this.space.style.height = height;
    }

    draw() {
      this.queued = false;
      this.size();
      const { total } = this, first = Math.max(0, Math.floor(this.list.scrollTop / HEIGHT) - BEYOND);
      const most = Math.min(total - first, Math.ceil(this.list.clientHeight / HEIGHT) + 2 * BEYOND);
      const size = Math.ceil(this.list.clientHeight / HEIGHT) + 2 * BEYOND + 1;
      while (this.pool.length < size) this.pool.push(this.newRow());
      // A completion keeps its element for as long as it is in sight.
      for (let k = 0; k < this.pool.length; k += 1) this.fill(this.pool[(first + k) % this.pool.length], k < most ? first + k : -1);
      const { scrollTop, clientHeight } = this.list, from = Math.floor(scrollTop / HEIGHT) + 1, to = Math.min(total, Math.ceil((scrollTop + clientHeight) / HEIGHT));
      const whole = this.source.about().counts[this.view] ?? 0;
      words(this.where, total ? `${format(from)} to ${format(to)} of ${format(total)}${whole > total ? ` here, ${format(whole)} in the log` : ""}` : "none");
      this.list.setAttribute("aria-activedescendant", `${this.name}-${this.chosen}`);
      this.tell();
    }

    newRow() {
      const node = el("div", "viewer-row", ...["step", "group", "reward", "advantage", "length", "text"].map((name) => el("span", `viewer-${name}`)));
      node.setAttribute("role", "option");
      node.bar = el("i");
      node.bar.setAttribute("aria-hidden", "true");
      node.number = el("b");
      node.text = el("bdi");
      node.children[2].append(node.bar, node.number);
      node.children[5].append(node.text);
      this.space.append(node);
      return node;
    }

    fill(node, index) {
      if (node.hidden !== index < 0) node.hidden = index < 0;
      if (index < 0) return;
      const found = this.at(index), row = found?.row, chosen = index === this.chosen, before = index ? this.pages.get(Math.floor((index - 1) / PAGE))?.rows[(index - 1) % PAGE] : null;
      const above = before && this.pages.get(Math.floor((index - 1) / PAGE)).groups[before.group], starts = !found || !above || above.first !== found.group.first;
      if (node.index === index && node.row === row && node.chosen === chosen && node.starts === starts) return;
      Object.assign(node, { index, row, chosen, starts });
      node.id = `${this.name}-${index}`;
      node.style.transform = `translateY(${index * HEIGHT}px)`;
      node.className = `viewer-row${chosen ? " chosen" : ""}${starts ? " starts" : ""}`;
      node.setAttribute("aria-selected", String(chosen));
      const [step, group, , advantage, length] = node.children;
      words(step, found && starts ? format(found.group.step) : "");
      words(group, found && starts ? found.group.zero_variance ? "equal" : `${found.group.size}` : "");
      const [low, high] = this.source.about().range, known = found && row.reward !== null;
      node.bar.style.width = known ? `${Math.round(100 * Math.max(0.02, (row.reward - low) / (high - low || 1)))}%` : "0";
      words(node.number, found ? said(row.reward) : "");
      words(advantage, found ? said(row.advantage) : "");
      words(length, found ? `${said(row.length)}${row.truncated ? " cut" : ""}` : "");
      words(node.text, found ? (row.end || row.text).slice(-160).replace(/\s+/g, " ").trim() || "(no text)" : "loading");
    }

    // The chosen completion beside the list, built only where it is another than before.
    tell() {
      const found = this.total ? this.at(this.chosen) : null;
      if (found === undefined || (this.shown === found?.row && found)) return;
      this.shown = found?.row;
      this.detail.replaceChildren(...(found ? this.told(found.row, found.group) : [el("p", "viewer-note", "Nothing to show.")]));
    }

    told(row, group) {
      const number = row.id - group.first, facts = [["reward", row.reward], ["advantage", row.advantage], ["length", row.length], ...Object.entries(row.more)].filter(([, value]) => value !== null);
      const marks = [group.zero_variance ? "zero-variance group: no gradient" : "", row.truncated ? "truncated" : ""].filter(Boolean);
      const head = el("p", "viewer-title", el("b", "", `Step ${format(group.step)}`), ` · completion ${number + 1} of ${group.size}`, ...(marks.length ? [el("em", "", ` · ${marks.join(" · ")}`)] : []));
      const siblings = group.rewards.map((reward, k) => {
        const place = this.source.place(group.first + k), chip = el("button", k === number ? "here" : "", said(reward));
        chip.type = "button";
        chip.disabled = place < 0;
        chip.setAttribute("aria-label", `completion ${k + 1}, reward ${said(reward)}`);
        chip.addEventListener("click", () => this.show("newest", place));
        return chip;
      });
      const list = el("dl", "viewer-facts", ...facts.map(([name, value]) => el("div", "", el("dt", "", el("bdi", "", name)), el("dd", "", said(value)))));
      const parts = [head, el("div", "viewer-chips", "Group: ", ...siblings, group.size > siblings.length ? ` and ${group.size - siblings.length} more` : ""), list];
      if (group.prompt) parts.push(el("h3", "", "Prompt"), this.text("", group.prompt_cut, group.prompt));
      parts.push(el("h3", "", "Completion"), this.text(row.text || "(no text in the log)", row.text_cut, row.end));
      if ((row.text_cut || group.prompt_cut) && this.source.whole) parts.push(this.button(row));
      return parts;
    }

    text(start, left, end) {
      const made = el("pre", "", start, ...(left ? [el("i", "", ` [${format(left)} characters left out] `)] : []), end);
      made.dir = "auto";
      return made;
    }

    button(row) {
      const made = el("button", "", "Show all of it");
      made.type = "button";
      made.addEventListener("click", () => this.source.whole(row.id).then((one) => {
        if (one?.rows.length && this.shown === row) this.detail.replaceChildren(...this.told(one.rows[0], one.groups[0]));
      }, () => {}));
      return made;
    }
  }

  globalThis.groupwise.viewer = (element, source) => new Viewer(element, source);
  globalThis.groupwise.PAGE = PAGE;

  // The completions that a report holds.
  globalThis.groupwise.held = ({ counts, views, batch, range, said: note }) => {
    const order = views.newest.map((at) => batch.rows[at].id);
    return {
      about: () => ({ counts, range, said: note, here: Object.fromEntries(Object.entries(views).map(([view, rows]) => [view, rows.length])) }),
      page: (view, number) => Promise.resolve({ groups: batch.groups, rows: (views[view] ?? []).slice(number * PAGE, (number + 1) * PAGE).map((at) => batch.rows[at]) }),
      place: (id) => order.indexOf(id),
    };
  };
})();
