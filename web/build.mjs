// Bundles src/ into one HTML file, and that into a C++ source.
//
//   node build.mjs OUT    writes OUT/report_template.html and .cc
//
// Packages are looked for beside this file and in NODE_PATH.
import { createRequire } from 'node:module';
import { mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const require = createRequire(import.meta.url); // unlike import, heeds NODE_PATH
const esbuild = require('esbuild');

const out = process.argv[2];
if (!out) {
  console.error('usage: node build.mjs OUT');
  process.exit(2);
}

const folders = new Set(); // of packages that were bundled

async function bundle(entry, options = {}) {
  const result = await esbuild.build({
    entryPoints: [join(here, 'src', entry)],
    bundle: true,
    nodePaths: (process.env.NODE_PATH ?? '').split(delimiter),
    minify: true,
    write: false,
    charset: 'utf8',
    metafile: true,
    target: ['es2020', 'safari15'],
    loader: { '.woff2': 'dataurl' },
    logLevel: 'warning',
    ...options,
  });
  for (const input of Object.keys(result.metafile.inputs)) {
    const folder = /^.*node_modules\/(@[^/]+\/)?[^/]+/.exec(input)?.[0];
    if (folder) folders.add(resolve(folder));
  }
  return result.outputFiles[0].text.trim();
}

/** The licences of all that was bundled: they travel along. */
function licences() {
  const owners = new Map(); // text -> packages
  for (const folder of [...folders].sort()) {
    const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
    if (!file) throw new Error(`${folder} has no licence`);
    const text = readFileSync(join(folder, file), 'utf8').trim();
    owners.set(text, [...(owners.get(text) ?? []), folder.split('node_modules/')[1]]);
  }
  return [...owners].map(([text, names]) => `${names.join(', ')}\n\n${text}\n`).join('\n\n');
}

/** Puts `text` in the place of `mark`, which must occur once. */
function fill(page, mark, text) {
  const parts = page.split(mark);
  if (parts.length !== 2)
    throw new Error(`"${mark}" occurs ${parts.length - 1} times in report.html`);
  return parts.join(text);
}

/** A C++ source that holds `text`. Raw literals, cut well below any compiler's limit. */
function source(text) {
  const pieces = text.match(/.{1,8000}/gsu);
  const literals = pieces.map((piece) => `R"locus~(${piece})locus~"`);
  return `// Made by web/build.mjs.
#include "web/report_template.h"

namespace locus::web {

std::string_view ReportTemplate() {
  static constexpr char kPage[] =
${literals.join('\n')};
  return {kPage, sizeof(kPage) - 1};
}

}  // namespace locus::web
`;
}

function write(name, text) {
  const path = join(out, name);
  writeFileSync(`${path}.part`, text);
  renameSync(`${path}.part`, path);
}

const script = await bundle('report.ts', { format: 'iife' });
// Inside <script>, this would end the element or open a comment.
if (/<\/script|<!--/i.test(script)) throw new Error('the bundle holds </script or <!--');

let page = readFileSync(join(here, 'src', 'report.html'), 'utf8');
page = fill(page, '/*style*/', await bundle('style/report.css'));
page = fill(page, '/*dark*/', await bundle('style/dark.css'));
page = fill(page, '/*theme*/', await bundle('theme_start.ts', { format: 'iife' }));
page = fill(page, '/*script*/', script);
page = fill(page, '/*licences*/', licences());
mkdirSync(out, { recursive: true });
write('report_template.html', page);
write('report_template.cc', source(page));
