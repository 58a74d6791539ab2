// Heads and whole models measured on the splits, under patches and with heads switched off.
//
// An `Engine` holds a model and its splits. Only heads that a patch changes are computed anew.

import { attended, checkPatch, outputOf, outputsOf, rowOf, seenKeys } from "./attention.js";
import { fitSvm } from "./newton.js";
import { readoutText } from "./readout.js";
import { logitsOf, readModel, readSplit, rightAnswer, scoresOf } from "./tables.js";

/** Where the right choice wins: of equal logits that of the later choice does. */
export function isRight(logits, start, nChoices, right) {
  const lead = logits[start + right];
  for (let c = 0; c < nChoices; c++) {
    if (c !== right && !(lead > logits[start + c] || (c < right && lead === logits[start + c]))) return false;
  }
  return true;
}

export class Engine {
  constructor(given, splits) {
    this.model = readModel(given);
    this.train = readSplit(splits.train);
    this.test = readSplit(splits.test);
    this.originals = [];
    this.recent = new Map(); // heads as they are patched now: their probes start the next ones
    this.ends = []; // what each head writes after the answer, as long as nothing is patched there
    this.ended = null;
  }

  get heads() {
    return Array.from({ length: this.model.nHeads }, (_, head) => head);
  }

  /** One head as the model has it. */
  original(head) {
    this.originals[head] ??= this.measured(head, rowOf(this.model, head, this.model.equals, []));
    return this.originals[head];
  }

  /**
   * Everything under patches, with some heads off: {heads, whole, off, patches}.
   *
   * A head that is off writes zeros, whatever is patched.
   */
  state(patches = [], off = []) {
    for (const patch of patches) checkPatch(this.model, patch);
    const heads = this.heads.map((head) => {
      if (off.includes(head)) return this.silent(head);
      const patched = patches.some(({ heads, at }) => (at ?? "=") === "=" && (heads === null || heads.includes(head)));
      return patched ? this.patched(head, patches) : this.original(head);
    });
    return { heads, whole: this.whole(heads, patches, off), off, patches };
  }

  patched(head, patches) {
    const row = rowOf(this.model, head, this.model.equals, patches);
    const key = JSON.stringify([[...row.scores], row.then.map(({ logs, kept }) => [[...logs], [...kept]])], (_, value) =>
      typeof value === "number" && !Number.isFinite(value) ? String(value) : value,
    );
    const known = this.recent.get(head);
    if (known?.key === key) return known.measured;
    const measured = this.measured(head, row, (known?.measured ?? this.originals[head])?.probe);
    this.recent.set(head, { key, measured });
    return measured;
  }

  silent(head) {
    const { dHead, answers } = this.model;
    const test = new Float64Array(this.test.length * dHead);
    const row = rowOf(this.model, head, this.model.equals, []);
    return this.about(head, row, new Float64Array(this.train.length * dHead), test, null, answers.length);
  }

  /** Outputs of a head on both splits, and what is measured of them. */
  measured(head, row, start = null) {
    const train = outputsOf(this.model, head, row, this.train.counts, null);
    const test = outputsOf(this.model, head, row, this.test.counts, null);
    return this.about(head, row, train, test, start, this.model.answers.length);
  }

  about(head, row, train, test, start, nAnswers) {
    const d = this.model.dHead;
    const written = new Float64Array(this.test.length * nAnswers);
    const first = this.model.equals + 1;
    for (let i = 0; i < this.test.length; i++) {
      for (let j = 0; j < d; j++) {
        const at = (head * d + j) * this.model.vocab + first;
        const z = test[i * d + j];
        for (let a = 0; a < nAnswers; a++) written[i * nAnswers + a] += z * this.model.logitWeights[at + a];
      }
    }
    const probe = this.fit(train, d, start);
    const predicted = this.predicted(probe, test, d);
    return {
      head,
      row,
      train,
      test,
      written, // [sample, answer]: direct logit attribution
      probe,
      sAcc: this.share((i) => predicted[i] === this.test.answers[i]),
      lAcc: this.accuracyOf([written]).answer,
    };
  }

  /** Probes of features [sample, d]: one where there are two answers, else one for each. */
  fit(train, d, start = null) {
    const { answers, length } = this.train;
    const nRows = this.model.answers.length === 2 ? 1 : this.model.answers.length;
    return Array.from({ length: nRows }, (_, row) =>
      fitSvm(train, length, d, (i) => answers[i] === row, start?.[row] ?? null).weights,
    );
  }

  /** The answer that probes give to each test sentence. */
  predicted(probe, test, d) {
    const found = new Uint8Array(this.test.length);
    for (let i = 0; i < found.length; i++) {
      let [best, most] = [0, -Infinity];
      probe.forEach((weights, row) => {
        let sum = weights[d];
        for (let j = 0; j < d; j++) sum += weights[j] * test[i * d + j];
        if (sum > most) [best, most] = [row, sum];
      });
      found[i] = probe.length > 1 ? best : most > 0 ? 0 : 1;
    }
    return found;
  }

  share(isSo) {
    let found = 0;
    for (let i = 0; i < this.test.length; i++) found += isSo(i) ? 1 : 0;
    return found / this.test.length;
  }

  /** Accuracy of what some heads write together, plus the bias: all, ties, others. */
  accuracyOf(parts) {
    const { model, test } = this;
    const n = model.answers.length;
    const bias = (model.equals * model.vocab + model.equals) + 1;
    const logits = new Float64Array(n);
    const right = { answer: 0, ties: 0, others: 0 };
    let ties = 0;
    for (let i = 0; i < test.length; i++) {
      for (let a = 0; a < n; a++) logits[a] = model.logitBias[bias + a];
      for (const part of parts) for (let a = 0; a < n; a++) logits[a] += part[i * n + a];
      const good = isRight(logits, 0, n, test.answers[i]) ? 1 : 0;
      right.answer += good;
      if (!test.ties) continue;
      ties += test.ties[i];
      right[test.ties[i] ? "ties" : "others"] += good;
    }
    const shares = { answer: right.answer / test.length };
    if (!test.ties) return shares;
    return { ...shares, ties: right.ties / ties, others: right.others / (test.length - ties) };
  }

