// The explorer as people use it: controls, keyboard, screens, hostile input.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { useBrowser } from './browser.mjs';
import { goTo, openExplorer, page_address, settle, tool } from './explorer.mjs';

useBrowser();
const list = tool('list').encodings;

test('one file, below 3 MB, without network, soon painted', async (t) => {
  const size = statSync(fileURLToPath(page_address)).size;
  assert.ok(size < 3e6, `${size} bytes`);
  const { page, requests, errors } = await openExplorer(t, '#play?a=rope&b=alibi');
  await settle(page);
  assert.deepEqual(
    requests.filter((one) => !/^(file|blob|data):/.test(one)),
    [],
  );
  assert.deepEqual(errors, []);
  const paint = await page.evaluate(
    () => performance.getEntriesByName('first-contentful-paint')[0].startTime,
  );
  t.diagnostic(`${(size / 1e6).toFixed(2)} MB, first paint after ${paint.toFixed(0)} ms`);
});

// Options that act only beside another, and what makes them act.
const BESIDE = {
  'rope.factor': { scaling: 'linear' },
  'rope.original_length': { scaling: 'yarn' },
  'rope.partial': { scaling: 'proportional' },
};

/** Everything that Play draws, as text. */
const drawing = (page) =>
  page.evaluate(() =>
    [...document.querySelectorAll('#play .side, #play .properties')]
      .map((one) => one.innerHTML)
      .join(''),
  );

test('every control of every encoding moves its figures', async (t) => {
  const { page, errors } = await openExplorer(t, '#play?a=none&length=48&dim=16&heads=4');
  let moved = 0;
  for (const { name, example_options: options } of list) {
    for (const { name: option } of options) {
      const beside = Object.entries(BESIDE[`${name}.${option}`] ?? {}).map(
        ([key, value]) => `&a.${key}=${value}`,
      );
      await goTo(page, `#play?a=${name}&length=48&dim=16&heads=4${beside.join('')}`);
      const before = await drawing(page);
      await page.evaluate((control) => {
        const input = document.querySelector(`#play [data-side="a"] [name="${control}"]`);
        if (input.type === 'checkbox') input.click();
        else {
          if (input.tagName === 'SELECT')
            input.selectedIndex = (input.selectedIndex + 1) % input.options.length;
          else if (input.type === 'range')
            input.value = Number(input.value) > Number(input.max) / 2 ? input.min : input.max;
          else input.value = '10';
          input.dispatchEvent(new Event('input', { bubbles: true }));
          input.dispatchEvent(new Event('change', { bubbles: true }));
        }
      }, option);
      await settle(page);
      assert.notEqual(await drawing(page), before, `${name}: ${option} changes nothing`);
      ++moved;
    }
  }
  assert.ok(moved > 20, `${moved} controls`);
  for (const control of ['length', 'dim', 'heads', 'seed', 'head', 'm', 'weights', 'causal']) {
    await goTo(page, '#play?a=xpos&heads=4&dim=16&length=48&content=random');
    const before = await drawing(page);
    await page.evaluate((name) => {
      const input = document.querySelector(`#play [name="${name}"]`);
      if (input.type === 'checkbox') input.click();
      else {
        input.value = Number(input.value) + 3;
        input.dispatchEvent(new Event('input', { bubbles: true }));
      }
    }, control);
    await settle(page);
    // xPos has no heads that differ: their number and the head shown are in the titles alone.
    assert.notEqual(await drawing(page), before, control);
  }
  assert.deepEqual(errors, []);
});

test('the address holds the state, and another page opens it', async (t) => {
  const { page } = await openExplorer(t, '#play?a=rope&a.base=500&b=alibi&length=96');
  await settle(page);
  assert.equal(await page.locator('.side').count(), 2);
  assert.match(page.url(), /a=rope&a\.base=500&b=alibi&length=96/);
  assert.ok(await page.locator('.difference [data-figure="difference-scores"] image').count());
});

