// A chart of lines over epochs, which tells values under the pointer.

import { draw, make, say } from "../explorer/elements.js";
import { numberText, ticksBetween } from "../explorer/scales.js";
import { thinned } from "./series.js";

const HEIGHT = 220;
const EDGE = { left: 46, right: 14, top: 8, bottom: 24 };

/**
 * Make a chart.
 *
 * @param title above it
 * @param options {log: whether values are on a logarithmic scale; write: a value as text;
 *     nearest: tell of the nearest line alone, where there are many}
 * @returns {element, update({lines, epochs, note, legend, empty})}; a line is {name, points, colour,
 *     width, faint, dashed}, its name is null where it is not told of
 */
export function lineChart(title, { log = false, write = numberText, nearest = false } = {}) {
  const heading = make("h2", { text: title });
  const legend = make("span", { class: "legend" });
  const note = make("p", { class: "note" });
  const told = make("div", { class: "told", hidden: true });
  const svg = draw("svg", { role: "img", height: HEIGHT });
  const plot = make("div", { class: "plot" }, svg, told);
  const element = make("section", { class: "panel chart" }, make("header", {}, heading, legend), plot, note);
  let shown = { lines: [], epochs: 1, note: "", legend: [], empty: "" };
  let scale = null;

  function paint() {
    const width = Math.max(plot.clientWidth, 200);
    const values = shown.lines.flatMap(({ points }) => points.map(([, value]) => value)).filter((value) => !log || value > 0);
    svg.setAttribute("width", width);
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    svg.setAttribute("aria-label", spoken());
    scale = scalesOf(values, shown.epochs, width, log);
    const rows = scale.yTicks.map((value) =>
      draw("g", { class: "tick" }, draw("line", { x1: EDGE.left, x2: width - EDGE.right, y1: scale.y(value), y2: scale.y(value) }),
        draw("text", { x: EDGE.left - 6, y: scale.y(value) + 3.5, class: "value", text: numberText(value) })));
    const columns = ticksBetween(0, shown.epochs, width < 420 ? 4 : 8).filter(Number.isInteger).map((epoch) =>
      draw("text", { x: scale.x(epoch), y: HEIGHT - 7, class: "epoch", text: epoch }));
    const paths = shown.lines.map(({ points, colour, width: thick = 1.6, faint, dashed }) =>
      draw("path", {
        d: pathOf(thinned(points, width), scale, log), stroke: colour, "stroke-width": thick, class: faint ? "faint" : "line",
        "stroke-dasharray": dashed ? "5 3" : null,
      }));
    // A line of a single point is none.
    const dots = shown.lines.filter(({ points }) => points.length === 1).map(({ points: [[epoch, value]], colour, faint }) =>
      draw("circle", { cx: scale.x(epoch), cy: scale.y(value), r: faint ? 1.5 : 2.5, fill: colour }));
    const words = values.length ? [] : [draw("text", { x: width / 2, y: HEIGHT / 2, class: "empty", text: shown.empty })];
    svg.replaceChildren(...rows, ...columns, ...paths, ...dots, ...words, cursor);
  }

  function spoken() {
    const named = shown.lines.filter(({ name, points }) => name && points.length);
    const texts = named.slice(0, 20).map(({ name, points }) => `${name} ${write(points[points.length - 1][1])}`);
    return `${title}: ${texts.join(", ") || shown.empty}`;
  }

  const cursor = draw("line", { class: "cursor", y1: EDGE.top, y2: HEIGHT - EDGE.bottom, visibility: "hidden" });

  function point(event) {
    const box = svg.getBoundingClientRect();
    const at = { x: event.clientX - box.left, y: event.clientY - box.top };
    const named = shown.lines.filter(({ name, points }) => name && points.length);
    if (!named.length || !scale) return;
    const found = named.map((line) => ({ line, ...closest(line.points, scale, at.x) }));
    const best = found.reduce((one, other) => (distance(other, at, nearest) < distance(one, at, nearest) ? other : one));
    const rows = nearest ? [best] : found.filter(({ epoch }) => epoch === best.epoch);
    told.replaceChildren(make("strong", { text: `epoch ${numberText(best.epoch, 6)}` }), ...rows.map(({ line, value }) =>
      make("span", {}, swatch(line.colour), `${line.name} `, make("b", { text: write(value) }))));
    told.hidden = false;
    cursor.setAttribute("x1", scale.x(best.epoch));
    cursor.setAttribute("x2", scale.x(best.epoch));
    cursor.setAttribute("visibility", "visible");
    const beyond = scale.x(best.epoch) > plot.clientWidth / 2;
    told.style.left = beyond ? "" : `${scale.x(best.epoch) + 10}px`;
    told.style.right = beyond ? `${plot.clientWidth - scale.x(best.epoch) + 10}px` : "";
  }

  /** In pixels; where all lines are told of, only along the epochs. */
  function distance({ epoch, value }, at, both) {
    return Math.hypot(scale.x(epoch) - at.x, both ? scale.y(value) - at.y : 0);
  }

  function leave() {
    told.hidden = true;
    cursor.setAttribute("visibility", "hidden");
  }

  plot.addEventListener("pointermove", point);
  plot.addEventListener("pointerdown", point);
  plot.addEventListener("pointerleave", leave);
  return {
    element,
    paint,
    update(next) {
      shown = next;
      say(heading, next.title ?? title);
      say(note, next.note ?? "");
      note.hidden = !next.note;
      legend.replaceChildren(...(next.legend ?? []).map(({ name, colour }) => make("span", {}, swatch(colour), name)));
      paint();
    },
  };
}

function swatch(colour) {
  const mark = make("i", { class: "swatch" });
  mark.style.background = colour;
  return mark;
}

function closest(points, scale, x) {
  const [epoch, value] = points.reduce((one, other) => (Math.abs(scale.x(other[0]) - x) < Math.abs(scale.x(one[0]) - x) ? other : one));
  return { epoch, value };
}

function pathOf(points, scale, log) {
  const drawn = log ? points.filter(([, value]) => value > 0) : points;
  return drawn.map(([epoch, value], i) => `${i ? "L" : "M"}${scale.x(epoch).toFixed(1)} ${scale.y(value).toFixed(1)}`).join("");
}

function scalesOf(values, epochs, width, log) {
  const change = log ? Math.log10 : (value) => value;
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    low = Math.min(low, change(value));
    high = Math.max(high, change(value));
  }
  if (low > high) [low, high] = [0, 1];
  const least = log ? 0.3 : 0.01; // a line that does not move stands in the middle
  if (high - low < least) [low, high] = [low - least / 2, high + least / 2];
  const room = (high - low) * 0.04;
  const x = (epoch) => EDGE.left + ((width - EDGE.left - EDGE.right) * epoch) / epochs;
  const y = (value) => EDGE.top + ((HEIGHT - EDGE.top - EDGE.bottom) * (high + room - change(value))) / (high - low + 2 * room);
  const yTicks = log ? powersBetween(10 ** (low - room), 10 ** (high + room)) : ticksBetween(low - room, high + room, 5);
  return { x, y, yTicks };
}

/** 1, 2 and 5 times powers of ten; of many powers only these, or some of them. */
function powersBetween(low, high) {
  const powers = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) powers.push(power);
  const steps = powers.length > 3 ? [1] : [1, 2, 5];
  const every = Math.ceil(powers.length / 6);
  return powers.filter((_, i) => i % every === 0).flatMap((power) => steps.map((step) => step * 10 ** power)).filter((tick) => tick >= low && tick <= high);
}
