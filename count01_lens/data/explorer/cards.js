// A card for each head: outputs, attention, its rows of the QK and OV tables, before → after.

import { button, make, say, switchSign } from "./elements.js";
import { answerColour, numberText, rgbOf, shaded, shareText, signedText, tokenColour } from "./scales.js";
import { drawScatter, planeOf } from "./scatter.js";
import { ovRow, scoresOf } from "./tables.js";
import { SIGNS } from "./wording.js";

const GAP = 6;
const LEAST = 158; // pixels that a card needs across
const AROUND = 116; // pixels of a card that are not its picture

/** Numbers before → after; the second only if it is another. */
export function beforeAfter(element, before, after, write = shareText) {
  const same = write(before) === write(after);
  const parts = [make("span", { class: "before", text: write(before) })];
  if (!same) parts.push(make("span", { class: "arrow", text: " → " }), make("b", { class: after > before ? "up" : "down", text: write(after) }));
  element.replaceChildren(...parts);
}

/** Attention as a bar, a piece for each token type; wide pieces carry their name. */
export function attentionBar(model, attention, dark, name) {
  const bar = make("div", { class: "bar", role: "img", "aria-label": `${name}: ${model.tokens.slice(0, model.equals + 1).map((token, t) => `${token} ${(100 * attention[t]).toFixed(1)} %`).join(", ")}` });
  for (let t = 0; t <= model.equals; t++) {
    if (!(attention[t] > 0.002)) continue;
    const piece = make("span", { class: "piece", text: attention[t] > 0.09 ? model.tokens[t] : "", title: `${model.tokens[t]}: ${(100 * attention[t]).toFixed(2)} %` });
    piece.style.flexGrow = attention[t];
    piece.style.background = tokenColour(model, t, dark);
    bar.append(piece);
  }
  return bar;
}

/** A head's scores at '=' and what each token says to the answers, as two rows of shades. */
function shadeRows(engine, head, dark) {
  const { model } = engine;
  const tokens = model.tokens.slice(0, model.equals + 1);
  const scores = scoresOf(model, head, model.equals);
  const top = Math.max(...scores.slice(0, model.equals + 1));
  const cells = (values, title, colour) =>
    tokens.map((token, t) => {
      const cell = make("td", { title: title(token, values[t]) });
      cell.style.background = colour(values[t]);
      return cell;
    });
  const said = tokens.map((_, t) => ovRow(model, head, t).slice(model.equals + 1, model.eos));
  const two = model.answers.length === 2;
  const leads = said.map((row) => {
    const best = row.indexOf(Math.max(...row));
    return { best, lead: two ? row[0] - row[1] : row[best] - [...row].sort((a, b) => b - a)[1] };
  });
  const most = Math.max(...leads.map(({ lead }) => Math.abs(lead)));
  const ov = two
    ? cells(leads.map(({ lead }) => lead), (token, lead) => `OV: one ${token} alone adds ${signedText(lead)} to ${model.answers[0]} − ${model.answers[1]}`, (lead) => shaded(lead, most, dark))
    : cells(leads, (token, { best, lead }) => `OV: ${token} speaks for ${model.answers[best]}, by ${numberText(lead)}`, ({ best, lead }) => {
        const [r, g, b] = rgbOf(answerColour(best, model.answers.length, dark));
        return `rgba(${r}, ${g}, ${b}, ${most > 0 ? (0.7 * lead) / most : 0})`;
      });
  const grey = dark ? "255, 255, 255" : "40, 44, 60";
  const qk = cells([...scores.slice(0, tokens.length)], (token, score) => `QK: score of ${token} at = is ${numberText(score)}`, (score) => `rgba(${grey}, ${(0.62 * Math.exp(Math.max((score - top) / 3, -30))).toFixed(3)})`);
  const row = (name, filled) => make("tr", {}, make("th", { scope: "row", text: name }), ...filled);
  const heading = make("tr", {}, make("td", {}), ...tokens.map((token) => make("th", { scope: "col", text: token === "[BOS]" ? "B" : token.slice(0, 2), title: token })));
  return make("table", { class: "rows", "aria-label": `QK and OV rows of head ${head}` }, heading, row("QK", qk), row("OV", ov));
}

