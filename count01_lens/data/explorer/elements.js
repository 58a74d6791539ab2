// Elements of the page. Text is always text: nothing here, or anywhere else, writes markup.

const SVG = ["http:", "", "www.w3.org", "2000", "svg"].join("/"); // a name: nothing is asked there

/** Make an element: attributes, listeners under `on`, `text`; then what is in it. */
export function make(tag, options = {}, ...children) {
  return filled(document.createElement(tag), options, children);
}

/** The same for a drawing. */
export function draw(tag, options = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), options, children);
}

function filled(element, { on = {}, text, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const [event, listener] of Object.entries(on)) element.addEventListener(event, listener);
  if (text !== undefined) element.textContent = text;
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Write text into an element, if it is another one. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Whether somebody is typing here; some notebooks hide their outputs from the document itself. */
export function isFocused(element) {
  return element.getRootNode().activeElement === element;
}

/** A button with a name for those who do not see its sign. */
export function button(sign, name, click, options = {}) {
  return make("button", { type: "button", "aria-label": name, title: name, on: { click }, text: sign, ...options });
}

/** The sign of a switch, which not every font has. */
export function switchSign() {
  return draw("svg", { viewBox: "0 0 16 16", width: 12, height: 12, class: "switch", "aria-hidden": "true" }, draw("path", { d: "M5 3.6a5.4 5.4 0 1 0 6 0M8 1.4v6" }));
}

/** A table of numbers with a colour behind each; the names of rows and columns are headings. */
export function heatTable(caption, corner, rows, columns, value, shade, write) {
  const head = make("tr", {}, make("th", { scope: "col", text: corner }), ...columns.map((name) => make("th", { scope: "col", text: name })));
  const body = rows.map((name, r) =>
    make(
      "tr",
      {},
      make("th", { scope: "row", text: name }),
      ...columns.map((_, c) => {
        const number = value(r, c);
        const cell = make("td", { text: number === null ? "" : write(number) });
        if (number !== null) cell.style.background = shade(number);
        return cell;
      }),
    ),
  );
  return make("table", { class: "heat" }, make("caption", { text: caption }), make("thead", {}, head), make("tbody", {}, ...body));
}
