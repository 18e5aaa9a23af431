'use strict';

// Loaded before a test file: prints the calls that it makes of the repository's own modules that
// are functions, as JSON.
const assert = require('assert');
const Module = require('module');
const path = require('path');

const root = process.cwd() + path.sep;
const own = (name) => name.startsWith(root) && !name.includes('node_modules') && !name.startsWith(root + 'test');
const seen = new Set();
const plain = (value) => {
  assert.deepStrictEqual(JSON.parse(JSON.stringify(value)), value);
  return value;
};

const wrapped = (fn) => {
  const home = Object.values(require.cache).find((m) => m.exports === fn && own(m.filename));
  if (!home || /^class\b/.test(Function.prototype.toString.call(fn))) {
    return fn;
  }
  return function (...args) {
    let before = null;
    try {
      before = JSON.stringify(plain(args));
    } catch (e) { /* it cannot be written as a literal */ }
    const result = fn.apply(this, args);
    try {
      const line = JSON.stringify([home.filename.slice(root.length), JSON.parse(before), plain(result)]);
      if (before !== null && line.length < 8000) {
        seen.add(line);
      }
    } catch (e) { /* nor can this */ }
    return result;
  };
};

const load = Module._load;
Module._load = function (request, parent, ...rest) {
  const out = load.call(this, request, parent, ...rest);
  if (!parent || !parent.filename || !parent.filename.startsWith(root + 'test')) {
    return out;
  }
  if (typeof out === 'function') {
    return wrapped(out);
  }
  if (out && typeof out === 'object' && own(Module._resolveFilename(request, parent))) {
    return Object.fromEntries(Object.entries(out).map(([name, value]) => [name, typeof value === 'function' ? wrapped(value) : value]));
  }
  return out;
};

process.on('exit', () => {
  for (const line of seen) {
    process.stdout.write('\n#called ' + line + '\n');
  }
});
