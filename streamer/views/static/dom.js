// Elements and numbers. Names are set as text, never as markup: they come from the traced program.

export const at = (id) => document.getElementById(id);

export function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// A method's name, which may be broken behind a dot or a dollar sign, and nowhere else if that will do.
export function name(tag, text, className) {
  const made = element(tag, undefined, className);
  const pieces = text.match(/[^.$]*[.$]?/g).filter(Boolean);
  made.append(...pieces.flatMap((piece, i) => (i ? [document.createElement("wbr"), piece] : [piece])));
  return made;
}

export const percent = (ratio, digits = 1) => `${(100 * ratio).toFixed(digits)} %`;
export const words = (cause) => cause.replaceAll("_", " ");

export function bytes(count) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (count >= size) return `${(count / size).toFixed(1)} ${unit}`;
  }
  return `${count} B`;
}

export function options(select, values, labels, chosen) {
  const same = [...select.options].map((o) => o.value).join("\n") === values.join("\n");
  if (!same) {
    select.replaceChildren(...values.map((value, i) => {
      const option = element("option", labels[i]);
      option.value = value;
      return option;
    }));
  }
  if (values.includes(chosen)) select.value = chosen;
}