test('a slider that is dragged writes the address once, and asks only what changed', async (t) => {
  const { page } = await openExplorer(t, '#play?a=t5&length=48&dim=16');
  await settle(page);
  const { written, asked } = await page.evaluate(async () => {
    let written = 0;
    const { replaceState } = history;
    history.replaceState = (...args) => {
      ++written;
      replaceState.apply(history, args);
    };
    const asked = new Set();
    const { postMessage } = Worker.prototype;
    Worker.prototype.postMessage = function (message, ...more) {
      if (message.text) asked.add(JSON.parse(message.text).ask);
      postMessage.call(this, message, ...more);
    };
    const input = document.querySelector('#play [name="m"]');
    for (let place = 10; place < 50; ++place) {
      input.value = place;
      input.dispatchEvent(new Event('input', { bubbles: true }));
      await new Promise((ready) => requestAnimationFrame(ready));
    }
    while (document.querySelector('#play .live').dataset.busy !== '0')
      await new Promise((ready) => setTimeout(ready, 5));
    return { written, asked: [...asked] };
  });
  assert.ok(written > 0 && written < 10, `${written} addresses for 40 places`);
  // The positions of the dials; T5's bias and its scores do not depend on them.
  assert.deepEqual(asked, ['pairs']);
  assert.match(page.url(), /&m=49/);
});

test('a check of what is no longer shown is stopped, and its table is dimmed', async (t) => {
  const { page, errors } = await openExplorer(t, '#play?a=shaw&heads=8&dim=128&length=512');
  const { stopped, dimmed } = await page.evaluate(async () => {
    let stopped = 0;
    const { terminate } = Worker.prototype;
    Worker.prototype.terminate = function () {
      ++stopped;
      terminate.call(this);
    };
    const live = document.querySelector('#play .live');
    // One job under way: the check, which takes longer than all figures.
    while (live.dataset.busy !== '1') await new Promise((ready) => setTimeout(ready, 5));
    await new Promise((ready) => setTimeout(ready, 300));
    const clip = live.querySelector('[name="clip"]');
    clip.value = 10;
    clip.dispatchEvent(new Event('input', { bubbles: true }));
    return { stopped, dimmed: document.querySelector('.stage > .scroll').ariaBusy };
  });
  assert.equal(stopped, 1);
  assert.equal(dimmed, 'true');
  await settle(page);
  assert.equal(await page.locator('#play .stage > .scroll').getAttribute('aria-busy'), null);
  assert.ok((await page.locator('.properties tbody tr').count()) > 10);
  assert.deepEqual(errors, []);
});

/** Milliseconds from a move of a slider until all figures of Play are painted, sorted. */
const slide = (page, option, values) =>
  page.evaluate(
    async ([name, places]) => {
      const live = document.querySelector('#play .live');
      const input = document.querySelector(`#play [data-side="a"] [name="${name}"]`);
      const found = [];
      for (const place of places) {
        const { drawn, scored } = live.dataset;
        const began = performance.now();
        input.value = place;
        input.dispatchEvent(new Event('input', { bubbles: true }));
        await new Promise((ready) => {
          const observer = new MutationObserver(() => {
            if (live.dataset.drawn === drawn || live.dataset.scored === scored) return;
            observer.disconnect();
            ready();
          });
          observer.observe(live, { attributes: true });
        });
        // A task after the frame: what the frame holds is painted.
        await new Promise((ready) => requestAnimationFrame(() => setTimeout(ready, 0)));
        found.push(performance.now() - began);
      }
      return found.sort((a, b) => a - b);
    },
    [option, values],
  );

test('from a slider to painted figures', async (t) => {
  for (const [encoding, option] of [
    ['rope', 'base'],
    ['t5', 'max_distance'],
    ['shaw', 'clip'],
  ]) {
    const { page } = await openExplorer(t, `#play?a=${encoding}&heads=8&dim=128&length=512`);
    await settle(page);
    const times = await slide(
      page,
      option,
      Array.from({ length: 40 }, (_, n) => 20 + 4 * n),
    );
    t.diagnostic(
      `${encoding}, dim 128, length 512: median ${times[20].toFixed(0)} ms, 95 of 100 below ${times[37].toFixed(0)} ms`,
    );
  }
});

