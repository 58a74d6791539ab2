// The explorer: wires the views to the state. `mount` puts it on a page, `render` into a notebook.

import { headCards } from "./cards.js";
import { patchControls, sentenceControls } from "./controls.js";
import { button, make, say } from "./elements.js";
import { headPage } from "./head_page.js";
import { Engine } from "./measure.js";
import { logitPanel } from "./sentence.js";
import { asJson, fragmentOf, patchesOf, readFragment, startOf, Store } from "./state.js";
import { groupPanel, wholeModel } from "./summary.js";
import { isDark } from "./theme.js";
import { categoryOf, pythonCode } from "./wording.js";

let mounted = 0;

/**
 * Put the explorer into an element.
 *
 * @param root where to
 * @param data as `explorer_data` packs it
 * @param options {inAddress: keep the state in the address; fitsWindow: be no taller than it, if it can;
 *     state: to start from; onChange}
 */
export function mount(root, data, { inAddress = true, fitsWindow = false, state = null, onChange = null } = {}) {
  const engines = data.models.map(() => null);
  const id = `explorer-${mounted++}`;
  // JupyterLab would take keys for itself.
  const frame = make("div", { class: "c01x", id, "data-lm-suppress-shortcuts": "true" });
  root.replaceChildren(frame);
  let start = startOf(data.models);
  let problem = "";
  try {
    start = state ?? (inAddress ? readFragment(data.models, location.hash) : null) ?? start;
  } catch (error) {
    problem = error instanceof RangeError || error instanceof URIError ? `${error.message}; shown is the start` : "";
    if (!problem) throw error;
  }
  const store = new Store(data.models, start);
  store.message = problem;
  let dark = isDark(root);
  let chosenTheme = null;
  let app = null;
  let waiting = false;
  let addressing = null;
  const address = () => location.href.split("#")[0] + fragmentOf(data.models, store.state);
  let size = 0;

  const message = make("div", { class: "message", role: "alert", "data-value": "message" });
  const schedule = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      show();
    });
  };

  function show() {
    const now = store.state;
    if (app?.number !== now.model) app = build(now.model);
    const { engine } = app;
    const patches = patchesOf(now);
    const key = JSON.stringify([patches, now.off], asJson);
    if (app.key !== key) {
      app.after = engine.state(patches, now.off);
      app.key = key;
    }
    const spoken = JSON.stringify([now.counts, key]);
    if (app.spoken !== spoken) {
      const counts = now.counts.join();
      const before = app.counts === counts ? app.sentence.before : engine.sentence(now.counts);
      app.sentence = { before, after: engine.sentence(now.counts, patches, now.off) };
      app.counts = counts;
      app.spoken = spoken;
    }
    frame.classList.toggle("dark", dark);
    frame.classList.toggle("paged", now.page !== null);
    const free = fitsWindow && size >= 1080 ? innerHeight - 84 : null;
    const shown = { state: now, engine, dark, free, size: `${size} ${free}`, before: app.before, after: app.after, sentence: app.sentence, hovered: app.hovered };
    for (const view of app.views) view.update(shown);
    say(message, store.message);
    message.hidden = !store.message;
    app.undo.disabled = !store.past.length;
    app.redo.disabled = !store.future.length;
  }

  function build(number) {
    const entry = data.models[number];
    engines[number] ??= new Engine(entry, data.splits[entry.split]);
    const engine = engines[number];
    const built = { id, store, entry, engine, number, bounds: data.bounds, hovered: null, before: engine.state() };
    built.categories = built.before.heads.map(({ sAcc }) => categoryOf(sAcc, data.bounds));
    built.switchHead = (head) => {
      const { off } = store.state;
      store.change({ off: off.includes(head) ? off.filter((each) => each !== head) : [...off, head] });
    };
    const group = groupPanel(built);
    built.hover = (head) => {
      if (built.hovered === head) return;
      built.hovered = head;
      if (built.after) group.update({ state: store.state, before: built.before, after: built.after, hovered: head });
    };
    const whole = wholeModel(built);
    const [sentence, patch, cards, page, logits] = [sentenceControls, patchControls, headCards, headPage, logitPanel].map((view) => view(built));
    built.views = [whole, sentence, patch, cards, page, logits, group];
    built.undo = button("↶", "undo (Ctrl+Z)", () => store.undo(), { class: "icon" });
    built.redo = button("↷", "redo (Ctrl+Shift+Z)", () => store.redo(), { class: "icon" });
    frame.replaceChildren(
      make("header", { class: "top" },
        make("div", { class: "title" }, modelChoice(number), make("span", { class: "task", text: taskText(entry) })),
        whole.element,
        make("div", { class: "tools" }, built.undo, built.redo, ...(inAddress ? [copying("link", "copy a link to this view", address)] : []),
          copying("Python", "copy as Python that reproduces this view", () => pythonCode(entry, store.state)),
          button("◑", "light or dark", () => {
            chosenTheme = dark = !dark;
            schedule();
          }, { class: "icon" }))),
      message,
      make("div", { class: "left" }, sentence.element, patch.element, group.element),
      make("div", { class: "middle" }, cards.element, page.element),
      make("div", { class: "right" }, logits.element),
    );
    return built;
  }

  function modelChoice(number) {
    if (data.models.length === 1) return make("strong", { text: data.models[0].name });
    const select = make("select", { "aria-label": "model", on: { change: (event) => store.change({ model: Number(event.target.value) }) } },
      ...data.models.map(({ name }, i) => make("option", { value: i, text: name, selected: i === number })));
    return select;
  }

  function copying(text, name, what) {
    const copy = button(text, name, async () => {
      const copied = what();
      try {
        await navigator.clipboard.writeText(copied);
      } catch {
        const area = make("textarea", { readonly: true });
        area.value = copied;
        frame.append(area);
        area.select();
        document.execCommand("copy");
        area.remove();
      }
      say(copy, "copied");
      setTimeout(() => say(copy, text), 1200);
    });
    return copy;
  }

  store.listen((now) => {
    // Browsers slow pages down that change their address with every move of a slider.
    if (inAddress) {
      clearTimeout(addressing);
      addressing = setTimeout(() => {
        if (address() !== location.href) history.replaceState(null, "", address());
      }, 250);
    }
    onChange?.(now);
    schedule();
  });
  frame.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z" || event.target.matches("input[type=text]")) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.shiftKey) store.redo();
    else store.undo();
  });
  const onHash = () => {
    try {
      const found = readFragment(data.models, location.hash);
      if (found && fragmentOf(data.models, store.state) !== location.hash) store.change(found);
    } catch (error) {
      if (!(error instanceof RangeError || error instanceof URIError)) throw error;
      store.fail(error.message);
    }
  };
  if (inAddress) addEventListener("hashchange", onHash);
  const onTheme = () => {
    if (chosenTheme === null && dark !== isDark(root)) {
      dark = isDark(root);
      schedule();
    }
  };
  const watched = matchMedia("(prefers-color-scheme: dark)");
  watched.addEventListener("change", onTheme);
  const observer = new MutationObserver(onTheme);
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-theme", "class", "data-jp-theme-light"] });
  const resized = new ResizeObserver(() => {
    size = frame.clientWidth;
    frame.classList.toggle("medium", size < 1080);
    frame.classList.toggle("narrow", size < 640);
    schedule();
  });
  resized.observe(frame);
  addEventListener("resize", schedule);
  show();
  return {
    store,
    get app() {
      return app;
    },
    destroy() {
      resized.disconnect();
      observer.disconnect();
      watched.removeEventListener("change", onTheme);
      removeEventListener("hashchange", onHash);
      removeEventListener("resize", schedule);
      root.replaceChildren();
    },
  };
}

