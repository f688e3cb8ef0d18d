// A page is found by what it says, how often and where, and by its best section, to which its result
// leads. None need have all the words that are looked for. What the page has in its name, or is called
// (also_called.yml), counts for all of its sections. A question of the answers is weighed as a page,
// and like a chapter if three words or more are looked for: fewer name a topic, which a chapter has.
const ANSWERS = /\/answers$/;
const CHAPTER = 1.25;
const PAGES = [[/\/\d\d_/, CHAPTER], [/\/(glossary|claims_)/, 0.6], [/\/(api_|\w+_proofs|bibliography)/, 0.5]];
const SECTIONS = [[/^(solutions|references)/, 0.2], [/^(all-chapters|summary|questions|change-this-cell|exercise-|module-)/, 0.5]];
const kind = (name, kinds) => kinds.find(([each]) => each.test(name))?.[1] ?? 1;
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

// BM25: a word tells the more, the fewer pages have it, and the more often a shorter text has it.
const often = (n, length, mean) => (2.2 * n) / (n + 0.48 + (0.72 * length) / mean);
const rare = (having, all) => Math.log(1 + (all - having + 0.5) / (having + 0.5));

// For each page with a word: how often its sections have it, and whether in their headings.
function whereIs(stem, pages) {
  const places = pages.flatMap((page) => page.sections);
  const found = new Map();
  let at = 0;
  for (const [, step, letter] of USES.words[stem].matchAll(/(\d*)(\w)/g)) {
    const { page, id } = places[(at += Number(step))];
    if (!found.has(page)) found.set(page, new Map());
    found.get(page).set(id, { n: "abcde".indexOf(letter.toLowerCase()), headed: letter < "a" });
  }
  return found;
}

function weighed(stems) {
  const apart = ([name, sections]) => (ANSWERS.test(name) ? sections.map((section) => [name, [section]]) : [[name, sections]]);
  const pages = Object.entries(USES.pages).flatMap(apart).map(([name, sections]) => {
    const page = { name, top: sections[0][0], length: sum(sections.map(([, length]) => length)), weight: 0, matched: 0 };
    return Object.assign(page, { sections: sections.map(([id, length]) => ({ page, id, length, weight: 0 })) });
  });
  const total = sum(pages.map((page) => page.length));
  const count = sum(pages.map((page) => page.sections.length));
  const shares = [];
  for (const stem of stems) {
    const found = whereIs(stem, pages);
    const share = rare(found.size, pages.length);
    shares.push(share);
    const names = [...found].filter(([page, uses]) => uses.get(page.top)?.headed).length;
    for (const [page, uses] of found) {
      const named = uses.get(page.top)?.headed;
      const headed = [...uses].some(([id, use]) => id !== page.top && use.headed);
      const n = sum([...uses.values()].map((use) => use.n));
      page.weight += share * (often(n, page.length, total / pages.length) + (headed ? 0.8 : 0));
      if (named) page.weight += share + 0.5 * rare(names, pages.length);
      page.matched += share;
      for (const section of page.sections.filter(({ id }) => named || uses.has(id))) {
        const { n, headed } = uses.get(section.id) ?? { n: 0 };
        section.weight += share * (often(n, section.length, total / count) + (headed && section.id ? 1 : named ? 0.7 : 0));
      }
    }
  }
  const most = sum(shares);
  return pages.filter((page) => page.matched).map((page) => ({ ...page, weight: page.weight * Math.sqrt(page.matched / most) }));
}

function pagesWith(stems) {
  const { alltitles, docnames, titles, filenames } = Search._index;
  const worth = ({ id, weight }) => kind(id, SECTIONS) * weight;
  const results = weighed(stems).filter((page) => docnames.includes(page.name)).map((page) => {
    const file = docnames.indexOf(page.name);
    const title = titles[file];
    const best = page.sections.reduce((best, each) => (worth(each) > worth(best) ? each : best));
    // Who types what the page is called wants its beginning.
    const inside = (text) => [...stems].every((stem) => stemsOf(text).includes(stem));
    const id = inside(title) ? "" : best.id;
    const heading = id && Object.keys(alltitles).find((each) => alltitles[each].some(([at, name]) => at === file && name === id));
    const asked = ANSWERS.test(page.name) && stems.size > 2;
    const score = 100 + (asked ? CHAPTER : kind(page.name, PAGES)) * (page.weight + worth(best) / 2) + (inside(page.name.replace(/\W|_/g, " ")) ? 3 : 0);
    return [page.name, heading ? `${title} > ${heading}` : title, id && `#${id}`, null, score, filenames[file]];
  });
  const best = new Map(results.sort((a, b) => a[4] - b[4]).map((result) => [result[0], result]));
  return [...best.values()];
}

