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
window.addEventListener("load", () => {
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

// The page's own list of contents follows the reader.
const contents = document.querySelector(".bd-sidebar-secondary");
const follow = () => {
  const read = [...contents.querySelectorAll(".nav-link.active")].pop();
  if (read) contents.scrollTop = read.offsetTop - contents.clientHeight / 2;
};
if (contents) new MutationObserver(follow).observe(contents, { subtree: true, attributeFilter: ["class"] });