function taskText({ task, language }) {
  const rule = language.texts ? language.texts.map((text, a) => `${language.answers[a]} if ${text}`).join(", ") : "";
  return [task, rule && `${rule}, else ${language.answers[language.answers.length - 1]}`].filter(Boolean).join(": ");
}

/** What anywidget calls in a notebook: `data` once, and `_state` in both directions. */
function render({ model, el }) {
  const data = model.get("data");
  const given = () => fromPython(model.get("_state"));
  let last = JSON.stringify(given(), asJson);
  const explorer = mount(el, data, {
    inAddress: false,
    state: given(),
    onChange: (state) => {
      const { model: _, ...ours } = state;
      const text = JSON.stringify(ours, asJson);
      if (text === last) return;
      last = text;
      model.set("_state", JSON.parse(text));
      model.save_changes();
    },
  });
  const changed = () => {
    const text = JSON.stringify(withoutModel(given()), asJson);
    if (text === last) return;
    last = text;
    explorer.store.change(given(), "python");
    explorer.store.settle();
  };
  model.on("change:_state", changed);
  return () => {
    model.off("change:_state", changed);
    explorer.destroy();
  };
}

function withoutModel({ model: _, ...rest }) {
  return rest;
}

/** JSON has no infinity: Python writes "inf". */
function fromPython(state) {
  const ratios = Object.fromEntries(Object.entries(state.ratios).map(([symbol, ratio]) => [symbol, ratio === "inf" ? Infinity : ratio]));
  return { model: 0, ...state, ratios };
}
