// A state in words, and as Python that reproduces it: `explorer_code.py` writes the same.

/** A number as Python writes it. */
export function pythonNumber(value) {
  if (value === Infinity) return 'float("inf")';
  if (Number.isInteger(value)) return `${value}.0`;
  const text = Math.abs(value) < 1e-4 ? value.toExponential() : String(value);
  return text.replace(/e([+-])(\d)$/, "e$10$2");
}

/** The sentence as an expression: as it was typed, or its symbols one after the other. */
export function pythonSentence(language, state) {
  if (state.text !== null) return JSON.stringify(`${state.text.trim().replace(/^\[BOS\]/, "").split("=")[0]}=`);
  if (state.counts.reduce((sum, n) => sum + n, 0) <= 60) {
    return JSON.stringify(`${language.symbols.map((symbol, place) => symbol.repeat(state.counts[place])).join("")}=`);
  }
  const parts = language.symbols.map((symbol, place) => [JSON.stringify(symbol), state.counts[place]]);
  const written = parts.filter(([, n]) => n > 0).map(([symbol, n]) => `${symbol} * ${n}`);
  return [...written, '"="'].join(" + ");
}

/** Python that reproduces what is shown. */
export function pythonCode(entry, state) {
  const { symbols, answers } = entry.language;
  const tokens = ["[BOS]", ...symbols, "=", ...answers, "[EOS]"];
  const dictionary = (pairs) => `{${pairs.map(([name, value]) => `${JSON.stringify(name)}: ${pythonNumber(value)}`).join(", ")}}`;
  // Objects of JavaScript have an order of their own.
  const inOrder = (values, names) => names.filter((name) => name in values).map((name) => [name, values[name]]);
  const rest = [];
  if (state.heads) rest.push(`heads=[${state.heads.join(", ")}]`);
  if (state.others === "keep") rest.push('others="keep"');
  const contexts = [];
  if (state.weights) {
    contexts.push(`cl.set_attention(${["model", dictionary(inOrder(state.weights, tokens)), ...rest].join(", ")})`);
  } else {
    const given = inOrder(state.ratios, symbols).filter(([, ratio]) => ratio !== null);
    const isShort = ([symbol]) => symbols[0] === "0" && ["1", "2"].includes(symbol);
    const short = given.filter(isShort).map(([symbol, ratio]) => `w0${symbol}=${pythonNumber(ratio)}`);
    const long = given.filter((pair) => !isShort(pair));
    const ratios = long.length ? [`ratios=${dictionary(long)}`] : [];
    if (given.length) contexts.push(`cl.patch_attention(${["model", ...short, ...ratios, ...rest].join(", ")})`);
  }
  if (state.off.length) contexts.push(`cl.ablate_heads(model, [${state.off.join(", ")}])`);
  const lines = ["import count01_lens as cl", ""];
  if (entry.python) lines.push(`model = ${entry.python}`);
  lines.push(`sentence = ${pythonSentence(entry.language, state)}`);
  const indent = contexts.length ? "    " : "";
  if (contexts.length) lines.push(`with ${contexts.join(", ")}:`);
  lines.push(`${indent}print(model.generate(sentence, max_new_tokens=1, do_sample=False, verbose=False))`);
  lines.push(`${indent}print(cl.accuracy(model, ${entry.pythonTask}))`);
  return `${lines.join("\n")}\n`;
}

/** Which heads, for people: "all 16 heads", "head 3", "heads 1, 3, 5". */
export function headsText(heads, nHeads) {
  if (heads === null || heads.length === nHeads) return nHeads === 1 ? "the head" : `all ${nHeads} heads`;
  return heads.length === 1 ? `head ${heads[0]}` : `heads ${heads.join(", ")}`;
}

/** What a head is called by the accuracy of its probe. */
export function categoryOf(sAcc, bounds) {
  return sAcc >= bounds.successful ? "successful" : sAcc <= bounds.failed ? "failed" : "mixed";
}

/** The sign of a category, so that colour is not needed. */
export const SIGNS = { successful: "●", mixed: "◐", failed: "○" };
