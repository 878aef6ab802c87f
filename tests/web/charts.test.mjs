// Charts draw the numbers of results.json, at the right places.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bend, marks, mean, near, openPage, results, settled, useBrowser } from './browser.mjs';

useBrowser();
const data = results('full');
// SVG coordinates are written in full, boxes on screen are rounded a little.
const PIXEL = 0.05;

/** Every expected value has one mark of that value, and there is no other mark. */
function agree(found, expected) {
  assert.equal(found.length, expected.length);
  for (const { key, x, value } of expected) {
    const mine = found.filter((mark) => mark.key === key && mark.x === x);
    assert.equal(mine.length, 1, `${key} at ${x}`);
    assert.ok(near(mine[0].value, value), `${key} at ${x}: ${mine[0].value}, not ${value}`);
  }
}

/** Marks stand where their values say, on a vertical axis that is linear. */
function placed(found) {
  assert.ok(bend(found.map(({ value, top }) => ({ value, at: top }))) < PIXEL);
  const across = found.map(({ x, left }) => ({ value: Math.log2(x), at: left }));
  assert.ok(bend(across) < PIXEL);
  const [low, high] = [...found]
    .sort((a, b) => a.value - b.value)
    .flatMap((m, i, all) => (i === 0 || i === all.length - 1 ? [m] : []));
  assert.ok(low.top > high.top, 'more is higher');
}

const summary = (task, metric) =>
  data.summary
    .filter((row) => row.task === task && row.metric === metric)
    .map(({ encoding, length, mean: value }) => ({ key: encoding, x: length, value }));

test('loss by length', async (t) => {
  const { page } = await openPage(t, 'full');
  const found = await marks(page, '[data-figure="loss"]');
  agree(found, summary('text', 'loss'));
  placed(found);
});

test('loss against the same model at 1x', async (t) => {
  const { page } = await openPage(t, 'full');
  await page.getByRole('button', { name: 'Change against 1x' }).click();
  const all = summary('text', 'loss');
  const expected = all.map(({ key, x, value }) => {
    const own = all.find((row) => row.key === key && row.x === 64).value;
    return { key, x, value: value / own - 1 };
  });
  const found = await marks(page, '[data-figure="loss"]');
  agree(
    found.map((mark) => ({ ...mark, value: 1 + mark.value })), // nearness to 1, not to 0
    expected.map((row) => ({ ...row, value: 1 + row.value })),
  );
});

test('the band is the range over seeds', async (t) => {
  // On coarse screens Plot moves symbols, but not areas, by half a pixel.
  const { page } = await openPage(t, 'full', { deviceScaleFactor: 2 });
  const chart = '[data-figure="loss"]';
  const found = await marks(page, chart);
  const scale = [...found].sort((a, b) => a.value - b.value);
  const [a, b] = [scale[0], scale.at(-1)];
  const top = (value) => a.top + ((b.top - a.top) * (value - a.value)) / (b.value - a.value);
  const rows = data.summary.filter(
    (r) => r.task === 'text' && r.metric === 'loss' && r.encoding === 'rope',
  );
  const [highest, lowest] = await page
    .locator(`${chart} .series-rope[aria-label="area"] path`)
    .evaluate((path) => {
      const box = path.getBBox();
      return [box.y, box.y + box.height].map(
        (y) => new DOMPoint(0, y).matrixTransform(path.getScreenCTM()).y,
      );
    });
  assert.ok(Math.abs(highest - top(Math.max(...rows.map((r) => r.high)))) < PIXEL);
  assert.ok(Math.abs(lowest - top(Math.min(...rows.map((r) => r.low)))) < PIXEL);
});

test('accuracy by task', async (t) => {
  const { page } = await openPage(t, 'full');
  const tasks = data.settings.tasks.map(({ name }) => name).filter((name) => name !== 'text');
  assert.equal(await page.locator('[data-figure="tasks"] [data-task]').count(), tasks.length);
  for (const task of tasks) {
    const found = await marks(page, `[data-task="${task}"]`);
    agree(found, summary(task, 'accuracy'));
    placed(found);
  }
});

test('context extension', async (t) => {
  const { page } = await openPage(t, 'full');
  for (const steps of [0, 50]) {
    const groups = new Map();
    for (const one of data.extensions.filter((row) => row.fine_tune_steps === steps)) {
      for (const { length, loss } of one.evaluations) {
        const key = `${one.method} ${length}`;
        groups.set(key, [...(groups.get(key) ?? []), loss]);
      }
    }
    const expected = [...groups].map(([name, losses]) => {
      const [key, x] = name.split(' ');
      return { key, x: Number(x), value: mean(losses) };
    });
    const found = await marks(page, `[data-steps="${steps}"]`);
    agree(found, expected);
    placed(found);
  }
});

test('fused and materialised', async (t) => {
  const { page } = await openPage(t, 'full');
  const check = async (length) => {
    for (const [measure, field] of [
      ['time', 'seconds_per_step'],
      ['memory', 'peak_memory_bytes'],
    ]) {
      const expected = data.attention_cost
        .filter((row) => row.length === length)
        .map((row) => ({ key: row.encoding, x: undefined, value: row[field] }));
      const found = await marks(page, `[data-measure="${measure}"]`);
      assert.deepEqual(
        found.map(({ key, value }) => `${key} ${value}`).sort(),
        expected.map(({ key, value }) => `${key} ${value}`).sort(),
      );
      assert.ok(bend(found.map(({ value, left }) => ({ value, at: left }))) < PIXEL);
    }
  };
  await check(512);
  await page.locator('[data-figure="cost"]').getByRole('button', { name: '256 tokens' }).click();
  await check(256);
});

