const tilesOf = view => [...view.querySelectorAll(":scope > div > h3 + div > div > div")];
let echo = false;
function repeat(view, index, type) {
  if (echo) return;
  echo = true;
  for (const other of view.closest(".cards").querySelectorAll(".view")) {
    const tile = other !== view && tilesOf(other)[index];
    if (tile) tile.dispatchEvent(new MouseEvent(type, {bubbles: true}));
  }
  echo = false;
}
function prepare(view) {
  tilesOf(view).forEach((tile, index) => {
    if (tile.tabIndex === 0) return;
    tile.tabIndex = 0;
    tile.setAttribute("role", "button");
    tile.addEventListener("click", () => repeat(view, index, "click"));
    tile.addEventListener("mouseenter", () => repeat(view, index, "mouseover"));
    tile.addEventListener("mouseleave", () => repeat(view, index, "mouseout"));
    tile.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      tile.click();
    });
  });
}
new ResizeObserver(() => {
  document.querySelectorAll(".AttentionHeads .view").forEach(prepare);
  try {
    const frame = window.frameElement;
    if (frame && frame.hasAttribute("data-count01")) {
      frame.style.height = document.documentElement.getBoundingClientRect().height + "px";
    }
  } catch { /* a sandboxed frame keeps its height */ }
}).observe(document.documentElement);
