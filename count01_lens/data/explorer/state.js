// What the user has chosen: checked at every change, with undo and redo, and in the address.
//
// A state is {model, heads, ratios, weights, others, off, counts, text, page}: `heads` are those that
// the patch is for, null for all; `ratios` by symbol, null for a head's own; `weights` by token in
// their place, or null; `page` is the head whose page is open.

const PREFIX = "#explore?";

/** What was given, in a message: an address may be as long as it likes. */
const shortened = (text) => (String(text).length > 60 ? `${String(text).slice(0, 60)}…` : text);

/** Where a model starts: nothing patched, no head off, and a close call for a sentence. */
export function startOf(models, number = 0) {
  const { symbols, most } = models[number].language;
  const counts = symbols.map((_, place) => Math.min(most[place], [10, 12, 7, 9, 6][place % 5]));
  const fits = counts.reduce((sum, n) => sum + n, 2) <= models[number].nCtx;
  return {
    model: number,
    heads: null,
    ratios: Object.fromEntries(symbols.slice(1).map((symbol) => [symbol, null])),
    weights: null,
    others: "zero",
    off: [],
    counts: fits ? counts : counts.map(() => 0),
    text: null,
    page: null,
  };
}

/** The patches of a state, as the engine takes them. */
export function patchesOf(state) {
  const { heads, others, weights, ratios } = state;
  if (weights) return [{ heads, weights, others, at: "=" }];
  const given = Object.values(ratios).some((ratio) => ratio !== null);
  return given ? [{ heads, ratios, others, at: "=" }] : [];
}

/** Return a state if it can be; else throw a sentence for the user. */
export function checkedState(models, state) {
  const model = models[state.model];
  if (!model) throw new RangeError(`model: expected 0 to ${models.length - 1}, got ${shortened(state.model)}`);
  const { symbols, answers } = model.language;
  const heads = (name, given) => {
    const numbers = [...new Set(given)].sort((a, b) => a - b);
    const wrong = numbers.find((head) => !Number.isInteger(head) || head < 0 || head >= model.nHeads);
    if (wrong !== undefined) throw new RangeError(`${name}: expected heads 0 to ${model.nHeads - 1}, got ${wrong}`);
    return numbers;
  };
  const chosen = state.heads === null ? null : heads("heads", state.heads);
  const ratios = {};
  for (const symbol of symbols.slice(1)) {
    const ratio = state.ratios[symbol] ?? null;
    if (ratio !== null && !(ratio >= 0)) {
      throw new RangeError(`w${symbols[0]}${symbol}: expected a number from 0 to ∞, or "own"`);
    }
    ratios[symbol] = ratio === null ? null : ratio + 0; // never −0
  }
  const nothing = Object.keys(ratios).filter((symbol) => ratios[symbol] === 0);
  if (nothing.length > 1) {
    const names = nothing.map((symbol) => `w${symbols[0]}${symbol} = 0`).join(" and ");
    throw new RangeError(`${names} each take all attention from the other symbols: at most one can be 0`);
  }
  const tokens = ["[BOS]", ...symbols, "=", ...answers, "[EOS]"];
  const weights = state.weights && { ...state.weights };
  for (const [token, weight] of Object.entries(weights ?? {})) {
    if (!tokens.includes(token)) throw new RangeError(`weights: expected tokens ${tokens.join(" ")}, got ${shortened(token)}`);
    if (!(weight >= 0 && weight < Infinity)) {
      throw new RangeError(`weight of ${token}: expected a number from 0 on, got ${weight}`);
    }
    weights[token] = weight + 0;
  }
  if (!["zero", "keep"].includes(state.others)) throw new RangeError(`others: expected zero or keep, got ${shortened(state.others)}`);
  const counts = symbols.map((_, place) => state.counts[place] + 0);
  const wrong = counts.findIndex((n) => !Number.isInteger(n) || n < 0);
  if (wrong >= 0) throw new RangeError(`n${symbols[wrong]}: expected a whole number from 0 on`);
  const length = counts.reduce((sum, n) => sum + n, 0) + 2;
  if (length > model.nCtx) throw new RangeError(`sentence: ${length} tokens, but the model reads ${model.nCtx}`);
  const [page] = state.page === null ? [null] : heads("page", [state.page]);
  return { ...state, heads: chosen?.length ? chosen : null, ratios, weights, off: heads("off", state.off), counts, page };
}

/** Read a sentence such as 0110212=, with or without '[BOS]', an answer and '[EOS]'. */
export function readSentence(language, text) {
  let rest = text.trim().replace(/^\[BOS\]/, "");
  const start = text.trim().length - rest.length;
  const all = rest.length;
  const counts = language.symbols.map(() => 0);
  for (;;) {
    const place = language.symbols.findIndex((symbol) => rest.startsWith(symbol));
    if (place < 0) break;
    counts[place]++;
    rest = rest.slice(language.symbols[place].length);
  }
  const wrong = (expected) => {
    const at = start + all - rest.length;
    const got = rest ? `'${[...rest][0]}'` : "the end";
    return new RangeError(`sentence: expected ${expected} at position ${at}, got ${got}`);
  };
  const symbols = language.symbols.map((symbol) => `'${symbol}'`).join(", ");
  if (!rest.startsWith("=")) throw wrong(`${symbols} or '='`);
  rest = rest.slice(1);
  const answer = language.answers.find((each) => rest.startsWith(each));
  if (answer) rest = rest.slice(answer.length).replace(/^\[EOS\]$/, "");
  if (rest) throw wrong(answer ? "'[EOS]' or the end" : "an answer or the end");
  return counts;
}

