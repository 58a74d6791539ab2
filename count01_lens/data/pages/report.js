const contents = document.querySelector("nav details");
// On a phone the contents stay at the top of the screen, folded until they are asked for.
const narrow = matchMedia("(max-width: 68rem)");
contents.open = !narrow.matches;
contents.addEventListener("click", event => {
  if (narrow.matches && event.target.closest("a")) contents.open = false;
});

for (const filters of document.querySelectorAll(".filters")) {
  const rows = [...document.getElementById(filters.dataset.table).tBodies[0].rows];
  const buttons = [...filters.querySelectorAll("button")];
  const status = filters.querySelector("[role=status]");
  for (const button of buttons) {
    button.addEventListener("click", () => {
      const kind = button.dataset.show;
      for (const row of rows) row.hidden = kind !== "" && row.dataset.kind !== kind;
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      const shown = rows.filter(row => !row.hidden).length;
      status.textContent = `${shown} of ${rows.length} ${status.dataset.what} shown`;
    });
  }
  filters.hidden = false;
}

// Figures for dark surroundings are packed, and unpacked when they are needed.
const inTheDark = matchMedia("(prefers-color-scheme: dark)");
const unpack = async picture => {
  const { dark, media } = picture.dataset;
  delete picture.dataset.dark;
  const packed = Uint8Array.from(atob(dark), char => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const reader = new FileReader();
  reader.readAsDataURL(new Blob([await new Response(stream).arrayBuffer()], { type: media }));
  await new Promise(done => { reader.onload = done; });
  const light = picture.querySelector("img");
  const image = light.cloneNode();
  image.src = reader.result;
  image.className = "on-dark";
  await image.decode();
  light.className = "on-light";
  light.after(image);
  picture.classList.add("of-both");
};
const unpackAll = () => {
  if (inTheDark.matches) document.querySelectorAll("[data-dark]").forEach(unpack);
};
unpackAll();
inTheDark.addEventListener("change", unpackAll);

// The values of a heat map, which the first file of its figure holds, for those who point at it,
// tap it, or move over it with the arrow keys.
for (const cells of document.querySelectorAll(".cells")) {
  const figure = cells.closest("figure");
  const file = figure.querySelector("a[download$='.csv']");
  if (!file) continue;
  const [head, ...lines] = decodeURIComponent(file.href.slice(file.href.indexOf(",") + 1))
    .trimEnd().split("\n").map(line => line.split(","));
  const names = head.slice(1);
  const cell = cells.firstElementChild;
  const status = figure.querySelector(".value");
  let row = 0;
  let column = 0;
  const written = text => {
    if (text === "") return "not measured";
    const value = Number(text).toFixed(3).replace(/^-(0\.000)$/, "$1");
    const sign = cells.dataset.signed === "1" && Number(value) > 0 ? "+" : "";
    return sign + value.replace("-", "−");
  };
  const show = (newRow, newColumn) => {
    row = Math.min(Math.max(newRow, 0), names.length - 1);
    column = Math.min(Math.max(newColumn, 0), names.length - 1);
    const { pair, single } = cells.dataset;
    const value = written(lines[row][column + 1]);
    status.textContent = row === column
      ? `head ${names[row]}: ${single === pair ? value : `${value} (${single})`}`
      : `heads ${names[row]} and ${names[column]}: ${value}`;
    const size = 100 / names.length;
    cell.style.cssText =
      `left: ${column * size}%; top: ${row * size}%; width: ${size}%; height: ${size}%`;
    cell.hidden = false;
  };
  const point = event => {
    const box = cells.getBoundingClientRect();
    const place = (at, start, length) => Math.floor((at - start) / length * names.length);
    show(place(event.clientY, box.top, box.height), place(event.clientX, box.left, box.width));
  };
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  cells.addEventListener("pointermove", point);
  cells.addEventListener("pointerdown", point);
  cells.addEventListener("focus", () => { if (cell.hidden) show(row, column); });
  cells.addEventListener("keydown", event => {
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    show(row + move[0], column + move[1]);
  });
  status.textContent = "Point at a pair to read its value.";
  cells.tabIndex = 0;
  cells.setAttribute("role", "application");
  cells.setAttribute("aria-label", `Values: ${cells.dataset.pair}. Move with the arrow keys.`);
  cells.hidden = status.hidden = false;
}

// Paper cannot be unfolded.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("main details:not([open])")];
  for (const details of folded) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of folded) details.open = false;
});
