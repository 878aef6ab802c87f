// Pictures of the explorer for documents and for the eye.
//
//   node explorer_pictures.mjs EXPLORER.html OUT         the six of docs/images
//   node explorer_pictures.mjs EXPLORER.html OUT --all   every step and view, narrow and wide, in both themes
import { pathToFileURL } from 'node:url';
import { join } from 'node:path';
import { launch } from './browser.mjs';
import { settle } from './explorer.mjs';

const [explorer, out, all] = process.argv.slice(2);
if (!out) {
  console.error('usage: node explorer_pictures.mjs EXPLORER.html OUT [--all]');
  process.exit(2);
}

const DOCS = [
  { name: 'explorer-play', hash: '#play?a=rope&b=alibi', width: 1280, height: 900 },
  { name: 'explorer-learn', hash: '#learn/7', width: 1280, height: 820 },
  { name: 'explorer-model', hash: '#model?a=Llama 3.1 8B&b=LLaMA 7B', width: 1280, height: 1150 },
  { name: 'explorer-stretch', hash: '#learn/11', width: 1280, height: 900, colorScheme: 'dark' },
  { name: 'explorer-phone', hash: '#learn/8', width: 390, height: 844 },
  {
    name: 'explorer-dark',
    hash: '#play?a=sinusoidal&dim=32',
    width: 1280,
    height: 900,
    colorScheme: 'dark',
  },
];
const VIEWS = [
  ...Array.from({ length: 12 }, (_, step) => ['learn', `#learn/${step + 1}`]),
  ...['rope', 't5', 'sinusoidal', 'rope-2d', 'shaw', 'learned', 'tupe', 'rope-learned'].map(
    (name) => ['play', `#play?a=${name}`],
  ),
  ['play', '#play?a=rope&b=alibi'],
  ['model', '#model?a=Llama 3.1 8B&b=LLaMA 7B'],
];
const EVERY = VIEWS.flatMap(([, hash]) =>
  [390, 1440].flatMap((width) =>
    ['light', 'dark'].map((colorScheme) => ({
      name: `${hash.replace(/[^a-z0-9]+/gi, '-').slice(1)}-${width}-${colorScheme}`,
      hash,
      width,
      height: 900,
      colorScheme,
      fullPage: true,
    })),
  ),
);

const browser = await launch();
for (const { name, hash, width, height, colorScheme = 'light', fullPage = false } of all
  ? EVERY
  : DOCS) {
  const page = await browser.newPage({
    viewport: { width, height },
    colorScheme,
    reducedMotion: 'reduce',
  });
  await page.goto(pathToFileURL(explorer).href + hash);
  await page.waitForSelector('body[data-ready]');
  await settle(page);
  await page.screenshot({ path: join(out, `${name}.png`), fullPage });
  await page.close();
}
await browser.close();
