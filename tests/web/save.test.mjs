// Each figure is saved as SVG that stands alone and as CSV of its numbers.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { openPage, results, useBrowser } from './browser.mjs';

useBrowser();
const data = results('full');

/** The file that a button of a figure saves. */
async function saved(page, figure, title) {
  const gallery = ['pictures', 'attention'].includes(figure);
  const within = gallery ? `[data-figure="${figure}"] + .save` : `[data-figure="${figure}"] .save`;
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.locator(within).getByRole('button', { name: title }).click(),
  ]);
  const text = readFileSync(await download.path(), 'utf8');
  return { name: download.suggestedFilename(), text };
}

const table = (text) => {
  const [head, ...rows] = text.trimEnd().split('\r\n');
  return { head: head.split(','), rows: rows.map((row) => row.split(',')) };
};

test('every drawn figure has its buttons', async (t) => {
  const { page } = await openPage(t, 'full');
  const drawn = await page.$$eval('[data-figure]:not([hidden])', (all) => all.length);
  assert.ok(drawn >= 8, `${drawn} figures`);
  assert.equal(await page.locator('.save').count(), drawn);
});

test('CSV has the numbers of results.json', async (t) => {
  const { page } = await openPage(t, 'full');
  const loss = await saved(page, 'loss', 'Data as CSV');
  assert.equal(loss.name, 'loss.csv');
  const { head, rows } = table(loss.text);
  assert.deepEqual(head.slice(0, 5), ['task', 'encoding', 'seed', 'length', 'loss']);
  const expected = data.runs
    .filter(({ task }) => task === 'text')
    .flatMap((run) => run.evaluations.map((one) => [run.encoding, one.length, one.loss ?? '']));
  assert.deepEqual(
    rows.map((row) => [row[1], row[3], row[4]]),
    expected.map((row) => row.map(String)),
  );

  const training = table((await saved(page, 'training', 'Data as CSV')).text);
  const steps = data.runs.reduce((sum, run) => sum + run.loss_curve.length, 0);
  assert.equal(training.rows.length, steps);
});

test('SVG looks the same without the page', async (t) => {
  const { page } = await openPage(t, 'full', { colorScheme: 'light' });
  for (const figure of ['loss', 'cost', 'training', 'pictures']) {
    const { name, text } = await saved(page, figure, 'Save as SVG');
    assert.equal(name, `${figure}.svg`);
    assert.ok(!text.includes('var('), 'no variables of the page');
    assert.ok(!text.includes(' class='), 'no rules of the page');
    const read = await page.evaluate((source) => {
      const svg = new DOMParser().parseFromString(source, 'image/svg+xml');
      const colors = new Set(
        [...svg.querySelectorAll('path, line, circle')].map((mark) => mark.style.stroke),
      );
      return {
        wrong: svg.querySelector('parsererror') !== null,
        charts: svg.documentElement.querySelectorAll('svg').length,
        texts: svg.querySelectorAll('text').length,
        colors: colors.size,
      };
    }, text);
    assert.equal(read.wrong, false);
    assert.ok(read.charts > 0 && read.texts > 0, JSON.stringify(read));
    assert.ok(figure === 'pictures' || read.colors > 2, `${figure} has ${read.colors} colours`);
  }
});

test('what is hidden is not in the saved legend', async (t) => {
  const { page } = await openPage(t, 'full');
  const before = (await saved(page, 'loss', 'Save as SVG')).text;
  await page.locator('[data-figure="loss"] .legend button').first().click();
  const after = (await saved(page, 'loss', 'Save as SVG')).text;
  assert.ok(after.length < before.length);
});
