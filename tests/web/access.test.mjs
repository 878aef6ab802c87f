// The page for keyboards and screen readers: structure, names, focus, contrast.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openPage, settled, useBrowser } from './browser.mjs';

useBrowser();

const openAll = (page) => page.$$eval('details', (all) => all.forEach((one) => (one.open = true)));

test('landmarks, language and title', async (t) => {
  const { page } = await openPage(t, 'full');
  for (const role of ['banner', 'main', 'contentinfo', 'navigation']) {
    assert.equal(await page.getByRole(role).count(), 1, role);
  }
  assert.equal(await page.locator('html').getAttribute('lang'), 'en');
  assert.match(await page.title(), /Locus/);
  // Every section is a region with the name of its heading.
  const sections = await page.locator('main > section').count();
  assert.equal(
    await page
      .getByRole('region')
      .filter({ has: page.locator('h1, h2') })
      .count(),
    sections,
  );
});

test('headings descend one level at a time', async (t) => {
  const { page } = await openPage(t, 'full');
  const levels = await page.$$eval('h1, h2, h3, h4, h5, h6', (all) =>
    all.filter((one) => one.checkVisibility()).map((one) => Number(one.tagName[1])),
  );
  assert.equal(levels[0], 1);
  assert.equal(levels.filter((level) => level === 1).length, 1);
  levels.forEach((level, k) => assert.ok(k === 0 || level <= levels[k - 1] + 1, `heading ${k}`));
});

test('everything has a name', async (t) => {
  const { page } = await openPage(t, 'full');
  await openAll(page);
  const nameless = await page.$$eval('button, a, svg, table', (all) =>
    all
      .filter((one) => one.checkVisibility() && !one.closest('[aria-hidden="true"]'))
      .filter((one) => {
        const name = one.getAttribute('aria-label') ?? one.caption?.textContent ?? one.textContent;
        const image = one.tagName === 'svg' && one.getAttribute('role') !== 'img';
        return name.trim().length < 2 || image;
      })
      .map((one) => one.outerHTML.slice(0, 120)),
  );
  assert.deepEqual(nameless, []);
  const ids = await page.$$eval('[id]', (all) => all.map(({ id }) => id));
  assert.equal(new Set(ids).size, ids.length, 'ids are unique');
  for (const cell of [
    'thead th:not([scope="col"])',
    'tbody tr > :first-child:not([scope="row"])',
  ]) {
    assert.equal(await page.locator(cell).count(), 0, cell);
  }
});

test('links of the contents lead somewhere', async (t) => {
  const { page } = await openPage(t, 'full');
  const links = await page.locator('nav a').all();
  assert.ok(links.length >= 8);
  for (const link of links) {
    assert.equal(await page.locator(await link.getAttribute('href')).isVisible(), true);
  }
});

test('the first stop of the keyboard skips to the results, and focus shows', async (t) => {
  const { page } = await openPage(t, 'full');
  await page.keyboard.press('Tab');
  const focus = () =>
    page.evaluate(() => {
      const { activeElement: one } = document;
      const style = getComputedStyle(one);
      const box = one.getBoundingClientRect();
      return {
        text: one.innerText.trim(),
        outline: style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineWidth),
        inside: box.right > 0 && box.bottom > 0 && box.left < innerWidth && box.top < innerHeight,
      };
    });
  assert.match((await focus()).text, /^Skip/);
  const seen = new Set();
  for (let stop = 0; stop < 40; ++stop) {
    const here = await focus();
    assert.ok(here.outline >= 2, `outline of "${here.text}"`);
    assert.ok(here.inside, `"${here.text}" is in sight`);
    seen.add(here.text);
    await page.keyboard.press('Tab');
  }
  for (const stop of ['Change against 1x', 'RoPE', 'The numbers: loss by length']) {
    assert.ok(seen.has(stop), stop);
  }
});

