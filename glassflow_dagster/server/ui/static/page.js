// What forms need beyond HTML and htmx. Without it all forms still work.
"use strict";

// A search box narrows a long list of options.
document.addEventListener("input", (event) => {
  const list = document.getElementById(event.target.dataset?.narrows ?? "");
  for (const option of list?.querySelectorAll(".option") ?? []) {
    option.hidden = !option.textContent.toLowerCase().includes(event.target.value.toLowerCase());
  }
});

// A button writes its value into a field.
document.addEventListener("click", (event) => {
  const field = document.getElementById(event.target.dataset?.fills ?? "");
  if (field) {
    field.value = event.target.value;
    field.focus();
  }
});

// A box ticks all boxes of a name.
document.addEventListener("change", (event) => {
  const name = event.target.dataset?.checks;
  if (name) {
    for (const box of document.getElementsByName(name)) box.checked = event.target.checked;
  }
});

// A question that depends on another answer is shown with that answer only.
function showWhatApplies() {
  for (const field of document.querySelectorAll("[data-when]")) {
    const other = document.getElementById(field.dataset.when);
    const isAsked = !other.closest("[data-when]")?.hidden;
    field.hidden = !(isAsked && field.dataset.answers.split(" ").includes(other.value));
  }
}
document.addEventListener("change", showWhatApplies);
showWhatApplies();
