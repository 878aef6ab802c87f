// What both pages share: bundling by esbuild, licences, filling of marks.
//
// Packages are looked for beside this file and in NODE_PATH.
import { createRequire } from 'node:module';
import { mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const here = dirname(fileURLToPath(import.meta.url));
const require = createRequire(import.meta.url); // unlike import, heeds NODE_PATH
const esbuild = require('esbuild');

const folders = new Set(); // of packages that were bundled

export async function bundle(entry, options = {}) {
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
export function licences() {
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
export function fill(page, mark, text) {
  const parts = page.split(mark);
  if (parts.length !== 2) throw new Error(`"${mark}" occurs ${parts.length - 1} times`);
  return parts.join(text);
}

/** Inside <script>, this would end the element or open a comment. */
export function insideScript(text) {
  if (/<\/script|<!--/i.test(text)) throw new Error('a script holds </script or <!--');
  return text;
}

/** The page of src/`html` with the style sheet src/style/`style`, for both themes. */
export async function styledPage(html, style) {
  let page = readFileSync(join(here, 'src', html), 'utf8');
  page = fill(page, '/*style*/', await bundle(`style/${style}`));
  page = fill(page, '/*dark*/', await bundle('style/dark.css'));
  return fill(page, '/*theme*/', await bundle('theme_start.ts', { format: 'iife' }));
}

/** Beside, then renamed: never half a file. */
export function write(folder, name, text) {
  mkdirSync(folder, { recursive: true });
  const path = join(folder, name);
  writeFileSync(`${path}.part`, text);
  renameSync(`${path}.part`, path);
  return path;
}
