// Play: any encoding with all of its options, and two of them side by side.
import { choice, element } from '../dom';
import { short } from '../format';
import { flag, optionControl, select, slider } from './controls';
import {
  CoreError,
  latest,
  type Core,
  type CurvesPanel,
  type Distance,
  type HeatPanel,
  type Info,
  type Pairs,
  type Property,
  type Scores,
  type Show,
} from './core';
import { dialsChart, dialsKey } from './dials';
import { FigureBox } from './figure';
import { largest } from './heat';

interface Choice {
  encoding: string;
  options: Record<string, string>;
}

interface State {
  sides: Choice[]; // one or two
  heads: number;
  dim: number;
  length: number;
  seed: number;
  head: number;
  content: 'matching' | 'random' | 'none';
  causal: boolean;
  weights: boolean;
  m: number;
  n: number;
}

const START: State = {
  sides: [{ encoding: 'rope', options: {} }],
  heads: 8,
  dim: 64,
  length: 128,
  seed: 1,
  head: 1,
  content: 'matching',
  causal: false,
  weights: false,
  m: 40,
  n: 30,
};

/** Tokens of the matrix: more cannot be told apart on a screen. */
const MOST_TOKENS = 96;
const NUMBERS = ['heads', 'dim', 'length', 'seed', 'head', 'm', 'n'] as const;

/** "#play?a=rope&a.base=500&length=256". */
export function writeState(state: State): string {
  const query = new URLSearchParams();
  state.sides.forEach(({ encoding, options }, side) => {
    const name = 'ab'[side]!;
    query.set(name, encoding);
    for (const [option, value] of Object.entries(options)) query.set(`${name}.${option}`, value);
  });
  for (const name of NUMBERS) if (state[name] !== START[name]) query.set(name, String(state[name]));
  if (state.content !== START.content) query.set('content', state.content);
  if (state.causal) query.set('causal', '1');
  if (state.weights) query.set('weights', '1');
  return `#play?${query}`;
}

export function readState(hash: string, known: Info[]): State {
  const query = new URLSearchParams(hash.split('?')[1] ?? '');
  const state: State = { ...START, sides: [] };
  for (const name of ['a', 'b']) {
    const info = known.find((one) => one.name === query.get(name));
    if (!info) continue;
    const options: Record<string, string> = {};
    for (const { name: option } of info.example_options) {
      const value = query.get(`${name}.${option}`);
      if (value !== null) options[option] = value;
    }
    state.sides.push({ encoding: info.name, options });
  }
  if (state.sides.length === 0) state.sides = [{ encoding: 'rope', options: {} }];
  for (const name of NUMBERS) {
    const value = Number(query.get(name) ?? START[name]);
    if (Number.isInteger(value) && value >= 0) state[name] = value;
  }
  const content = query.get('content');
  if (content === 'random' || content === 'none') state.content = content;
  state.causal = query.get('causal') === '1';
  state.weights = query.get('weights') === '1';
  return state;
}

const VERDICTS = { yes: 'yes', no: 'no', 'does not apply': '–' };

function propertyTable(names: string[], reports: Property[][]): HTMLElement {
  const rows = (reports[0] ?? []).map((property, index) => {
    const cells = reports.map((report) => {
      const found = report[index]!;
      const number = found.value === null ? '' : ` ${short(found.value)}`;
      return element(
        'td',
        {
          class: `verdict ${found.verdict === 'yes' ? 'is' : found.verdict === 'no' ? 'is-not' : ''}`,
          title: found.measure,
        },
        element('b', {}, VERDICTS[found.verdict]),
        element('small', {}, number),
      );
    });
    return element(
      'tr',
      {},
      element('th', { scope: 'row' }, property.name, element('small', {}, property.question)),
      ...cells,
      ...(reports.length === 1 ? [element('td', {}, reports[0]![index]!.sentence)] : []),
    );
  });
  const head = ['Property', ...names, ...(reports.length === 1 ? ['Finding'] : [])];
  return element(
    'table',
    { class: 'properties' },
    element('caption', {}, 'Measured now, on random tokens: the verdict and the number behind it'),
    element(
      'thead',
      {},
      element('tr', {}, ...head.map((title) => element('th', { scope: 'col' }, title))),
    ),
    element('tbody', {}, ...rows),
  );
}

type Kind = 'panels' | 'scores' | 'properties';

