// The linear SVM ½‖w‖² + ½b² + C Σ max(0, 1 − y f(x))², f(x) = w·x + b, by Newton's method.
//
// heads/newton.py in JavaScript. The objective is piecewise quadratic, so that Newton's method ends
// after finitely many steps. Samples far outside the margin have no part in the optimum: steps look
// at the near ones only, then at all, and again at more if others have come inside meanwhile.

const LARGEST_EXPONENT = 10;
const TOLERANCE = 1e-10;
const MOST_STEPS = 200;
const ROUNDING = 1e-14;

/** Powers of two in which features are at most 1024, so that no square of them overflows. */
function unitsOf(X, n, d) {
  const units = new Float64Array(d + 1).fill(1);
  for (let j = 0; j < d; j++) {
    let largest = 0;
    for (let i = 0; i < n; i++) largest = Math.max(largest, Math.abs(X[i * d + j]));
    const exponent = largest > 0 ? Math.floor(Math.log2(largest)) + 1 : 0;
    units[j] = 2 ** Math.max(exponent - LARGEST_EXPONENT, 0);
  }
  return units;
}

/**
 * Fit one linear SVM to features X [sample, d], positive where `isPositive(i)`.
 *
 * Returns {weights: w then b, steps}; `start` are weights to start from, such as those of a fit
 * to features that were nearly the same.
 */
export function fitSvm(X, n, d, isPositive, start = null, C = 1000) {
  const p = d + 1;
  const units = unitsOf(X, n, d);
  const Z = new Float64Array(n * p);
  for (let i = 0; i < n; i++) {
    const sign = isPositive(i) ? 1 : -1;
    for (let j = 0; j < d; j++) Z[i * p + j] = (sign * X[i * d + j]) / units[j];
    Z[i * p + d] = sign;
  }
  const penalty = units.map((unit) => 1 / unit ** 2);
  const scale = scaleOf(Z, n, p, C);
  let v = Float64Array.from(start ?? new Float64Array(p), (value, j) => value * units[j]);
  // A few of the samples, each with the weight of many, bring a fit close to its end quickly.
  for (const every of [64, 8]) {
    if (n / every < 4 * p + 50) continue;
    const few = someRows(Z, n, p, every);
    v = descend(few, few.length / p, p, penalty, C * every, v, scale, 1e-4).v;
  }
  let steps = 0;
  for (let width = 1; ; width *= 2) {
    const slack = slacks(Z, n, p, v);
    if (steps > 0 && isOptimal(Z, n, p, slack, v, penalty, C, scale)) break;
    const near = nearRows(Z, n, p, slack, -width);
    const found = descend(near, near.length / p, p, penalty, C, v, scale);
    v = found.v;
    steps += found.steps;
    if (found.steps === 0 || steps >= MOST_STEPS) break;
  }
  return { weights: v.map((value, j) => value / units[j]), steps };
}

function scaleOf(Z, n, p, C) {
  const sums = new Float64Array(p);
  for (let i = 0; i < n; i++) for (let j = 0; j < p; j++) sums[j] += Z[i * p + j];
  return 2 * C * Math.hypot(...sums) + 2 * C;
}

function margins(Z, n, p, v) {
  const found = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    let margin = 0;
    for (let j = 0; j < p; j++) margin += Z[i * p + j] * v[j];
    found[i] = margin;
  }
  return found;
}

function slacks(Z, n, p, v) {
  const slack = margins(Z, n, p, v);
  for (let i = 0; i < n; i++) slack[i] = 1 - slack[i];
  return slack;
}

function someRows(Z, n, p, every) {
  const rows = new Float64Array(Math.ceil(n / every) * p);
  for (let i = 0, at = 0; i < n; i += every) for (let j = 0; j < p; j++) rows[at++] = Z[i * p + j];
  return rows;
}

function nearRows(Z, n, p, slack, above) {
  let length = 0;
  for (let i = 0; i < n; i++) if (slack[i] > above) length++;
  const rows = new Float64Array(length * p);
  for (let i = 0, at = 0; i < n; i++) {
    if (!(slack[i] > above)) continue;
    for (let j = 0; j < p; j++) rows[at++] = Z[i * p + j];
  }
  return rows;
}

function objectiveOf(slack, v, penalty, C) {
  let losses = 0;
  for (let i = 0; i < slack.length; i++) if (slack[i] > 0) losses += slack[i] * slack[i];
  let norm = 0;
  for (let j = 0; j < v.length; j++) norm += penalty[j] * v[j] * v[j];
  return 0.5 * norm + C * losses;
}

