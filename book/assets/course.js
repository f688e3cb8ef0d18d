// The widget manager speaks to MathJax 2; pass what it asks for on to MathJax 3.
if (window.MathJax && !window.MathJax.Hub) {
  window.MathJax.Hub = {
    Queue: ([, , element]) =>
      window.MathJax.startup.promise.then(() => window.MathJax.typesetPromise([element])),
  };
}
