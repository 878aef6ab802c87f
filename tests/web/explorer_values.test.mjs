// What the page computes and shows is what the tool prints.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { test } from 'node:test';
import { useBrowser } from './browser.mjs';
import { agrees, goTo, openExplorer, page_text, savedRows, settle, tool } from './explorer.mjs';

useBrowser();

const block = (id) => new RegExp(`id="${id}">([^]*?)</script>`).exec(page_text())[1];

/** The core that the page carries, run by Node. */
async function pageCore() {
  const folder = mkdtempSync(join(tmpdir(), 'locus-core-'));
  const path = join(folder, 'core.cjs');
  writeFileSync(path, block('core-script').split('\n// worker\n')[0]);
  const make = createRequire(import.meta.url)(path);
  rmSync(folder, { recursive: true });
  const core = await make({
    wasmBinary: gunzipSync(Buffer.from(block('core-wasm').trim(), 'base64')),
  });
  return (question) => {
    const bytes = new TextEncoder().encode(JSON.stringify(question));
    const at = core._malloc(bytes.length);
    core.HEAPU8.set(bytes, at);
    const places = core._locus_ask(at, bytes.length) >>> 2;
    const [text, size, first, count] = core.HEAPU32.slice(places, places + 4);
    const numbers = core.HEAPF64.slice(first >>> 3, (first >>> 3) + count);
    const answer = JSON.parse(
      new TextDecoder().decode(core.HEAPU8.slice(text, text + size)),
      (_, value) => (value?.$ ? [...numbers.slice(value.$[0], value.$[0] + value.$[1])] : value),
    );
    core._free(at);
    return answer;
  };
}

/** Equal, numbers to 1e-12. Findings repeat their numbers in words, and are compared without. */
function assertAlike(a, b, path) {
  if (typeof a === 'number' && typeof b === 'number') {
    assert.ok(agrees(a, b), `${path}: ${a} and ${b}`);
  } else if (a !== null && b !== null && typeof a === 'object' && typeof b === 'object') {
    assert.deepEqual(Object.keys(a), Object.keys(b), path);
    for (const key of Object.keys(a)) assertAlike(a[key], b[key], `${path}.${key}`);
  } else if (/\.(sentence|description)$/.test(path)) {
    const plain = (text) => text.replace(/[-+]?[\d.]+(e[-+]?\d+)?/g, '#');
    assert.equal(plain(a), plain(b), path);
  } else {
    assert.equal(a, b, path);
  }
}

const list = tool('list').encodings;
const variants = list.flatMap(({ name, variants: more }) => [
  name,
  ...more.map((one) => `${name}{${one}}`),
]);

test('list, show and check of every encoding and variant agree with the tool', async () => {
  const ask = await pageCore();
  assertAlike(ask({ ask: 'list' }).encodings, list, 'list');
  const sizes = ['--heads', '2', '--dim', '16', '--length', '24', '--seed', '3'];
  const shown = tool('show', ...variants, ...sizes).encodings;
  const checked = tool('check', ...variants, ...sizes).encodings;
  assert.ok(variants.length > 30);
  variants.forEach((encoding, index) => {
    const question = { encoding, heads: 2, dim: 16, length: 24, seed: 3 };
    const { out, ...show } = shown[index];
    assert.equal(out, null);
    assertAlike(ask({ ask: 'show', ...question }), show, encoding);
    const { required, met, ...check } = checked[index];
    assert.deepEqual([required, met], [[], true]);
    assertAlike(ask({ ask: 'check', ...question }), check, encoding);
  });
});

test('trained tables are those of the file', async () => {
  const ask = await pageCore();
  const file = JSON.parse(block('trained'));
  const path = new URL('../../web/data/trained.json', import.meta.url);
  assert.deepEqual(file, JSON.parse(readFileSync(path, 'utf8')));
  const { model, encodings, loss_without_position: without } = file;
  const images = ['swin', 'rope-mixed'];
  assert.deepEqual(
    encodings.map(({ encoding }) => encoding),
    list
      .filter(({ name, trainable }) => trainable && !images.includes(name))
      .map(({ name }) => name),
  );
  for (const { encoding, options, params, loss } of encodings) {
    assert.ok(loss < without, `${encoding} learned nothing: ${loss}`);
    ask({ ask: 'hold', encoding, params });
    const question = { encoding, options, ...model, seed: 1 };
    const [panel] = ask({ ask: 'show', ...question, trained: true }).panels;
    assert.match(panel.title, /\btrained parameters\b/);
    assert.notDeepEqual(panel, ask({ ask: 'show', ...question }).panels[0], encoding);
    assert.equal(ask({ ask: 'check', ...question, trained: true }).error, undefined, encoding);
    const numbers = new Set(params.flatMap(({ values }) => values));
    // Pictures that show the table itself show its very numbers.
    if (encoding === 'learned') assert.ok(panel.values.flat().every((one) => numbers.has(one)));
    if (encoding === 't5') assert.ok(panel.curves[0].y.every((one) => numbers.has(one)));
  }
});

test('published configs are explained as by the tool', async (t) => {
  const ask = await pageCore();
  const published = JSON.parse(block('published'));
  assert.ok(published.length > 80, `${published.length} configs`);
  const folder = mkdtempSync(join(tmpdir(), 'locus-configs-'));
  t.after(() => rmSync(folder, { recursive: true }));
  for (const [index, { name, text }] of published.entries()) {
    const answer = ask({ ask: 'explain', models: [{ name, text }] });
    assert.equal(answer.error, undefined, name);
    if (index % 16 !== 0) continue; // a process each
    const path = join(folder, 'config.json');
    writeFileSync(path, text);
    assertAlike({ ...answer.models[0].explained, file: path }, tool('explain', path), name);
  }
});

// Those that Play opens with.
const PLAY_SIZES = ['--heads', '4', '--dim', '32', '--length', '64'];

test('every encoding opens, and its saved numbers are those of the tool', async (t) => {
  const { page, errors } = await openExplorer(t, '#play?a=none');
  const shown = tool('show', ...list.map(({ name }) => name), ...PLAY_SIZES).encodings;
  for (const [index, { name }] of list.entries()) {
    await goTo(page, `#play?a=${name}&trained=0`);
    assert.equal(await page.locator('.problem:visible').count(), 0, name);
    const [panel] = shown[index].panels;
    const rows = await savedRows(page, page.locator('[data-figure="panel"]').first());
    const values =
      panel.kind === 'heatmap' ? panel.values.flat() : panel.curves.flatMap(({ y }) => y);
    assert.ok(rows.length >= values.length, name);
    values.forEach((value, n) => assert.ok(agrees(Number(rows[n].at(-1)), value), `${name} ${n}`));
  }
  assert.deepEqual(errors, []);
});

test('the property table shows what locus check says', async (t) => {
  const { page } = await openExplorer(t, '#play?a=rope&b=alibi');
  await settle(page);
  const cells = await page.$$eval('.properties tbody tr', (rows) =>
    rows.map((row) => [...row.querySelectorAll('td b')].map((cell) => cell.textContent)),
  );
  const word = { yes: 'yes', no: 'no', 'does not apply': '–' };
  const [rope, alibi] = tool('check', 'rope', 'alibi', ...PLAY_SIZES).encodings;
  assert.deepEqual(
    cells,
    rope.properties.map(({ verdict }, n) => [word[verdict], word[alibi.properties[n].verdict]]),
  );
});
