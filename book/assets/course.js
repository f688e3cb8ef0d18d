// A moving figure: the positions of its sliders, read as digits, are the number of a picture. The
// pictures come when somebody reaches for a slider; until one is there the last one stays.
document.querySelectorAll(".moving").forEach((box) => {
  const frames = JSON.parse(box.dataset.frames);
  const sliders = [...box.querySelectorAll("input")];
  const picture = box.querySelector("img");
  const phone = box.querySelector("source");
  box.addEventListener("input", () => {
    let at = 0;
    sliders.forEach((slider) => {
      const words = JSON.parse(slider.dataset.labels)[slider.value];
      slider.setAttribute("aria-valuetext", words);
      slider.nextElementSibling.textContent = words;
      at = at * (Number(slider.max) + 1) + Number(slider.value);
    });
    const [alt, broad, narrow] = frames[at];
    picture.alt = alt;
    [picture.src, picture.width, picture.height] = broad;
    if (phone) [phone.srcset, phone.width, phone.height] = narrow;
  });
  const bring = () => {
    const shown = phone && matchMedia(phone.media).matches ? 2 : 1;
    frames.forEach((files) => { new Image().src = files[shown][0]; });
  };
  for (const reach of ["pointerenter", "focusin"]) {
    box.firstChild.addEventListener(reach, bring, { once: true });
  }
});

// A formula is copied as the TeX that it is made of.
document.addEventListener("copy", (event) => {
  const chosen = getSelection();
  if (!chosen.rangeCount) return;
  const copy = chosen.getRangeAt(0).cloneContents();
  const formulas = copy.querySelectorAll("mjx-container[data-tex]");
  if (!formulas.length) return;
  formulas.forEach((e) => {
    const mark = e.hasAttribute("display") ? "$$" : "$";
    e.replaceWith(mark + e.dataset.tex + mark);
  });
  const page = document.createElement("div");
  page.append(copy);
  event.clipboardData.setData("text/html", page.innerHTML);
  // Only what is laid out has lines.
  page.style = "position: fixed; left: -999rem";
  document.body.append(page);
  event.clipboardData.setData("text/plain", page.innerText);
  page.remove();
  event.preventDefault();
});

// What shows words is named by these words, so that voice control finds it.
addEventListener("load", () => {
  document
    .querySelectorAll("button[aria-label], a[aria-label], summary[aria-label]")
    .forEach((e) => (e.matches("article summary") || e.innerText.trim()) && e.removeAttribute("aria-label"));
});

// A button with a name needs no second one from its sign.
document.querySelectorAll("button i[title]").forEach((sign) => sign.removeAttribute("title"));

// The entry of a term is shown by the style sheet, which needs it outside of the title.
document.querySelectorAll("a.term[title]").forEach((term) => {
  term.dataset.entry = term.title;
  term.removeAttribute("title");
});

// The sign that unfolds a page's pages in the sidebar is named after that page.
document.querySelectorAll(".bd-sidebar-primary summary").forEach((sign) => {
  const page = sign.closest("li")?.querySelector("a")?.textContent.trim();
  if (page) sign.setAttribute("aria-label", `Pages of ${page}`);
});

// The sidebar begins where the open page is: the theme's script takes the place from here.
const sidebar = document.querySelector(".bd-sidebar-primary");
const open = sidebar?.querySelector(".current.active");
if (open) {
  const above = open.getBoundingClientRect().top - sidebar.getBoundingClientRect().top;
  sidebar.scrollTop += above - sidebar.clientHeight / 3;
  sessionStorage.setItem("sidebar-scroll-top", sidebar.scrollTop);
}

// What is wider than its place is reached and moved by keys; what fits is no stop on the way. A table
// that goes on at the right fades out there.
const WIDE = {
  ".pst-scrollable-table-container": "Table",
  "mjx-container[display]": "Formula",
  ".cell_output pre": "Output",
  pre: "Code",
};
const fade = ({ target: box }) => {
  box.classList.toggle("goes-on", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
};
const reach = new ResizeObserver((seen) => {
  seen.forEach(fade);
  for (const { target: box } of seen) {
    const kind = WIDE[Object.keys(WIDE).find((each) => box.matches(each))];
    const said = { tabindex: 0, role: "group", "aria-label": `${kind}, wider than its place` };
    const wide = box.scrollWidth > box.clientWidth;
    for (const name in said) wide ? box.setAttribute(name, said[name]) : box.removeAttribute(name);
  }
});
document.querySelectorAll(Object.keys(WIDE)).forEach((box) => {
  reach.observe(box);
  box.addEventListener("scroll", fade);
});

// The page's own list of contents marks what is read. The theme marks a heading that comes into sight:
// after a link into a section, none or another. Without this id it does not find the list.
const contents = document.querySelector(".bd-sidebar-secondary");
const list = document.getElementById("pst-page-toc-nav");
const links = [...(list?.querySelectorAll("a") ?? [])];
const named = ({ hash }) => document.getElementById(decodeURIComponent(hash.slice(1).split("?")[0]));
const places = links.map(named);
let marked;
const mark = () => {
  const top = (element) => element.getBoundingClientRect().top;
  const left = document.documentElement.scrollHeight - innerHeight - scrollY;
  // A quarter down the screen, and further down on the last: there the shortest section has its turn.
  const line = Math.max(innerHeight / 4, innerHeight - left);
  let at = places.findLastIndex((place) => top(place) <= line);
  // But what a link led to is read as long as it is where the link put it.
  const target = named(location);
  const above = parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop) + 3;
  if (target && top(target) >= 0 && top(target) <= (left < 2 ? innerHeight : above)) {
    at = places.findLastIndex((place) => !(place.compareDocumentPosition(target) & Node.DOCUMENT_POSITION_PRECEDING));
  }
  if (at === marked) return;
  marked = at;
  links.forEach((link, each) => {
    link.classList.toggle("active", each === at);
    link.ariaCurrent = each === at ? "true" : null;
  });
  if (at >= 0) contents.scrollTop = links[at].offsetTop - contents.clientHeight / 2;
};
if (list) {
  list.removeAttribute("id");
  mark();
  for (const event of ["scroll", "resize", "hashchange", "load"]) addEventListener(event, mark);
}
