// Light or dark, as the page around is.

/** Whether the page around is dark: as it says itself, else as the system does. */
export function isDark(root) {
  const themed = document.querySelector("[data-jp-theme-light]") ?? document.querySelector("[data-theme]");
  if (themed?.dataset.jpThemeLight) return themed.dataset.jpThemeLight === "false";
  const said = root.closest("[data-theme]")?.dataset.theme ?? document.body.dataset.theme;
  if (said === "dark" || said === "light") return said === "dark";
  if (document.body.classList.contains("vscode-dark") || document.body.classList.contains("dark")) return true;
  if (document.body.classList.contains("vscode-light")) return false;
  return matchMedia("(prefers-color-scheme: dark)").matches;
}