/** All cards; keys and mouse choose heads, open their pages and switch them off. */
export function headCards(app) {
  const { store, engine, entry } = app;
  const cards = engine.heads.map((head) => headCard(app, head));
  const list = make("div", { class: "cards", role: "listbox", "aria-multiselectable": "true", "aria-label": "Heads", "aria-describedby": `${app.id}-keys` }, ...cards.map(({ element }) => element));
  let focused = 0;
  let anchor = 0;
  const focus = (head) => {
    cards[focused].element.tabIndex = -1;
    focused = head;
    cards[head].element.tabIndex = 0;
    cards[head].element.focus();
  };
  const toggle = (head, extend) => {
    const chosen = new Set(store.state.heads ?? []);
    if (extend) {
      for (let each = Math.min(anchor, head); each <= Math.max(anchor, head); each++) chosen.add(each);
    } else {
      if (chosen.has(head)) chosen.delete(head);
      else chosen.add(head);
      anchor = head;
    }
    store.change({ heads: chosen.size ? [...chosen] : null });
  };
  const columns = () => getComputedStyle(list).gridTemplateColumns.split(" ").length;
  const arrange = (width, free) => {
    if (!width) return;
    const most = Math.min(Math.max(Math.floor((width + GAP) / (LEAST + GAP)), 2), entry.nHeads);
    const rows = Math.ceil(entry.nHeads / most);
    const across = Math.ceil(entry.nHeads / rows);
    list.style.gridTemplateColumns = `repeat(${across}, minmax(0, 1fr))`;
    const wide = (width - GAP * (across - 1)) / across;
    const tall = free ? free / rows - AROUND : Math.max(96, Math.min(0.55 * wide, 240));
    list.style.setProperty("--scatter", `${Math.round(Math.min(Math.max(tall, 60), 0.8 * wide, 300))}px`);
  };
  list.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns(), ArrowUp: -columns() };
    const ends = { Home: 0, End: entry.nHeads - 1 };
    const next = event.key in steps ? focused + steps[event.key] : ends[event.key];
    if (next !== undefined) {
      if (next >= 0 && next < entry.nHeads) {
        if (event.shiftKey) {
          toggle(focused, true);
          focus(next);
          toggle(next, true);
        } else focus(next);
      }
    } else if (event.key === " ") toggle(focused, event.shiftKey);
    else if (event.key === "Enter") store.change({ page: focused });
    else if (event.key === "o") app.switchHead(focused);
    else if (event.key === "Escape") store.change({ heads: null });
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  cards.forEach(({ element }, head) => {
    element.addEventListener("click", (event) => {
      if (event.target.closest("button")) return;
      focus(head);
      toggle(head, event.shiftKey);
    });
    element.addEventListener("dblclick", () => store.change({ page: head }));
    element.addEventListener("mouseenter", () => app.hover(head));
    element.addEventListener("mouseleave", () => app.hover(null));
    element.addEventListener("focus", () => app.hover(head));
  });
  cards[0].element.tabIndex = 0;
  app.focusCard = focus;
  let arranged = null;
  const legend = make("p", { class: "keys" });
  const keys = make("p", { class: "keys help", id: `${app.id}-keys`, text: "Click to choose heads, Shift for a range. Keys: arrows move, Space chooses, Enter opens a head, O switches it off, Esc chooses all." });
  const element = make("section", { class: "heads", "aria-label": "Heads" }, list, legend, keys);
  const update = (shown) => {
    if (arranged !== shown.size) arrange(list.clientWidth, shown.free);
    arranged = shown.size;
    legendInto(legend, engine.model, shown.dark);
    cards.forEach((card) => card.update(shown));
  };
  return { element, update };
}

/** What colours and lines stand for; many answers are told by their number alone. */
function legendInto(element, model, dark) {
  const key = `${dark}`;
  if (element.dataset.drawn === key) return;
  element.dataset.drawn = key;
  const marks = model.answers.flatMap((answer, a) => {
    const dot = make("span", { class: "dot" });
    dot.style.background = answerColour(a, model.answers.length, dark);
    return [dot, make("b", { text: `${answer} ` })];
  });
  element.replaceChildren("Head outputs on test sentences by right answer ", ...(marks.length <= 20 ? marks : []), model.answers.length === 2 ? "· line: linear probe " : "", "· grey: before the patch · circles: value vectors, grey if farther out · cross: the sentence · ● ◐ ○ successful, mixed, failed");
}