/** Write a state for the end of an address; what is as at the start is left out. */
export function fragmentOf(models, state) {
  const start = startOf(models, state.model);
  const given = [];
  const add = (name, value) => given.push(`${name}=${encodeURIComponent(value)}`);
  if (state.model) add("model", state.model);
  if (state.heads) add("heads", state.heads.join(","));
  const { symbols } = models[state.model].language;
  for (const [symbol, ratio] of Object.entries(state.ratios)) {
    if (ratio !== null) add(`w${symbols[0]}${symbol}`, ratio === Infinity ? "inf" : ratio);
  }
  if (state.weights) add("weights", Object.entries(state.weights).map(([token, weight]) => `${token}:${weight}`).join(","));
  if (state.others !== start.others) add("others", state.others);
  if (state.off.length) add("off", state.off.join(","));
  if (state.text !== null) add("sentence", state.text);
  else if (state.counts.join() !== start.counts.join()) add("n", state.counts.join(","));
  if (state.page !== null) add("page", state.page);
  return given.length ? PREFIX + given.join("&") : "";
}

/** Read a state from the end of an address; null if it is about something else. */
export function readFragment(models, fragment) {
  if (!fragment.startsWith(PREFIX)) return null;
  const given = new Map();
  for (const part of fragment.slice(PREFIX.length).split("&").filter(Boolean)) {
    const [name, value = ""] = part.split("=");
    given.set(name, decodeURIComponent(value));
  }
  const numberOf = (name, text) => {
    const value = Number(text);
    if (Number.isNaN(value)) throw new RangeError(`${name}: expected numbers, got ${shortened(text)}`);
    return value;
  };
  const numbers = (name) => given.get(name).split(",").filter(Boolean).map((text) => numberOf(name, text));
  const number = given.has("model") ? Number(given.get("model")) : 0;
  if (!models[number]) throw new RangeError(`address: there is no model ${shortened(given.get("model"))}`);
  const state = startOf(models, number);
  const { language } = models[number];
  for (const name of given.keys()) {
    const symbol = language.symbols.slice(1).find((each) => name === `w${language.symbols[0]}${each}`);
    if (symbol) state.ratios[symbol] = ratioOf(given.get(name));
  }
  if (given.has("heads")) state.heads = numbers("heads");
  if (given.has("off")) state.off = numbers("off");
  if (given.has("others")) state.others = given.get("others");
  if (given.has("n")) state.counts = numbers("n");
  if (given.has("page")) state.page = numberOf("page", given.get("page"));
  if (given.has("weights")) {
    const pairs = given.get("weights").split(",").map((pair) => pair.split(/:(?=[^:]*$)/));
    state.weights = Object.fromEntries(pairs.map(([token, weight]) => [token, numberOf("weights", weight)]));
  }
  if (given.has("sentence")) {
    state.text = given.get("sentence");
    state.counts = readSentence(language, state.text);
  }
  return checkedState(models, state);
}

/** Read a ratio: a number, 0, inf or ∞; null for "own". */
export function ratioOf(text) {
  const plain = text.trim().toLowerCase();
  if (plain === "" || plain === "own") return null;
  if (["inf", "infinity", "∞"].includes(plain)) return Infinity;
  const value = Number(plain.replace(",", "."));
  if (!(value >= 0)) throw new RangeError(`expected a number from 0 on, "inf" or "own", got ${shortened(text)}`);
  return value;
}

/** Keeps the state, and what was before and after it; tells those who listen of every change. */
export class Store {
  constructor(models, state) {
    this.models = models;
    this.state = state;
    this.past = [];
    this.future = [];
    this.listeners = [];
    this.message = "";
    this.kind = null;
  }

  listen(listener) {
    this.listeners.push(listener);
  }

  /**
   * Change some fields. What cannot be becomes a message, and the state stays as it is.
   *
   * Changes of one `kind` after another, such as those of a slider that is dragged, are undone
   * together.
   */
  change(fields, kind = null) {
    try {
      const { model } = this.state;
      const fresh = fields.model !== undefined && fields.model !== model ? startOf(this.models, fields.model) : this.state;
      const next = checkedState(this.models, { ...fresh, ...fields });
      if (JSON.stringify(next, asJson) === JSON.stringify(this.state, asJson)) {
        this.message = "";
        return this.tell();
      }
      if (kind === null || kind !== this.kind) this.past.push(this.state);
      if (this.past.length > 200) this.past.shift();
      this.future = [];
      this.kind = kind;
      this.state = next;
      this.message = "";
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      this.message = error.message;
    }
    this.tell();
  }

  /** End a drag: the next change is undone by itself. */
  settle() {
    this.kind = null;
  }

  fail(message) {
    this.message = message;
    this.tell();
  }

  undo() {
    this.move(this.past, this.future);
  }

  redo() {
    this.move(this.future, this.past);
  }

  move(from, to) {
    if (!from.length) return;
    to.push(this.state);
    this.state = from.pop();
    this.kind = null;
    this.message = "";
    this.tell();
  }

  tell() {
    for (const listener of this.listeners) listener(this.state);
  }
}

/** JSON has no infinity. */
export function asJson(_, value) {
  return value === Infinity ? "inf" : value;
}
