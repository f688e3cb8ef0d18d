// A script for pages: a widget's `render` in notebooks, and on the site whatever stands in `.live`
// with its name and its state.

import { element, fromLink, mount } from "./kit.js";

const follow = {}; // what shows a state in the figure of an anchor

function leads(anchor, place, figure, show) {
  follow[anchor] = (state) => {
    const before = show(fromLink(state, figure), true);
    place.scrollIntoView();
    return () => show(before);
  };
}

const undo = {}; // by the address from which a link led to a state: what Back brings again

// A link to a state is the figure's own anchor, and after a ? what differs.
function go({ oldURL = "#?" } = {}) {
  const [anchor, state] = location.hash.slice(1).split("?");
  if (state == null) {
    undo[location]?.();
    return void delete undo[location];
  }
  const back = follow[anchor]?.(state);
  if (!/#.*\?/.test(oldURL)) undo[oldURL] = back;
}

// In JupyterLab, Binder and Colab; on the site at once. Figures by their names.
export function begin(figures) {
  if (globalThis.document?.querySelector) {
    addEventListener("hashchange", go);
    addEventListener("click", ({ target }) => target.closest?.("a[href*='?']")?.hash === location.hash && go());
    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", () => start(figures));
    else start(figures);
  }
  return ({ model, el }) => {
    const place = element("div", { class: "live" }, el);
    const changed = (state) => {
      model.set("state", state);
      model.save_changes();
    };
    const figure = figures[model.get("figure")];
    figure.data = model.get("data");
    const show = mount(place, figure, model.get("state"), { changed });
    model.on("change:state", () => show(model.get("state")));
    leads(model.get("anchor"), place, figure, show);
  };
}

function start(figures) {
  for (const place of document.querySelectorAll(".live[data-figure]")) {
    const figure = figures[place.dataset.figure];
    figure.data = JSON.parse(place.dataset.data ?? null);
    const holder = place.closest("figure[id]");
    const link = holder && ((state) => `#${holder.id}${state && "?"}${state}`);
    const show = mount(place, figure, JSON.parse(place.dataset.state), { link });
    if (holder) leads(holder.id, holder, figure, show);
    place.querySelectorAll(":scope > :is(img, a)").forEach((still) => still.remove());
  }
  go();
}
