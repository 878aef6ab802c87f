// The page on a phone, on a wide screen, on paper, and without scripts.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openPage, results, settled, useBrowser } from './browser.mjs';

useBrowser();

for (const width of [360, 768, 1440]) {
  test(`fits ${width} px`, async (t) => {
    const { page } = await openPage(t, 'full', { viewport: { width, height: 800 } });
    await page.$$eval('details', (all) => all.forEach((one) => (one.open = true)));
    await settled(page);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= width, `${wide} px wide`);

    // Boxes of plots cut what sticks out.
    const cut = await page.$$eval('.plot', (boxes) =>
      boxes.flatMap((box) => {
        const room = box.getBoundingClientRect();
        return [...box.querySelectorAll('svg text')]
          .map((text) => ({ text: text.textContent, at: text.getBoundingClientRect() }))
          .filter(({ at }) => at.width > 0)
          .filter(
            ({ at }) =>
              at.left < room.left - 1 ||
              at.right > room.right + 1 ||
              at.top < room.top - 1 ||
              at.bottom > room.bottom + 1,
          )
          .map(({ text }) => `${box.closest('figure')?.dataset.figure}: ${text}`);
      }),
    );
    assert.deepEqual(cut, []);

    const overlapping = await page.$$eval('.plot svg', (charts) =>
      charts.flatMap((chart) => {
        const groups = [
          '.name text',
          '[aria-label="x-axis tick label"] text',
          '[aria-label="y-axis tick label"] text',
        ];
        return groups.flatMap((group) => {
          const boxes = [...chart.querySelectorAll(group)].map((text) => ({
            text: text.textContent,
            at: text.getBoundingClientRect(),
          }));
          // Letters leave a line's box two pixels empty at either edge.
          return boxes.flatMap((a, k) =>
            boxes
              .slice(k + 1)
              .filter(
                (b) =>
                  a.at.left < b.at.right &&
                  b.at.left < a.at.right &&
                  a.at.top < b.at.bottom - 4 &&
                  b.at.top < a.at.bottom - 4,
              )
              .map((b) => `${chart.getAttribute('aria-label')}: "${a.text}" and "${b.text}"`),
          );
        });
      }),
    );
    assert.deepEqual(overlapping, []);
  });
}

test('charts follow the width of the window', async (t) => {
  const { page } = await openPage(t, 'full', { viewport: { width: 1200, height: 800 } });
  const chart = page.locator('[data-figure="loss"] .plot svg');
  const before = Number(await chart.getAttribute('width'));
  await page.setViewportSize({ width: 500, height: 800 });
  await settled(page);
  assert.ok(before > 800 && Number(await chart.getAttribute('width')) <= 460);
});

test('prints: everything open, light, and on several pages', async (t) => {
  const { page } = await openPage(t, 'full', { colorScheme: 'dark' });
  await page.evaluate(() => {
    addEventListener('beforeprint', () => {
      window.printed = {
        closed: document.querySelectorAll('details:not([open])').length,
        zero: getComputedStyle(document.documentElement).getPropertyValue('--zero').trim(),
      };
    });
  });
  const pdf = await page.pdf({ format: 'A4' });
  assert.equal(pdf.subarray(0, 5).toString(), '%PDF-');
  const count = pdf.toString('latin1').match(/\/Type\s*\/Page\b(?!s)/g).length;
  assert.ok(count >= 4, `${count} pages`);
  assert.deepEqual(await page.evaluate(() => window.printed), { closed: 0, zero: '#f7f5ee' });
  assert.ok((await page.locator('details:not([open])').count()) > 0, 'closed again afterwards');

  await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
  assert.equal(await page.locator('nav').isVisible(), false);
  assert.equal(await page.locator('[data-figure="loss"] svg').last().isVisible(), true);
  const paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(paper, 'rgb(255, 255, 255)');
});

test('without scripts: findings and tables, no empty figures', async (t) => {
  const { page } = await openPage(t, 'full', { javaScriptEnabled: false });
  const data = results('full');
  assert.ok((await page.locator('.findings li').count()) >= 4);
  for (const name of ['comparison', 'loss', 'accuracy', 'extension', 'cost', 'speed', 'settings']) {
    assert.equal(await page.locator(`#table-${name}`).isVisible(), true, name);
  }
  const row = page.locator('#table-loss [data-encoding="rope"]');
  const expected = data.summary.find(
    (one) =>
      one.task === 'text' && one.encoding === 'rope' && one.length === 256 && one.metric === 'loss',
  ).mean;
  assert.ok((await row.innerText()).includes(expected.toFixed(3)));
  for (const empty of ['figure', '#pictures', '#attention', '#training', '#theme', '.hint']) {
    for (const one of await page.locator(empty).all())
      assert.equal(await one.isVisible(), false, empty);
  }
  assert.equal(await page.getByText('The figures are drawn by scripts').isVisible(), true);
});

test('the headline is computed from the data', async (t) => {
  const { page } = await openPage(t, 'full');
  const data = results('full');
  const at = (encoding, length) =>
    data.summary.find(
      (row) =>
        row.task === 'text' &&
        row.encoding === encoding &&
        row.length === length &&
        row.metric === 'loss',
    ).mean;
  const headline = await page.locator('.findings li').first().innerText();
  for (const [encoding, name] of [
    ['sinusoidal', 'Sinusoidal'],
    ['rope', 'RoPE'],
  ]) {
    const percent = Math.round(100 * (at(encoding, 256) / at(encoding, 64) - 1));
    assert.match(headline, new RegExp(`${name}[^\\d,]*${percent}\\s%`));
  }
});
