// One script for all pages: a widget's `render` in notebooks, and on the site whatever stands in
// `.live` with its name and its state.

import { axes } from "./axes.js";
import { chooser } from "./chooser.js";
import { clockHands } from "./clock_hands.js";
import { fourTermsFigure } from "./four_terms.js";
import { element, fromLink, mount, toLink } from "./kit.js";
import { penalties } from "./penalties.js";
import { permutations } from "./permutations.js";
import * as positions from "./positions.js";
import { PREDICTIONS } from "./predictions.js";
import { ropeScoreFigure } from "./rope_score.js";
import { sentenceScores } from "./sentence_scores.js";
import { shawRows } from "./shaw_rows.js";
import { t5Buckets } from "./t5_buckets.js";
import { wavelengths } from "./wavelengths.js";

export { fromLink, positions, toLink };
export const FIGURES = {
  rope_score: ropeScoreFigure, clock_hands: clockHands, sentence_scores: sentenceScores, wavelengths, penalties,
  permutations, shaw_rows: shawRows, t5_buckets: t5Buckets, axes, four_terms: fourTermsFigure, chooser,
};
for (const name in FIGURES) FIGURES[name].asks = PREDICTIONS[name];

// In JupyterLab, Binder and Colab.
export function render({ model, el }) {
  const place = element("div", { class: "live" }, el);
  const changed = (state) => {
    model.set("state", state);
    model.save_changes();
  };
  const figure = FIGURES[model.get("figure")];
  figure.data = model.get("data");
  const follow = mount(place, figure, model.get("state"), { changed });
  model.on("change:state", () => follow(model.get("state")));
}

// On the site. A link to a state is the figure's own anchor, and after a ? what differs.
function start() {
  const follow = {};
  for (const place of document.querySelectorAll(".live[data-figure]")) {
    const figure = FIGURES[place.dataset.figure];
    figure.data = JSON.parse(place.dataset.data ?? null);
    const holder = place.closest("figure[id]");
    const link = holder && ((state) => `#${holder.id}${state && "?"}${state}`);
    const show = mount(place, figure, JSON.parse(place.dataset.state), { link });
    if (holder) follow[holder.id] = (state) => (show(fromLink(state, figure)), holder.scrollIntoView());
    place.querySelectorAll(":scope > :is(img, a)").forEach((still) => still.remove());
  }
  const go = () => {
    const [anchor, state] = location.hash.slice(1).split("?");
    if (state !== undefined) follow[anchor]?.(state);
  };
  go();
  addEventListener("hashchange", go);
  addEventListener("click", ({ target }) => target.closest?.("a[href*='?']")?.hash === location.hash && go());
}

if (typeof document !== "undefined" && document.querySelector) {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
}
