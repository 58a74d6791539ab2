// Outputs of a head as points on a canvas, with value vectors, the probe's line and a scale.

import { answerColour, numberText, rgbOf, ticksBetween } from "./scales.js";
import { valueOf } from "./tables.js";

/**
 * How outputs become points: the two coordinates themselves; of larger heads the two main
 * directions; of heads with one number, that number, and answers one above the other.
 */
export function planeOf(outputs, d) {
  if (d <= 2) return { d, centre: new Float64Array(d), axes: [0, 1].map((a) => Float64Array.from({ length: d }, (_, j) => (j === a ? 1 : 0))) };
  const n = outputs.length / d;
  const centre = new Float64Array(d);
  for (let i = 0; i < n; i++) for (let j = 0; j < d; j++) centre[j] += outputs[i * d + j] / n;
  const covariance = new Float64Array(d * d);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < d; j++) {
      for (let k = 0; k <= j; k++) covariance[j * d + k] += (outputs[i * d + j] - centre[j]) * (outputs[i * d + k] - centre[k]);
    }
  }
  for (let j = 0; j < d; j++) for (let k = 0; k < j; k++) covariance[k * d + j] = covariance[j * d + k];
  const axes = [];
  for (let a = 0; a < 2; a++) {
    let axis = Float64Array.from({ length: d }, (_, j) => Math.sin(1 + j + a));
    for (let step = 0; step < 100; step++) {
      const next = new Float64Array(d);
      for (let j = 0; j < d; j++) for (let k = 0; k < d; k++) next[j] += covariance[j * d + k] * axis[k];
      for (const other of axes) {
        let along = 0;
        for (let j = 0; j < d; j++) along += next[j] * other[j];
        for (let j = 0; j < d; j++) next[j] -= along * other[j];
      }
      const length = Math.hypot(...next);
      if (!(length > 0)) break;
      axis = next.map((value) => value / length);
    }
    axes.push(axis);
  }
  return { d, centre, axes };
}

/** A point of the plane; answers of heads with one number are set apart. */
function placed({ d, centre, axes }, outputs, i, answer, nAnswers) {
  if (d === 1) return [outputs[i], 0.5 - (answer + 0.5) / nAnswers + (((i * 7919) % 97) / 97 - 0.5) * (0.7 / nAnswers)];
  let [x, y] = [0, 0];
  for (let j = 0; j < d; j++) {
    x += (outputs[i * d + j] - centre[j]) * axes[0][j];
    y += (outputs[i * d + j] - centre[j]) * axes[1][j];
  }
  return [x, y];
}

const projections = new WeakMap(); // outputs are never changed, and many are drawn again and again

/** All points of outputs on the plane, and the corners of them. */
function projected(plane, outputs, answers, nAnswers) {
  const known = projections.get(outputs);
  if (known) return known;
  const n = answers.length;
  const [x, y] = [new Float64Array(n), new Float64Array(n)];
  if (plane.d === 2) {
    for (let i = 0; i < n; i++) {
      x[i] = outputs[2 * i];
      y[i] = outputs[2 * i + 1];
    }
  } else {
    for (let i = 0; i < n; i++) [x[i], y[i]] = placed(plane, outputs, i, answers[i], nAnswers);
  }
  let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
  for (let i = 0; i < n; i++) {
    if (x[i] < left) left = x[i];
    if (x[i] > right) right = x[i];
    if (y[i] < low) low = y[i];
    if (y[i] > high) high = y[i];
  }
  const found = { x, y, corners: [[left, right], plane.d === 1 ? [-0.5, 0.5] : [low, high]] };
  projections.set(outputs, found);
  return found;
}

/** Corners of what is shown: with room around, and never empty. */
function limitsOf(clouds) {
  const ends = [0, 1].map((a) => [
    Math.min(...clouds.map(({ corners }) => corners[a][0])),
    Math.max(...clouds.map(({ corners }) => corners[a][1])),
  ]);
  const most = Math.max(...ends.map(([low, high]) => (high - low) / 2));
  return ends.map(([low, high]) => {
    const middle = (low + high) / 2;
    const reach = 1.1 * Math.max((high - low) / 2, most * 0.02, 1e-9 + 1e-6 * Math.abs(middle));
    return [middle - reach, middle + reach];
  });
}