/** Everything that is drawn of one side. */
class Side {
  readonly root: HTMLElement;
  private readonly about = element('div', { class: 'about-encoding' });
  private readonly problem = element('p', { class: 'problem', role: 'alert', hidden: '' });
  private readonly problems = new Map<Kind, string>();
  private readonly panels: FigureBox[] = [];
  private readonly panelBox = element('div', {});
  readonly matrix = new FigureBox('scores', 'Score of each query on each key', true);
  readonly distance = new FigureBox('distance', 'Score against distance');
  readonly dials = new FigureBox('dials', 'Rotated pairs');
  private readonly dialsBox: HTMLElement;
  private readonly dialsNames = element('div', {});

  constructor(title: string) {
    this.dialsBox = element('div', { hidden: '' }, this.dialsNames, this.dials.root);
    this.root = element(
      'section',
      { class: 'side', 'aria-label': title },
      this.about,
      this.problem,
      this.panelBox,
      this.matrix.root,
      this.distance.root,
      this.dialsBox,
    );
  }

  /** What went wrong in one kind of figure; nothing: it is drawn. */
  say(kind: Kind, sentence: string): void {
    this.problems.set(kind, sentence);
    const said = [...new Set([...this.problems.values()].filter(Boolean))].join(' ');
    this.problem.textContent = said;
    this.problem.hidden = said === '';
    this.root.classList.toggle('stale', said !== '');
  }

  describe(info: Info, show: Show): void {
    const untrained = info.trainable
      ? [
          element(
            'p',
            { class: 'untrained' },
            'Its parameters are trained in reality. Here they hold example values that nobody trained, so the picture shows their shape and reach, not what a model learns.',
          ),
        ]
      : [];
    this.about.replaceChildren(
      element('h3', {}, info.title),
      element(
        'p',
        { class: 'formula', tabindex: '0', role: 'group', 'aria-label': 'Formula' },
        info.formula,
      ),
      element(
        'p',
        { class: 'facts' },
        `${info.reference === 'none' ? 'No position' : `${info.reference === 'relative' ? 'Relative' : 'Absolute'}, enters at ${show.terms.join(', ') || 'nothing'}`}. ${info.paper ? `${info.paper}. ` : ''}${info.models ? `Used by ${info.models}.` : ''}`,
      ),
      ...untrained,
    );
  }

  show(show: Show, scale: (number | undefined)[]): void {
    while (this.panels.length > show.panels.length) this.panels.pop()!.root.remove();
    while (this.panels.length < show.panels.length) {
      const box = new FigureBox('panel', '');
      this.panels.push(box);
      this.panelBox.append(box.root);
    }
    show.panels.forEach((panel, index) => drawPanel(this.panels[index]!, panel, scale[index]));
  }

  showPairs(pairs: Pairs | null, m: number, n: number): void {
    this.dialsBox.hidden = pairs === null;
    if (!pairs) return;
    this.dialsNames.replaceChildren(dialsKey(m, n));
    this.dials.own(
      (width) => dialsChart(pairs, width),
      () => ({
        head: ['pair', 'wavelength', 'cos_m', 'sin_m', 'cos_n', 'sin_n'],
        rows: pairs.pairs.map(({ wavelength }, p) => [
          p,
          wavelength,
          ...pairs.at.flatMap(({ cos, sin }) => [cos[p], sin[p]]),
        ]),
      }),
    );
  }

  redraw(): void {
    for (const box of [...this.panels, this.matrix, this.distance, this.dials]) box.redraw();
  }
}

const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

function drawPanel(box: FigureBox, panel: HeatPanel | CurvesPanel, most?: number): void {
  if (panel.kind === 'heatmap') {
    box.title(capital(panel.title || `${panel.value_label}, by ${panel.x_label}`));
    box.heat({
      label: panel.title || panel.value_label,
      x: panel.x_label,
      y: panel.y_label,
      firstX: panel.first_x,
      firstY: panel.first_y,
      values: panel.values,
      colours: 'centred',
      ...(most ? { most } : {}),
    });
    return;
  }
  box.title(capital(panel.title || panel.y_label));
  box.lines({
    label: panel.title || panel.y_label,
    x: panel.x_label,
    y: panel.y_label,
    lines: panel.curves.map(({ label, y }) => ({ label, x: panel.x, y })),
    ...(panel.band
      ? {
          band: { label: panel.band.label, x: panel.x, low: panel.band.low, high: panel.band.high },
        }
      : {}),
  });
}