test('a table that scrolls sideways is reached by keyboard', async (t) => {
  const { page } = await openPage(t, 'full', { viewport: { width: 360, height: 740 } });
  const box = page.locator('.scroll').filter({ has: page.locator('#table-comparison') });
  assert.equal(await box.getAttribute('tabindex'), '0');
  assert.equal(await box.getAttribute('role'), 'region');
  await box.focus();
  await page.keyboard.press('ArrowRight');
  await page.waitForFunction((node) => node.scrollLeft > 0, await box.elementHandle());
});

// WCAG 2: (lighter + 0.05) / (darker + 0.05) of relative luminances, 4.5 for text.
function poorContrast() {
  const luminance = ([r, g, b]) => {
    const linear = [r, g, b].map((c) => {
      const s = c / 255;
      return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const parse = (color) => {
    const numbers = color.match(/[\d.]+/g).map(Number);
    return { rgb: numbers.slice(0, 3), alpha: numbers[3] ?? 1 };
  };
  const behind = (node) => {
    for (let one = node; one; one = one.parentElement) {
      const { rgb, alpha } = parse(getComputedStyle(one).backgroundColor);
      if (alpha === 1) return rgb;
      if (alpha !== 0) throw new Error('a half-transparent background');
    }
    return [255, 255, 255];
  };
  const poor = [];
  let checked = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility()) continue;
    if (['SCRIPT', 'STYLE', 'NOSCRIPT'].includes(node.tagName)) continue;
    const style = getComputedStyle(node);
    const svg = node.closest('svg') !== null;
    const ink = parse(svg ? style.fill : style.color);
    const [a, b] = [luminance(ink.rgb), luminance(behind(node))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    ++checked;
    if (contrast < 4.5 || ink.alpha < 1) {
      poor.push(`${contrast.toFixed(2)} "${node.textContent.trim().slice(0, 40)}"`);
    }
  }
  return { poor, checked };
}

for (const scheme of ['light', 'dark']) {
  test(`text stands out, ${scheme}`, async (t) => {
    const { page } = await openPage(t, 'full', { colorScheme: scheme });
    await openAll(page);
    await page.locator('.legend').first().getByRole('button', { name: 'T5' }).click();
    const { poor, checked } = await page.evaluate(poorContrast);
    assert.ok(checked > 300);
    assert.deepEqual(poor, []);
  });
}

for (const scheme of ['light', 'dark']) {
  test(`tips can be read, ${scheme}`, async (t) => {
    const { page } = await openPage(t, 'full', { colorScheme: scheme });
    const figure = page.locator('[data-figure="loss"]');
    await figure.locator('[aria-label^="rope 512 "]').hover();
    const fills = await figure
      .locator('[aria-label="tip"]')
      .evaluate((tip) =>
        ['path', 'text'].map((part) => getComputedStyle(tip.querySelector(part)).fill),
      );
    const variables = await page.evaluate(() => {
      const probe = document.createElement('i');
      document.body.append(probe);
      const colors = ['--raised', '--ink'].map((name) => {
        probe.style.color = `var(${name})`;
        return getComputedStyle(probe).color;
      });
      probe.remove();
      return colors;
    });
    assert.deepEqual(fills, variables);
  });
}

test('the theme button goes round, and its choice lasts', async (t) => {
  const { page } = await openPage(t, 'full', { colorScheme: 'light' });
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const picture = () => page.locator('#attention image').first().getAttribute('href');
  const [light, drawn] = [await paper(), await picture()];
  const button = page.getByRole('button', { name: /Theme/ });
  await button.click(); // light
  assert.equal(await paper(), light);
  await button.click(); // dark
  await settled(page);
  assert.notEqual(await paper(), light);
  assert.notEqual(await picture(), drawn, 'pictures are drawn anew');
  assert.equal((await page.evaluate(poorContrast)).poor.length, 0);
  // Chromium writes storage when it has time, and on a busy machine a new load
  // may come first, which forgets the choice: choose again, and wait longer.
  let title = '';
  for (let tries = 1; tries <= 8 && !/dark/.test(title); ++tries) {
    while (!/dark/.test(await button.innerText())) await button.click();
    await page.waitForTimeout(200 * tries);
    await page.reload();
    await settled(page);
    title = await button.innerText();
  }
  assert.match(title, /dark/);
  assert.notEqual(await paper(), light);
});
