// The page is one file: it loads nothing, and complains of nothing.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { address, openPage, useBrowser } from './browser.mjs';

useBrowser();

for (const name of ['full', 'partial', 'empty']) {
  test(`${name}: no request but for the file itself, no error`, async (t) => {
    const { page, requests, errors } = await openPage(t, name);
    await page.mouse.wheel(0, 20000);
    await page.getByRole('button', { name: /Theme/ }).click();
    const loaded = requests.filter((url) => !url.startsWith('data:'));
    assert.deepEqual(loaded, [address(name)]);
    assert.deepEqual(errors, []);
  });
}

test('partial: figures without data are hidden, and the tables say why', async (t) => {
  const { page } = await openPage(t, 'partial');
  const hidden = ['extension', 'cost', 'position', 'pictures', 'attention'];
  for (const figure of hidden) {
    assert.equal(await page.locator(`[data-figure="${figure}"]`).isVisible(), false, figure);
  }
  for (const figure of ['loss', 'tasks', 'speed', 'training']) {
    assert.equal(await page.locator(`[data-figure="${figure}"]`).isVisible(), true, figure);
  }
  for (const section of ['extension', 'cost']) {
    assert.ok((await page.locator(`#${section} .none`).innerText()).length > 10, section);
  }
  // The contents do not lead to sections that are not there.
  for (const link of await page.locator('nav a').all()) {
    const target = page.locator(await link.getAttribute('href'));
    assert.equal(await link.isVisible(), await target.isVisible());
  }
  const warnings = await page.locator('.warning').allInnerTexts();
  assert.equal(warnings.length, 2); // not finished; one run failed
  assert.match(warnings[1], /made-up <reason>/);
});

test('partial: every line can be hidden, and come back', async (t) => {
  const { page, errors } = await openPage(t, 'partial');
  const legend = page.locator('[data-figure="loss"] .legend');
  for (const name of ['Learned', 'RoPE']) await legend.getByRole('button', { name }).click();
  assert.equal(await page.locator('.point [aria-label]:not([data-figure="speed"] *)').count(), 0);
  await legend.getByRole('button', { name: 'Show all' }).click();
  assert.ok((await page.locator('[data-figure="loss"] .point [aria-label]').count()) > 0);
  assert.deepEqual(errors, []);
});

test('partial: a refused length is said and marked', async (t) => {
  const { page } = await openPage(t, 'partial');
  assert.match(await page.locator('.refusals').innerText(), /Learned: refused past 64 tokens/);
  const cells = page.locator('#table-loss [data-encoding="learned"] .refused');
  assert.equal(await cells.count(), 4);
  assert.match(await cells.first().getAttribute('title'), /64 rows/);
});

test('empty: the page stands without any run', async (t) => {
  const { page } = await openPage(t, 'empty');
  assert.equal(await page.locator('svg').count(), 0);
  assert.equal(await page.locator('h1').isVisible(), true);
  await page.getByText('Every setting').click();
  assert.equal(await page.locator('#table-settings').isVisible(), true);
});
