// A page is found by what it says, how often and where; the build weighs that (USES). A page need
// not have all the words that are looked for. Headings and documented names come after the pages.
function pagesWith(stems) {
  const { pages, words } = USES;
  const worth = pages.map(() => [0, 0]);
  for (const stem of stems) {
    const said = words[stem] ?? [];
    for (let i = 0; i < said.length; i += 2) {
      worth[said[i]][0] += said[i + 1];
      worth[said[i]][1] += 1;
    }
  }
  const { docnames, titles, filenames } = Search._index;
  return pages.flatMap((page, i) => {
    const at = docnames.indexOf(page);
    const [weight, matched] = worth[i];
    return matched && at >= 0 ? [[page, titles[at], "", null, 100 + weight * Math.sqrt(matched / stems.size), filenames[at]]] : [];
  });
}

// The first sentence of prose that has most of the words; where none has one, a heading.
function sentence(html, stems, anchor) {
  const page = new DOMParser().parseFromString(html, "text/html");
  const part = (anchor && page.querySelector(`article ${anchor}`)) || page.querySelector("article");
  part?.querySelectorAll("mjx-container, .headerlink").forEach((e) => e.replaceWith(e.querySelector("math")?.textContent ?? ""));
  const prose = [...(part?.querySelectorAll("p, dd, figcaption") ?? [])].filter((e) => !e.closest("details, table, .cell_input, .admonition-title, .live"));
  const words = (e) => (e?.matches("dt") ? [...words(e.previousElementSibling), e.textContent.trim()] : []);
  const term = (e) => (e.matches(".glossary dd") ? `${words(e.previousElementSibling).join(", ")} ` : "");
  const said = prose.flatMap((e) => (term(e) + e.textContent).replace(/\s+/g, " ").trim().split(/(?<=[.?!]) (?=\p{Lu})/u)).filter((each) => /[.?!:]$/.test(each));
  // A stem's last vowel may not stand in the word: "rotari" for rotary, "slide" for sliding.
  const count = (text) => stems.filter((stem) => text.toLowerCase().includes(stem.replace(/[ei]$/, ""))).length;
  const best = (texts) => texts.reduce((best, each) => (count(each) > count(best) ? each : best), "");
  return best(said) || best([...(part?.querySelectorAll("h2, h3") ?? [])].map((e) => e.textContent.trim()));
}

Search.performTermsSearch = pagesWith;
Search.makeSearchSummary = (html, stems, anchor) => {
  const node = document.createElement("p");
  node.className = "context";
  node.textContent = sentence(html, [...stems], anchor);
  return node;
};

var Scorer = {
  score: ([page, , anchor, , score]) => (anchor && /^_modules|^book\/(api|glossary)/.test(page) ? score - 20 : score),
  objNameMatch: 1,
  objPartialMatch: 0,
  objPrio: { 0: 0, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
};
