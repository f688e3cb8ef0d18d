// Where a search looks first: chapters, then the other pages, then what is made from code.
var Scorer = {
  score: ([page, , anchor, , score]) => {
    if (/^book\/\d\d_/.test(page)) return score + (anchor ? 14 : 30);
    if (/^(_modules|genindex|py-modindex)|^book\/api/.test(page)) return score - 20;
    return score;
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
