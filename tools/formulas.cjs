// Set formulas with MathJax: from [[tex, display], ...] to {formulas: [html, ...], style}.
const { readFileSync } = require("node:fs");

const [folder, fonts] = process.argv.slice(2);
const asked = JSON.parse(readFileSync(0, "utf8"));

require(`${folder}/node-main.js`)
  .init({
    loader: {
      paths: { mathjax: folder },
      load: ["adaptors/liteDOM", "input/tex", "output/chtml", "a11y/assistive-mml"],
      versionWarnings: false,
    },
    tex: { packages: { "[-]": ["noundefined"] } }, // an unknown command is a fault, not red text
    chtml: { fontURL: fonts },
  })
  .then((MathJax) => {
    const { adaptor } = MathJax.startup;
    const set = ([tex, display]) => adaptor.outerHTML(MathJax.tex2chtml(tex, { display }));
    const formulas = asked.map(set);
    const style = adaptor.textContent(MathJax.chtmlStylesheet());  // of the letters used so far
    process.stdout.write(JSON.stringify({ formulas, style }));
  });
