// Attention over counts, as the model has it or as it is patched: attention/patches.py in JavaScript.
//
// A patch is {heads, ratios | weights, others, at}: heads as numbers (null for all); ratios by
// symbol, attention of one of the first symbol over that of one of another (0 and Infinity too;
// left out or null: the head's own); or weights by token; others "zero" or "keep"; at "=" or "answer".

import { scoresOf, valueOf } from "./tables.js";

const SMALLEST_SAFE = 1.5e-150; // as `smallest_safe` of float64

/** Raise unless a patch can be applied. */
export function checkPatch(model, patch) {
  const given = Object.entries(patch.ratios ?? {}).filter(([, ratio]) => ratio != null);
  for (const [symbol, ratio] of given) {
    if (!model.symbols.slice(1).includes(symbol)) {
      throw new RangeError(`ratios: expected those of ${model.symbols[0]} over another symbol, got ${symbol}`);
    }
    if (!(ratio >= 0)) throw new RangeError(`w${model.symbols[0]}${symbol}: expected 0 to ∞, got ${ratio}`);
  }
  if (given.filter(([, ratio]) => ratio === 0).length > 1) {
    throw new RangeError(
      "expected at most one ratio of 0: each takes all attention from all other symbols",
    );
  }
  for (const [token, weight] of Object.entries(patch.weights ?? {})) {
    if (!model.tokens.includes(token)) throw new RangeError(`weights: no token is called ${token}`);
    if (!(weight >= 0 && weight < Infinity)) {
      throw new RangeError(`weight of ${token}: expected a number from 0 on, got ${weight}`);
    }
  }
}

/** New log-weights of keys in one head, and the keys that keep what they have. */
function rewriting(model, head, query, patch) {
  const logs = new Float64Array(model.nKeys).fill(-Infinity);
  const kept = new Uint8Array(model.nKeys).fill(patch.others === "keep" ? 1 : 0);
  if (patch.weights) {
    for (const [token, weight] of Object.entries(patch.weights)) {
      const key = model.tokens.indexOf(token);
      if (key >= model.nKeys) continue;
      logs[key] = Math.log(weight);
      kept[key] = 0;
    }
    return { logs, kept, keeps: kept.some(Boolean) };
  }
  const ratios = model.symbols.slice(1).map((symbol) => patch.ratios?.[symbol] ?? null);
  kept.fill(0, 1, model.equals);
  const alone = ratios.indexOf(0);
  if (alone >= 0) {
    logs[2 + alone] = 0; // the first symbol gets nothing, nor do others, whose ratio is to it
  } else {
    const own = scoresOf(model, head, query);
    logs[1] = 0;
    ratios.forEach((ratio, i) => {
      logs[2 + i] = ratio === null ? own[2 + i] - own[1] : -Math.log(ratio);
    });
  }
  return { logs, kept, keeps: patch.others === "keep" };
}

/** How one head attends from a query token: its scores, and what patches make of them. */
export function rowOf(model, head, query, patches) {
  const at = query === model.equals ? "=" : "answer";
  let row = { scores: scoresOf(model, head, query), then: [] };
  for (const patch of patches) {
    if ((patch.at ?? "=") !== at || !(patch.heads === null || patch.heads.includes(head))) continue;
    const next = rewriting(model, head, query, patch);
    // Where nothing is kept, the new weights are nothing but other scores.
    row = next.keeps ? { ...row, then: [...row.then, next] } : { scores: next.logs, then: [] };
  }
  return row;
}

/** Attention that all tokens of each type get together, from n of each key. */
export function attended(row, n) {
  let attention = shares(row.scores, n, null);
  for (const { logs, kept } of row.then) {
    const fresh = shares(logs, n, kept);
    let rest = 0;
    for (let k = 0; k < n.length; k++) if (!kept[k]) rest += attention[k];
    attention = attention.map((own, k) => (kept[k] ? own : rest * fresh[k]));
  }
  return attention;
}

/** n·e^S, made to sum to one over keys that are not kept; all zero where nothing has a weight. */
function shares(logs, n, kept) {
  let largest = -Infinity;
  for (let k = 0; k < n.length; k++) {
    if (n[k] > 0 && !kept?.[k] && logs[k] > largest) largest = logs[k];
  }
  const found = new Float64Array(n.length);
  if (largest === -Infinity) return found;
  let total = 0;
  for (let k = 0; k < n.length; k++) {
    if (n[k] > 0 && !kept?.[k]) total += found[k] = n[k] * Math.exp(logs[k] - largest);
  }
  return found.map((weight) => weight / total);
}