  /** The whole model on the test split: the answer, ties apart, and '[EOS]' after it. */
  whole(heads, patches, off) {
    const on = heads.filter(({ head }) => !off.includes(head));
    return { ...this.accuracyOf(on.map(({ written }) => written)), end: this.endAccuracy(patches, off) };
  }

  /** How often '[EOS]' follows the right answer. */
  endAccuracy(patches, off) {
    const { model, test } = this;
    const { vocab, eos } = model;
    const here = patches.filter(({ at }) => at === "answer");
    const known = here.length ? null : off.join();
    if (known !== null && this.ended?.off === known) return this.ended.share;
    const logits = new Float64Array(test.length * vocab);
    for (let i = 0; i < test.length; i++) {
      const query = model.equals + 1 + test.answers[i];
      for (let t = 0; t < vocab; t++) logits[i * vocab + t] = model.logitBias[query * vocab + t];
    }
    for (const head of this.heads) {
      if (off.includes(head)) continue;
      const patched = here.some(({ heads }) => heads === null || heads.includes(head));
      const written = patched ? this.endWritten(head, here) : (this.ends[head] ??= this.endWritten(head, []));
      for (let i = 0; i < logits.length; i++) logits[i] += written[i];
    }
    // '[EOS]' has to lead all others: it is the first choice, and of equal ones the later wins.
    const share = this.share((i) => {
      for (let t = 0; t < eos; t++) if (!(logits[i * vocab + eos] > logits[i * vocab + t])) return false;
      return true;
    });
    if (known !== null) this.ended = { off: known, share };
    return share;
  }

  /** What a head writes into each logit after the right answer: [test sentence, token]. */
  endWritten(head, patches) {
    const { model, test } = this;
    const written = new Float64Array(test.length * model.vocab);
    model.answers.forEach((_, answer) => {
      const which = [];
      for (let i = 0; i < test.length; i++) if (test.answers[i] === answer) which.push(i);
      const row = rowOf(model, head, model.equals + 1 + answer, patches);
      const outputs = outputsOf(model, head, row, test.counts, which, answer);
      which.forEach((sentence, i) => {
        const output = outputs.subarray(i * model.dHead, (i + 1) * model.dHead);
        written.set(logitsOf(model, head, output), sentence * model.vocab);
      });
    });
    return written;
  }

  /** Heads together: accuracy of what they write, and of a probe of all their outputs. */
  group(state, heads, start = null) {
    const d = this.model.dHead;
    const wide = heads.length * d;
    const joined = (split, length) => {
      const all = new Float64Array(length * wide);
      heads.forEach((head, g) => {
        const outputs = state.heads[head][split];
        for (let i = 0; i < length; i++) for (let j = 0; j < d; j++) all[i * wide + g * d + j] = outputs[i * d + j];
      });
      return all;
    };
    const probe = this.fit(joined("train", this.train.length), wide, start);
    const predicted = this.predicted(probe, joined("test", this.test.length), wide);
    return {
      probe,
      sAcc: this.share((i) => predicted[i] === this.test.answers[i]),
      lAcc: this.accuracyOf(heads.map((head) => state.heads[head].written)).answer,
    };
  }

  /** The probe of a head as an inequality over counts; patched weights stand in the place of e^S. */
  probeText({ head, row, probe }) {
    return readoutText(this.model, head, row.then.length ? null : row.scores, probe);
  }

  /** The model's own use of a head as an inequality: what it adds to the answers, plus the bias. */
  learnedText(head) {
    const { model } = this;
    const { dHead, vocab, equals } = model;
    const rows = model.answers.map((_, a) =>
      Float64Array.from({ length: dHead + 1 }, (__, d) =>
        d < dHead ? model.logitWeights[(head * dHead + d) * vocab + equals + 1 + a] : model.logitBias[equals * vocab + equals + 1 + a],
      ),
    );
    const used = rows.length === 2 ? [rows[0].map((value, d) => value - rows[1][d])] : rows;
    return readoutText(model, head, scoresOf(model, head, equals), used);
  }

  /** One sentence: attention, outputs and logits of every head, and of the model, at both places. */
  sentence(counts, patches = [], off = []) {
    const right = rightAnswer(this.model.language, counts);
    const asked = this.askedAt(counts, null, patches, off);
    const { equals, answers } = this.model;
    let said = 0;
    answers.forEach((_, a) => {
      if (asked.logits[equals + 1 + a] >= asked.logits[equals + 1 + said]) said = a;
    });
    const after = this.askedAt(counts, right ?? said, patches, off);
    return { counts, right, said, asked, after };
  }

  askedAt(counts, answer, patches, off) {
    const { model } = this;
    const query = answer === null ? model.equals : model.equals + 1 + answer;
    const n = seenKeys(model, counts, answer);
    const bias = model.logitBias.slice(query * model.vocab, (query + 1) * model.vocab);
    const heads = this.heads.map((head) => {
      const attention = attended(rowOf(model, head, query, patches), n);
      const isOff = off.includes(head);
      const output = isOff ? new Float64Array(model.dHead) : outputOf(model, head, attention);
      return { attention, output, logits: logitsOf(model, head, output) };
    });
    const logits = bias.slice();
    for (const head of heads) for (let t = 0; t < logits.length; t++) logits[t] += head.logits[t];
    return { n, bias, heads, logits };
  }
}
