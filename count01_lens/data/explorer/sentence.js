// What the sentence's logits are made of, head by head: steps that add up, and stacks.

import { draw, make, say } from "./elements.js";
import { answerColour, numberText, signedText } from "./scales.js";

const WIDE = 268;
const TALL = 15;
const LEFT = 30;
const RIGHT = 50;

/** Which two answers are compared: both of two; of more the one said, and the next one. */
function compared(model, { said, asked }) {
  if (model.answers.length === 2) return [0, 1];
  const order = model.answers.map((_, a) => a).sort((a, b) => asked.logits[model.equals + 1 + b] - asked.logits[model.equals + 1 + a]);
  return [said, order.find((a) => a !== said)];
}

/** The lead of one answer over another by each head and by the bias. */
function leadsOf(model, { heads, bias }, [one, other]) {
  const lead = (logits) => logits[model.equals + 1 + one] - logits[model.equals + 1 + other];
  return [...heads.map(({ logits }) => lead(logits)), lead(bias)];
}

/** The panel: a step for each head, from nothing to the whole lead. */
export function logitPanel(app) {
  const { engine, store } = app;
  const { model } = engine;
  const title = make("h2", {});
  const svg = draw("svg", { class: "steps", role: "img" });
  const stacks = make("div", { class: "stacks" });
  const element = make("section", { class: "panel logits", "aria-label": "What the logits are made of" }, title, svg, make("h3", { text: "Each logit, stacked head by head" }), stacks);
  svg.addEventListener("click", (event) => {
    const head = event.target.closest("[data-head]")?.dataset.head;
    if (head !== undefined) store.change({ page: Number(head) });
  });
  const update = ({ dark, sentence, state }) => {
    const pair = compared(model, sentence.after);
    const [before, after] = [sentence.before, sentence.after].map(({ asked }) => leadsOf(model, asked, pair));
    say(title, `Logit of ${model.answers[pair[0]]} minus ${model.answers[pair[1]]}, head by head`);
    drawSteps(svg, model, before, after, pair, dark, state);
    drawStacks(stacks, model, sentence, dark);
  };
  return { element, update };
}

function drawSteps(svg, model, before, after, pair, dark, state) {
  const sums = (leads) => leads.reduce((all, lead) => [...all, all[all.length - 1] + lead], [0]);
  const [from, to] = [sums(before), sums(after)];
  const low = Math.min(...from, ...to);
  const high = Math.max(...from, ...to);
  const x = (value) => LEFT + ((value - low) / (high - low || 1)) * (WIDE - LEFT - RIGHT);
  const names = [...Array.from({ length: model.nHeads }, (_, head) => String(head)), "bias"];
  const height = TALL * (names.length + 1) + 4;
  svg.setAttribute("viewBox", `0 0 ${WIDE} ${height}`);
  const parts = [draw("line", { x1: x(0), x2: x(0), y1: 0, y2: height, class: "zero" })];
  const row = (name, y, start, end, old, isTotal) => {
    const colour = answerColour(pair[end >= start ? 0 : 1], model.answers.length, dark);
    const isHead = !isTotal && name !== "bias";
    const group = draw("g", isHead ? { class: state.off.includes(Number(name)) ? "step off" : "step", "data-head": name } : { class: "step" },
      draw("title", { text: `${isHead ? `head ${name}` : name}: ${signedText(old[1] - old[0])}${Math.abs(old[1] - old[0] - (end - start)) > 1e-9 ? ` → ${signedText(end - start)}` : ""}` }),
      draw("rect", { x: 0, y, width: WIDE, height: TALL, class: "hit" }),
      draw("text", { x: LEFT - 5, y: y + TALL - 4, class: "name", text: name }),
      draw("rect", { x: Math.min(x(start), x(end)), y: y + 2.5, width: Math.max(Math.abs(x(end) - x(start)), 0.6), height: TALL - 5, rx: 1.5, fill: colour }),
      draw("text", { x: WIDE, y: y + TALL - 4, class: "value", "data-value": isHead ? `step-${name}` : `step-${name}`, text: signedText(end - start) }));
    if (Math.abs(old[1] - old[0] - (end - start)) > 1e-9) {
      const [a, b] = [x(old[0]), x(old[1])];
      group.append(draw("rect", { x: Math.min(a, b), y: y + 2.5, width: Math.max(Math.abs(b - a), 0.6), height: TALL - 5, rx: 1.5, class: "ghost" }));
    }
    return group;
  };
  names.forEach((name, i) => parts.push(row(name, i * TALL, to[i], to[i + 1], [from[i], from[i + 1]], false)));
  const last = names.length;
  parts.push(draw("line", { x1: 0, x2: WIDE, y1: last * TALL + 2, y2: last * TALL + 2, class: "rule" }));
  parts.push(row("sum", last * TALL + 3, 0, to[last], [0, from[last]], true));
  svg.replaceChildren(...parts);
  svg.setAttribute("aria-label", `Lead of ${model.answers[pair[0]]} over ${model.answers[pair[1]]}: ${names.map((name, i) => `${name} ${signedText(after[i])}`).join(", ")}; in all ${signedText(to[last])}`);
}