const subtract = (a: ArrayLike<number>, b: ArrayLike<number>) =>
  Float64Array.from(a, (value, n) => value - b[n]!);
const alike = (a: ArrayLike<number>[], b: ArrayLike<number>[]) =>
  a.length === b.length && a[0]?.length === b[0]?.length;

export class Play {
  private state: State = START;
  private readonly controls = element('form', { class: 'controls', 'aria-label': 'Settings' });
  private readonly views = element('div', { class: 'views' });
  private readonly properties = element('div', {
    class: 'scroll',
    tabindex: '0',
    role: 'region',
    'aria-label': 'Properties',
  });
  private readonly difference = element('section', {
    class: 'difference',
    'aria-label': 'Difference',
    hidden: '',
  });
  private readonly differenceMatrix = new FigureBox(
    'difference-scores',
    'Score: first minus second',
    true,
  );
  private readonly differenceDistance = new FigureBox(
    'difference-distance',
    'Both against distance',
  );
  private sides: Side[] = [];
  private shown: (Show | undefined)[] = [];
  private readonly changed: (() => void)[];
  /** Milliseconds from a change to figures in the document, newest last. */
  readonly latencies: number[] = [];
  private began = 0;

  constructor(
    private readonly root: HTMLElement,
    private readonly core: Core,
    private readonly known: Info[],
  ) {
    this.controls.addEventListener('submit', (event) => event.preventDefault());
    this.difference.append(
      element('h3', {}, 'The two together'),
      this.differenceMatrix.root,
      this.differenceDistance.root,
    );
    this.root.replaceChildren(
      this.controls,
      element('div', { class: 'stage' }, this.views, this.difference, this.properties),
    );
    this.changed = [
      latest(this.root, () => this.drawPanels()),
      latest(this.root, () => this.drawScores()),
      latest(this.root, () => this.drawProperties()),
    ];
  }

  open(hash: string): void {
    // "#play" alone comes back to what was open.
    if (hash.includes('?') || this.sides.length === 0) this.state = readState(hash, this.known);
    this.build();
    this.update();
  }

  redraw(): void {
    for (const side of this.sides) side.redraw();
    this.differenceMatrix.redraw();
    this.differenceDistance.redraw();
  }

  private info(choice: Choice): Info {
    return this.known.find(({ name }) => name === choice.encoding)!;
  }

  private question(ask: string, side: number, more: object = {}): object {
    const { heads, dim, length, seed, sides } = this.state;
    const { encoding, options } = sides[side]!;
    return { ask, encoding, options, heads, dim, length, seed, ...more };
  }

  private update(): void {
    this.began = performance.now();
    history.replaceState(null, '', writeState(this.state));
    for (const one of this.changed) one();
  }

  /** Controls and empty figures for the encodings of now. */
  private build(): void {
    const { state } = this;
    this.sides = state.sides.map(
      (choice, side) => new Side(`${'AB'[side]}: ${this.info(choice).title}`),
    );
    this.shown = state.sides.map(() => undefined);
    this.views.replaceChildren(...this.sides.map(({ root }) => root));
    this.views.classList.toggle('two', state.sides.length === 2);
    this.difference.hidden = state.sides.length < 2;
    this.properties.replaceChildren();
    this.controls.replaceChildren(
      ...state.sides.map((_, side) => this.encodingControls(side)),
      this.compareButton(),
      this.sizeControls(),
      this.lookControls(),
    );
  }

