// The page of a study at work: it says so, renews itself, and keeps the reader's place.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import { address, openPage, results, settled, useBrowser } from './browser.mjs';

useBrowser();

const FILE = fileURLToPath(address('live'));

/** Writes the page as the study would, now or `age` seconds ago. */
function write(t, age, change = (html) => html) {
  const html = readFileSync(FILE, 'utf8');
  t.after(() => writeFileSync(FILE, html));
  const written = Math.floor(Date.now() / 1000) - age;
  writeFileSync(FILE, change(html.replace(/data-written="\d+"/, `data-written="${written}"`)));
}

test('says what is done, what runs and how long it takes', async (t) => {
  write(t, 0);
  const { page, errors } = await openPage(t, 'live');
  const { progress } = results('live');
  const line = await page.locator('#live').innerText();
  assert.match(line, /A first answer/);
  assert.ok(line.includes(`${progress.done} of ${progress.jobs} jobs are done, about 12 min left`));
  for (const job of progress.running) assert.ok(line.includes(job), job);
  assert.equal(await page.locator('.warning').count(), 1, 'the failure alone');
  assert.match(await page.locator('#table-loss').textContent(), /RoPE/);
  assert.deepEqual(errors, []);
});

test('renews itself and keeps place and open tables', async (t) => {
  write(t, 0);
  const { page } = await openPage(t, 'live');
  await page.locator('#length details').evaluate((details) => (details.open = true));
  await page.evaluate(() => scrollTo(0, 300));
  await page.evaluate(() => (window.before = true));
  write(t, 0, (html) => html.replace('5 of', '6 of'));
  await page.waitForFunction(() => !window.before, undefined, { timeout: 20_000 });
  await settled(page);
  assert.match(await page.locator('#live').innerText(), /6 of 62 jobs/);
  assert.equal(await page.locator('#length details').evaluate((details) => details.open), true);
  assert.ok(Math.abs((await page.evaluate(() => scrollY)) - 300) < 5);
});

test('can be paused by keyboard, and stays so', async (t) => {
  write(t, 0);
  const { page } = await openPage(t, 'live');
  await page.getByRole('button', { name: 'Pause' }).focus();
  await page.keyboard.press('Enter');
  assert.match(await page.locator('#live').innerText(), /paused/);
  await page.reload();
  await settled(page);
  assert.equal(await page.getByRole('button', { name: 'Renew' }).isVisible(), true);
});

test('a study that was killed is not waited for', async (t) => {
  write(t, 3600);
  const { page } = await openPage(t, 'live');
  assert.match(await page.locator('#live').innerText(), /no longer renews itself/);
  assert.equal(await page.locator('#live button').count(), 0);
});

test('without scripts the browser renews it; a finished page never is', async (t) => {
  assert.match(readFileSync(FILE, 'utf8'), /<noscript><meta http-equiv="refresh"/);
  const done = readFileSync(fileURLToPath(address('full')), 'utf8');
  assert.doesNotMatch(done, /http-equiv="refresh"/);
  const { page } = await openPage(t, 'full');
  assert.equal(await page.locator('#live').count(), 0);
});

for (const width of [360, 1440]) {
  test(`fits ${width} px`, async (t) => {
    write(t, 0);
    const { page } = await openPage(t, 'live', { viewport: { width, height: 800 } });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= width, `${wide} px wide`);
  });
}
