// What a page has that keeps somebody from it, in words: names, headings, contrast, targets, tables. Rules of WCAG 2.2 AA that a script can see.
() => {
  const found = [], all = (selector) => [...document.querySelectorAll(selector)];
  const seen = (one) => one.getBoundingClientRect().width > 0 && getComputedStyle(one).visibility !== "hidden" && !one.closest("[aria-hidden=true]");
  const said = (one) => `${one.tagName.toLowerCase()}.${one.getAttribute("class") ?? ""} ${(one.textContent ?? "").trim().slice(0, 40)}`;
  const named = (one) => [one.ariaLabel, one.title, one.alt, ...[...(one.labels ?? [])].map((label) => label.textContent),
    ...(one.getAttribute("aria-labelledby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent),
    one.matches("input,select,textarea") ? "" : one.textContent].some((name) => name?.trim());
  if (!document.documentElement.lang || !document.title || !document.querySelector("main")) found.push("no language, title or main part");
  for (const one of all("button,a[href],input,select,textarea,summary,[role=region],[role=group],[role=img],[role=application],[tabindex='0']"))
    if (seen(one) && !named(one)) found.push(`no name: ${said(one)}`);
  for (const one of all("img:not([alt]),th:empty,[tabindex]:not([tabindex='0']):not([tabindex='-1'])")) found.push(`without words or order: ${said(one)}`);
  for (const one of all("svg")) if (seen(one) && !one.closest("[role]")) found.push(`a drawing without a role: ${said(one.parentElement)}`);
  let before = 0;
  for (const one of all("h1,h2,h3,h4,h5,h6").filter(seen)) {
    const depth = Number(one.tagName[1]);
    if (depth > before + 1) found.push(`heading ${before} to ${depth}: ${said(one)}`);
    before = depth;
  }
  if (all("h1").filter(seen).length !== 1) found.push("expected one heading of the page");
  const ids = all("[id]").map((one) => one.id);
  if (new Set(ids).size < ids.length) found.push("an id comes twice");
  for (const one of all("button,summary,select")) if (seen(one) && one.getBoundingClientRect().height < 24) found.push(`a target below 24 pixels: ${said(one)}`);
  for (const one of all("*"))
    if (one.scrollWidth > one.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(one).overflowX) && seen(one) && one.tabIndex < 0 && !one.querySelector("a[href],button,input,[tabindex='0']"))
      found.push(`scrolls for no keyboard: ${said(one)}`);
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const colour = (text) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1); const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255]; };
  const over = (top, below, opacity = 1) => below.map((value, i) => top[i] * top[3] * opacity + value * (1 - top[3] * opacity));
  const behind = (one) => (one === null ? [255, 255, 255] : over(colour(getComputedStyle(one).backgroundColor), behind(one.parentElement)));
  const light = (rgb) => rgb.map((value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4)).reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const one = texts.currentNode.parentElement, style = getComputedStyle(one);
    if (!texts.currentNode.textContent.trim() || one.matches("script,style,noscript") || !seen(one)) continue;
    let opacity = 1;
    for (let each = one; each; each = each.parentElement) opacity *= Number(getComputedStyle(each).opacity);
    const paper = behind(one), ink = over(colour(one.closest("svg") ? style.fill : style.color), paper, opacity);
    const [dark, bright] = [light(ink), light(paper)].sort((a, b) => a - b), size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if ((bright + 0.05) / (dark + 0.05) < least) found.push(`contrast ${((bright + 0.05) / (dark + 0.05)).toFixed(2)}: ${said(one)}`);
  }
  return found;
}