/** How often each key is seen from '=' (answer null), or from an answer after it. */
export function seenKeys(model, counts, answer) {
  const n = new Float64Array(model.nKeys);
  n[0] = n[model.equals] = 1;
  for (let s = 0; s < model.symbols.length; s++) n[1 + s] = counts[s];
  if (answer !== null) n[model.equals + 1 + answer] = 1;
  return n;
}

/** The output of a head from its attention. */
export function outputOf(model, head, attention) {
  const output = new Float64Array(model.dHead);
  for (let k = 0; k < attention.length; k++) {
    if (attention[k] === 0) continue;
    const value = valueOf(model, head, k);
    for (let d = 0; d < model.dHead; d++) output[d] += attention[k] * value[d];
  }
  return output;
}

/** e^S of the keys that may be seen, relative to the largest; and times their value vectors. */
function weighted(model, head, logs, keys, kept) {
  let largest = -Infinity;
  for (const k of keys) if (!kept?.[k] && logs[k] > largest) largest = logs[k];
  const p = model.dHead + 1;
  const table = new Float64Array(keys.length * p);
  if (largest === -Infinity) return table;
  keys.forEach((k, i) => {
    const e = kept?.[k] ? 0 : Math.exp(logs[k] - largest);
    const value = valueOf(model, head, k);
    for (let d = 0; d < model.dHead; d++) table[i * p + d] = e * value[d];
    table[i * p + model.dHead] = e;
  });
  return table;
}

/**
 * Outputs [sample, d_head] of one head on sentences, all asked at '=' (answer null) or at an answer.
 *
 * z = Σ n e^S v / Σ n e^S. Where the largest score is that of an absent token, both sums may
 * underflow: the few sentences of that kind go the slow way, which looks at present tokens only.
 */
export function outputsOf(model, head, row, counts, which, answer = null) {
  const m = model.symbols.length;
  const d = model.dHead;
  const p = d + 1;
  const keys = [0, ...model.symbols.map((_, s) => 1 + s), model.equals];
  if (answer !== null) keys.push(model.equals + 1 + answer);
  const once = keys.map((_, i) => i).filter((i) => i === 0 || i > m);
  const [patch] = row.then;
  const quick = row.then.length <= 1;
  const own = weighted(model, head, row.scores, keys, null);
  const ours = patch ? weighted(model, head, patch.logs, keys, patch.kept) : null;
  const length = which ? which.length : counts.length / m;
  const outputs = new Float64Array(length * d);
  const [sums, kept, fresh] = [new Float64Array(p), new Float64Array(p), new Float64Array(p)];
  const add = (table, into, only) => {
    into.fill(0);
    for (const i of once) {
      if (only && !only[keys[i]]) continue;
      for (let j = 0; j < p; j++) into[j] += table[i * p + j];
    }
  };
  // What stands once in every sentence is the same for all of them.
  const [ends, endsKept, endsFresh] = [new Float64Array(p), new Float64Array(p), new Float64Array(p)];
  add(own, ends, null);
  if (patch) {
    add(own, endsKept, patch.kept);
    add(ours, endsFresh, null);
  }
  for (let i = 0; i < length; i++) {
    const at = (which ? which[i] : i) * m;
    sums.set(ends);
    for (let s = 0; s < m; s++) {
      const n = counts[at + s];
      const start = (1 + s) * p;
      for (let j = 0; j < p; j++) sums[j] += n * own[start + j];
    }
    let safe = quick && sums[d] >= SMALLEST_SAFE;
    if (safe && patch) {
      kept.set(endsKept);
      fresh.set(endsFresh);
      for (let s = 0; s < m; s++) {
        const n = counts[at + s];
        const start = (1 + s) * p;
        const into = patch.kept[1 + s] ? kept : null;
        for (let j = 0; j < p; j++) {
          fresh[j] += n * ours[start + j];
          if (into) into[j] += n * own[start + j];
        }
      }
      safe = fresh[d] >= SMALLEST_SAFE;
      const rest = sums[d] - kept[d];
      for (let j = 0; safe && j < d; j++) {
        outputs[i * d + j] = (kept[j] + rest * (fresh[j] / fresh[d])) / sums[d];
      }
    } else if (safe) {
      for (let j = 0; j < d; j++) outputs[i * d + j] = sums[j] / sums[d];
    }
    if (!safe) {
      const n = seenKeys(model, counts.subarray(at, at + m), answer);
      outputs.set(outputOf(model, head, attended(row, n)), i * d);
    }
  }
  return outputs;
}