test('trained tables show at their sizes, and the page says where they do not', async (t) => {
  const { page, errors } = await openExplorer(t, '#play?a=t5');
  await settle(page);
  const note = page.locator('.parameters');
  assert.match(await note.innerText(), /^Trained: .* nats per byte/);
  const shown = await drawing(page);
  await page.locator('#play [name="dim"]').focus();
  await page.keyboard.press('ArrowRight');
  await settle(page);
  assert.match(await note.innerText(), /^Not trained/);
  // By keyboard: a pointer over a chart would add its tip.
  await note.getByRole('button').focus();
  await page.keyboard.press('Enter');
  await settle(page);
  assert.equal(await drawing(page), shown);
  await page.locator('#play [name="trained"]').uncheck();
  await settle(page);
  assert.match(await note.innerText(), /^Not trained/);
  assert.notEqual(await drawing(page), shown);
  assert.deepEqual(errors, []);
});

test('the guided path is walked by keyboard', async (t) => {
  const { page, errors } = await openExplorer(t);
  for (let step = 1; step <= 12; ++step) {
    await page.waitForSelector(`.step[data-step="${step}"]`);
    await settle(page);
    if (step < 12)
      assert.ok((await page.locator('.step figure svg').count()) > 0, `step ${step} has a figure`);
    const before = await page.locator('.step .stage').innerHTML();
    // Tab from the heading: the question first, then the controls, then the way on.
    await page.locator('.step h2').focus();
    await page.keyboard.press('Tab');
    await page.keyboard.press('Space');
    assert.ok(await page.locator('.explanation').isVisible(), `step ${step} answers`);
    assert.match(await page.locator('.verdict-line').innerText(), /^(Yes|Not so)/);
    await page.keyboard.press('Tab');
    const kind = await page.evaluate(() => document.activeElement.type);
    await page.keyboard.press(kind === 'range' ? 'ArrowRight' : 'Space');
    if (kind === 'button') {
      await page.keyboard.press('Tab'); // the first of a choice is pressed already
      await page.keyboard.press('Space');
    }
    await settle(page);
    assert.notEqual(await page.locator('.step .stage').innerHTML(), before, `step ${step} moves`);
    for (let n = 0; n < 80; ++n) {
      await page.keyboard.press('Tab');
      if (await page.evaluate(() => document.activeElement.matches('.turning .primary'))) break;
    }
    await page.keyboard.press('Enter');
  }
  await page.waitForSelector('#play:not([hidden])');
  assert.deepEqual(errors, []);
});

test('all published configs open in the page', async (t) => {
  const { page, errors } = await openExplorer(t, '#model');
  await page.waitForSelector('#model .live[data-answered]');
  const names = await page.$$eval('#model select:first-of-type option', (all) =>
    all.map(({ value }) => value).filter(Boolean),
  );
  const failed = await page.evaluate(async (all) => {
    const live = document.querySelector('#model .live');
    const picker = live.querySelector('select');
    const wrong = [];
    for (const name of new Set(all)) {
      delete live.dataset.answered;
      picker.value = name;
      picker.dispatchEvent(new Event('change'));
      while (!live.dataset.answered) await new Promise((ready) => setTimeout(ready, 5));
      const said = live.querySelector('.problem');
      if (!said.hidden || !live.querySelector('.answer tbody tr'))
        wrong.push(`${name}: ${said.textContent}`);
    }
    return wrong;
  }, names);
  assert.ok(new Set(names).size > 80);
  assert.deepEqual(failed, []);
  assert.deepEqual(errors, []);
});

const SMALL = {
  model_type: 'llama',
  hidden_size: 64,
  num_attention_heads: 4,
  num_hidden_layers: 2,
  max_position_embeddings: 128,
};
const HOSTILE = [
  ['nonsense', 'not json at all', /.+/],
  ['NaN', JSON.stringify(SMALL).replace('64', 'NaN'), /.+/],
  ['an unknown key', JSON.stringify({ ...SMALL, rope_magic: 3 }), /rope_magic/],
  [
    'an unknown model',
    JSON.stringify({ ...SMALL, model_type: '</script><img src=x onerror=alert(1)>' }),
    /<\/script><img/,
  ],
  ['deep brackets', '['.repeat(100000), /.+/],
  ['a negative size', JSON.stringify({ ...SMALL, hidden_size: -64 }), /-64/],
];

