/*
 * Makes the page work offline: every file of the site is answered from what was kept under its hash.
 *
 * gpt-onnx web writes the list of files in the next line, so that a new version of the site is a new service
 * worker. It keeps the page's own files at once; weights and runtime are kept by the page, which has checked them.
 */
const FILES = {};

const scope = self.registration.scope;
const cacheName = `gpt-onnx ${scope}`;
const keyOf = (url, sha256) => `${url}?sha256=${sha256}`;
const LARGE = /^bundle\/|\.wasm\.gz$/;

/** @returns {string | null} The key under which a request's file is kept; null for what is not of the site. */
function keyOfRequest(request) {
  const url = new URL(request.url);
  const whole = url.origin + url.pathname;
  if (request.method !== "GET" || !whole.startsWith(scope)) return null;
  const path = whole.slice(scope.length) || "index.html";
  return path in FILES ? keyOf(new URL(path, scope).href, FILES[path]) : null;
}

async function keepPage() {
  const cache = await caches.open(cacheName);
  const small = Object.keys(FILES).filter((path) => !LARGE.test(path));
  await Promise.all(
    small.map(async (path) => {
      const key = keyOf(new URL(path, scope).href, FILES[path]);
      if (!(await cache.match(key))) await cache.put(key, await fetched(path));
    }),
  );
}

async function fetched(path) {
  const response = await fetch(new URL(path, scope), { cache: "no-cache" });
  if (!response.ok) throw new Error(`${path}: HTTP ${response.status}`);
  return response;
}

async function dropOld() {
  const cache = await caches.open(cacheName);
  const current = new Set(Object.entries(FILES).map(([path, sha256]) => keyOf(new URL(path, scope).href, sha256)));
  const kept = await cache.keys();
  await Promise.all(kept.filter(({ url }) => !current.has(url)).map((request) => cache.delete(request)));
}

async function answer(request, key) {
  const cache = await caches.open(cacheName);
  return (await cache.match(key)) ?? fetch(request);
}

self.addEventListener("install", (event) => event.waitUntil(keepPage().then(() => self.skipWaiting())));
self.addEventListener("activate", (event) => event.waitUntil(dropOld().then(() => self.clients.claim())));
self.addEventListener("fetch", (event) => {
  const key = keyOfRequest(event.request);
  if (key) event.respondWith(answer(event.request, key));
});
