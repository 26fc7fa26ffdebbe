"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byName = new Map(data.figures.map((figure) => [figure.name, figure]));

  // Colours are theme variables ("--c1"), resolved when drawn so that dark mode and print follow.
  // Only what stands under a key that ends in "color" is one: other strings are somebody's text.
  function resolved(value, style, key) {
    if (Array.isArray(value)) return value.map((item) => resolved(item, style, key));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, resolved(item, style, name)]));
    }
    const colour = typeof value === "string" && /color$/.test(key || "") && value.startsWith("--");
    return colour ? style.getPropertyValue(value).trim() : value;
  }

  function themed(figure, element) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const layout = resolved(figure.layout, style);
    const narrow = element.clientWidth < 520;
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis/.test(key)) {
        layout[key] = Object.assign({ gridcolor: colour("--grid"), zerolinecolor: colour("--line"),
          linecolor: colour("--line"), automargin: true }, layout[key]);
      }
    }
    return Object.assign({
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest",
      font: { color: colour("--ink"), family: "system-ui, sans-serif", size: narrow ? 11 : 13 },
      hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: colour("--ink") }, align: "left" },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, bgcolor: "rgba(0,0,0,0)" },
      margin: { l: narrow ? 44 : 60, r: 12, t: 34, b: 48 },
    }, layout);
  }

  function draw() {
    const style = getComputedStyle(document.documentElement);
    document.querySelectorAll("[data-figure]").forEach((element) => {
      const figure = byName.get(element.dataset.figure);
      Plotly.react(element, resolved(figure.data, style), themed(figure, element),
        { responsive: true, displayModeBar: false });
    });
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch (refused) {
      const area = document.createElement("textarea");
      area.value = text;
      area.style.position = "fixed";
      area.style.opacity = "0";
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  document.querySelectorAll("[data-copy]").forEach((button) => {
    button.addEventListener("click", async () => {
      const done = await copy(data.files[Number(button.dataset.copy)]);
      const status = button.parentElement.querySelector(".copied");
      status.textContent = done ? "Copied" : "Select the text and copy it";
      setTimeout(() => { status.textContent = ""; }, 4000);
    });
  });

  if (data.figures.length) {
    draw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    addEventListener("beforeprint", () => {
      document.documentElement.classList.add("paper");
      document.querySelectorAll("details").forEach((element) => { element.open = true; });
      draw();
    });
    addEventListener("afterprint", () => {
      document.documentElement.classList.remove("paper");
      draw();
    });
  }
  document.documentElement.dataset.ready = "yes";
})();