  private encodingControls(side: number): HTMLElement {
    const chosen = this.state.sides[side]!;
    const info = this.info(chosen);
    const groups: Record<string, { value: string; title: string }[]> = {};
    for (const one of this.known) {
      const group = { none: 'No position', absolute: 'Absolute', relative: 'Relative' }[
        one.reference
      ];
      (groups[group] ??= []).push({ value: one.name, title: one.title });
    }
    const box = element(
      'fieldset',
      { 'data-side': 'ab'[side]! },
      element('legend', {}, this.state.sides.length === 2 ? `Encoding ${'AB'[side]}` : 'Encoding'),
      select('Encoding', groups, chosen.encoding, (encoding) => {
        this.state.sides[side] = { encoding, options: {} };
        this.build();
        this.update();
        this.controls.querySelectorAll<HTMLElement>('fieldset[data-side] select')[side]?.focus();
      }),
    );
    if (info.variants.length > 0) {
      const presets = element('div', { class: 'presets', role: 'group', 'aria-label': 'Variants' });
      for (const variant of ['', ...info.variants]) {
        const button = element('button', { type: 'button' }, variant || 'default');
        button.addEventListener('click', () => {
          chosen.options = Object.fromEntries(
            variant
              .split(',')
              .filter(Boolean)
              .map((one) => one.split('=').map((part) => part.trim()) as [string, string]),
          );
          this.build();
          this.update();
        });
        presets.append(button);
      }
      box.append(presets);
    }
    for (const field of info.example_options)
      box.append(
        optionControl(field, chosen.options[field.name], (value) => {
          if (value === undefined) delete chosen.options[field.name];
          else chosen.options[field.name] = value;
          this.update();
        }),
      );
    return box;
  }

  private compareButton(): HTMLElement {
    const two = this.state.sides.length === 2;
    const button = element(
      'button',
      { type: 'button', class: 'primary', id: 'compare' },
      two ? 'Close the second encoding' : 'Compare with a second encoding',
    );
    button.addEventListener('click', () => {
      const [first] = this.state.sides;
      this.state.sides = two
        ? [first!]
        : [first!, { encoding: first!.encoding === 'alibi' ? 'rope' : 'alibi', options: {} }];
      this.build();
      this.update();
      this.controls.querySelector<HTMLElement>('#compare')?.focus();
    });
    return button;
  }

  private number(
    name: (typeof NUMBERS)[number],
    label: string,
    lowest: number,
    highest: number,
    step = 1,
    logarithmic = false,
  ): HTMLElement {
    return slider({
      label,
      name,
      value: Math.min(highest, Math.max(lowest, this.state[name])),
      whole: true,
      range: { lowest, highest, step, logarithmic },
      changed: (value) => {
        this.state[name] = value;
        this.update();
      },
    });
  }

  private sizeControls(): HTMLElement {
    return element(
      'fieldset',
      {},
      element('legend', {}, 'Sizes'),
      this.number('length', 'trained length', 16, 512, 8),
      this.number('dim', 'channels of a head', 8, 128, 8),
      this.number('heads', 'heads', 1, 16),
      this.number('seed', 'seed of random numbers', 1, 20),
    );
  }

  private lookControls(): HTMLElement {
    const contents = [
      { value: 'matching', title: 'all the same' },
      { value: 'random', title: 'random' },
      { value: 'none', title: 'empty' },
    ] as const;
    const ordered = [...contents].sort(
      (a, b) => Number(b.value === this.state.content) - Number(a.value === this.state.content),
    );
    return element(
      'fieldset',
      {},
      element('legend', {}, 'What is drawn'),
      element('p', { class: 'label' }, 'content of the tokens'),
      choice('Content of the tokens', ordered, (value) => {
        this.state.content = value;
        this.update();
      })!,
      this.number('head', 'head', 1, 16),
      this.number('m', 'query position m', 0, MOST_TOKENS - 1),
      this.number('n', 'key position n', 0, MOST_TOKENS - 1),
      flag(
        'show weights after softmax',
        this.state.weights,
        (value) => {
          this.state.weights = value;
          this.update();
        },
        '',
        'weights',
      ),
      flag(
        'causal mask',
        this.state.causal,
        (value) => {
          this.state.causal = value;
          this.update();
        },
        '',
        'causal',
      ),
    );
  }

  /** Runs `ask` for a side; the core's sentence is shown where it refuses. */
  private async each<T>(
    kind: Kind,
    work: (side: number) => Promise<T>,
  ): Promise<(T | undefined)[]> {
    const sides = this.sides;
    return Promise.all(
      sides.map(async (side, index) => {
        try {
          const answer = await work(index);
          side.say(kind, '');
          return answer;
        } catch (error) {
          if (!(error instanceof CoreError)) throw error;
          side.say(kind, `${capital(error.message)}.`);
          return undefined;
        }
      }),
    );
  }

