// The tables of the page sort: numbers as numbers, by mouse and by keyboard.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openPage, useBrowser } from './browser.mjs';

useBrowser();

const keys = (page, table, column) =>
  page.$$eval(
    `${table} tbody tr`,
    (rows, index) =>
      rows.map((row) => {
        const cell = row.cells[index];
        return { text: cell.textContent.trim(), value: cell.dataset.value };
      }),
    column,
  );

const numbers = (cells) => cells.filter(({ value }) => value).map(({ value }) => Number(value));
const isSorted = (values, sign) =>
  values.every((v, k) => k === 0 || sign * (v - values[k - 1]) >= 0);

function missingLast(cells) {
  const first = cells.findIndex(({ value }) => !value);
  return first === -1 || cells.slice(first).every(({ value }) => !value);
}

test('numbers sort as numbers, what is missing comes last', async (t) => {
  const { page } = await openPage(t, 'full');
  const table = '#table-comparison';
  const titles = await page.locator(`${table} thead th`).allInnerTexts();
  const column = titles.findIndex((title) => title.startsWith('Change at 4x'));
  const button = page.locator(`${table} thead th`).nth(column).getByRole('button');
  const before = await keys(page, table, column);
  assert.ok(
    before.some(({ value }) => !value),
    'learned has no number there',
  );
  // Sorted as words, these would come in another order.
  const words = before.filter(({ value }) => value).sort((a, b) => a.text.localeCompare(b.text));
  assert.ok(!isSorted(numbers(words), 1));

  await button.click();
  const up = await keys(page, table, column);
  assert.ok(isSorted(numbers(up), 1) && missingLast(up));
  assert.equal(await page.locator(`${table} [aria-sort]`).count(), 1);
  await button.click();
  const down = await keys(page, table, column);
  assert.ok(isSorted(numbers(down), -1) && missingLast(down));
  assert.equal(await page.locator(`${table} [aria-sort="descending"]`).count(), 1);
  const sorted = (cells) => cells.map(({ text }) => text).sort();
  assert.deepEqual(sorted(down), sorted(before), 'no row is lost');
});

test('words sort as words, by keyboard', async (t) => {
  const { page } = await openPage(t, 'full');
  const table = '#table-comparison';
  const button = page.locator(`${table} thead th`).first().getByRole('button');
  const order = async () => (await keys(page, table, 0)).map(({ text }) => text.toLowerCase());
  const ascending = (await order()).sort((a, b) => a.localeCompare(b, 'en'));
  await button.focus();
  await page.keyboard.press('Enter');
  assert.deepEqual(await order(), ascending);
  assert.equal(await button.evaluate((node) => node === document.activeElement), true);
  await page.keyboard.press('Space');
  assert.deepEqual(await order(), ascending.reverse());
});

test('every table but the settings sorts, each column', async (t) => {
  const { page } = await openPage(t, 'full');
  await page.$$eval('details', (all) => all.forEach((one) => (one.open = true)));
  const tables = await page.$$eval('table.sortable', (all) => all.map(({ id }) => id));
  assert.deepEqual(tables.sort(), [
    'table-accuracy',
    'table-claims',
    'table-comparison',
    'table-cost',
    'table-extension',
    'table-loss',
    'table-speed',
  ]);
  for (const id of tables) {
    const headers = page.locator(`#${id} thead th`);
    for (let column = 0; column < (await headers.count()); ++column) {
      const header = headers.nth(column);
      if (!/number/.test((await header.getAttribute('class')) ?? '')) continue;
      await header.getByRole('button').click();
      const cells = await keys(page, `#${id}`, column);
      assert.ok(isSorted(numbers(cells), 1) && missingLast(cells), `${id}, column ${column}`);
    }
  }
  assert.equal(await page.locator('#table-settings button').count(), 0);
});
