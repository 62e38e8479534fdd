// What is wrong with an open page for those who see little, use no mouse, or hold a small screen. Returns a list of texts.
function violationsOf(view) {
  const page = view.document, found = [];
  const say = (kind, element) => found.push(`${kind}: ${element.outerHTML.slice(0, 140).replace(/\s+/g, " ")}`);
  const isShown = (element) => {
    const box = element.getBoundingClientRect(), style = view.getComputedStyle(element);
    const seen = element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    return seen && box.width > 1 && box.height > 1 && style.opacity > 0.05 &&
      !element.closest("[aria-hidden=true], [inert], .visually-hidden, .skip-link");
  };
  const nameOf = (element) => {
    const by = (element.getAttribute("aria-labelledby") || "").split(" ").map((id) => page.getElementById(id)?.textContent || "");
    const labels = [...(element.labels || [])].map((label) => label.textContent);
    const within = [...element.querySelectorAll("img[alt], svg title, [aria-label]")].map((one) => one.alt || one.textContent || one.ariaLabel);
    return [element.ariaLabel, ...by, ...labels, element.title, element.alt, element.textContent, ...within].some((text) => text && text.trim());
  };

  if (!page.documentElement.lang) found.push("language: the page names none");
  if (!page.title.trim()) found.push("title: the page has none");
  if (page.querySelectorAll("h1").length !== 1) found.push(`headings: ${page.querySelectorAll("h1").length} of the first rank`);
  if (!page.querySelector("main, [role=main]")) found.push("landmark: no main");
  const ids = [...page.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of new Set(ids.filter((id, place) => ids.indexOf(id) !== place))) found.push(`id: ${id} twice`);
  let rank = 0;
  for (const heading of [...page.querySelectorAll("main h1, main h2, main h3, main h4, main h5")].filter(isShown)) {
    const next = Number(heading.tagName[1]);
    if (next > rank + 1) say("headings: a rank is left out before", heading);
    rank = next;
  }

  // names
  for (const element of page.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, [role=button], iframe")) {
    if (isShown(element) && !nameOf(element)) say("name: none", element);
  }
  for (const picture of page.querySelectorAll("img, svg[role=img]")) {
    if (isShown(picture) && !picture.hasAttribute("alt") && !nameOf(picture)) say("name: none of picture", picture);
  }

  // contrast of every text with what lies beneath it
  const numbers = (colour) => (colour.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const over = (top, base) => {
    const share = top.length > 3 ? top[3] : 1;
    return [0, 1, 2].map((k) => top[k] * share + base[k] * (1 - share));
  };
  const beneath = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) {
      const style = view.getComputedStyle(one), colour = numbers(style.backgroundColor);
      if (style.backgroundImage !== "none") return null; // a picture: not judged here
      layers.push(colour);
      if (colour.length === 3 || colour[3] === 1) break;
    }
    return layers.reduceRight((base, top) => over(top, base), [255, 255, 255]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const words = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  const judged = new Set();
  while (words.nextNode()) {
    const element = words.currentNode.parentElement;
    if (!words.currentNode.textContent.trim() || judged.has(element) || !isShown(element) || element.closest("script, style, svg, option")) continue;
    judged.add(element);
    const style = view.getComputedStyle(element), base = beneath(element);
    if (!base) continue;
    const text = over(numbers(style.color), base), [high, low] = [light(text), light(base)].sort((a, b) => b - a);
    const size = parseFloat(style.fontSize), isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < (isLarge ? 3 : 4.5) - 0.005) say(`contrast: ${ratio.toFixed(2)}`, element);
  }

  // keyboard: what can be clicked can be reached, and what scrolls too
  for (const element of page.querySelectorAll("[onclick], [role=button], summary, th[aria-sort], label[for]")) {
    const goal = element.matches("label") ? page.getElementById(element.htmlFor) : element;
    if (goal && isShown(element) && !goal.matches("label") && goal.tabIndex < 0) say("keyboard: not reached", element);
  }
  for (const element of page.querySelectorAll("[tabindex]")) {
    if (element.tabIndex > 0) say("keyboard: out of order", element);
  }
  for (const element of page.querySelectorAll("a[href], button, input, select, summary")) {
    if (!isShown(element) || element.disabled || element.tabIndex < 0) continue;
    element.focus({ preventScroll: true });
    if (page.activeElement !== element) say("keyboard: can't be focused", element);
  }
  for (const element of page.querySelectorAll("main *")) {
    const style = view.getComputedStyle(element);
    const scrolls = element.scrollWidth > element.clientWidth + 1 && /auto|scroll/.test(style.overflowX);
    if (scrolls && isShown(element) && element.tabIndex < 0 && !element.querySelector("a[href], button, [tabindex]")) say("keyboard: can't be scrolled", element);
  }

  const width = view.innerWidth, wide = page.documentElement.scrollWidth;
  if (wide > width + 1) {
    found.push(`width: ${wide} px in a window of ${width}`);
    for (const element of page.querySelectorAll("main *")) {
      if (element.getBoundingClientRect().right > width + 1 && ![...element.children].some((child) => child.getBoundingClientRect().right > width + 1)) say("width: reaches out", element);
    }
  }
  return found.slice(0, 40);
}
