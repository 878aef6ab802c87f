// What npm installs is fixed to the bit and comes from no named place.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const text = readFileSync(new URL('../../web/package-lock.json', import.meta.url), 'utf8');
const lock = JSON.parse(text);
const manifest = JSON.parse(
  readFileSync(new URL('../../web/package.json', import.meta.url), 'utf8'),
);

test('no address in the lock file', () => {
  assert.doesNotMatch(text, /:\/\//);
});

test('every package has its checksum', () => {
  const packages = Object.entries(lock.packages).filter(([path]) => path !== '');
  assert.ok(packages.length > 10);
  for (const [path, { integrity }] of packages) assert.match(integrity ?? '', /^sha512-/, path);
});

test('versions asked for are exact, and those locked', () => {
  for (const [name, version] of Object.entries(manifest.devDependencies)) {
    assert.match(version, /^\d+\.\d+\.\d+$/, name);
    assert.equal(lock.packages[`node_modules/${name}`].version, version);
  }
});
