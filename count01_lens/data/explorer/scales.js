// Colours, numbers and ticks.

import { powerText } from "./numbers.js";

// Okabe and Ito's colours, which colour-blind people tell apart; on dark pages the lighter ones.
const LIGHT = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#56B4E9", "#333333"];
const DARK = ["#56B4E9", "#E8853A", "#2BC59A", "#E29BC4", "#F0C75E", "#9ACDF0", "#DDDDDD"];
const TOKENS_LIGHT = ["#8E7CC3", "#4C9A8B", "#C9A227", "#7A9CC6", "#B5838D", "#6D8B74", "#A1887F"];
const TOKENS_DARK = ["#A99BD9", "#63B8A7", "#D9B94A", "#8FB2DC", "#CC9DA6", "#86A88E", "#BCA49B"];

/** The colour of an answer; of more answers than there are colours, shades along a scale. */
export function answerColour(answer, n, dark) {
  if (n <= LIGHT.length) return (dark ? DARK : LIGHT)[answer];
  return `hsl(${(260 - (200 * answer) / (n - 1)).toFixed(0)} 60% ${dark ? 65 : 42}%)`;
}

/** The colour of a key token: '[BOS]' and '=' are grey. */
export function tokenColour(model, token, dark) {
  if (token === 0) return dark ? "#6b7280" : "#9aa0a8";
  if (token === model.equals) return dark ? "#4b5563" : "#c3c8cf";
  const colours = dark ? TOKENS_DARK : TOKENS_LIGHT;
  return colours[(token - 1) % colours.length];
}

/** Red, green and blue of a colour like #0072B2 or of any other that CSS knows. */
export function rgbOf(colour) {
  if (colour[0] === "#") return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const context = document.createElement("canvas").getContext("2d");
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
}

/** A colour behind a number: blue above zero, orange below, paler the smaller. */
export function shaded(value, largest, dark) {
  const [r, g, b] = rgbOf((dark ? DARK : LIGHT)[value >= 0 ? 0 : 1]);
  const share = largest > 0 ? Math.min(Math.abs(value) / largest, 1) : 0;
  return `rgba(${r}, ${g}, ${b}, ${(0.62 * share).toFixed(3)})`;
}

/** A share with as many digits as the test split has: 0.9987, and 1 for all. */
export function shareText(value) {
  if (!Number.isFinite(value)) return "–";
  return value === 1 ? "1" : value.toFixed(4);
}

/** A percentage with as many decimals as keep 0 and 100 for none and all. */
export function percentText(value) {
  if (!Number.isFinite(value)) return "–";
  if (value === 0 || value === 1) return `${100 * value} %`;
  for (let decimals = 1; ; decimals++) {
    const text = (100 * value).toFixed(decimals);
    if (decimals === 6 || ![0, 100].includes(Number(text))) return `${text} %`;
  }
}

/** A number in few characters, with a real minus. */
export function numberText(value, digits = 3) {
  if (Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e5 || size < 1e-3)) return powerText(value, 2);
  const text = size >= 1000 ? value.toFixed(0) : String(Number(value.toPrecision(digits)));
  return text.replace("-", "−");
}

/** A number as it is typed into a box. */
export function typedText(value) {
  return Number.isFinite(value) ? String(Number(value.toPrecision(3))) : numberText(value);
}

/** A number with its sign. */
export function signedText(value) {
  return (value >= 0 ? "+" : "") + numberText(value, 3);
}

/** A few round numbers between two, and how many decimals they need. */
export function ticksBetween(low, high, about = 3) {
  const step0 = (high - low) / about;
  if (!(step0 > 0) || !Number.isFinite(step0)) return [];
  const power = 10 ** Math.floor(Math.log10(step0));
  const step = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= step0 * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) ticks.push(Math.abs(k * step) < step / 1e6 ? 0 : k * step);
  return ticks;
}

/** Ratios that a slider stops at: 0 and ∞ at its ends, twenty to a decade between them. */
export const RATIOS = [
  0,
  ...Array.from({ length: 161 }, (_, i) => Number((10 ** (i / 20 - 4)).toPrecision(3))),
  Infinity,
];

/** The stop of a slider that is nearest to a ratio. */
export function stopOf(ratio) {
  if (ratio === 0) return 0;
  if (ratio === Infinity) return RATIOS.length - 1;
  return Math.min(Math.max(Math.round((Math.log10(ratio) + 4) * 20) + 1, 1), RATIOS.length - 2);
}
