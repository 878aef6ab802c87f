// Bundles src/explorer/ and the core in WebAssembly into one HTML file.
//
//   node build_explorer.mjs WASM OUT    writes OUT/explorer.html
//
// WASM holds locus_core.js and locus_core.wasm, as wasm/build.sh leaves them.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { bundle, fill, here, insideScript, licences, styledPage, write } from './bundle.mjs';

const [wasm, out] = process.argv.slice(2);
if (!out) {
  console.error('usage: node build_explorer.mjs WASM OUT');
  process.exit(2);
}

/** The configs of published models that the tests of src/models/ hold. */
function published() {
  const found = new Map();
  for (const name of ['rotary', 'layered', 'table']) {
    const text = readFileSync(join(here, `../tests/models/${name}_configs_test.cc`), 'utf8');
    for (const [, model, json] of text.matchAll(/\{"([^"\n]+)",\s*R"\((\{[^]*?\})\)"/g)) {
      if (!found.has(model)) found.set(model, JSON.stringify(JSON.parse(json), null, 2));
    }
  }
  if (found.size < 50) throw new Error(`only ${found.size} published configs found`);
  return JSON.stringify([...found].map(([name, text]) => ({ name, text }))).replaceAll(
    '<',
    '\\u003c',
  );
}

/** Tables that the lab trained, by tools/trained_tables.sh. */
function trained() {
  const text = readFileSync(join(here, 'data/trained.json'), 'utf8');
  return JSON.stringify(JSON.parse(text)).replaceAll('<', '\\u003c');
}

function version() {
  const header = readFileSync(join(here, '../include/locus/version.h'), 'utf8');
  const part = (name) => new RegExp(`LOCUS_VERSION_${name} (\\d+)`).exec(header)[1];
  return ['MAJOR', 'MINOR', 'PATCH'].map(part).join('.');
}

const glue = readFileSync(join(wasm, 'locus_core.js'), 'utf8');
const worker = await bundle('explorer/worker.ts', { format: 'iife' });
let page = await styledPage('explorer.html', 'explorer.css');
page = fill(
  page,
  '/*script*/',
  insideScript(await bundle('explorer/explorer.ts', { format: 'iife' })),
);
page = fill(page, '/*core*/', insideScript(`${glue}\n// worker\n${worker}`));
page = fill(
  page,
  '/*wasm*/',
  gzipSync(readFileSync(join(wasm, 'locus_core.wasm')), { level: 9 }).toString('base64'),
);
page = fill(page, '/*published*/', published());
page = fill(page, '/*trained*/', trained());
page = fill(page, '/*version*/', version());
page = fill(page, '/*licences*/', licences());
write(out, 'explorer.html', page);
