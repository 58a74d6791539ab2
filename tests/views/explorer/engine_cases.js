// Runs cases that Python has made, and gives back all that the engine computes of them.
const ratio = (value) => (value === "inf" ? Infinity : value);
const plain = (array) => Array.from(array, (value) => (Number.isFinite(value) ? value : String(value)));

function answered({ data, patches, off, sentences, group }) {
  const engine = new Engine(data.models[0], data.splits[data.models[0].split]);
  const used = patches.map((patch) => {
    const ratios = Object.fromEntries(Object.entries(patch.ratios ?? {}).map(([s, r]) => [s, ratio(r)]));
    return patch.weights ? patch : { ...patch, ratios };
  });
  const state = engine.state(used, off);
  return {
    whole: state.whole,
    heads: state.heads.map((head) => ({
      train: plain(head.train),
      test: plain(head.test),
      written: plain(head.written),
      probe: head.probe.map(plain),
      sAcc: head.sAcc,
      lAcc: head.lAcc,
      readout: engine.probeText(head),
      learned: engine.learnedText(head.head),
      ratios: plain(ownRatios(engine.model, head.head)),
      said: Array.from({ length: engine.model.nKeys }, (_, key) => plain(ovRow(engine.model, head.head, key))),
    })),
    group: group ? engine.group(state, group) : null,
    sentences: sentences.map((counts) => {
      const { right, said, asked, after } = engine.sentence(counts, used, off);
      const places = [asked, after].map(({ heads, logits }) => ({
        attention: heads.map(({ attention }) => plain(attention)),
        outputs: heads.map(({ output }) => plain(output)),
        written: heads.map(({ logits: written }) => plain(written)),
        logits: plain(logits),
      }));
      return { right, said, places };
    }),
  };
}

// Fits one linear probe.
function fitted({ X, n, d, positive, start, C }) {
  const { weights, steps } = fitSvm(Float64Array.from(X), n, d, (i) => positive[i], start, C);
  return { weights: plain(weights), steps };
}

// Writes the read-out of one head, whose values are numbers, for a probe that takes them as they are.
function written({ language, scores, values }) {
  const equals = language.symbols.length + 1;
  const model = { ...language, language, equals, vocab: values.length, dHead: 1, values: Float64Array.from(values) };
  return readoutText(model, 0, Float64Array.from(scores), [[1, 0]]);
}
