// Tables of a model, from which everything it computes follows, as `explorer_data.py` packs them.

const ARRAYS = { f8: Float64Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };

/** Unpack numbers: {type, data}, little-endian bytes in base64. */
export function unpacked({ type, data }) {
  const text = atob(data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new ARRAYS[type](bytes.buffer);
}

/** Read a model: its language, and the tables of `cl.CountForm` of one model, row by row. */
export function readModel(given) {
  const { symbols, answers } = given.language;
  const equals = symbols.length + 1;
  const eos = equals + answers.length + 1;
  const tables = Object.fromEntries(
    Object.entries(given.tables).map(([name, table]) => [name, unpacked(table)]),
  );
  const tokens = ["[BOS]", ...symbols, "=", ...answers, "[EOS]"];
  const vocab = eos + 1;
  return {
    ...tables, // scores [head, query, key], values [head, key, d], logitWeights [head, d, token],
    tokens, //     logitBias [current token, token]
    symbols,
    answers,
    equals,
    eos,
    vocab,
    nKeys: eos, // nobody sees '[EOS]'
    nHeads: given.nHeads,
    dHead: given.dHead,
    language: given.language,
  };
}

/** Read a split: counts [sample, symbol], the place of the right answer of each, and its ties. */
export function readSplit(given) {
  const answers = unpacked(given.answers);
  return {
    counts: unpacked(given.counts),
    answers,
    ties: given.ties ? unpacked(given.ties) : null,
    length: answers.length,
  };
}

/** The row of scores that a query token has for all keys, in one head. */
export function scoresOf(model, head, query) {
  const start = (head * model.vocab + query) * model.vocab;
  return model.scores.subarray(start, start + model.nKeys);
}

/** The value vector of a token in one head. */
export function valueOf(model, head, token) {
  const start = (head * model.vocab + token) * model.dHead;
  return model.values.subarray(start, start + model.dHead);
}

/** What attending to a token alone adds to each logit. */
export function ovRow(model, head, token) {
  return logitsOf(model, head, valueOf(model, head, token));
}

/** Direct logit attribution of an output of one head: a number for each token. */
export function logitsOf(model, head, output) {
  const logits = new Float64Array(model.vocab);
  for (let d = 0; d < model.dHead; d++) {
    const start = (head * model.dHead + d) * model.vocab;
    for (let t = 0; t < model.vocab; t++) logits[t] += output[d] * model.logitWeights[start + t];
  }
  return logits;
}

/** Which of one symbol's attention over that of each other a head has at '=': w01, w02, … */
export function ownRatios(model, head) {
  const scores = scoresOf(model, head, model.equals);
  return model.symbols.slice(1).map((_, i) => Math.exp(scores[1] - scores[2 + i]));
}

/** The place among the answers of the right one; null where the rule is not known here. */
export function rightAnswer(language, counts) {
  if (!language.rule) return null;
  const found = language.rule.findIndex((condition) => calculated(condition, counts));
  return found < 0 ? language.answers.length - 1 : found;
}

const CALCULATIONS = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  ">": (a, b) => a > b,
  ">=": (a, b) => a >= b,
  "<": (a, b) => a < b,
  "<=": (a, b) => a <= b,
  "==": (a, b) => a === b,
  "!=": (a, b) => a !== b,
  max: Math.max,
  min: Math.min,
  not: (a) => !a,
  neg: (a) => -a,
  and: (...all) => all.every(Boolean),
  or: (...all) => all.some(Boolean),
};

/** Work out a condition of a rule: a number, ["n", place], or [operation, …]. Nothing is run. */
function calculated(tree, counts) {
  if (typeof tree === "number") return tree;
  const [operation, ...parts] = tree;
  if (operation === "n") return counts[parts[0]];
  return CALCULATIONS[operation](...parts.map((part) => calculated(part, counts)));
}
