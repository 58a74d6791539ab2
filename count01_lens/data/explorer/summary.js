// The whole model before → after, and the group of heads under the cursor.

import { beforeAfter } from "./cards.js";
import { make, say } from "./elements.js";
import { percentText, shareText, signedText } from "./scales.js";
import { unpacked } from "./tables.js";
import { headsText } from "./wording.js";

const NAMES = { answer: "right answers", ties: "ties", others: "no ties", end: "[EOS]" };

/** Accuracy of the whole model on the test split. */
export function wholeModel(app) {
  const names = Object.keys(NAMES).filter((name) => app.engine.test.ties || !["ties", "others"].includes(name));
  const values = names.map((name) => {
    const value = make("dd", { "data-value": `model-${name}` });
    const pair = make("div", { class: name === "answer" ? "main" : "" }, make("dt", { text: NAMES[name] }), value);
    return { name, value, pair };
  });
  const element = make("dl", { class: "whole", "aria-label": `Whole model on ${app.engine.test.length} test sentences`, title: `the whole model on the ${app.engine.test.length} sentences of the test split` }, ...values.map(({ pair }) => pair));
  const update = ({ before, after }) => {
    for (const { name, value } of values) beforeAfter(value, before.whole[name], after.whole[name], percentText);
  };
  return { element, update };
}

/** The chosen heads and the one under the cursor, together: probe, answers, Shapley values. */
export function groupPanel(app) {
  const { engine, entry } = app;
  const title = make("h2", {});
  const lines = make("div", { class: "group" });
  const element = make("section", { class: "panel", "aria-label": "The group under the cursor", "data-value": "group" }, title, lines);
  const known = entry.analysis;
  const shapley = known?.shapley?.s_acc ? unpacked(known.shapley.s_acc) : null;
  const interactions = known?.interactions?.s_acc ? unpacked(known.interactions.s_acc) : null;
  let timer = null;
  const row = (name, title_) => {
    const value = make("span", { class: "metric", "data-value": `group-${name}`, text: "…" });
    return { value, line: make("div", { class: "pair", title: title_ }, make("span", { class: "label", text: name }), value) };
  };
  const update = ({ state, before, after, hovered }) => {
    const chosen = new Set(state.heads ?? []);
    if (hovered !== null) chosen.add(hovered);
    const heads = [...chosen].sort((a, b) => a - b);
    clearTimeout(timer);
    if (!heads.length) {
      say(title, "Together");
      lines.replaceChildren(make("p", { class: "hint", text: "Choose heads, or point at one: what they are worth together." }));
      return;
    }
    say(title, `${headsText(heads, entry.nHeads)} together`.replace(/^./, (c) => c.toUpperCase()));
    const [s, l] = [row("s-acc", "accuracy of a linear probe of all their outputs"), row("l-acc", "accuracy of the model with these heads alone")];
    const rows = [s, l];
    if (shapley) {
      const phi = row("Shapley, s-acc", "what these heads bring on average, over all orders in which heads may come");
      say(phi.value, signedText(heads.reduce((sum, head) => sum + shapley[head], 0)));
      rows.push(phi);
      if (heads.length === 2) {
        const pair = row("interaction", "above 0: worth more together than apart; below 0: one has what the other brings");
        say(pair.value, signedText(interactions[heads[0] * entry.nHeads + heads[1]]));
        rows.push(pair);
      }
    }
    lines.replaceChildren(...rows.map(({ line }) => line));
    const on = heads.filter((head) => !state.off.includes(head));
    const write = () => {
      const [one, other] = [before, after].map((shown) => groupOf(app, engine, shown, heads));
      beforeAfter(s.value, one.sAcc, other.sAcc);
      beforeAfter(l.value, one.lAcc, other.lAcc);
    };
    // A probe of many heads takes longer than a frame: sliders come first.
    if (heads.length === 1) write();
    else timer = setTimeout(write, on.length > 4 ? 120 : 30);
  };
  return { element, update };
}

const remembered = new WeakMap();

function groupOf(app, engine, shown, heads) {
  if (heads.length === 1) return shown.heads[heads[0]];
  if (!remembered.has(shown)) remembered.set(shown, new Map());
  const found = remembered.get(shown);
  const key = heads.join();
  if (!found.has(key)) found.set(key, engine.group(shown, heads));
  return found.get(key);
}

/** Heads by how much a head shares with them: interactions, or gains of pairs. */
export function neighbours(app, head) {
  const { entry } = app;
  const known = entry.analysis;
  if (!known) return null;
  const n = entry.nHeads;
  const others = Array.from({ length: n }, (_, other) => other).filter((other) => other !== head);
  if (known.interactions?.s_acc) {
    const table = unpacked(known.interactions.s_acc);
    const found = others.map((other) => ({ other, value: table[head * n + other] }));
    return { title: "Neighbours by Shapley interaction of s-acc", write: signedText, found: found.sort((a, b) => Math.abs(b.value) - Math.abs(a.value)) };
  }
  const pairs = unpacked(known.pairs);
  const found = others.map((other) => ({ other, value: pairs[head * n + other] })).filter(({ value }) => value >= 0);
  return { title: "Neighbours by s-acc of the pair", write: shareText, found: found.sort((a, b) => b.value - a.value) };
}

