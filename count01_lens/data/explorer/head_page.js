// The page of one head: its numbers, its outputs, its tables, its read-outs, its neighbours.

import { attentionBar, beforeAfter } from "./cards.js";
import { button, heatTable, make, say } from "./elements.js";
import { numberText, shaded, shareText, signedText } from "./scales.js";
import { drawScatter, planeOf } from "./scatter.js";
import { neighbours } from "./summary.js";
import { ovRow, ownRatios, scoresOf, unpacked } from "./tables.js";

/** A panel that takes the place of the cards while a head's page is open. */
export function headPage(app) {
  const { store, engine, entry } = app;
  const { model } = engine;
  const title = make("h2", { tabindex: -1 });
  const close = button("✕", "back to all heads", () => store.change({ page: null }), { class: "icon" });
  const step = (by) => () => store.change({ page: (store.state.page + by + entry.nHeads) % entry.nHeads }, "page");
  const canvas = make("canvas", { class: "large", role: "img" });
  const facts = make("dl", { class: "facts" });
  const words = make("dl", { class: "words" });
  const tables = make("div", { class: "tables" });
  const attention = make("div", { class: "bars tall" });
  const beside = make("div", { class: "neighbours" });
  const legend = make("p", { class: "hint" });
  const element = make("section", { class: "page", "aria-label": "Page of one head", hidden: true },
    make("header", {}, title, button("‹", "previous head", step(-1), { class: "icon" }), button("›", "next head", step(1), { class: "icon" }), close),
    make("div", { class: "columns" }, make("div", {}, canvas, legend, make("h3", { text: "Attention at = of the sentence" }), attention), make("div", {}, facts, words, beside)),
    tables);
  element.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      store.change({ page: null });
      event.stopPropagation();
    }
  });
  let [drawn, last, started] = [null, null, false];
  const update = (shown) => {
    const { state, dark, before, after, sentence, size } = shown;
    const head = state.page;
    const opened = head !== null && element.hidden;
    element.hidden = head === null;
    if (head === null) {
      if (last !== null) app.focusCard(last); // where the reader came from
      last = drawn = null;
      started = true;
      return;
    }
    last = head;
    const [one, other] = [before.heads[head], after.heads[head]];
    say(title, `Head ${head}`);
    const plane = planeOf(engine.original(head).test, model.dHead);
    drawScatter(canvas, engine, other, one, plane, { dark, large: true, width: canvas.clientWidth, height: canvas.clientHeight }, sentence.after.asked.heads[head].output);
    canvas.setAttribute("aria-label", `Outputs of head ${head} on the test split with its linear probe: s-acc ${shareText(other.sAcc)}`);
    say(legend, `Test sentences by right answer (${model.answers.join(", ")}), training sentences pale behind;${other.probe.length === 1 ? " the line is the linear probe," : ""} circles are value vectors (grey: farther out), the cross is the sentence.`);
    factsInto(facts, app, head, one, other, sentence);
    wordsInto(words, engine, one, other);
    attention.replaceChildren(...[sentence.after, sentence.before].map(({ asked }, i) => attentionBar(model, asked.heads[head].attention, dark, i ? "before" : "now")));
    const key = `${head} ${dark} ${size}`;
    if (drawn !== key) {
      tablesInto(tables, engine, head, dark);
      neighboursInto(beside, app, head);
      drawn = key;
    }
    if (opened && started) title.focus(); // not where an address has opened it: others may scroll there
    started = true;
  };
  return { element, update };
}

function factsInto(list, app, head, one, other, sentence) {
  const { engine, entry } = app;
  const { model } = engine;
  const pair = (name, value, label) => make("div", {}, make("dt", { text: name }), make("dd", label ? { "data-value": label } : {}, ...[value].flat()));
  const change = (before, after) => {
    const span = make("span", {});
    beforeAfter(span, before, after);
    return span;
  };
  const found = [
    pair("category", app.categories[head]),
    pair("s-acc", change(one.sAcc, other.sAcc), "page-s_acc"),
    pair("l-acc", change(one.lAcc, other.lAcc), "page-l_acc"),
    ...ownRatios(model, head).map((ratio, i) => pair(`own w${model.symbols[0]}${model.symbols[1 + i]}`, numberText(ratio))),
  ];
  const known = entry.analysis;
  if (known) {
    found.push(pair("ROC AUC", shareText(unpacked(known.rocAuc)[head])));
    if (known.shapley?.s_acc) found.push(pair("Shapley, s-acc", signedText(unpacked(known.shapley.s_acc)[head])));
    if (known.shapley?.l_acc) found.push(pair("Shapley, l-acc", signedText(unpacked(known.shapley.l_acc)[head])));
  }
  for (const [a, answer] of model.answers.entries()) {
    const token = model.equals + 1 + a;
    const [before, after] = [sentence.before, sentence.after].map(({ asked }) => asked.heads[head].logits[token]);
    const changed = Math.abs(before - after) > 1e-9;
    found.push(pair(`adds to ${answer}`, changed ? `${signedText(before)} → ${signedText(after)}` : signedText(after)));
  }
  list.replaceChildren(...found);
}

function wordsInto(list, engine, one, other) {
  const [before, after] = [engine.probeText(one), engine.probeText(other)];
  const pair = (name, text, label) => [make("dt", { text: name }), make("dd", { class: "formula", text, "data-value": label })];
  list.replaceChildren(
    ...pair(before === after ? "linear probe over counts" : "linear probe, before", before, "page-readout-before"),
    ...(before === after ? [] : pair("linear probe, patched", after, "page-readout")),
    ...pair("the model's own use of it", engine.learnedText(one.head), "page-learned"),
  );
}

function tablesInto(element, engine, head, dark) {
  const { model } = engine;
  const queries = model.tokens.slice(model.equals, model.eos);
  const keys = model.tokens.slice(0, model.eos);
  const sees = (q, k) => k <= model.equals || k === model.equals + q;
  const scores = queries.map((_, q) => scoresOf(model, head, model.equals + q));
  const most = Math.max(...scores.flatMap((row, q) => [...row].filter((_, k) => sees(q, k)).map(Math.abs)));
  const written = keys.map((_, k) => ovRow(model, head, k));
  const top = Math.max(...written.flatMap((row) => [...row].map(Math.abs)));
  element.replaceChildren(
    make("div", { class: "scroll" }, heatTable("QK: attention scores, a row per query", "query", queries, keys, (q, k) => (sees(q, k) ? scores[q][k] : null), (value) => shaded(value, most, dark), numberText)),
    make("div", { class: "scroll" }, heatTable("OV: what attending to a token alone adds to each logit", "token", keys, model.tokens, (k, t) => written[k][t], (value) => shaded(value, top, dark), numberText)),
  );
}

function neighboursInto(element, app, head) {
  const found = neighbours(app, head);
  if (!found?.found.length) return element.replaceChildren();
  const list = found.found.slice(0, 6).map(({ other, value }) =>
    make("li", {}, make("button", { type: "button", class: "chip", text: `head ${other}: ${found.write(value)}`, on: { click: () => app.store.change({ page: other }) } })));
  element.replaceChildren(make("h3", { text: found.title }), make("ul", { class: "chips" }, ...list));
}
