// A training while it runs: `watch` for the page of the command line, `render` for notebooks.

import { button, make, say } from "../explorer/elements.js";
import { answerColour, numberText, percentText, shareText } from "../explorer/scales.js";
import { isDark } from "../explorer/theme.js";
import { lineChart } from "./charts.js";
import { ALL, History } from "./series.js";

const ACCURACIES = [["validation_accuracy", "validation"], ["test_accuracy", "test"], ["test_eos_accuracy", "[EOS]"]];
const MOST_NAMED = 12; // of models, in what the pointer tells

/** Put the view of a training into an element. */
function mountLive(root, about) {
  const history = new History(about);
  const several = about.models.length > 1;
  let chosen = several ? ALL : 0;
  let dark = isDark(root);
  let themeChosen = false;
  let waiting = false;

  const progress = make("progress", { max: about.epochs, value: 0, "aria-label": "epochs done" });
  const where = make("span", { class: "where", role: "status" });
  const problem = make("p", { class: "problem", role: "alert", hidden: true });
  const numbers = [["loss", "loss"], ["validation_accuracy", "validation accuracy"], ["test_accuracy", "test accuracy"], ["test_eos_accuracy", "[EOS] accuracy"]].map(
    ([column, name]) => ({ column, value: make("dd", { "data-value": column }), name }));
  const choice = make("select", { "aria-label": "model", on: { change: (event) => { chosen = Number(event.target.value); show(); } } },
    ...[...(several ? [[ALL, `all ${about.models.length} models`]] : []), ...about.models.map((name, i) => [i, name])].map(([value, text]) => make("option", { value, text })));
  const loss = lineChart("Loss", { log: true, write: (value) => numberText(value, 3) });
  const accuracy = lineChart("Accuracy", { write: shareText });
  const heads = lineChart("Heads", { write: shareText, nearest: true });
  const charts = [loss, accuracy, heads];
  const theme = button("◑", "light or dark", () => { themeChosen = true; dark = !dark; show(); }, { class: "icon" });
  const frame = make("div", { class: "c01live", "data-lm-suppress-shortcuts": "true" },
    make("header", { class: "top" },
      make("div", { class: "title" }, make("strong", { text: titleOf(about) }), several ? choice : make("span", { class: "soft", text: about.models[0] })),
      make("div", { class: "how" }, where, progress), theme),
    problem,
    make("dl", { class: "numbers" }, ...numbers.map(({ name, value }) => make("div", {}, make("dt", { text: name }), value))),
    make("div", { class: "charts" }, loss.element, accuracy.element, heads.element));
  heads.element.classList.add("wide");
  root.replaceChildren(frame);

  function schedule() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; show(); });
  }

  function show() {
    const { status } = history;
    frame.classList.toggle("dark", dark);
    frame.dataset.state = status.state;
    progress.value = status.epoch;
    say(where, whereText(status, about));
    say(problem, status.message);
    problem.hidden = !status.message;
    for (const { column, value } of numbers) say(value, lastText(history.last(column, chosen), column === "loss"));
    loss.update({ epochs: about.epochs, lines: modelLines("loss", colour(0)), empty: "from the first epoch on" });
    accuracy.update({
      epochs: about.epochs, empty: "from the first epoch on",
      lines: ACCURACIES.flatMap(([column, name], i) => modelLines(column, colour(i), name)),
      legend: ACCURACIES.map(([, name], i) => ({ name, colour: colour(i) })),
    });
    heads.update(headLines(chosen === ALL ? 0 : chosen));
  }

  function colour(i) {
    return answerColour(i, 7, dark);
  }

  /** A column of the chosen model; or of all, thin, and their mean. */
  function modelLines(column, shade, name = null) {
    const main = { name: name ?? (chosen === ALL ? "mean" : about.models[chosen]), points: history.values(column, chosen), colour: shade, width: 2 };
    if (chosen !== ALL) return [main];
    const named = name === null && about.models.length <= MOST_NAMED;
    const each = about.models.map((model, i) => ({ name: named ? model : null, points: history.values(column, i), colour: shade, width: 1, faint: true }));
    return [...each, main];
  }

  /** Figure 9 of the paper: s-acc of each head, its width the weight of the head. */
  function headLines(model) {
    const [successful, failed] = about.bounds;
    const kinds = { successful: colour(0), mixed: dark ? "#8b94a1" : "#8a8f98", failed: colour(1) };
    const kindOf = (sAcc) => (sAcc >= successful ? "successful" : sAcc <= failed ? "failed" : "mixed");
    const found = history.heads(model);
    const counts = Object.keys(kinds).map((kind) => [kind, found.filter(({ sAcc }) => kindOf(sAcc) === kind).length]);
    const { share, state } = history.status;
    const cost = share === null ? "" : ` Looking on has taken ${percentText(Math.round(share * 1000) / 1000)} of the time of training.`;
    return {
      title: `s-acc of each head${several ? `, ${about.models[model]}` : ""}`,
      epochs: about.epochs,
      lines: found.map(({ head, sAcc, weight, points }) => ({
        name: `head ${head}, weight ${percentText(Math.round(weight * 1000) / 1000)}, s-acc`, points, colour: kinds[kindOf(sAcc)], width: Math.min(0.6 + 20 * weight, 7),
      })),
      legend: counts.map(([kind, n]) => ({ name: found.length ? `${n} ${kind}` : kind, colour: kinds[kind] })),
      note: `The accuracy of a linear probe on each head's output, on the test split; line width is the head's weight. Measured as often as it takes less than 5 % of the time.${cost}`,
      empty: state === "training" ? "to be measured soon" : "too short a training to measure heads meanwhile",
    };
  }

  const onTheme = () => {
    if (!themeChosen && dark !== isDark(root)) { dark = isDark(root); schedule(); }
  };
  const watched = matchMedia("(prefers-color-scheme: dark)");
  watched.addEventListener("change", onTheme);
  const observer = new MutationObserver(onTheme);
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-theme", "class", "data-jp-theme-light"] });
  const resized = new ResizeObserver(() => {
    frame.classList.toggle("narrow", frame.clientWidth < 720);
    for (const chart of charts) chart.paint();
  });
  resized.observe(frame);
  show();
  return {
    add(news) {
      history.add(news);
      schedule();
    },
    lost() {
      if (history.status.state !== "training") return;
      history.status = { ...history.status, state: "lost", left: null, message: "No connection: the program that trains has ended, or is busy." };
      schedule();
    },
    destroy() {
      resized.disconnect();
      observer.disconnect();
      watched.removeEventListener("change", onTheme);
      root.replaceChildren();
    },
  };
}

