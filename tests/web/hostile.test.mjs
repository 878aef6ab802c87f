// Whatever strings results.json holds, the page shows them and runs none.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { address, openPage, useBrowser } from './browser.mjs';
import { MARK } from './hostile.mjs';

useBrowser();

/** What only markup of the page's own may bring into it. */
const census = (page) =>
  page.evaluate(() => {
    const all = [...document.querySelectorAll('*')];
    const count = (tag) => document.getElementsByTagName(tag).length;
    return {
      ran: window.ran ?? 0,
      scripts: count('script'),
      frames: count('iframe') + count('object') + count('embed'),
      links: all.filter((one) => /^\s*javascript:/i.test(one.getAttribute('href') ?? '')).length,
      images: count('img'),
      handlers: all.filter((one) => [...one.attributes].some(({ name }) => /^on/.test(name))).length,
    };
  });

/** Touches what answers: tips, legends, tables, pictures. */
async function useEverything(page) {
  await page.$$eval('details', (all) => all.forEach((one) => (one.open = true)));
  for (const kind of ['.plot svg', '.legend button', '.choice button', 'thead button']) {
    for (const one of (await page.locator(kind).all()).slice(0, 12)) {
      if (!(await one.isVisible())) continue;
      if (kind === '.plot svg') await one.hover();
      else await one.evaluate((node) => (node.focus(), node.click(), node.click()));
    }
  }
}

for (const name of ['hostile', 'hostile_all']) {
  test(`${name}: no string runs`, async (t) => {
    const own = await census((await openPage(t, 'full')).page);
    const { page, requests, errors } = await openPage(t, name);
    await useEverything(page);
    assert.deepEqual(await census(page), own);
    assert.equal(own.ran, 0);
    assert.deepEqual(
      requests.filter((url) => !url.startsWith('data:')),
      [address(name)],
    );
    assert.deepEqual(errors, []);
  });

  test(`${name}: the strings are there, as text`, async (t) => {
    const { page } = await openPage(t, name);
    const text = await page.evaluate(() => document.body.textContent);
    for (const place of ['#table-settings', '#table-comparison', '.warning', '.legend', 'h3']) {
      const found = await page.locator(place).evaluateAll((all) =>
        all.map((one) => one.textContent).join(),
      );
      assert.ok(found.includes(MARK), place);
    }
    assert.ok(text.split(MARK).length > 100);
  });
}

test('hostile: every figure of the page is drawn', async (t) => {
  const { page } = await openPage(t, 'hostile');
  for (const figure of await page.locator('[data-figure]').all()) {
    assert.equal(await figure.isVisible(), true, await figure.getAttribute('data-figure'));
  }
});