// What is looked for, split as the build splits what is said (search.py); streaming-llm is one word,
// too, where a page has it. Of a name that no page has (llama4, multihead), its parts are looked for,
// then the word that is most like it. Words that only ask count where nothing else is asked.
const ASKING = /^(please|help|fix|support|feature|request|question|issue|understand|understanding)$/;
const known = (stem) => Object.hasOwn(USES.words, stem);
const stemmed = (word) => new Stemmer().stemWord(word);
function stemOf(word) {
  const stem = stemmed(word);
  if (known(stem)) return [stem];
  if (stopwords.includes(word)) return [];
  const parts = word.match(/\p{L}+|\d+/gu) ?? [];
  if (parts.length > 1) return parts.flatMap(stemOf);
  const cuts = [...word].map((_, at) => [word.slice(0, at), word.slice(at)]);
  const halves = cuts.find((two) => two.every((half) => half.length > 1 && known(stemmed(half))));
  if (halves) return halves.flatMap(stemOf);
  const like = Object.keys(USES.words).filter((each) => Math.min(each.length, word.length) > 3 && (each.startsWith(word) || word.startsWith(each)));
  const far = (each) => Math.abs(each.length - word.length);
  return like.sort((a, b) => far(a) - far(b)).slice(0, 1);
}
function stemsOf(text) {
  const terms = Object.keys(USES.english);
  const english = terms.length ? text.replace(new RegExp(terms.join("|"), "g"), (term) => ` ${USES.english[term]} `) : text;
  const named = english.replace(/\w*[a-z]{2}[A-Z]\w*/g, (name) => `${name} ${name.replace(/(?<=[a-z]{2})(?=[A-Z])/g, " ")}`);
  const split = named.replace(/(\d)(,(?=\d{3})|-(?=[A-Za-z]\b))/g, "$1").toLowerCase();
  const joined = split.replace(/([a-z\d]+)-([a-z\d]+)/g, (both, a, b) => (known(stemmed(a + b)) ? `${both} ${a}${b}` : both));
  const words = joined.match(/[\p{L}\p{N}_]+/gu) ?? [];
  const asked = words.filter((word) => !ASKING.test(word));
  return (asked.length ? asked : words).flatMap(stemOf);
}

// The first sentence of prose that has most of the words, in the section if there is one, else on the
// page; where none of the page has one, a heading.
function sentence(html, stems, anchor) {
  const page = new DOMParser().parseFromString(html, "text/html").querySelector("article");
  page.querySelectorAll("mjx-container, .headerlink").forEach((e) => e.replaceWith(e.querySelector("math")?.textContent ?? ""));
  const found = anchor ? page.querySelector(`#${CSS.escape(anchor.slice(1))}`) : null;
  const part = found?.matches("dt") ? page.querySelector(`#${CSS.escape(found.id)} ~ dd`) : found;
  const words = (e) => (e?.matches("dt") ? [...words(e.previousElementSibling), e.textContent.trim()] : []);
  const term = (e) => (e.matches(".glossary dd") ? `${words(e.previousElementSibling).join(", ")} ` : "");
  const aside = "details :not(summary), table *, .cell_input *, .admonition-title, .live *";
  const prose = [...page.querySelectorAll("p, dd, figcaption, summary")].filter((e) => !e.matches(aside));
  const said = (blocks) => blocks.flatMap((e) => (term(e) + e.textContent).replace(/\s+/g, " ").trim().split(/(?<=[.?!]) (?=\p{Lu})/u)).filter((each) => /[.?!:]$/.test(each));
  // A stem's last vowel may not stand in the word: "rotari" for rotary, "slide" for sliding.
  const count = (text) => stems.filter((stem) => text.toLowerCase().includes(stem.replace(/[ei]$/, ""))).length;
  const best = (texts) => texts.reduce((best, each) => (count(each) > count(best) ? each : best), "");
  if (part) return best(said(prose.filter((e) => part.contains(e))));
  return best(said(prose)) || best([...page.querySelectorAll("h2, h3")].map((e) => e.textContent.trim()));
}

const parse = Search._parseQuery;
Search._parseQuery = (query) => {
  const parsed = parse(query);
  parsed[1] = new Set(stemsOf(query));
  const marked = [...parsed[3]].filter((term) => term.length > 2 || /[^\0-~]/.test(term)); // not each d of 2-D
  parsed[3] = new Set(marked);
  localStorage.setItem("sphinx_highlight_terms", marked.join(" "));
  return parsed;
};
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
