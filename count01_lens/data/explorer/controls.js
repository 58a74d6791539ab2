// What is set by hand: the sentence, and the attention patch.

import { button, isFocused, make, say } from "./elements.js";
import { numberText, RATIOS, stopOf, tokenColour, typedText } from "./scales.js";
import { ownRatios } from "./tables.js";
import { ratioOf, readSentence } from "./state.js";
import { headsText, SIGNS } from "./wording.js";

/** A slider with a box for the number; both have the same name. */
function slider(name, label, options, onSlide, onType, store) {
  const range = make("input", {
    type: "range", "aria-label": label, "data-value": `${name}-slider`, ...options,
    on: { input: (event) => onSlide(Number(event.target.value)), change: () => store.settle() },
  });
  const box = make("input", {
    type: "text", inputmode: "decimal", class: "box", "aria-label": `${label}, as a number`, "data-value": name, autocomplete: "off",
    on: { change: (event) => onType(event.target.value), keydown: (event) => event.key === "Enter" && event.target.blur() },
  });
  return { range, box };
}

/** Counts by sliders, or a sentence typed. */
export function sentenceControls(app) {
  const { store, entry } = app;
  const { symbols, most } = entry.language;
  const set = (place, n, kind) => {
    const counts = [...store.state.counts];
    counts[place] = n;
    store.change({ counts, text: null }, kind);
  };
  const rows = symbols.map((symbol, place) => {
    const typed = (text) => set(place, text.trim() === "" ? NaN : Number(text), null);
    const { range, box } = slider(`n${symbol}`, `number of ${symbol}`, { min: 0, max: most[place], step: 1 }, (n) => set(place, n, `n${place}`), typed, store);
    const mark = make("span", { class: "token", text: symbol });
    const line = make("div", { class: "line" }, make("span", { class: "name" }, mark, make("span", { text: `n${symbol}` })), range, box);
    return { range, box, mark, line };
  });
  const text = make("input", {
    type: "text", class: "wide", "aria-label": "sentence", placeholder: `such as ${symbols.slice(0, 3).join("")}${symbols[0]}=`, spellcheck: "false", autocomplete: "off",
    "data-value": "sentence",
    on: {
      keydown: (event) => event.key === "Enter" && event.target.blur(),
      change: (event) => {
        try {
          const counts = readSentence(entry.language, event.target.value);
          store.change({ counts, text: event.target.value.trim() });
        } catch (error) {
          if (!(error instanceof RangeError)) throw error;
          store.fail(error.message);
        }
      },
    },
  });
  const verdict = make("p", { class: "verdict", "data-value": "verdict", "aria-live": "polite" });
  const element = make("section", { class: "panel", "aria-label": "Sentence" }, make("h2", { text: "Sentence" }), ...rows.map(({ line }) => line), text, verdict);
  const update = ({ state, dark, engine, sentence }) => {
    rows.forEach(({ range, box, mark }, place) => {
      const n = state.counts[place];
      range.max = Math.max(most[place], n);
      range.value = n;
      if (!isFocused(box)) box.value = n;
      mark.style.background = tokenColour(engine.model, 1 + place, dark);
    });
    if (!isFocused(text)) text.value = state.text ?? written(symbols, state.counts);
    verdictInto(verdict, entry, sentence);
  };
  return { element, update };
}

function written(symbols, counts) {
  const total = counts.reduce((sum, n) => sum + n, 0);
  return total > 80 ? "" : `${symbols.map((symbol, place) => symbol.repeat(counts[place])).join("")}=`;
}

/** What is right, what the model says, and by how much it leads. */
function verdictInto(element, entry, { before, after }) {
  const { answers } = entry.language;
  const lead = ({ asked, said }) => {
    const logits = answers.map((_, a) => asked.logits[answers.length && a + entry.language.symbols.length + 2]);
    return logits[said] - Math.max(...logits.filter((_, a) => a !== said));
  };
  const spoken = (one) => {
    const good = one.right === null ? "" : one.said === one.right ? " ✓" : " ✗";
    return make("span", { class: one.right === null || one.said === one.right ? "good" : "bad" }, make("b", { text: answers[one.said] }), `${good} by ${numberText(lead(one))}`);
  };
  const right = after.right === null ? [] : ["right: ", make("b", { text: answers[after.right] }), " · "];
  const same = before.said === after.said && Math.abs(lead(before) - lead(after)) < 5e-4 * Math.abs(lead(before));
  element.replaceChildren(...right, "the model says ", spoken(before), ...(same ? [] : [" → ", spoken(after)]));
}

