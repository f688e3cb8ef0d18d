// A page is found by what it says, how often and where, and by its best section, to which the result
// leads. None need have all the words that are looked for.
const TELLS = { named: 2.5, heading: 0.8, own: 1.6, inherited: 0.7, best: 1, aside: 0.7 };
const WORTH = [[/\/\d\d_/, 1.25], [/\/(glossary|claims_)/, 0.6], [/\/(api_|\w+_proofs|bibliography)/, 0.5]];
const ASIDE = /^(summary|questions|change-this-cell|exercise-|solutions|references)/;

// Where each word stands (BM25): the more often in the shorter text, the better.
const often = (n, length, mean) => (2.2 * n) / (n + 0.48 + (0.72 * length) / mean);
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

function pagesWith(stems) {
  const pages = Object.entries(USES.pages).map(([name, sections]) => ({ name, sections, length: sum(sections.map((e) => e[1])) }));
  const places = pages.flatMap((page) => page.sections.map(([id, length]) => ({ page, id, length, weight: 0, matched: 0 })));
  const total = sum(pages.map((page) => page.length));
  pages.forEach((page) => Object.assign(page, { weight: 0, matched: 0, places: [] }));
  places.forEach((place) => place.page.places.push(place));
  for (const stem of stems) {
    let at = 0;
    const found = new Map();
    for (const [, step, letter] of USES.words[stem].matchAll(/(\d*)(\w)/g)) {
      const place = places[(at += Number(step))];
      if (!found.has(place.page)) found.set(place.page, { n: 0, named: false, headed: false });
      const here = found.get(place.page);
      place.n = "abcdefghij".indexOf(letter.toLowerCase());
      place.headed = letter < "a";
      here.n += place.n;
      if (place.headed) here[place.id ? "headed" : "named"] = true;
    }
    const rare = Math.log(1 + (pages.length - found.size + 0.5) / (found.size + 0.5));
    for (const [page, { n, named, headed }] of found) {
      page.weight += rare * (often(n, page.length, total / pages.length) + TELLS.named * named + TELLS.heading * headed);
      page.matched += 1;
      for (const place of page.places) {
        if (place.n || place.headed || named) {
          const own = place.headed && place.id;
          place.weight += rare * (often(place.n ?? 0, place.length, total / places.length) + (own ? TELLS.own : named ? TELLS.inherited : 0));
          place.matched += 1;
        }
        place.n = place.headed = 0;
      }
    }
  }
  const { alltitles, docnames, titles, filenames } = Search._index;
  const headings = new Map(Object.entries(alltitles).flatMap(([title, at]) => at.map(([file, id]) => [`${docnames[file]}#${id}`, title])));
  const share = (part) => part.weight * Math.sqrt(part.matched / stems.size);
  return pages.filter((page) => page.matched).flatMap((page) => {
    const worth = (place) => share(place) * (ASIDE.test(place.id) ? TELLS.aside : 1);
    const best = page.places.reduce((best, each) => (worth(each) > worth(best) ? each : best));
    const kind = WORTH.find(([kind]) => kind.test(page.name))?.[1] ?? 1;
    const file = docnames.indexOf(page.name);
    const anchor = best.id && `#${best.id}`;
    const heading = headings.get(page.name + anchor);
    const title = heading && heading !== titles[file] ? `${titles[file]} > ${heading}` : titles[file];
    return file < 0 ? [] : [[page.name, title, anchor, null, 100 + kind * (share(page) + TELLS.best * worth(best)), filenames[file]]];
  });
}

// What is looked for, split as the build splits what is said, Chinese in English.
const parse = Search._parseQuery;
Search._parseQuery = (query) => {
  const parsed = parse(query);
  const chinese = new RegExp(Object.keys(USES.english).join("|") || "$^", "g");
  const text = query.replace(chinese, (term) => ` ${USES.english[term]} `);
  const parts = text.replace(/\b([A-Z][a-z]+)([A-Z][a-z]+)\b/g, "$& $1 $2").replace(/(\d),(?=\d{3})/g, "$1").toLowerCase();
  const said = parts.match(/[\p{L}\p{N}_]+/gu) ?? [];
  const stemmer = new Stemmer();
  const stem = (word) => stemmer.stemWord(word);
  const known = (stem) => Object.hasOwn(USES.words, stem);
  // Of a name in code that no page has, its parts are looked for.
  const stems = said.flatMap((word) => (known(stem(word)) ? [word] : word.split("_")).map(stem));
  parsed[1] = new Set(stems.filter(known));
  return parsed;
};

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
  score: ([page, , anchor, , score]) => (score < 100 && anchor && /^_modules|^book\/(api|glossary)/.test(page) ? score - 20 : score),
  objNameMatch: 1,
  objPartialMatch: 0,
  objPrio: { 0: 0, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
};
