// The buttons above a figure that show and hide its series.
import * as Plot from '@observablehq/plot';
import { element } from './dom';
import { classOf, type Series, type Shown } from './series';

/** A sample of a series: its line and its symbol. */
export function swatch(series: Series): Node {
  const middle = [{ x: 0.5 }];
  const drawn = Plot.plot({
    width: 30,
    height: 12,
    margin: 1,
    axis: null,
    x: { domain: [0, 1] },
    y: { domain: [-1, 1] },
    marks: [
      Plot.ruleY([0], { stroke: series.color, strokeWidth: 2, strokeDasharray: series.dash }),
      Plot.dot(middle, { x: 'x', y: () => 0, r: 3.5, symbol: series.symbol, fill: series.color }),
    ],
  });
  drawn.setAttribute('aria-hidden', 'true');
  return drawn;
}

/** Pointing at or focusing a button of the legend fades the other series of `figure`. */
function fade(figure: HTMLElement, key: string | undefined): void {
  const own = key === undefined ? undefined : classOf(key);
  for (const mark of figure.querySelectorAll<SVGElement>('[class*="series-"]')) {
    mark.classList.toggle('faded', own !== undefined && !mark.classList.contains(own));
  }
}

export function legend(figure: HTMLElement, shown: Shown, keys: Set<string>): HTMLElement {
  const buttons = shown.all
    .filter((series) => keys.has(series.key))
    .map((series) => {
      const button = element('button', { type: 'button' }, swatch(series), series.title);
      const show = () => button.setAttribute('aria-pressed', String(shown.has(series.key)));
      shown.addEventListener('change', show);
      show();
      button.addEventListener('click', () => shown.toggle(series.key));
      for (const enter of ['pointerenter', 'focus']) {
        button.addEventListener(enter, () => shown.has(series.key) && fade(figure, series.key));
      }
      for (const leave of ['pointerleave', 'blur']) {
        button.addEventListener(leave, () => fade(figure, undefined));
      }
      return button;
    });
  const all = element('button', { type: 'button', class: 'all' }, 'Show all');
  all.addEventListener('click', () => shown.showAll());
  const showAll = () => {
    all.hidden = shown.complete;
  };
  shown.addEventListener('change', showAll);
  showAll();
  return element(
    'div',
    { class: 'legend', role: 'group', 'aria-label': 'Encodings shown' },
    ...buttons,
    all,
  );
}