function headCard(app, head) {
  const { store, engine, bounds } = app;
  const name = make("span", { class: "number", text: head });
  const sign = make("span", { class: "sign" });
  const sAcc = make("span", { class: "metric", "data-value": `head-${head}-s_acc`, title: "s-acc: accuracy of a linear probe of the head's output" });
  const lAcc = make("span", { class: "metric small", "data-value": `head-${head}-l_acc`, title: "l-acc: accuracy of the model with this head alone" });
  const off = button("", `switch head ${head} off or on`, () => app.switchHead(head), { class: "icon", tabindex: -1 });
  off.append(switchSign());
  const open = button("⤢", `open the page of head ${head}`, () => store.change({ page: head }), { class: "icon", tabindex: -1 });
  const canvas = make("canvas", { class: "scatter", "aria-hidden": "true" });
  const bars = make("div", { class: "bars", "data-value": `head-${head}-attention` });
  const rows = make("div", { class: "shades" });
  const element = make("article", { class: "card", role: "option", "aria-selected": "false", tabindex: -1, "data-head": head },
    make("header", {}, name, sign, sAcc, open, off),
    canvas,
    bars,
    rows,
    make("footer", {}, make("span", { class: "label", text: "l-acc " }), lAcc));
  const plane = planeOf(engine.original(head).test, engine.model.dHead);
  let drawn = {};
  const update = (shown) => {
    const { state, dark, before, after, sentence, size } = shown;
    const [one, other] = [before.heads[head], after.heads[head]];
    const isOff = state.off.includes(head);
    const chosen = state.heads?.includes(head) ?? false;
    element.setAttribute("aria-selected", chosen);
    element.classList.toggle("off", isOff);
    off.setAttribute("aria-pressed", isOff);
    const point = sentence.after.asked.heads[head].output;
    const key = [other, dark, size, point.join()];
    if (key.some((part, i) => part !== drawn.scatter?.[i])) {
      // To ask the page for sizes makes it lay itself out anew: once for all cards is enough.
      if (drawn.size !== size || !drawn.box.width) drawn.box = { width: canvas.clientWidth, height: canvas.clientHeight };
      drawn.size = size;
      drawScatter(canvas, engine, other, one, plane, { dark, large: false, ...drawn.box }, isOff ? null : point);
      drawn.scatter = drawn.box.width ? key : null;
    }
    const attention = [sentence.before, sentence.after].map(({ asked }) => asked.heads[head].attention);
    const bar = [dark, attention[0].join(), isOff ? "" : attention[1].join()].join("|");
    if (drawn.bar !== bar) {
      bars.replaceChildren(attentionBar(engine.model, attention[1], dark, "attention at ="));
      const moved = attention[0].some((value, t) => Math.abs(value - attention[1][t]) > 5e-4);
      if (moved) bars.append(attentionBar(engine.model, attention[0], dark, "before the patch"));
      bars.classList.toggle("moved", moved);
      drawn.bar = bar;
    }
    if (drawn.dark !== dark) {
      rows.replaceChildren(shadeRows(engine, head, dark));
      drawn.dark = dark;
    }
    if (drawn.measured !== other) {
      beforeAfter(sAcc, one.sAcc, other.sAcc);
      beforeAfter(lAcc, one.lAcc, other.lAcc);
      const kind = app.categories[head];
      say(sign, SIGNS[kind]);
      sign.title = `${kind}: s-acc ${kind === "successful" ? "≥" : kind === "failed" ? "≤" : "between"} ${kind === "mixed" ? `${bounds.failed} and ${bounds.successful}` : bounds[kind]}`;
      element.setAttribute("aria-label", `head ${head}, ${kind}${isOff ? ", off" : ""}, s-acc ${shareText(one.sAcc)}${one === other ? "" : ` to ${shareText(other.sAcc)}`}, l-acc ${shareText(one.lAcc)}${one === other ? "" : ` to ${shareText(other.lAcc)}`}`);
      drawn.measured = other;
    }
  };
  return { element, update };
}