/** The piece of the line direction·x + offset = 0 inside a rectangle, as its two ends. */
function crossing([wx, wy], offset, [[x0, x1], [y0, y1]]) {
  const corners = [[x0, y0], [x1, y0], [x1, y1], [x0, y1]];
  const heights = corners.map(([x, y]) => wx * x + wy * y + offset);
  const ends = [];
  for (let start = 0; start < 4; start++) {
    const stop = (start + 1) % 4;
    if (heights[start] > 0 === heights[stop] > 0) continue;
    const share = heights[start] / (heights[start] - heights[stop]);
    ends.push(corners[start].map((value, a) => value + share * (corners[stop][a] - value)));
  }
  return ends.length === 2 ? ends : null;
}

/**
 * Draw one head.
 *
 * @param canvas where to
 * @param look {dark, large, width, height}: on a large picture the training split stands behind
 * @param here {output}: the sentence's own point, if any
 */
export function drawScatter(canvas, engine, measured, original, plane, look, here = null) {
  const { model, test, train } = engine;
  const { width, height } = look;
  if (!(width > 0 && height > 0)) return; // it is not shown
  const ratio = Math.min(globalThis.devicePixelRatio || 1, 2);
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const context = canvas.getContext("2d", { willReadFrequently: true }); // pixels come from here, not from a GPU
  const nAnswers = model.answers.length;
  const [now, then] = [measured, original].map((each) => projected(plane, each.test, test.answers, nAnswers));
  const limits = limitsOf([now, then]);

  const image = context.createImageData(w, h);
  const pixels = new Uint32Array(image.data.buffer);
  const size = Math.max(1, Math.round((look.large ? 2.4 : 1.6) * ratio));
  const [perX, perY] = [w / (limits[0][1] - limits[0][0]), h / (limits[1][1] - limits[1][0])];
  const points = ({ x, y }, answers, alpha, grey = null) => {
    const colours = model.answers.map((_, a) => {
      const [r, g, b] = grey ?? rgbOf(answerColour(a, nAnswers, look.dark));
      return ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
    });
    for (let i = 0; i < answers.length; i++) {
      const left = Math.round((x[i] - limits[0][0]) * perX - size / 2);
      const top = Math.round(h - (y[i] - limits[1][0]) * perY - size / 2);
      const colour = colours[answers[i]];
      const [right, bottom] = [Math.min(left + size, w), Math.min(top + size, h)];
      for (let row = top < 0 ? 0 : top; row < bottom; row++) {
        for (let column = left < 0 ? 0 : left; column < right; column++) pixels[row * w + column] = colour;
      }
    }
  };
  if (look.large) points(projected(plane, measured.train, train.answers, nAnswers), train.answers, 60);
  if (measured !== original) points(then, test.answers, 70, look.dark ? [150, 160, 175] : [150, 155, 165]);
  points(now, test.answers, 215);
  context.putImageData(image, 0, 0);

  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawScale(context, limits, width, height, plane.d, look);
  if (measured.probe.length === 1) drawProbe(context, measured.probe[0], plane, limits, width, height, look);
  drawValues(context, engine, measured.head, plane, limits, width, height, look);
  if (here) drawHere(context, placed(plane, here, 0, 0, 1), limits, width, height, look, plane.d);
  context.setTransform(1, 0, 0, 1, 0, 0);
}

function drawScale(context, limits, width, height, d, look) {
  context.strokeStyle = look.dark ? "rgba(255,255,255,.16)" : "rgba(0,0,0,.13)";
  context.fillStyle = look.dark ? "rgba(255,255,255,.62)" : "rgba(0,0,0,.58)";
  context.font = `${look.large ? 11 : 9}px system-ui, sans-serif`;
  context.lineWidth = 1;
  const about = width > 300 ? 5 : 2;
  const x = (value) => ((value - limits[0][0]) / (limits[0][1] - limits[0][0])) * width;
  const y = (value) => height - ((value - limits[1][0]) / (limits[1][1] - limits[1][0])) * height;
  context.beginPath();
  for (const tick of ticksBetween(...limits[0], about)) {
    context.moveTo(x(tick), height);
    context.lineTo(x(tick), height - 4);
    const text = numberText(tick);
    const wide = context.measureText(text).width;
    const left = Math.min(Math.max(x(tick) - wide / 2, 14), width - wide - 2);
    context.fillText(text, left, height - 6);
  }
  for (const tick of d === 1 ? [] : ticksBetween(...limits[1], about)) {
    if (y(tick) > height - 16 || y(tick) < 8) continue;
    context.moveTo(0, y(tick));
    context.lineTo(4, y(tick));
    context.fillText(numberText(tick), 6, y(tick) + 3);
  }
  context.stroke();
}

