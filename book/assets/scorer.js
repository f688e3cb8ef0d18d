// Where a search looks first: chapters, those first that say the words most; then the other pages;
// then what is made from code. The build writes how often pages say a word (USES).
function fit(page, title) {
  const number = typeof USES === "undefined" ? -1 : USES.pages.indexOf(page);
  if (number < 0) return 0;
  const stemmer = new Stemmer();
  const stems = (text) =>
    text.toLowerCase().split(/[^\p{L}\p{N}_]+/u)
      .filter((word) => word && !stopwords.includes(word))
      .map((word) => stemmer.stemWord(word));
  const words = stems(Scorer.query ?? new URLSearchParams(window.location.search).get("q") ?? "");
  const [own] = title.split(" > ");
  const named = stems(own);
  const fits = words.map((word) => {
    const said = USES.words[word] ?? [];
    const at = said.findIndex((each, i) => i % 2 === 0 && each === number);
    return (at < 0 ? 0 : said[at + 1] / 100) + (named.includes(word) ? 0.5 : 0);
  });
  return fits.reduce((sum, each) => sum + each, 0) / (fits.length || 1);
}

var Scorer = {
  score: ([page, title, anchor, , score]) => {
    if (/^book\/\d\d_/.test(page)) return score + (anchor ? 14 : 30) + 40 * fit(page, title);
    if (/^(_modules|genindex|py-modindex)|^book\/api/.test(page)) return score - 20;
    return score + 10 * fit(page, title);
  },
  objNameMatch: 1,
  objPartialMatch: 0,
  objPrio: { 0: 0, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
