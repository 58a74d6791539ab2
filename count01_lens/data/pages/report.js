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

// Paper cannot be unfolded.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("main details:not([open])")];
  for (const details of folded) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of folded) details.open = false;
});