/** The patch: for which heads, which ratios or weights, and what the others get. */
export function patchControls(app) {
  const { store, entry, engine } = app;
  const { symbols } = entry.language;
  const who = make("span", { class: "who", "data-value": "chosen" });
  const chips = make("div", { class: "chips", role: "group", "aria-label": "choose heads" });
  const kinds = ["successful", "mixed", "failed"].map((kind) => {
    const chip = button("", `choose the ${kind} heads`, () => {
      const found = engine.heads.filter((head) => app.categories[head] === kind);
      const same = store.state.heads?.join() === found.join();
      store.change({ heads: same ? null : found });
    }, { class: "chip" });
    return { kind, chip };
  });
  const all = button("all", "choose all heads", () => store.change({ heads: null }), { class: "chip" });
  chips.append(all, ...kinds.map(({ chip }) => chip));

  const ratios = symbols.slice(1).map((symbol) => ratioControl(app, symbol));
  const weights = ["[BOS]", ...symbols, "="].map((token) => weightControl(app, token));
  const ratioBox = make("div", { class: "lines" }, ...ratios.map(({ line }) => line));
  const weightBox = make("div", { class: "lines" }, ...weights.map(({ line }) => line));
  const mode = choice("set", [["ratios", "ratios"], ["weights", "weights per token"]], (value) => {
    const tokens = ["[BOS]", ...symbols, "="];
    const start = Object.fromEntries(tokens.map((token) => [token, symbols.includes(token) ? 1 : 0]));
    store.change({ weights: value === "weights" ? start : null });
  });
  const others = choice("[BOS] and =", [["zero", "get nothing"], ["keep", "keep theirs"]], (value) => store.change({ others: value }));
  const none = Object.fromEntries(symbols.slice(1).map((symbol) => [symbol, null]));
  const presets = make("div", { class: "chips" },
    entry.task === "count01"
      ? button("the paper's", "the paper's patch: w01 = 1, w02 = ∞", () => store.change({ ratios: { 1: 1, 2: Infinity }, weights: null, others: "zero" }), { class: "chip" })
      : button("alike", "all symbols alike", () => store.change({ ratios: Object.fromEntries(symbols.slice(1).map((symbol) => [symbol, 1])), weights: null }), { class: "chip" }),
    button("no patch", "heads keep their own attention, and all are on", () => store.change({ ratios: none, weights: null, off: [] }), { class: "chip" }),
  );
  const element = make("section", { class: "panel", "aria-label": "Attention patch" },
    make("h2", {}, "Attention at = of ", who), chips, mode.element, ratioBox, weightBox, others.element, presets);
  const update = ({ state }) => {
    say(who, headsText(state.heads, entry.nHeads));
    all.setAttribute("aria-pressed", state.heads === null);
    for (const { kind, chip } of kinds) {
      const found = engine.heads.filter((head) => app.categories[head] === kind);
      say(chip, `${SIGNS[kind]} ${kind} ${found.length}`);
      chip.hidden = found.length === 0;
      chip.setAttribute("aria-pressed", found.length > 0 && state.heads?.join() === found.join());
    }
    mode.set(state.weights ? "weights" : "ratios");
    others.set(state.others);
    ratioBox.hidden = Boolean(state.weights);
    weightBox.hidden = !state.weights;
    for (const { update: each } of [...ratios, ...weights]) each(state);
  };
  return { element, update };
}

/** A slider for the ratio of the first symbol to another: 0 and ∞ at its ends, or the heads' own. */
function ratioControl({ store, entry, engine }, symbol) {
  const name = `w${entry.language.symbols[0]}${symbol}`;
  const set = (ratio, kind) => store.change({ ratios: { ...store.state.ratios, [symbol]: ratio } }, kind);
  const typed = (text) => {
    try {
      set(ratioOf(text), null);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      store.fail(`${name}: ${error.message}`);
    }
  };
  const label = `${name}: attention of one ${entry.language.symbols[0]} over that of one ${symbol}`;
  const { range, box } = slider(name, label, { min: 0, max: RATIOS.length - 1, step: 1, title: label }, (stop) => set(RATIOS[stop], name), typed, store);
  const own = button("own", `${name}: heads keep their own`, () => set(store.state.ratios[symbol] === null ? 1 : null, null), { class: "own", "data-value": `${name}-own` });
  const line = make("div", { class: "line ratio" }, make("span", { class: "name", text: name }), range, box, own);
  const place = entry.language.symbols.indexOf(symbol) - 1;
  const update = ({ ratios, heads }) => {
    const ratio = ratios[symbol];
    // Of heads with ratios of their own, the slider stands in their middle.
    const theirs = (heads ?? engine.heads).map((head) => ownRatios(engine.model, head)[place]).sort((a, b) => a - b);
    const middle = theirs[theirs.length >> 1];
    range.value = stopOf(ratio ?? middle);
    range.setAttribute("aria-valuetext", ratio === null ? "own" : numberText(ratio));
    line.classList.toggle("idle", ratio === null);
    own.setAttribute("aria-pressed", ratio === null);
    if (!isFocused(box)) box.value = typedText(ratio ?? middle);
  };
  return { line, update };
}

/** A slider for the weight of one token of a type. */
function weightControl({ store }, token) {
  const set = (weight, kind) => store.change({ weights: { ...store.state.weights, [token]: weight } }, kind);
  const { range, box } = slider(`weight-${token}`, `weight of one ${token}`, { min: 0, max: 4, step: 0.05 }, (weight) => set(weight, `weight-${token}`), (text) => set(Number(text.replace(",", ".")), null), store);
  const line = make("div", { class: "line" }, make("span", { class: "name", text: token }), range, box);
  const update = ({ weights }) => {
    if (!weights) return;
    range.value = weights[token] ?? 0;
    if (!isFocused(box)) box.value = typedText(weights[token] ?? 0);
  };
  return { line, update };
}

/** One of a few, side by side. */
function choice(label, options, onChoose) {
  const buttons = options.map(([value, text]) => {
    const each = make("button", { type: "button", text, "data-choice": value, on: { click: () => onChoose(value) } });
    return { value, each };
  });
  const element = make("div", { class: "choice", role: "group", "aria-label": label }, make("span", { class: "name", text: label }), make("span", { class: "segments" }, ...buttons.map(({ each }) => each)));
  const set = (chosen) => buttons.forEach(({ value, each }) => each.setAttribute("aria-pressed", value === chosen));
  return { element, set };
}
