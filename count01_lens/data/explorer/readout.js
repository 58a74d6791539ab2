// Linear read-outs of a head as inequalities over counts: counts/readout.py in JavaScript.
//
// w·z + b > 0 ⟺ α + Σ β_t n_t > 0, with β_t = e^{S_t}(w·v_t + b) and α the same of '[BOS]' and '='.

import { powerText } from "./numbers.js";
import { valueOf } from "./tables.js";

/** w·v + b of '[BOS]', the symbols and '='. */
function readValues(model, head, weights) {
  const d = model.dHead;
  return Array.from({ length: model.equals + 1 }, (_, token) => {
    const value = valueOf(model, head, token);
    let sum = weights[d];
    for (let j = 0; j < d; j++) sum += weights[j] * value[j];
    return sum;
  });
}

/** α, then the β of each symbol, up to a positive factor; see `CountReadout.coefficients`. */
export function coefficientsOf(model, scores, values) {
  const largestScore = Math.max(...scores);
  const logs = values.map((value, t) => (value === 0 ? -Infinity : scores[t] - largestScore + Math.log(Math.abs(value))));
  const signs = values.map(Math.sign);
  const last = values.length - 1;
  const ends = Math.max(logs[0], logs[last]);
  const alpha =
    ends > -Infinity
      ? signs[0] * Math.exp(logs[0] - ends) + signs[last] * Math.exp(logs[last] - ends)
      : 0;
  const ourSigns = [Math.sign(alpha), ...signs.slice(1, last)];
  const ourLogs = [alpha ? ends + Math.log(Math.abs(alpha)) : -Infinity, ...logs.slice(1, last)];
  const largest = Math.max(...ourLogs.slice(1));
  const first = ourLogs[1 + model.language.order[0]];
  const unit = first > largest + Math.log(1e-3) ? first : largest;
  if (unit === -Infinity) return ourSigns.map((sign, i) => (ourLogs[i] > -Infinity ? sign : 0));
  return ourSigns.map((sign, i) => (sign === 0 ? 0 : sign * Math.exp(ourLogs[i] - unit)));
}

/** Write the read-out of one head as text; `rows` of weights, then a bias: one, or one per answer. */
export function readoutText(model, head, scores, rows) {
  if (scores === null) return "none: '[BOS]' and '=' keep weights that depend on the sentence";
  const seen = Array.from(scores.slice(0, model.equals + 1));
  if (rows.length > 1) return choiceText(model, seen, rows.map((row) => readValues(model, head, row)));
  const [alpha, ...betas] = coefficientsOf(model, seen, readValues(model, head, rows[0]));
  if (!Number.isFinite(alpha) || betas.every((beta) => beta === 0)) {
    return `${alpha > 0 ? "always" : "never"} '${model.answers[0]}'`;
  }
  const terms = model.language.order.map((place) => [betas[place], `n${model.symbols[place]}`]);
  return `${sumOfTerms([...terms, [alpha, ""]])} > 0`;
}

/** The largest of sums over counts; see counts/choice_readout.py. */
function choiceText(model, scores, values) {
  const last = scores.length - 1;
  const middle = scores.map((_, t) => values.map((row) => row[t]).sort((a, b) => a - b)[(values.length - 1) >> 1]);
  const apart = values.map((row) => row.map((value, t) => value - middle[t]));
  const ends = Math.max(scores[0], scores[last]);
  const alphas = apart.map(
    (row) => times(row[0], Math.exp(scores[0] - ends)) + times(row[last], Math.exp(scores[last] - ends)),
  );
  const symbols = scores.slice(1, last);
  const top = Math.max(...symbols);
  const betas = apart.map((row) => symbols.map((score, s) => times(row[1 + s], Math.exp(score - top))));
  const unit = Math.max(...betas.flat().map(Math.abs));
  const most = Math.max(...alphas.map(Math.abs));
  const scale = Math.exp(ends - top) / unit;
  if (unit === 0 || (most > 0 && !Number.isFinite(scale * most))) {
    const best = alphas.lastIndexOf(Math.max(...alphas));
    return `always '${model.answers[best]}'`;
  }
  const sums = betas.map((row, a) => {
    const terms = row.map((beta, s) => [beta / unit, `n${model.symbols[s]}`]);
    return `${model.answers[a]}: ${sumOfTerms([...terms, [most > 0 ? alphas[a] * scale : 0, ""]])}`;
  });
  return `largest of ${sums.join("; ")}`;
}

/** A product in which nothing times anything is nothing, also where scores are -∞ - -∞. */
function times(value, weight) {
  return value === 0 || Number.isNaN(weight) ? 0 : value * weight;
}

/** Write a weighted sum without the terms that round to zero: `n1 − 1.003·n0 − 0.41`. */
export function sumOfTerms(terms) {
  let written = "";
  for (const [value, name] of terms) {
    const size = termText(Math.abs(value));
    if (!size) continue;
    const factor = size === "1" && name ? "" : size + (name ? "·" : "");
    written += (written ? (value > 0 ? " + " : " − ") : value < 0 ? "−" : "") + factor + name;
  }
  return written || "0";
}

/** Three decimals, of large numbers three digits; nothing of what rounds to zero. */
function termText(size) {
  if (size < 5e-4) return "";
  if (size < 100) return fixed(size, 3).replace(/\.?0+$/, "");
  const rounded = Number(size.toPrecision(3));
  return rounded < 1e15 ? rounded.toLocaleString("en-US") : powerText(size, 3);
}

/** Decimals as Python rounds them: a half, where it is exact, to the even digit. */
function fixed(value, decimals) {
  const scaled = value * 10 ** decimals;
  const exact = Number.isInteger(value * 2 ** (decimals + 1));
  if (exact && scaled - Math.floor(scaled) === 0.5 && Math.floor(scaled) % 2 === 0) {
    return (Math.floor(scaled) / 10 ** decimals).toFixed(decimals);
  }
  return value.toFixed(decimals);
}
