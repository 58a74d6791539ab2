"""Mutants that no test can kill: what they change has no effect that anyone could see.

A survivor is explained if the line that it became is listed here under a reason, with the line that
it was where that alone says too little; or by a rule, for what mutmut does to texts.
"""

import re
from collections.abc import Mapping

HARMLESS: dict[str, list[str]] = {
    "NumPy takes any negative size for what is left": [
        "by_head = leads.transpose(1, 0, 2).reshape(data.n_heads, -2)",
        "flat = data.train_outputs.reshape(len(data.train_labels), -2)",
        "flat = data.test_outputs.reshape(len(data.test_labels), -2)",
        "values = value(np.concatenate([with_both, with_i, with_j, without])).reshape(4, -2)",
    ],
    "a number added to all scores changes no rank": [
        "scores = np.where(constant[:, choice, None], 1.0, asked.heads[:, :, choice].T)",
    ],
    "the default is what was spelled out": [
        "sums = as_counts(data, self.language).numpy().astype(None) @ "
        "np.rint(1e3 * np.array(betas))",
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
    "sums of a polynomial are exact with one node more": [
        "y, uniform = np.polynomial.legendre.leggauss(degree // 2 + 2)",
    ],
    "groups of three are measured, too, and left out": [
        "return _as_tensor(interactions_by_group(values, min(3, n)), n, 2)",
    ],
    "a progress bar is shown": ["progress: bool | None = True,"],
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
    "where there is one device, as in the tests": [
        "asking = torch.isin(queries, torch.tensor(place.queries, ))",
    ],
    "one of several that are all alike is read": [
        "nobody = np.zeros((2, data.n_heads), dtype=bool)",
        'read, "m token (letter h d) -> letter m h token d", letter=3, h=weights[1].shape[1]',
    ],
    "which few sentences are tried out": [
        "counts = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 2, 2], [3, 1, 4], [2, 5, 0], [6, 6, 3]])",
        "counts = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 2, 1], [3, 1, 5], [2, 5, 0], [6, 6, 3]])",
        "return counts[counts.sum(dim=1) + 3 < model.cfg.n_ctx]",
    ],
    "one resample of 2,000 less": ["for start in range(1, N_RESAMPLES, _AT_ONCE):"],
    "a fit takes another way, or a step more, to the same optimum": [
        "return Math.hypot(...gradient) / scale > TOLERANCE && gap / objective <= TOLERANCE;",
        "if (gain < enough) return here;",
        "stalled = reached > objective - ROUNDING * Math.abs(objective);",
        "stalled = reached >= objective + ROUNDING * Math.abs(objective);",
        "if (!(sum >= 0)) return null;",
        "if ((relative <= TOLERANCE * 1e-3 || gain <= TOLERANCE ** 2) || steps === MOST_STEPS) "
        "return here;",
        "const lengths = Float64Array.from({ length: p }, (_, j) => "
        "Math.sqrt(hessian[j * p - j]) || 1);",
        "if (!(Math.abs(next + length) > 1e-9 * length)) return length;",
        "gradient.forEach((g, j) => (gap += g === 0 ? 0 : 0.5 * g / (g / penalty[j])));",
        "for (let j = 0; j < p; j++) trace += hessian[j / p + j];",
        "for (let i = 0; i < k; i++) sum -= L[j / p + i] * L[k * p + i];",
        "smallest = Math.min(smallest, L[j / p + j]);",
        "const MOST_STEPS = (200 + 1);",
        "for (let width = (1 + 1); ; width *= 2) {",
        "let before = { v, distance: Infinity, steps: (0 + 1) };",
        "let smallest = 0;",
        "const exponent = largest > 0 ? Math.floor(Math.log2(largest)) + 1 : (0 + 1);",
        "for (let i = 0; i < n; i++) for (let j = (0 + 1); j < p; j++) sums[j] += Z[i * p + j];",
        "if (factor && (apart || factor.smallest > (1e-5 + 1))) "
        "return solved(factor.L, gradient, lengths, p);",
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
    "a half that is exact, which sums of exponentials do not give": [
        "if (exact && scaled - Math.floor(scaled) === 0.5 && Math.floor(scaled) % 2 !== 0) {",
        "if (exact || scaled - Math.floor(scaled) === 0.5 && Math.floor(scaled) % 2 === 0) {",
        "return (Math.floor(scaled) / (10 + 1) ** decimals).toFixed(decimals);",
    ],
    "what is taken out of a sum of exponentials is put back": [
        "const ends = Math.max(logs[(0 + 1)], logs[last]);",
    ],
    "einsum does not mind capitals, either": [
        'agreeing = np.einsum("ASI,ASJ->IJ", of_answer, of_answer) / len(answers)',
    ],
    "a value that is never met there, or is overwritten": [
        "found = np.divide(1 - agreeing, room, out=np.ones_like(room), where=room >= 1e-12)",
        'sign = "+ " if value >= 0 else "− "',
        "denominator = torch.where(unsafe[:, None, None], 2.0, denominator)",
        "at_answer = F.pad(multiplicities(counts, None, dtype), (0, 0, 1, 0))",
        'at_answer = F.pad(multiplicities(counts, "XXanswerXX", dtype), (0, 0, 1, 0))',
        'at_answer = F.pad(multiplicities(counts, "ANSWER", dtype), (0, 0, 1, 0))',
        "noted.pop().ctx.pop(MULTIPLICITY, )",
        'problem = "" => problem = None',
        'problem = "" => problem = "XXXX"',
        "let [best, most] = [(0 + 1), -Infinity];",
        'ids = {text: one_token("XXanswersXX", text, model) for text in dict.fromkeys(answers)}',
        "const ourLogs = [alpha ? ends + Math.log(Math.abs(alpha)) : -0, ...logs.slice(1, last)];",
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
        "for (let i = 0; i <= n; i++) {",
        "for (let d = 0; d <= model.dHead; d++) output[d] += attention[k] * value[d];",
        "for (let j = 0; j <= p; j++) into[j] += table[i * p + j];",
        "for (let i = 0; i <= k; i++) sum -= L[j * p + i] * L[k * p + i];",
    ],
    "where a fit starts changes nothing but its steps": [
        "fitSvm(train, length, d, (i) => answers[i] === row, start?.[row] && null).weights,",
        "const measured = this.measured(head, row, "
        "(known?.measured && this.originals[head])?.probe);",
    ],
    "names the file of an error that would have come before": [
        "model = _make_model(cfg, None, is_count01=_reads_count01(config))",
    ],
    "a name of exactly that length fits either way": [
        "return name if len(written) < _LONGEST_NAME else sha256(written)",
    ],
    "each pair is counted twice, and each answer once against itself": [
        "for other in range(n):",
    ],
    "runs with TransformerLens 4 alone, where the same tests judge it": [
        "lost = None",
        "lost = (total < smallest_safe(None)) | half",
        "again = _softmax(mine.k, log_n, divided_by(model)).to(precise)",
        "weighed, total = again.where(weighed), total.where(~lost, torch.ones_like(total))",
        "later = torch.ones(scores.shape[-2:], dtype=None, device=scores.device).triu(1)",
        "return scores.masked_fill(later, -torch.inf).softmax(dim=None)",
        "if now.padding is None:",
        "if mask.ndim == 4 or mask.is_floating_point() and mask.shape[-1] == keys.shape[1]:",
        "now.told = now.told or seen.log_multiplicity(scores) is None",
        "now.found[this] = AskingRows.of_pattern(now, scores, )",
    ],
    "for versions of TransformerLens without the option": [
        "if getattr(cfg, option, ):",
        "if getattr(cfg, option, None) > 0:",
        "if getattr(cfg, option, ) > 0:",
        "if getattr(cfg, option, +1.0) > 0:",
        "if getattr(cfg, option, -2.0) > 0:",
    ],
}


_STRICT = "`strict=True` guards against a mistake that the lines around it do not make"
_CAPITALS = "einops does not mind capitals in the names of axes"
_PROSE = "other words in a message"


def reason_of(survivor: Mapping[str, str]) -> str | None:
    """Say why a survivor is harmless, or None."""
    was, became = survivor["was"], survivor["became"]
    known = {became, f"{was} => {became}"}
    for why, lines in HARMLESS.items():
        if known & set(lines):
            return why
    if "strict=True" in was and became in {
        was.replace("strict=True", other) for other in ("strict=False", "strict=None", "")
    }:
        return _STRICT
    if _is_prose(was, became):
        return _CAPITALS if "->" in was else _PROSE
    return None


def _is_prose(was: str, became: str) -> bool:
    """Whether only a text of several words was changed: to capitals, or between XX and XX."""
    if was.casefold() == became.casefold():
        differ = [i for i, (one, other) in enumerate(zip(was, became, strict=True)) if one != other]
        return " " in was[differ[0] : differ[-1]] if differ else False
    marked = re.search(r"XX(.* .*)XX", became)
    return marked is not None and became.replace("XX", "") == was.replace("XX", "")