function titleOf({ models, n_heads: heads, task }) {
  const n = models.length;
  return `${n === 1 ? "A model" : `${n} models`} with ${heads} head${heads === 1 ? "" : "s"}, trained on ${task}`;
}

function whereText({ state, epoch, left, elapsed }, { epochs }) {
  const done = `epoch ${epoch} of ${epochs}`;
  if (state === "finished") return `training finished: ${epochs} epoch${epochs === 1 ? "" : "s"} in ${timeText(elapsed)}`;
  if (state === "stopped") return `training was stopped after ${done}; the same command goes on from there`;
  if (state === "failed") return `training failed after ${done}`;
  return left === null ? done : `${done}, ${timeText(left)} left`;
}

function timeText(seconds) {
  if (seconds === null) return "";
  if (seconds < 100) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 100 ? `${minutes} min` : `${(minutes / 60).toFixed(1)} h`;
}

function lastText({ value, lowest, highest }, loss) {
  if (value === null) return "–";
  const write = (number) => (loss ? numberText(number, 4) : shareText(number));
  if (lowest === undefined || lowest === highest) return write(value);
  return loss ? `${write(value)} (highest ${write(highest)})` : `${write(value)} (lowest ${write(lowest)})`;
}

/** For the page of the command line: show what the server tells. */
function watch(root, address) {
  const events = new EventSource(address);
  let view = null;
  events.addEventListener("about", (event) => {
    view ??= mountLive(root, JSON.parse(event.data));
  });
  events.addEventListener("news", (event) => {
    const news = JSON.parse(event.data);
    view.add(news);
    if (news.status.state !== "training") events.close();
  });
  events.addEventListener("error", () => view?.lost());
}

/** What anywidget calls in a notebook. */
function render({ model, el }) {
  const view = mountLive(el, model.get("about"));
  view.add(model.get("data"));
  const more = () => view.add(model.get("data"));
  const told = (news) => view.add(news);
  model.on("change:data", more);
  model.on("msg:custom", told);
  return () => {
    model.off("change:data", more);
    model.off("msg:custom", told);
    view.destroy();
  };
}
