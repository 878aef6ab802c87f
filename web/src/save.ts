// Buttons under each figure that save it for a paper: the charts as one SVG file
// with its colours and letters inside, the numbers behind them as CSV.
import { element } from './dom';
import { tasksOf, type Evaluation, type Picture, type Results } from './results';

export type Cell = string | number | null | undefined;
export type Table = { head: string[]; rows: Cell[][] };

const ATTENTION = 'attention';

function evaluated(results: Results, tasks: string[]): Table {
  const rows = results.runs
    .filter(({ task }) => tasks.includes(task))
    .flatMap((run) =>
      (run.evaluations ?? []).map((one) => [
        run.task,
        run.encoding,
        run.seed,
        one.length,
        one.loss,
        one.accuracy,
        one.refused,
      ]),
    );
  return { head: ['task', 'encoding', 'seed', 'length', 'loss', 'accuracy', 'refused'], rows };
}

function costs(results: Results): Table {
  return {
    head: ['length', 'encoding', 'path', 'seconds_per_step', 'low', 'high', 'peak_memory_bytes'],
    rows: results.attention_cost.map((row) => [
      row.length,
      row.encoding,
      row.path,
      row.seconds_per_step,
      row.spread?.[0],
      row.spread?.[1],
      row.peak_memory_bytes,
    ]),
  };
}

function drawn(pictures: Picture[]): Table {
  const rows = pictures.flatMap((picture) =>
    picture.values.flatMap((line, y) =>
      line.map((value, x) => [
        picture.encoding,
        picture.title,
        picture.x_values[x],
        picture.y_values[y],
        value,
      ]),
    ),
  );
  return { head: ['encoding', 'picture', 'x', 'y', 'value'], rows };
}

/** The numbers behind each figure, all of its encodings. */
const TABLES: Record<string, (results: Results) => Table> = {
  loss: (results) => evaluated(results, tasksOf(results).slice(0, 1)),
  tasks: (results) => evaluated(results, tasksOf(results)),
  extension: ({ extensions }) => ({
    head: ['method', 'fine_tune_steps', 'seed', 'length', 'loss'],
    rows: extensions.flatMap((one) =>
      (one.evaluations ?? []).map(({ length, loss }: Evaluation) => [
        one.method,
        one.fine_tune_steps,
        one.seed,
        length,
        loss,
      ]),
    ),
  }),
  cost: costs,
  position: costs,
  speed: ({ runs }) => ({
    head: ['task', 'encoding', 'seed', 'tokens_per_second'],
    rows: runs.map((run) => [run.task, run.encoding, run.seed, run.tokens_per_second]),
  }),
  training: ({ runs }) => ({
    head: ['task', 'encoding', 'seed', 'step', 'loss'],
    rows: runs.flatMap((run) =>
      (run.loss_curve ?? []).map(({ step, loss }) => [
        run.task,
        run.encoding,
        run.seed,
        step,
        loss,
      ]),
    ),
  }),
  pictures: ({ pictures }) => drawn(pictures.filter(({ kind }) => kind !== ATTENTION)),
  attention: ({ pictures }) => drawn(pictures.filter(({ kind }) => kind === ATTENTION)),
};

