// RoPE past its training length by method: without and with fine-tuning.
import { drawToFit, element } from '../dom';
import * as format from '../format';
import { byLength, TEXT, trainLength, type Results } from '../results';
import { BASELINE, look, type Series } from '../series';
import { domainOf, lengthAxis, linesChart, type Line } from './lines';

const TITLES = new Map([
  ['none', 'As it is'],
  ['linear', 'Interpolation'],
  ['ntk', 'NTK'],
  ['dynamic', 'Dynamic NTK'],
  ['yarn', 'YaRN'],
]);

function seriesOf(method: string, number: number): Series {
  const style = method === 'none' ? BASELINE : look(number);
  return { key: method, title: TITLES.get(method) ?? method, ...style };
}

export function extensionFigure(figure: HTMLElement, results: Results): boolean {
  const { extensions } = results;
  const length = trainLength(results, TEXT);
  const methods = [...new Set(extensions.map(({ method }) => method))];
  // The plain model goes last in the numbering: it has the baseline's look.
  const colored = methods.filter((method) => method !== 'none');
  const panels = [...new Set(extensions.map((one) => one.fine_tune_steps))]
    .sort((a, b) => a - b)
    .map((steps) => ({
      title:
        steps === 0
          ? 'Without fine-tuning'
          : `After ${format.plural(steps, 'step')} of fine-tuning`,
      steps,
      lines: methods
        .map((method): Line => {
          const mine = extensions.filter(
            (one) => one.method === method && one.fine_tune_steps === steps,
          );
          return {
            series: seriesOf(method, colored.indexOf(method)),
            points: byLength(mine, 'loss'),
          };
        })
        .filter(({ points }) => points.length > 0),
    }))
    .filter(({ lines }) => lines.length > 0);
  if (panels.length === 0) return false;

  // What the models score where they were trained.
  const rope = results.runs.filter((run) => run.task === TEXT && run.encoding === 'rope');
  const trained = byLength(rope, 'loss').find(({ x }) => x === length);
  const domain = domainOf(
    panels.flatMap(({ lines }) => lines),
    trained ? [trained.mean] : [],
  );
  const boxes = panels.map(({ title, steps, lines }) => {
    const box = element('div', { class: 'plot', 'data-steps': String(steps) });
    drawToFit(box, (width) =>
      linesChart({
        width,
        height: 330,
        label: `Loss of RoPE by length and method of extension, ${title.toLowerCase()}`,
        lines,
        x: lengthAxis(lines, length),
        y: { label: 'Loss, nats a token', domain, format: format.short },
        named: true,
        range: 'bar',
        symbols: true,
        rule: trained?.mean,
        tip: ({ series }, { x, mean, low, high }) =>
          `${series.title}\n${x} tokens\n${format.loss(mean)}` +
          (low < high ? `\n${format.loss(low)} to ${format.loss(high)}` : ''),
      }),
    );
    return element('div', { class: 'panel' }, element('h3', {}, title), box);
  });
  figure.querySelector('figcaption')!.before(element('div', { class: 'panels large' }, ...boxes));
  return true;
}
