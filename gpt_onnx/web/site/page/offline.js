/** The service worker: registered where there is one, and told of where it is not. */

import { show } from "./dom.js";

/**
 * @param {ServiceWorker} worker
 * @returns {Promise<boolean>} Whether it has kept the page's files; it is dropped if it could not.
 */
function settled(worker) {
  return new Promise((resolve) => {
    const look = () => {
      if (worker.state === "activated" || worker.state === "redundant") resolve(worker.state === "activated");
    };
    worker.addEventListener("statechange", look);
    look();
  });
}

/**
 * @param {URL} base The site's folder.
 * @returns {Promise<boolean>} Whether the page can be opened without a network from now on.
 */
export async function registerOffline(base) {
  if (!("serviceWorker" in navigator)) return false;
  try {
    const { installing, waiting, active } = await navigator.serviceWorker.register(new URL("sw.js", base));
    const worker = installing ?? waiting ?? active;
    return worker !== null && (await settled(worker));
  } catch {
    return false; // a private window, or a server without it: the page works, with a network
  }
}

/** @param {boolean} registered */
export function showOffline(registered) {
  show("offline", registered ? "Ready: works without a network from now on." : "Ready; without a network this page cannot be opened.");
}
