/** The page's elements by their ids, each of which must be there. */

/**
 * @param {string} id
 * @returns {any}
 */
export function element(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element ${id}`);
  return found;
}

/**
 * Show a text in an element, or hide the element for an empty one.
 *
 * @param {string} id
 * @param {string} text
 */
export function show(id, text) {
  const found = element(id);
  found.hidden = text === "";
  found.textContent = text;
}