/** The gradient at v and, if `hessian` is given, the matrix of second derivatives into it. */
function derivatives(Z, n, p, slack, v, penalty, C, hessian = null) {
  const gradient = new Float64Array(p);
  hessian?.fill(0);
  for (let i = 0; i < n; i++) {
    const loss = slack[i];
    if (!(loss > 0)) continue;
    const row = i * p;
    for (let j = 0; j < p; j++) {
      const z = Z[row + j];
      gradient[j] -= 2 * C * z * loss;
      if (hessian) for (let k = 0; k <= j; k++) hessian[j * p + k] += z * Z[row + k];
    }
  }
  for (let j = 0; j < p; j++) {
    gradient[j] += penalty[j] * v[j];
    if (!hessian) continue;
    for (let k = 0; k <= j; k++) {
      hessian[k * p + j] = hessian[j * p + k] = 2 * C * hessian[j * p + k] + (j === k ? penalty[j] : 0);
    }
  }
  return gradient;
}

/** Whether the gradient and the duality gap over all samples are small. */
function isOptimal(Z, n, p, slack, v, penalty, C, scale) {
  const gradient = derivatives(Z, n, p, slack, v, penalty, C);
  let gap = 0;
  gradient.forEach((g, j) => (gap += g === 0 ? 0 : 0.5 * g * (g / penalty[j])));
  const objective = objectiveOf(slack, v, penalty, C);
  return Math.hypot(...gradient) / scale <= TOLERANCE && gap / objective <= TOLERANCE;
}

/** Take Newton steps until there is nothing left to gain, or only rounding. */
function descend(Z, n, p, penalty, C, start, scale, enough = 0) {
  let v = start;
  const slack = slacks(Z, n, p, v);
  let objective = objectiveOf(slack, v, penalty, C);
  let stalled = false;
  let before = { v, distance: Infinity, steps: 0 };
  const hessian = new Float64Array(p * p);
  for (let steps = 0; ; steps++) {
    const gradient = derivatives(Z, n, p, slack, v, penalty, C, hessian);
    const direction = newtonDirection(hessian, gradient, Z, n, p, slack, v, penalty, C);
    const descent = dot(gradient, direction);
    const relative = Math.hypot(...gradient) / scale;
    const gain = objective > 0 ? -descent / (2 * objective) : 1;
    const here = { v, distance: Math.max(relative, gain), steps };
    if (stalled && here.distance >= before.distance) return before;
    if (gain <= enough) return here;
    if ((relative <= TOLERANCE * 1e-3 && gain <= TOLERANCE ** 2) || steps === MOST_STEPS) return here;
    const slope = margins(Z, n, p, direction);
    const length = lengthOfStep(slack, slope, v, direction, penalty, C, descent);
    v = v.map((value, j) => value + length * direction[j]);
    for (let i = 0; i < n; i++) slack[i] -= length * slope[i];
    const reached = objectiveOf(slack, v, penalty, C);
    // Close to the optimum a step may gain less than the objective's own rounding; whether it was a
    // good one is then seen by the gradient.
    stalled = reached >= objective - ROUNDING * Math.abs(objective);
    before = here;
    objective = reached;
  }
}

/** How far to go along a direction: nearly to the minimum, whose derivative is piecewise linear. */
function lengthOfStep(slack, slope, v, direction, penalty, C, descent) {
  let [along, own] = [0, 0];
  for (let j = 0; j < v.length; j++) {
    along += penalty[j] * v[j] * direction[j];
    own += penalty[j] * direction[j] * direction[j];
  }
  let [low, high, length] = [0, Infinity, 1];
  for (let trial = 0; trial < 30; trial++) {
    let [losses, squares] = [0, 0];
    for (let i = 0; i < slack.length; i++) {
      const left = slack[i] - length * slope[i];
      if (left > 0) {
        losses += left * slope[i];
        squares += slope[i] * slope[i];
      }
    }
    const derivative = along + length * own - 2 * C * losses;
    if (Math.abs(derivative) <= 0.1 * Math.abs(descent)) return length;
    if (derivative > 0) high = length;
    else low = length;
    const next = length - derivative / (own + 2 * C * squares);
    if (!(Math.abs(next - length) > 1e-9 * length)) return length;
    length = next > low && next < high ? next : high < Infinity ? (low + high) / 2 : 2 * length;
  }
  return length;
}

