/** Names under which files of this site are kept; the service worker has the same two lines. */

/** @param {string} scope Address of the site's folder. */
export const cacheName = (scope) => `gpt-onnx ${scope}`;

/**
 * @param {string} url
 * @param {string} sha256
 */
export const keyOf = (url, sha256) => `${url}?sha256=${sha256}`;
