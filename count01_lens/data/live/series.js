// What is known of a training, as lines to draw: no page here.

export const ALL = -1; // in the place of a model's number: all of them

/** History and heads as they come in; the same news twice change nothing. */
export class History {
  constructor(about) {
    this.about = about;
    this.status = { state: "training", message: "", epoch: 0, elapsed: 0, left: null, share: null };
    this.lines = new Map(); // by step
    this.moments = about.models.map(() => new Map()); // by epoch
  }

  /** Take over news, as `LiveTraining.news` writes them. */
  add({ lines, heads, status }) {
    for (const line of lines) this.lines.set(line.step, line);
    for (const moment of heads) this.moments[moment.model].set(moment.epoch, moment);
    this.status = status;
  }

  /** Values of a column over epochs: of a model, or the mean of all; after the first step only. */
  values(column, model) {
    const found = [];
    for (const line of [...this.lines.values()].sort((one, other) => one.step - other.step)) {
      const value = model === ALL ? mean(line[column]) : line[column][model];
      if (value !== null && line.step > 0) found.push([line.step / this.about.steps_per_epoch, value]);
    }
    return found;
  }

  /** The last value of a column: of a model, or the mean and the lowest of all. */
  last(column, model) {
    const line = [...this.lines.values()].reduce((one, other) => (other.step > (one?.step ?? -1) ? other : one), null);
    if (!line) return { value: null };
    if (model !== ALL) return { value: line[column][model] };
    const known = line[column].filter((value) => value !== null);
    return { value: mean(line[column]), lowest: Math.min(...known), highest: Math.max(...known) };
  }

  /** A line per head of a model: s-acc over epochs, and its weight and s-acc when it was measured last. */
  heads(model) {
    const moments = [...this.moments[model].values()].sort((one, other) => one.epoch - other.epoch);
    if (!moments.length) return [];
    const last = moments[moments.length - 1];
    return last.s_acc.map((sAcc, head) => ({
      head,
      sAcc,
      weight: last.weight[head],
      points: moments.map((moment) => [moment.epoch, moment.s_acc[head]]).filter(([, value]) => value !== null),
    }));
  }
}

/** The mean of the numbers among values; null if there are none. */
function mean(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

/** As many of the points as a line needs in a width, the first and the last among them. */
export function thinned(points, most) {
  const every = Math.ceil(points.length / most);
  return every <= 1 ? points : points.filter((_, i) => i % every === 0 || i === points.length - 1);
}
