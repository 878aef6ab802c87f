// A real Chromium for the tests of the page, and what they share.
//
//   LOCUS_CHROMIUM       the browser
//   LOCUS_WEB_MODULES    node_modules with playwright-core
//   LOCUS_WEB_PAGES      a folder for each kind of made_up.mjs, as locus compare leaves it
import { after, before } from 'node:test';
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

function environment(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: run these tests by ctest -L web`);
  return value;
}

const require = createRequire(resolve(environment('LOCUS_WEB_MODULES'), 'anchor.cjs'));
const { chromium } = require('playwright-core');

export function launch() {
  return chromium.launch({
    executablePath: environment('LOCUS_CHROMIUM'),
    // Root, as in containers, cannot have the sandbox.
    args: process.getuid() === 0 ? ['--no-sandbox'] : [],
  });
}

let browser;
/** Call once in a test file. */
export function useBrowser() {
  before(async () => {
    browser = await launch();
  });
  after(() => browser.close());
}

/** Opens an address without network; `requests` and `errors` gather what the page did. */
export async function openAddress(t, at, options = {}) {
  const context = await browser.newContext({
    viewport: { width: 1440, height: 900 },
    offline: true,
    reducedMotion: 'reduce', // no smooth scrolling to wait for
    ...options,
  });
  t.after(() => context.close());
  const page = await context.newPage();
  const requests = [];
  const errors = [];
  page.on('request', (request) => requests.push(request.url()));
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) errors.push(message.text());
  });
  page.on('pageerror', (error) => errors.push(error.message));
  page.on('dialog', (dialog) => errors.push(`dialog: ${dialog.message()}`));
  await page.goto(at);
  return { page, requests, errors };
}

const path = (name, file) => join(environment('LOCUS_WEB_PAGES'), name, file);
export const results = (name) => JSON.parse(readFileSync(path(name, 'results.json'), 'utf8'));
export const address = (name) => pathToFileURL(path(name, 'report.html')).href;

/** Opens a report. */
export async function openPage(t, name, options = {}) {
  const opened = await openAddress(t, address(name), options);
  if (options.javaScriptEnabled !== false) await settled(opened.page);
  return opened;
}

/** Figures are drawn in the frame after their size is known; fonts may come first. */
export async function settled(page) {
  await page.evaluate(async () => {
    await document.fonts.ready;
    for (let frame = 0; frame < 3; ++frame) await new Promise(requestAnimationFrame);
  });
}

/** [{encoding, x, value, left, top}] of the marks of a chart, from its SVG. */
export function marks(page, chart) {
  return page.$$eval(`${chart} .point [aria-label]`, (nodes) =>
    nodes.map((node) => {
      const words = node.getAttribute('aria-label').split(' ');
      // Symbols are moved to their place, circles have it as their centre.
      const centre = ['cx', 'cy'].map((name) => Number(node.getAttribute(name) ?? 0));
      const { x: left, y: top } = new DOMPoint(...centre).matrixTransform(node.getScreenCTM());
      return {
        key: words[0],
        x: words.length > 2 ? Number(words[1]) : undefined,
        value: Number(words.at(-1)),
        left,
        top,
      };
    }),
  );
}

/**
 * How far, in pixels, `at` is from being a linear function of `value` over all
 * marks: a chart that draws what it says has nearly none.
 */
export function bend(pairs) {
  const sorted = [...pairs].sort((a, b) => a.value - b.value);
  const [first, last] = [sorted[0], sorted.at(-1)];
  const slope = (last.at - first.at) / (last.value - first.value);
  return Math.max(
    ...pairs.map(({ value, at }) => Math.abs(first.at + slope * (value - first.value) - at)),
  );
}

export const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;

/** Equal but for the rounding of a sum of a few terms. */
export function near(a, b) {
  return Math.abs(a - b) <= 8 * Number.EPSILON * Math.max(Math.abs(a), Math.abs(b));
}