/** RFC 4180; what a spreadsheet would take for a formula is text to it. */
export function csv({ head, rows }: Table): string {
  const cell = (value: Cell): string => {
    if (value === null || value === undefined) return '';
    if (typeof value === 'number') return String(value);
    const safe = /^[=+\-@\t\r]/u.test(value) ? `'${value}` : value;
    return /[",\r\n]/u.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [head, ...rows].map((row) => row.map(cell).join(',')).join('\r\n') + '\r\n';
}

// What makes up the look of a mark.
const STYLES = [
  ...['fill', 'fill-opacity', 'stroke', 'stroke-width', 'stroke-opacity', 'stroke-dasharray'],
  ...['stroke-linejoin', 'stroke-linecap', 'opacity', 'font-family', 'font-size', 'font-weight'],
  ...['font-variant', 'text-anchor', 'image-rendering'],
];

/** A copy that looks the same outside the page: no variables, classes or rules of its style. */
function standalone(svg: SVGSVGElement): SVGSVGElement {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  const copies = [copy, ...copy.querySelectorAll<SVGElement>('*')];
  [svg, ...svg.querySelectorAll<SVGElement>('*')].forEach((mark, index) => {
    const style = getComputedStyle(mark);
    const own = copies[index]!;
    for (const name of ['class', 'style', ...STYLES]) own.removeAttribute(name);
    for (const name of STYLES) own.style.setProperty(name, style.getPropertyValue(name));
  });
  for (const style of copy.querySelectorAll('style')) style.remove();
  return copy;
}

/** Charts one below the other, the legend of what is shown above them. */
export function joined(figure: HTMLElement): string {
  const space = 'http://www.w3.org/2000/svg';
  const whole = document.createElementNS(space, 'svg');
  const size = { width: 0, height: 0 };
  const place = (svg: SVGSVGElement, x: number, y: number): DOMRect => {
    const box = svg.getBoundingClientRect();
    const copy = standalone(svg);
    const at = { x, y, width: box.width, height: box.height };
    for (const [name, value] of Object.entries(at)) copy.setAttribute(name, String(value));
    whole.append(copy);
    return box;
  };
  const color = getComputedStyle(figure).color;
  const family = getComputedStyle(figure).fontFamily;
  let x = 0;
  for (const button of figure.querySelectorAll('.legend button[aria-pressed="true"]')) {
    const { width, height } = place(button.querySelector('svg')!, x, 4);
    const text = document.createElementNS(space, 'text');
    text.textContent = button.textContent;
    const look = { x: x + width + 4, y: 4 + height, fill: color, 'font-size': 14 };
    for (const [name, value] of Object.entries(look)) text.setAttribute(name, String(value));
    text.style.fontFamily = family;
    whole.append(text);
    x += width + 24 + 8 * (button.textContent ?? '').length;
    size.height = 28;
  }
  size.width = x;
  // Names of lines beside their colours, as many in a row as there is room for.
  const room = figure.getBoundingClientRect().width;
  let across = 0;
  for (const item of figure.querySelectorAll('.names li')) {
    const wide = 40 + 7.5 * (item.textContent ?? '').length;
    if (across === 0 || across + wide > room) {
      across = 0;
      size.height += 20;
    }
    const swatch = item.querySelector('i')!;
    const { color: ink, backgroundColor, opacity } = getComputedStyle(swatch);
    const fill = swatch.classList.contains('area') ? backgroundColor : ink;
    const mark = document.createElementNS(space, 'rect');
    const text = document.createElementNS(space, 'text');
    text.textContent = item.textContent;
    const set = (node: Element, look: object) => {
      for (const [name, value] of Object.entries(look)) node.setAttribute(name, String(value));
    };
    set(mark, { x: across, y: size.height - 9, width: 18, height: 4, fill, opacity });
    set(text, { x: across + 24, y: size.height - 2, fill: color, 'font-size': 13 });
    text.style.fontFamily = family;
    whole.append(mark, text);
    across += wide;
    size.width = Math.max(size.width, across);
  }
  size.height += across > 0 ? 8 : 0;
  for (const svg of figure.querySelectorAll<SVGSVGElement>('svg')) {
    if (svg.closest('.legend') || svg.parentElement?.closest('svg')) continue;
    const { width, height } = place(svg, 0, size.height);
    size.width = Math.max(size.width, width);
    size.height += height + 8;
  }
  whole.setAttribute('viewBox', `0 0 ${size.width} ${size.height}`);
  whole.setAttribute('width', String(size.width));
  whole.setAttribute('height', String(size.height));
  return new XMLSerializer().serializeToString(whole);
}

export function download(name: string, type: string, text: string | Blob): void {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = element('a', { href: address, download: name });
  link.click();
  // The browser reads it after the click.
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

/** Buttons below a figure that is drawn. */
export function addSaving(figure: HTMLElement, name: string, results: Results): void {
  const button = (title: string, save: () => void) => {
    const made = element('button', { type: 'button' }, title);
    made.addEventListener('click', save);
    return made;
  };
  const saving = element(
    'div',
    { class: 'save', role: 'group', 'aria-label': 'Save this figure' },
    button('Save as SVG', () => download(`${name}.svg`, 'image/svg+xml', joined(figure))),
    button('Data as CSV', () => download(`${name}.csv`, 'text/csv', csv(TABLES[name]!(results)))),
  );
  // A gallery is a grid of cards, which the buttons stand below.
  if (figure.tagName === 'FIGURE') figure.append(saving);
  else figure.after(saving);
}