test('hostile configs get a sentence', async (t) => {
  const { page, errors } = await openExplorer(t, '#model');
  await page.waitForSelector('#model .live[data-answered]');
  const problem = page.locator('#model .problem');
  for (const [name, text, sentence] of HOSTILE) {
    await page.locator('#model textarea').first().fill(text);
    await problem.waitFor({ state: 'visible' });
    await settle(page);
    assert.match(await problem.innerText(), sentence, name);
    await page.locator('#model textarea').first().fill(JSON.stringify(SMALL));
    await problem.waitFor({ state: 'hidden' });
  }
  const folder = mkdtempSync(join(tmpdir(), 'locus-large-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const large = join(folder, 'config.json');
  writeFileSync(large, Buffer.alloc(50e6, ' '));
  await page.locator('#model input[type=file]').first().setInputFiles(large);
  await problem.waitFor({ state: 'visible' });
  assert.match(await problem.innerText(), /this file has 50 MB/);
  // An answer to what was there before is no longer wanted.
  await page.evaluate((small) => {
    const area = document.querySelector('#model textarea');
    for (const text of [small, 'x'.repeat(17e6)]) {
      area.value = text;
      area.dispatchEvent(new Event('input'));
    }
  }, JSON.stringify(SMALL));
  await settle(page);
  await page.waitForTimeout(300);
  assert.match(await problem.innerText(), /this text has 17 MB/);
  await page.locator('#model textarea').first().fill(JSON.stringify(SMALL));
  await problem.waitFor({ state: 'hidden' });
  // The same as text, and a name that would end a script.
  await page.evaluate(() => {
    const area = document.querySelector('#model textarea');
    area.value = 'x'.repeat(50e6);
    area.dispatchEvent(new Event('input'));
  });
  await page.waitForFunction(() =>
    document.querySelector('#model .problem').textContent.includes('this text has 50 MB'),
  );
  const named = join(folder, '<img src=x onerror=alert(1)>.json');
  writeFileSync(named, JSON.stringify({ ...SMALL, _name_or_path: '</script><b>' }));
  await page.locator('#model input[type=file]').first().setInputFiles(named);
  await problem.waitFor({ state: 'hidden' });
  await settle(page);
  assert.match(await page.locator('#model .answer h3').first().innerText(), /<img src=x/);
  assert.deepEqual(errors, []);
});

test('a hostile address opens the page', async (t) => {
  const { page, errors } = await openExplorer(
    t,
    '#play?a=<script>&length=NaN&a.base=x&b=rope&b.base=%3Cimg%3E',
  );
  await page.waitForSelector('.side .problem:visible');
  assert.match(await page.locator('.side .problem:visible').first().innerText(), /<img>/);
  assert.deepEqual(errors, []);
});

const axe = readFileSync(
  createRequire(resolve(process.env.LOCUS_WEB_MODULES, 'anchor.cjs')).resolve(
    'axe-core/axe.min.js',
  ),
  'utf8',
);
for (const colorScheme of ['light', 'dark'])
  test(`axe finds nothing serious, ${colorScheme}`, async (t) => {
    const { page } = await openExplorer(t, '#learn/1', { colorScheme });
    await page.evaluate(axe);
    for (const hash of [
      '#learn/1',
      '#learn/6',
      '#learn/12',
      '#play?a=rope&b=shaw',
      '#model?a=Llama 3.1 8B&b=LLaMA 7B',
    ]) {
      await goTo(page, hash);
      const found = await page.evaluate(async () =>
        (await window.axe.run()).violations
          .filter(({ impact }) => ['serious', 'critical'].includes(impact))
          .map(
            ({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(' | ')}`,
          ),
      );
      assert.deepEqual(found, [], hash);
    }
  });

for (const width of [360, 768, 1920])
  test(`nothing is wider than a screen of ${width}`, async (t) => {
    const { page } = await openExplorer(t, '#learn/1', { viewport: { width, height: 800 } });
    for (const hash of [
      '#learn/1',
      '#learn/6',
      '#learn/11',
      '#play?a=rope',
      '#play?a=t5&b=alibi',
      '#model',
    ]) {
      await goTo(page, hash);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${hash}: ${wide} px too wide`);
    }
  });
