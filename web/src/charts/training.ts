// Training loss by step, one task at a time.
import { choice, drawToFit, element } from '../dom';
import * as format from '../format';
import { legend } from '../legend';
import { pool, tasksOf, type Results } from '../results';
import type { Shown } from '../series';
import { domainOf, linesChart, type Line } from './lines';

function linesOf(results: Results, shown: Shown, task: string): Line[] {
  return shown.all.flatMap((series) => {
    const curves = results.runs
      .filter((run) => run.task === task && run.encoding === series.key)
      .map((run) =>
        (run.loss_curve ?? []).flatMap(({ step, loss }) =>
          typeof loss === 'number' ? [{ x: step, y: loss }] : [],
        ),
      )
      .filter((curve) => curve.length > 0);
    if (curves.length === 0) return [];
    const points = pool(curves.flat().map(({ x, y }) => ({ x, value: y })));
    return [{ series, points, faint: curves.length > 1 ? curves : [] }];
  });
}

/** From the first step with a loss to the last. */
function steps(lines: Line[]): [number, number] {
  const all = lines.flatMap(({ points }) => points.map(({ x }) => x));
  return [Math.min(...all), Math.max(...all)];
}

export function trainingFigure(figure: HTMLElement, results: Results, shown: Shown): boolean {
  const tasks = tasksOf(results)
    .map((task) => ({ task, lines: linesOf(results, shown, task) }))
    .filter(({ lines }) => lines.length > 0);
  let current = tasks[0];
  if (!current) return false;

  const box = element('div', { class: 'plot' });
  const redraw = drawToFit(box, (width) => {
    const lines = current!.lines.filter(({ series }) => shown.has(series.key));
    return linesChart({
      width,
      height: 400,
      label: `Training loss of the task ${current!.task} by step`,
      lines,
      x: {
        label: 'Step',
        log: false,
        domain: steps(current!.lines),
        format: (x) => (Number.isInteger(x) ? format.count(x) : ''),
      },
      y: { label: 'Training loss, nats a token', domain: domainOf(lines), format: format.short },
      named: true,
      range: 'none',
      symbols: false,
      tip: ({ series }, { x, mean }) => `${series.title}\nstep ${x}\n${format.loss(mean)}`,
    });
  });
  shown.addEventListener('change', redraw);
  const caption = figure.querySelector('figcaption')!;
  const picker = choice(
    'Task',
    tasks.map((value) => ({ value, title: format.words(value.task) })),
    (value) => {
      current = value;
      redraw();
    },
  );
  if (picker) caption.before(picker);
  const keys = new Set(tasks.flatMap(({ lines }) => lines.map(({ series }) => series.key)));
  caption.before(legend(figure, shown, keys), box);
  return true;
}
