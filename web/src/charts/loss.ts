// Loss of the first task by length, and the same as a change against the loss at 1x.
import { choice, drawToFit, element } from '../dom';
import * as format from '../format';
import { legend } from '../legend';
import { scoresOf, tasksOf, trainLength, type Point, type Results } from '../results';
import type { Shown } from '../series';
import { domainOf, lengthAxis, linesChart, type Line } from './lines';

type View = 'loss' | 'change';

/** Each point over the mean at the first one, minus 1. */
function changes(points: Point[]): Point[] {
  const first = points[0];
  if (!first) return [];
  const over = (value: number) => value / first.mean - 1;
  return points.map((point) => ({
    ...point,
    mean: over(point.mean),
    low: over(point.low),
    high: over(point.high),
  }));
}

/** "Learned, TUPE: refused past 64 tokens." for each last length. */
function refusals(lines: Line[]): string[] {
  const names = new Map<number, string[]>();
  for (const { series, points, stops } of lines) {
    if (!stops) continue;
    const last = points[points.length - 1]!.x;
    names.set(last, [...(names.get(last) ?? []), series.title]);
  }
  return [...names].map(([last, titles]) => `${titles.join(', ')}: refused past ${last} tokens.`);
}

export function lossFigure(figure: HTMLElement, results: Results, shown: Shown): boolean {
  const task = tasksOf(results)[0] ?? '';
  const trained = trainLength(results, task);
  const lines: Line[] = shown.all.map((series) => {
    const { points, refused } = scoresOf(results, task, series.key, 'loss');
    return { series, points, stops: refused !== undefined };
  });
  const drawn = lines.filter((line) => line.points.length > 0);
  if (drawn.length === 0) return false;

  let view: View = 'loss';
  const box = element('div', { class: 'plot' });
  const axis = lengthAxis(drawn, trained);
  const redraw = drawToFit(box, (width) => {
    const chosen = drawn
      .filter(({ series }) => shown.has(series.key))
      .map((line) => (view === 'loss' ? line : { ...line, points: changes(line.points) }));
    const write = view === 'loss' ? format.loss : format.change;
    const label = view === 'loss' ? 'Loss, nats a token' : 'Loss against the same model’s at 1x';
    const chart = linesChart({
      width,
      height: width < 560 ? 400 : 460,
      label: `${label}, by length, for ${chosen.map(({ series }) => series.title).join(', ')}`,
      lines: chosen,
      x: axis,
      y: {
        label,
        domain: domainOf(chosen),
        format: (y) => (view === 'loss' ? format.short(y) : format.change(y).replace('.0', '')),
      },
      named: true,
      range: 'band',
      symbols: true,
      tip: ({ series }, { x, mean, low, high, seeds }) =>
        `${series.title}\n${x} tokens (${format.multiple(x, trained)})\n${write(mean)}` +
        (low < high ? `\n95 %: ${write(low)} to ${write(high)}` : '') +
        `\n${format.plural(seeds, 'seed')}`,
    });
    return chart;
  });
  shown.addEventListener('change', redraw);
  const views = choice<View>(
    'What the vertical axis shows',
    [
      { value: 'loss', title: 'Loss' },
      { value: 'change', title: 'Change against 1x' },
    ],
    (value) => {
      view = value;
      redraw();
    },
  )!;
  const keys = new Set(drawn.map(({ series }) => series.key));
  const caption = figure.querySelector('figcaption')!;
  caption.before(views, legend(figure, shown, keys), box);
  for (const sentence of refusals(drawn)) {
    caption.before(element('p', { class: 'refusals' }, `✕ ${sentence}`));
  }
  return true;
}
