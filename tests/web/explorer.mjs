// The explorer in a real Chromium, and the tool that it must agree with.
//
//   LOCUS_EXPLORER    explorer.html
//   LOCUS_TOOL        the locus command
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { openAddress, settled } from './browser.mjs';

const file = process.env.LOCUS_EXPLORER;
export const page_address = pathToFileURL(file).href;
export const page_text = () => readFileSync(file, 'utf8');

/** What the tool prints with --json, whatever its verdict. */
export function tool(...args) {
  const options = { encoding: 'utf8', maxBuffer: 2 ** 28, env: { PATH: process.env.PATH } };
  return JSON.parse(execFileSync(process.env.LOCUS_TOOL, [...args, '--json'], options));
}

/** Opens a part of the page, and waits for the core. */
export async function openExplorer(t, hash = '', options = {}) {
  const opened = await openAddress(t, page_address + hash, options);
  await opened.page.waitForSelector('body[data-ready]');
  return opened;
}

/** Goes to a part of the page by its address, and waits until it is drawn. */
export async function goTo(page, hash) {
  await page.evaluate(
    (to) =>
      new Promise((heard) => {
        // The page hears of it first, as it listened first.
        addEventListener('hashchange', heard, { once: true });
        const before = location.href;
        location.hash = to;
        if (location.href === before) heard();
      }),
    hash,
  );
  await settle(page);
}

/** Waits until nothing is being computed, and what was is drawn. */
export async function settle(page) {
  // A link's address is heard of in a task of its own.
  await page.evaluate(() => new Promise((ready) => setTimeout(ready, 0)));
  await page.waitForFunction(() =>
    [...document.querySelectorAll('[data-busy]')].every((one) => one.dataset.busy === '0'),
  );
  await settled(page);
}

/** The rows of a CSV file that a figure saves, numbers as numbers. */
export async function savedRows(page, figure) {
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    figure.getByRole('button', { name: 'CSV' }).click(),
  ]);
  const text = readFileSync(await download.path(), 'utf8');
  return text
    .trimEnd()
    .split('\r\n')
    .slice(1)
    .map((line) => line.split(','));
}

/** Whether two numbers agree to 1e-12 of their size, or of one. */
export function agrees(a, b) {
  return Math.abs(a - b) <= 1e-12 * Math.max(1, Math.abs(a), Math.abs(b));
}
