// Runs before the first paint: the theme that was chosen, or the one of the system.
(() => {
  const chosen = localStorage.getItem("runnel-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
