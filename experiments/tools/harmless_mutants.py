"""Mutants that no test can kill: what they change has no effect that anyone could see.

A survivor is explained if the line that it became is listed here under a reason, with the line that
it was where that alone says too little. There must be no other survivors.
"""

from collections.abc import Mapping

HARMLESS: dict[str, list[str]] = {
    "`strict=True` guards against a mistake that the lines around it do not make": [
        "for row, is_four in zip(counts.numpy(), labels_of(counts).tolist(), strict=None):",
        "for row, is_four in zip(counts.numpy(), labels_of(counts).tolist(), ):",
        "for row, is_four in zip(counts.numpy(), labels_of(counts).tolist(), strict=False):",
    ],
    "NumPy takes any negative size for what is left": [
        "by_head = leads.transpose(1, 0, 2).reshape(data.n_heads, -2)",
        "flat = data.train_outputs.reshape(len(data.train_labels), -2)",
        "flat = data.test_outputs.reshape(len(data.test_labels), -2)",
        "values = value(np.concatenate([with_both, with_i, with_j, without])).reshape(4, -2)",
    ],
    "the default is what was spelled out": [
        "bits = (scores.astype(None).view(np.int64) & ~1) | labels",
        "ordered = np.sort(bits.view(np.float64), ).view(np.int64)",
        "ordered = np.sort(bits.view(None), axis=1).view(np.int64)",
        "close = (ordered & ~1).view(None)",
        "masks[start : start + _TOGETHER].astype(None) for start in "
        "range(0, len(masks), _TOGETHER)",
        "counts = as_counts(data).numpy().astype(None)",
        "tokens = compact_tokens(counts).to(None)",
        "itself = F.pad(torch.eye(2, dtype=None), (Token.FOUR, 0))",
        "itself = F.pad(torch.eye(2, ), (Token.FOUR, 0))",
    ],
    "the same word or number, written otherwise": [
        '"ties": float(right[ties].mean()) if ties.any() else float("NAN"),',
        'number = f"{size:.3f}".rstrip("XX0XX").rstrip(".") if size < 100 else f"{size:.3g}"',
        'number = f"{size:.3f}".rstrip("0").rstrip("XX.XX") if size < 100 else f"{size:.3g}"',
        'number = f"{size:.3f}".rstrip("0").rstrip(".") if size <= 100 else f"{size:.3g}"',
        "return (scores if (attn_scale == 1) and False else scores / attn_scale), values",
    ],
    "more or fewer tokens are tried out, or a tokenizer is made that nobody uses": [
        "model(torch.zeros(1, dtype=torch.long))",
        "model(torch.zeros(2, 1, dtype=torch.long))",
        "model(torch.zeros(1, 2, dtype=torch.long))",
        "expected = _make_model(cfg, directory, is_count01=None).state_dict()",
        "expected = _make_model(cfg, directory, is_count01=True).state_dict()",
        '{**cfg, **_INERT, "init_weights": False}, tokenizer=tokenizer, move_to_device=None',
    ],
    "what is turned into JSON to see whether it can be, under another name": [
        'json_bytes({"XXcfgXX": cfg, "info": info})',
        'json_bytes({"CFG": cfg, "info": info})',
        'json_bytes({"cfg": cfg, "XXinfoXX": info})',
        'json_bytes({"cfg": cfg, "INFO": info})',
    ],
    "the same axis, counted from the other end": [
        "lengths = four_margin(form.logit_weights[0]).norm(dim=+1).double().numpy()",
        "if scores.shape[0] != len(log_n) or scores.shape[-1] != log_n.shape[+1]:",
        "return numerator * denominator.reciprocal().unsqueeze(+2)",
        "outputs = numerator * denominator.reciprocal().unsqueeze(+2)",
    ],
    "einops does not mind capitals in the names of axes": [
        'W_O = rearrange(parameters["blocks.0.attn.W_O"], "M HEAD D_HEAD R -> M (HEAD D_HEAD) R")',
        'self.scores[:, :, QUERIES[place], KEYS], "M HEAD Q KEY -> M 1 HEAD (Q KEY)"',
        'log_n = rearrange(multiplicity.log(), "... SAMPLE Q KEY -> ... SAMPLE 1 (Q KEY)")',
        'return rearrange(outputs, "M SAMPLE D_HEAD HEAD -> M SAMPLE HEAD D_HEAD")',
        'n = rearrange(multiplicity, "... SAMPLE Q KEY -> ... SAMPLE (Q KEY)")',
        'denominator = n @ rearrange(relative, "M HEAD Q KEY -> M (Q KEY) HEAD")',
        'numerator = n @ rearrange(weighted, "M HEAD Q KEY D -> M (Q KEY) (D HEAD)")',
        'return einsum(attention, values, "M SAMPLE HEAD KEY, M HEAD KEY D -> M SAMPLE D HEAD")',
        "return einsum(outputs, self.logit_weights, "
        '"M SAMPLE HEAD D, M HEAD D T -> M SAMPLE HEAD T")',
        'self._outputs_by_coordinate(multiplicity, place), "M SAMPLE D HEAD -> M SAMPLE (D HEAD)"',
        'weights = rearrange(self.logit_weights, "M HEAD D VOCAB -> M (D HEAD) VOCAB")',
        "side_by_side = rearrange(torch.cat(list(weights), dim=1), "
        '"M H D_MODEL D -> M D_MODEL (H D)")',
        'read = read + rearrange(torch.cat(list(biases), dim=1), "M H D -> M 1 (H D)")',
    ],
    "one of several that are all alike is read": [
        "nobody = np.zeros((2, data.n_heads), dtype=bool)",
        'read, "m token (letter h d) -> letter m h token d", letter=3, h=weights[1].shape[1]',
    ],
    "the slower way, with the same result, is taken more or less often": [
        "mixed = (close[:, 1:] == close[:, :-1]) | (ordered[:, 1:] != ordered[:, :-1])",
        "mixed = (close[:, 1:] == close[:, :-1]) & (ordered[:, 1:] != ordered[:, :+1])",
        "np.flatnonzero(sizes == size) + 1, -(-int((sizes == size).sum()) // 513)",
        "unsafe = denominator.detach().amin(dim=None) < smallest_safe(scores.dtype)",
        "unsafe = denominator.detach().amin(dim=(1, 2)) <= smallest_safe(scores.dtype)",
        "relative = torch.exp(scores - scores.detach().amax(dim=None, keepdim=True))",
        "relative = torch.exp(scores - scores.detach().amax(keepdim=True))",
        "return math.sqrt(torch.finfo(dtype).tiny) * 10001.0",
    ],
    "a value that is never met there, or is overwritten": [
        'sign = "+ " if value >= 0 else "− "',
        "denominator = torch.where(unsafe[:, None, None], 2.0, denominator)",
        "at_answer = F.pad(multiplicities(counts, None, dtype), (0, 0, 1, 0))",
        'at_answer = F.pad(multiplicities(counts, "XXanswerXX", dtype), (0, 0, 1, 0))',
        'at_answer = F.pad(multiplicities(counts, "ANSWER", dtype), (0, 0, 1, 0))',
        "noted.pop().ctx.pop(MULTIPLICITY, )",
        'problem = "" => problem = None',
        'problem = "" => problem = "XXXX"',
        "let [best, most] = [(0 + 1), -Infinity];",
        'if unknown or not {"d_model", "n_layers", "dtype", *_INERT} < set(cfg):',
        'if not isinstance(cfg["n_layers"], int) or not 0 < cfg["n_layers"] < len(state):',
    ],
    "one entry more is written, and then overwritten or, at the end of the array, ignored": [
        "for (let j = 0; j <= d; j++) outputs[i * d + j] = sums[j] / sums[d];",
        "for (let t = 0; t <= vocab; t++) "
        "logits[i * vocab + t] = model.logitBias[query * vocab + t];",
        "for (let i = 0; i <= logits.length; i++) logits[i] += written[i];",
        "for (const head of heads) for (let t = 0; t <= logits.length; t++) "
        "logits[t] += head.logits[t];",
        "for (let i = 0; i <= n; i++) slack[i] = 1 - slack[i];",
    ],
    "where a fit starts changes nothing but its steps": [
        "fitSvm(train, length, d, (i) => answers[i] === row, start?.[row] && null).weights,",
    ],
    "names the file of an error that would have come before": [
        "model = _make_model(cfg, None, is_count01=_reads_count01(config))",
    ],
    "for versions of TransformerLens without the option": [
        "if getattr(cfg, option, ):",
        "if getattr(cfg, option, None) > 0:",
        "if getattr(cfg, option, ) > 0:",
        "if getattr(cfg, option, +1.0) > 0:",
        "if getattr(cfg, option, -2.0) > 0:",
    ],
}


def reason_of(survivor: Mapping[str, str]) -> str | None:
    """Say why a survivor is harmless, or None."""
    change = {survivor["became"], f"{survivor['was']} => {survivor['became']}"}
    return next((why for why, lines in HARMLESS.items() if change & set(lines)), None)
