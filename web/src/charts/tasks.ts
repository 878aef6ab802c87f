// Accuracy by length: one small panel per task.
import { drawToFit, element } from '../dom';
import * as format from '../format';
import { legend } from '../legend';
import { scoresOf, tasksOf, TEXT, trainLength, type Results } from '../results';
import type { Shown } from '../series';
import { lengthAxis, linesChart, type Line } from './lines';

interface Panel {
  task: string;
  lines: Line[];
}

export function tasksFigure(figure: HTMLElement, results: Results, shown: Shown): boolean {
  const panels: Panel[] = tasksOf(results)
    .filter((task) => task !== TEXT)
    .map((task) => ({
      task,
      lines: shown.all.flatMap((series) => {
        const { points, refused } = scoresOf(results, task, series.key, 'accuracy');
        return points.length > 0 ? [{ series, points, stops: refused !== undefined }] : [];
      }),
    }))
    .filter(({ lines }) => lines.length > 0);
  if (panels.length === 0) return false;

  const boxes = panels.map(({ task, lines }) => {
    const box = element('div', { class: 'plot', 'data-task': task });
    const axis = lengthAxis(lines, trainLength(results, task));
    const redraw = drawToFit(box, (width) =>
      linesChart({
        width,
        height: 250,
        label: `Accuracy of the task ${task} by length`,
        lines: lines.filter(({ series }) => shown.has(series.key)),
        x: { ...axis, label: 'Length' },
        y: { label: 'Accuracy', domain: [0, 1], format: (y) => `${Math.round(100 * y)} %` },
        named: false,
        range: 'bar',
        symbols: true,
        tip: ({ series }, { x, mean, low, high, seeds }) =>
          `${series.title}\nlength ${x}\n${format.percent(mean)}` +
          (low < high ? `\n95 %: ${format.percent(low)} to ${format.percent(high)}` : '') +
          `\n${format.plural(seeds, 'seed')}`,
      }),
    );
    shown.addEventListener('change', redraw);
    return element('div', { class: 'panel' }, element('h3', {}, format.words(task)), box);
  });
  const keys = new Set(panels.flatMap(({ lines }) => lines.map(({ series }) => series.key)));
  figure
    .querySelector('figcaption')!
    .before(legend(figure, shown, keys), element('div', { class: 'panels' }, ...boxes));
  return true;
}
