"use strict";

// Static plots stand in the page; this script replaces them by interactive ones.
(async () => {
  const root = document.documentElement;

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const text = document.getElementById(button.dataset.copy).textContent;
      button.textContent = (await copied(text)) ? "Copied" : "Not copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
  }

  // A page on a disk may not be allowed to use the clipboard; selecting the text is.
  async function copied(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = document.body.appendChild(document.createElement("textarea"));
      area.value = text;
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  const closed = [];
  addEventListener("beforeprint", () => {
    closed.push(...document.querySelectorAll("details:not([open])"));
    closed.forEach((one) => (one.open = true));
  });
  addEventListener("afterprint", () => closed.splice(0).forEach((one) => (one.open = false)));

  async function library() {
    const packed = document.getElementById("library").textContent;
    const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    new Function(await new Response(stream).text())();
    return window.vegaEmbed;
  }

  // A curve that is hidden, or that has not begun, has no value under the pointer.
  function shown(value) {
    const text = String(value);
    return text === "NaN" ? "–" : text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  }

  async function enliven(embed, figure) {
    const spec = document.querySelector(`[data-spec="${figure.dataset.plot}"]`).textContent;
    const parsed = JSON.parse(spec);
    if (matchMedia("(max-width: 40rem)").matches) parsed.height = parsed.usermeta.phone;
    const { view } = await embed(figure.querySelector(".live"), parsed, {
      actions: false,
      renderer: "svg",
      logLevel: 1, // errors; an empty layer, such as the seeds' before they are shown, is none
      tooltip: { disableDefaultStyle: true, offsetX: 16, offsetY: 16, sanitize: shown },
    });
    const hidden = new Set();
    figure.addEventListener("change", ({ target }) => {
      const { series, signal } = target.dataset;
      if (series) {
        target.checked ? hidden.delete(series) : hidden.add(series);
        view.signal("hidden", [...hidden]);
      } else if (signal) {
        view.signal(signal, target.type === "radio" ? target.value : target.checked);
      }
      view.runAsync();
    });
    figure.classList.add("enlivened");
  }

  root.classList.remove("static-only");
  if (typeof DecompressionStream === "undefined") return; // the static plots stay
  const embed = await library();
  const waiting = [];
  for (const figure of document.querySelectorAll("figure[data-plot]")) {
    const folded = figure.closest("details:not([open])");
    if (folded) folded.addEventListener("toggle", () => enliven(embed, figure), { once: true });
    else waiting.push(enliven(embed, figure)); // a folded plot has no width yet
  }
  await Promise.all(waiting);
  root.dataset.ready = "";
})();