function dot(a, b) {
  let sum = 0;
  for (let j = 0; j < a.length; j++) sum += a[j] * b[j];
  return sum;
}

/** From v to the minimum of the present piece. */
function newtonDirection(hessian, gradient, Z, n, p, slack, v, penalty, C) {
  const lengths = Float64Array.from({ length: p }, (_, j) => Math.sqrt(hessian[j * p + j]) || 1);
  const factor = cholesky(hessian, lengths, p);
  let trace = 0;
  for (let j = 0; j < p; j++) trace += hessian[j * p + j];
  const apart = trace < 1e12 * Math.min(...penalty);
  if (factor && (apart || factor.smallest > 1e-5)) return solved(factor.L, gradient, lengths, p);
  return leastSquares(Z, n, p, slack, v, penalty, C);
}

/** Factor the matrix, scaled to a diagonal of ones; null where rounding has left nothing of it. */
function cholesky(matrix, lengths, p) {
  const L = new Float64Array(p * p);
  let smallest = Infinity;
  for (let j = 0; j < p; j++) {
    for (let k = 0; k <= j; k++) {
      let sum = matrix[j * p + k] / (lengths[j] * lengths[k]);
      for (let i = 0; i < k; i++) sum -= L[j * p + i] * L[k * p + i];
      if (j !== k) {
        L[j * p + k] = sum / L[k * p + k];
      } else {
        if (!(sum > 0)) return null;
        L[j * p + j] = Math.sqrt(sum);
        smallest = Math.min(smallest, L[j * p + j]);
      }
    }
  }
  return { L, smallest };
}

function solved(L, gradient, lengths, p) {
  const x = new Float64Array(p);
  for (let j = 0; j < p; j++) {
    let sum = -gradient[j] / lengths[j];
    for (let i = 0; i < j; i++) sum -= L[j * p + i] * x[i];
    x[j] = sum / L[j * p + j];
  }
  for (let j = p - 1; j >= 0; j--) {
    let sum = x[j];
    for (let i = j + 1; i < p; i++) sum -= L[i * p + j] * x[i];
    x[j] = sum / L[j * p + j];
  }
  return x.map((value, j) => value / lengths[j]);
}

/** The same step by Householder's QR of the samples: squares lose twice as many digits. */
function leastSquares(Z, n, p, slack, v, penalty, C) {
  const root = Math.sqrt(2 * C);
  const rows = [];
  for (let i = 0; i < n; i++) {
    if (!(slack[i] > 0)) continue;
    rows.push(Float64Array.from({ length: p + 1 }, (_, j) => root * (j < p ? Z[i * p + j] : slack[i])));
  }
  for (let j = 0; j < p; j++) {
    const row = new Float64Array(p + 1);
    row[j] = Math.sqrt(penalty[j]);
    row[p] = -Math.sqrt(penalty[j]) * v[j];
    rows.push(row);
  }
  const lengths = Float64Array.from({ length: p }, (_, j) => norm(rows, j, 0) || 1);
  for (const row of rows) for (let j = 0; j < p; j++) row[j] /= lengths[j];
  for (let j = 0; j < p; j++) {
    const size = norm(rows, j, j);
    if (size === 0) continue;
    const alpha = rows[j][j] > 0 ? -size : size;
    const u = rows.map((row, i) => (i < j ? 0 : i === j ? row[j] - alpha : row[j]));
    let square = 0;
    for (let i = j; i < u.length; i++) square += u[i] * u[i];
    for (let k = j; k <= p; k++) {
      let sum = 0;
      for (let i = j; i < u.length; i++) sum += u[i] * rows[i][k];
      const factor = (2 * sum) / square;
      for (let i = j; i < u.length; i++) rows[i][k] -= factor * u[i];
    }
  }
  const x = new Float64Array(p);
  for (let j = p - 1; j >= 0; j--) {
    let sum = rows[j][p];
    for (let k = j + 1; k < p; k++) sum -= rows[j][k] * x[k];
    x[j] = Math.abs(rows[j][j]) > 1e-15 ? sum / rows[j][j] : 0;
  }
  return x.map((value, j) => value / lengths[j]);
}

function norm(rows, column, from) {
  let sum = 0;
  for (let i = from; i < rows.length; i++) sum += rows[i][column] ** 2;
  return Math.sqrt(sum);
}
