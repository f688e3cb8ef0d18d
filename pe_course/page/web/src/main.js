// The script of the pages that show one of these figures; that of the heads comes by itself.

import { axes } from "./axes.js";
import { chooser } from "./chooser.js";
import { clockHands } from "./clock_hands.js";
import { fourTermsFigure } from "./four_terms.js";
import { fromLink, toLink } from "./kit.js";
import { begin } from "./page.js";
import { penalties } from "./penalties.js";
import { permutations } from "./permutations.js";
import { PREDICTIONS } from "./predictions.js";
import { ropeScoreFigure } from "./rope_score.js";
import { sentenceScores } from "./sentence_scores.js";
import { shawRows } from "./shaw_rows.js";
import { t5Buckets } from "./t5_buckets.js";
import { wavelengths } from "./wavelengths.js";

export { fromLink, toLink };
export const FIGURES = {
  rope_score: ropeScoreFigure, clock_hands: clockHands, sentence_scores: sentenceScores, wavelengths, penalties,
  permutations, shaw_rows: shawRows, t5_buckets: t5Buckets, axes, four_terms: fourTermsFigure, chooser,
};
for (const name in FIGURES) FIGURES[name].asks = PREDICTIONS[name];
export const render = begin(FIGURES);