function drawProbe(context, weights, plane, limits, width, height, look) {
  const { d, centre, axes } = plane;
  let direction = [weights[0], 0];
  let offset = weights[d];
  if (d > 1) {
    direction = axes.map((axis) => axis.reduce((sum, value, j) => sum + value * weights[j], 0));
    centre.forEach((value, j) => (offset += value * weights[j]));
  }
  const ends = crossing(direction, offset, limits);
  if (!ends) return;
  context.strokeStyle = look.dark ? "#2BC59A" : "#007A5A";
  context.lineWidth = look.large ? 2 : 1.5;
  context.beginPath();
  ends.forEach(([x, y], end) => {
    const at = [
      ((x - limits[0][0]) / (limits[0][1] - limits[0][0])) * width,
      height - ((y - limits[1][0]) / (limits[1][1] - limits[1][0])) * height,
    ];
    if (end) context.lineTo(...at);
    else context.moveTo(...at);
  });
  context.stroke();
}

/** Value vectors of the symbols: in their place, or grey at the edge where they lie farther out. */
function drawValues(context, engine, head, plane, limits, width, height, look) {
  const { model } = engine;
  const radius = look.large ? 8 : 6;
  const taken = [];
  context.font = `${look.large ? "bold 11" : "9"}px system-ui, sans-serif`;
  context.textAlign = "center";
  model.symbols.forEach((symbol, s) => {
    const [x, y] = placed(plane, valueOf(model, head, 1 + s), 0, 0, 1);
    const true_ = [
      ((x - limits[0][0]) / (limits[0][1] - limits[0][0])) * width,
      plane.d === 1 ? height * (0.3 + 0.15 * s) : height - ((y - limits[1][0]) / (limits[1][1] - limits[1][0])) * height,
    ];
    const seen = [
      Math.min(Math.max(true_[0], radius + 1), width - radius - 1),
      Math.min(Math.max(true_[1], radius + 1), height - radius - 1),
    ];
    // Marks that would hide each other move inwards; a picture may be too small for all of them.
    const inwards = seen[1] < height / 2 ? 2 * radius : -2 * radius;
    const hides = (other) => Math.hypot(other[0] - seen[0], other[1] - seen[1]) < 2 * radius;
    for (let moves = 0; moves < s && taken.some(hides); moves++) seen[1] += inwards;
    taken.push([...seen]);
    const outside = seen[0] !== true_[0] || seen[1] !== true_[1];
    context.beginPath();
    context.arc(...seen, radius, 0, 2 * Math.PI);
    context.fillStyle = look.dark ? "rgba(24,27,33,.88)" : "rgba(255,255,255,.9)";
    context.fill();
    context.strokeStyle = outside ? "rgba(128,128,128,.55)" : look.dark ? "#e5e7eb" : "#222";
    context.lineWidth = 1;
    context.stroke();
    context.fillStyle = outside ? "#8a8f98" : look.dark ? "#fff" : "#111";
    context.fillText(symbol.slice(0, 2), seen[0], seen[1] + (look.large ? 4 : 3));
  });
  context.textAlign = "left";
}

/** Where the sentence is. */
function drawHere(context, [x, y], limits, width, height, look, d) {
  const at = [
    Math.min(Math.max(((x - limits[0][0]) / (limits[0][1] - limits[0][0])) * width, 4), width - 4),
    d === 1 ? height / 2 : Math.min(Math.max(height - ((y - limits[1][0]) / (limits[1][1] - limits[1][0])) * height, 4), height - 4),
  ];
  context.strokeStyle = look.dark ? "#fff" : "#000";
  context.lineWidth = 1.5;
  context.beginPath();
  for (const [dx, dy] of [[1, 0], [0, 1]]) {
    context.moveTo(at[0] - 5 * dx, at[1] - 5 * dy);
    context.lineTo(at[0] + 5 * dx, at[1] + 5 * dy);
  }
  context.stroke();
}