  private async drawPanels(): Promise<void> {
    const { began } = this;
    const sides = this.sides;
    const { m, n } = this.state;
    const choices = this.state.sides;
    const answers = await this.each('panels', async (side) => ({
      show: await this.core.show.ask<Show>(this.question('show', side)),
      pairs: await this.core.show.ask<Pairs | null>(
        this.question('pairs', side, { positions: [m, n] }),
      ),
    }));
    if (sides !== this.sides) return;
    const scales = (answers[0]?.show.panels ?? []).map((panel, index) => {
      const other = answers[1]?.show.panels[index];
      if (panel.kind !== 'heatmap' || other?.kind !== 'heatmap') return undefined;
      return panel.value_label === other.value_label
        ? Math.max(largest(panel.values), largest(other.values))
        : undefined;
    });
    answers.forEach((answer, index) => {
      if (!answer) return;
      sides[index]!.describe(this.info(choices[index]!), answer.show);
      sides[index]!.show(answer.show, scales);
      sides[index]!.showPairs(answer.pairs, m, n);
      this.shown[index] = answer.show;
    });
    this.latencies.push(performance.now() - began);
    this.root.dataset['drawn'] = String(this.latencies.length);
  }

  private async drawScores(): Promise<void> {
    const sides = this.sides;
    const { state } = this;
    const count = Math.min(state.length, MOST_TOKENS);
    const head = Math.max(1, Math.min(state.head, state.heads));
    const look = { head: head - 1, content: state.content };
    const answers = await this.each('scores', async (side) => ({
      scores: await this.core.scores.ask<Scores>(
        this.question('scores', side, { ...look, count, causal: state.causal }),
      ),
      distance: await this.core.scores.ask<Distance>(this.question('distance', side, look)),
    }));
    if (sides !== this.sides) return;
    const kind = state.weights ? 'weights' : 'logits';
    const rows = answers.map((answer) => answer?.scores[kind]);
    const words = state.weights ? 'Attention weight' : 'Score';
    answers.forEach((answer, index) => {
      if (!answer) return;
      const side = sides[index]!;
      side.matrix.title(`${words} of each query on each key, head ${head}`);
      side.matrix.heat({
        label: `${words}, query by key`,
        x: 'key n',
        y: 'query m',
        firstX: 0,
        firstY: 0,
        values: answer.scores[kind],
        colours: state.weights ? 'weights' : 'centred',
        ...(state.m < count && state.n < count
          ? { mark: [state.m, state.n] as [number, number] }
          : {}),
        picked: (m, n) => {
          this.state.m = m;
          this.state.n = n;
          this.build();
          this.update();
        },
      });
      const { x, mean, low, high } = answer.distance;
      side.distance.title(
        'Score against distance',
        'The line is the mean over contents and query positions, the band their whole range. A relative encoding with contents all alike has no band but that of the contents.',
      );
      side.distance.lines({
        label: 'Score against distance',
        x: 'distance m − n',
        y: 'score',
        lines: [{ label: 'mean', x, y: mean }],
        band: { label: 'range over contents and places', x, low, high },
      });
    });
    this.drawDifference(
      rows,
      answers.map((answer) => answer?.distance),
    );
    this.root.dataset['scored'] = String(Number(this.root.dataset['scored'] ?? 0) + 1);
  }

  private drawDifference(
    rows: (ArrayLike<number>[] | undefined)[],
    distances: (Distance | undefined)[],
  ): void {
    const [a, b] = rows;
    const [first, second] = distances;
    if (!a || !b || !first || !second || !alike(a, b)) return;
    this.differenceMatrix.heat({
      label: 'Difference of scores',
      x: 'key n',
      y: 'query m',
      firstX: 0,
      firstY: 0,
      values: a.map((row, n) => subtract(row, b[n]!)),
      colours: 'centred',
    });
    this.differenceDistance.lines({
      label: 'Score against distance of both',
      x: 'distance m − n',
      y: 'score',
      lines: [first, second].map(({ x, mean }, index) => ({
        label: this.info(this.state.sides[index]!).title,
        x,
        y: mean,
      })),
    });
  }

  private async drawProperties(): Promise<void> {
    const sides = this.sides;
    const names = this.state.sides.map((choice) => this.info(choice).title);
    const answers = await this.each('properties', (side) =>
      this.core.check.ask<{ properties: Property[] }>(this.question('check', side)),
    );
    if (sides !== this.sides || answers.some((one) => !one)) return;
    this.properties.replaceChildren(
      propertyTable(
        names,
        answers.map((one) => one!.properties),
      ),
    );
    this.root.dataset['checked'] = String(Number(this.root.dataset['checked'] ?? 0) + 1);
  }
}