/** A bar for each logit: what lifts it to the right, what lowers it to the left. */
function drawStacks(element, model, { before, after }, dark) {
  const lines = model.answers.map((answer, a) => ({ name: answer, token: model.equals + 1 + a, one: before.asked, other: after.asked, where: "at =" }));
  const said = after.right ?? after.said;
  lines.push({ name: "[EOS]", token: model.eos, one: before.after, other: after.after, where: `after ${model.answers[said]}` });
  const partsOf = (asked, token) => [...asked.heads.map(({ logits }) => logits[token]), asked.bias[token]];
  const reach = (parts) => [parts.filter((v) => v < 0).reduce((s, v) => s + v, 0), parts.filter((v) => v > 0).reduce((s, v) => s + v, 0)];
  // Answers have one scale, '[EOS]' has its own: it is often far larger.
  const scaleFor = (group) => {
    const ranges = group.map(({ other, token }) => reach(partsOf(other, token)));
    const low = Math.min(...ranges.map(([l]) => l), 0);
    const high = Math.max(...ranges.map(([, h]) => h), low + 1e-12);
    return (value) => ((value - low) / (high - low)) * WIDE;
  };
  const scales = [scaleFor(lines.slice(0, -1)), scaleFor(lines.slice(-1))];
  element.replaceChildren(
    ...lines.map(({ name, token, one, other, where }) => {
      const x = scales[token === model.eos ? 1 : 0];
      const parts = partsOf(other, token);
      let [left, right] = [0, 0];
      const svg = draw("svg", { viewBox: `0 0 ${WIDE} 16`, role: "img", "aria-label": `logit of ${name} ${where}: ${numberText(other.logits[token])}` });
      parts.forEach((value, head) => {
        const start = value < 0 ? left + value : right;
        if (value < 0) left += value;
        else right += value;
        const label = head < model.nHeads ? `head ${head}` : "bias";
        const shade = head < model.nHeads ? `hsl(${(215 + head * 137.5) % 360} ${dark ? 38 : 42}% ${dark ? 56 : 62}%)` : dark ? "#6b7280" : "#a7acb5";
        svg.append(draw("rect", { x: x(start), y: 3, width: Math.max(x(start + Math.abs(value)) - x(start), 0.3), height: 10, fill: shade, class: "piece" }, draw("title", { text: `${label}: ${signedText(value)}` })));
      });
      svg.append(draw("line", { x1: x(0), x2: x(0), y1: 0, y2: 16, class: "zero" }));
      const end = x(other.logits[token]);
      svg.append(draw("path", { d: `M${end} 16 l-3.5 -5 h7 z`, class: "end" }));
      const changed = Math.abs(one.logits[token] - other.logits[token]) > 1e-9;
      const number = `${changed ? `${numberText(one.logits[token])} → ` : ""}${numberText(other.logits[token])}`;
      return make("div", { class: "stack" }, make("div", { class: "caption" }, make("b", { text: name }), make("span", { text: ` ${where}` }), make("span", { class: "value", "data-value": `logit-${name}`, text: number })), svg);
    }),
  );
}