test('the cost of position, and tokens a second', async (t) => {
  const { page } = await openPage(t, 'full');
  const fused = data.attention_cost.filter((row) => row.length === 512 && row.path === 'fused');
  const none = fused.find((row) => row.encoding === 'none').seconds_per_step;
  agree(
    await marks(page, '[data-figure="position"]'),
    fused.map((row) => ({ key: row.encoding, x: undefined, value: row.seconds_per_step / none })),
  );
  const speeds = data.settings.encodings.map((key) => {
    const runs = data.runs.filter((run) => run.task === 'text' && run.encoding === key);
    return { key, x: undefined, value: mean(runs.map((run) => run.tokens_per_second)) };
  });
  agree(await marks(page, '[data-figure="speed"]'), speeds);
});

test('training curves', async (t) => {
  const { page } = await openPage(t, 'full');
  const curve = async (task, encoding) => {
    const runs = data.runs.filter((run) => run.task === task && run.encoding === encoding);
    const expected = runs[0].loss_curve.map(({ step }, k) => ({
      step,
      loss: mean(runs.map((run) => run.loss_curve[k].loss)),
    }));
    const paths = page.locator(
      `[data-figure="training"] .series-${encoding}[aria-label="line"] path`,
    );
    assert.equal(await paths.count(), runs.length + 1); // the seeds, and their mean
    const drawn = (await paths.last().getAttribute('d'))
      .slice(1)
      .split('L')
      .map((pair) => pair.split(',').map(Number));
    assert.equal(drawn.length, expected.length);
    assert.ok(bend(expected.map(({ step }, k) => ({ value: step, at: drawn[k][0] }))) < PIXEL);
    assert.ok(bend(expected.map(({ loss }, k) => ({ value: loss, at: drawn[k][1] }))) < PIXEL);
  };
  await curve('text', 'rope');
  await page.locator('[data-figure="training"]').getByRole('button', { name: 'Copy' }).click();
  await curve('copy', 'alibi');
});

test('pictures have the colours of their values', async (t) => {
  const { page } = await openPage(t, 'full', { colorScheme: 'light' });
  assert.equal(await page.locator('svg image').count(), data.pictures.length);
  const picture = data.pictures.find(
    ({ kind, encoding }) => kind === 'bias' && encoding === 'alibi',
  );
  const card = page.locator('#pictures .card').filter({ hasText: 'ALiBi' });
  const pixels = await card.locator('image').evaluate(
    async (node, [rows, columns]) => {
      const image = new Image();
      image.src = node.href.baseVal;
      await image.decode();
      const canvas = new OffscreenCanvas(columns, rows).getContext('2d');
      canvas.drawImage(image, 0, 0);
      return [...canvas.getImageData(0, 0, columns, rows).data];
    },
    [picture.values.length, picture.values[0].length],
  );
  const columns = picture.values[0].length;
  const at = (i, j) => pixels.slice(4 * (i * columns + j), 4 * (i * columns + j) + 3);
  // The steepest head's farthest offset is the lowest value, offset 0 is zero.
  assert.deepEqual(at(0, columns - 1), [0x0b, 0x5a, 0x99]);
  assert.deepEqual(at(0, 0), [0xf7, 0xf5, 0xee]);
});

test('pointing at a mark and at a picture tells its value', async (t) => {
  const { page } = await openPage(t, 'full');
  const value = data.summary.find(
    (row) =>
      row.task === 'text' && row.encoding === 'rope' && row.length === 512 && row.metric === 'loss',
  ).mean;
  const figure = page.locator('[data-figure="loss"]');
  await figure.locator('[aria-label^="rope 512 "]').hover();
  assert.match(
    await figure.locator('[aria-label="tip"]').textContent(),
    new RegExp(`RoPE.*${value.toFixed(3)}`, 's'),
  );
  const card = page.locator('#pictures .card').filter({ hasText: 'ALiBi' });
  const image = card.locator('image');
  const box = await image.boundingBox();
  await image.hover({ position: { x: box.width - 3, y: 3 } });
  assert.equal(await card.locator('output').innerText(), 'head 0, offset 63: -15.8');
});

test('the legend hides and shows, by mouse and keyboard, in every figure', async (t) => {
  const { page } = await openPage(t, 'full');
  const shown = async (figure) => {
    const found = await marks(page, `[data-figure="${figure}"]`);
    return new Set(found.map(({ key }) => key));
  };
  const legend = page.locator('[data-figure="loss"] .legend');
  const button = legend.getByRole('button', { name: 'RoPE' });
  assert.equal(await button.getAttribute('aria-pressed'), 'true');
  await button.focus();
  await page.keyboard.press('Space');
  await settled(page);
  assert.equal(await button.getAttribute('aria-pressed'), 'false');
  for (const figure of ['loss', 'tasks']) assert.equal((await shown(figure)).has('rope'), false);
  await legend.getByRole('button', { name: 'ALiBi' }).click();
  assert.equal((await shown('loss')).has('alibi'), false);
  await legend.getByRole('button', { name: 'Show all' }).click();
  assert.equal((await shown('loss')).size, data.settings.encodings.length);
});
