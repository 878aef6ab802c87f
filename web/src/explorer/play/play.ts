// Play: any encoding with all of its options, and two of them side by side.
import { choice, element } from '../../dom';
import { flag, optionControl, select, slider } from '../controls';
import {
  CoreError,
  latest,
  Stopped,
  type Core,
  type Distance,
  type Field,
  type Info,
  type Pairs,
  type Property,
  type Scores,
  type Show,
} from '../core';
import { FigureBox } from '../figure';
import { largest } from '../heat';
import { Memo } from './memo';
import { propertyTable } from './properties';
import { capital, Side, type Kind } from './side';
import {
  MOST_TOKENS,
  NUMBERS,
  readState,
  START,
  writeState,
  type Choice,
  type State,
} from './state';

const subtract = (a: ArrayLike<number>, b: ArrayLike<number>) =>
  Float64Array.from(a, (value, n) => value - b[n]!);
const alike = (a: ArrayLike<number>[], b: ArrayLike<number>[]) =>
  a.length === b.length && a[0]?.length === b[0]?.length;

/** The default of an option as its text. */
function defaultOf({ default: fallback, type }: Field): string | undefined {
  if (fallback === null || fallback === 'None') return undefined;
  return type === 'flag' ? fallback.toLowerCase() : fallback;
}

/** "kind=power,width=8" as names and values. */
const pairsOf = (variant: string) =>
  variant.split(',').map((one) => one.split('=').map((part) => part.trim()) as [string, string]);

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
  private readonly memo = new Memo();
  private readonly changed: (() => void)[];

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
      // Figures come first: a check takes all of a core.
      latest(this.root, () => this.drawProperties(), 150),
      // Browsers take a few hundred changes of the address in ten seconds, fewer than a slider
      // makes: Chromium then warns, Safari throws.
      latest(this.root, () => this.writeAddress(), 150),
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

  /** What the options are before the reader changes any. */
  private start(encoding: string): Record<string, string> {
    return (this.state.trained && this.core.trained.of(encoding)?.options) || {};
  }

  private options({ encoding, options }: Choice): Record<string, string> {
    return { ...this.start(encoding), ...options };
  }

  /** Whether there is a trained table for just these sizes and options. */
  private isTrained(choice: Choice): boolean {
    const table = this.core.trained.of(choice.encoding);
    if (!this.state.trained || !table || !this.core.trained.fits(this.state)) return false;
    const fallback = new Map(
      this.info(choice).example_options.map((field) => [field.name, defaultOf(field)]),
    );
    return Object.entries(choice.options).every(
      ([name, value]) => value === (table.options[name] ?? fallback.get(name)),
    );
  }

  private question(ask: string, side: number, more: object = {}): object {
    const { heads, dim, length, seed, sides } = this.state;
    const choice = sides[side]!;
    const trained = this.isTrained(choice) ? { trained: true } : {};
    const { encoding } = choice;
    const options = this.options(choice);
    return { ask, encoding, options, heads, dim, length, seed, ...trained, ...more };
  }

  /** Asks for one figure of a side; the last answer where nothing of the question has changed. */
  private ask<T>(
    lane: 'show' | 'scores' | 'check',
    ask: string,
    side: number,
    more: object = {},
  ): Promise<T> {
    return this.memo.ask(`${ask} ${side}`, this.core[lane], this.question(ask, side, more));
  }

  /** Where the parameters of a side come from: nothing to say, or a note. */
  private parameters(choice: Choice): HTMLElement[] {
    if (!this.info(choice).trainable) return [];
    const { trained } = this.core;
    const table = trained.of(choice.encoding);
    if (table && this.isTrained(choice))
      return [element('p', { class: 'parameters' }, trained.story(table))];
    const note = element(
      'p',
      { class: 'parameters untrained' },
      'Not trained: a model trains these parameters, but here they hold random example values, which show the shape and reach of the encoding and not what a model learns. ',
    );
    if (table) {
      const { heads, dim, length } = trained.sizes;
      const button = element('button', { type: 'button' }, 'Show trained ones');
      button.addEventListener('click', () => {
        Object.assign(this.state, trained.sizes, { trained: true });
        choice.options = {};
        this.build();
        this.update();
      });
      note.append(
        `Trained ones are there for ${heads} heads of ${dim} channels and ${length} tokens. `,
        button,
      );
    }
    return [note];
  }

  private update(): void {
    // A check takes seconds of a processor that figures need.
    const places = this.state.sides.map((_, side) => side);
    if (places.some((side) => this.memo.isOther(`check ${side}`, this.question('check', side)))) {
      for (const side of places) this.memo.forget(`check ${side}`);
      this.core.check.stop();
      this.properties.setAttribute('aria-busy', 'true');
    }
    for (const one of this.changed) one();
  }

  private async writeAddress(): Promise<void> {
    // The reader may have left Play meanwhile.
    if (location.hash.startsWith('#play')) history.replaceState(null, '', writeState(this.state));
  }

  /** Controls and empty figures for the encodings of now. */
  private build(): void {
    const { state } = this;
    this.sides = state.sides.map(
      (choice, side) => new Side(`${'AB'[side]}: ${this.info(choice).title}`),
    );
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
    const presets = this.presets(chosen, info);
    if (presets.length > 1)
      box.append(
        element('div', { class: 'presets', role: 'group', 'aria-label': 'Variants' }, ...presets),
      );
    const options = this.options(chosen);
    for (const field of info.example_options)
      box.append(
        optionControl(field, options[field.name], (value) => {
          // What was emptied goes back to the start.
          if (value === undefined) delete chosen.options[field.name];
          else chosen.options[field.name] = value;
          this.update();
        }),
      );
    return box;
  }

  /** A button for each set of options that is worth a press. */
  private presets(chosen: Choice, info: Info): HTMLElement[] {
    const start = this.start(chosen.encoding);
    const button = (title: string, options: Record<string, string>) => {
      const made = element('button', { type: 'button' }, title);
      made.addEventListener('click', () => {
        chosen.options = options;
        this.build();
        this.update();
      });
      return made;
    };
    // The descriptor's own defaults, where a trained table has others.
    const defaults = Object.fromEntries(
      info.example_options
        .filter(({ name }) => name in start)
        .map((field) => [field.name, defaultOf(field) ?? '']),
    );
    const tied = Object.keys(start).length > 0;
    return [
      ...(tied ? [button('as trained', {})] : []),
      button('default', defaults),
      ...info.variants.map((variant) =>
        button(variant, { ...defaults, ...Object.fromEntries(pairsOf(variant)) }),
      ),
    ];
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
        'trained parameters, where there are any',
        this.state.trained,
        (value) => {
          this.state.trained = value;
          this.build();
          this.update();
          this.controls.querySelector<HTMLElement>('[name="trained"]')?.focus();
        },
        '',
        'trained',
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

  /** Counts in the document what was drawn. */
  private drew(what: 'drawn' | 'scored' | 'checked'): void {
    this.root.dataset[what] = String(Number(this.root.dataset[what] ?? 0) + 1);
  }

  private async drawPanels(): Promise<void> {
    const sides = this.sides;
    const { m, n } = this.state;
    const choices = this.state.sides;
    const answers = await this.each('panels', async (side) => {
      const [show, pairs] = await Promise.all([
        this.ask<Show>('show', 'show', side),
        this.ask<Pairs | null>('show', 'pairs', side, { positions: [m, n] }),
      ]);
      return { show, pairs };
    });
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
      const choice = choices[index]!;
      sides[index]!.describe(this.info(choice), answer.show, ...this.parameters(choice));
      sides[index]!.show(answer.show, scales);
      sides[index]!.showPairs(answer.pairs);
    });
    this.drew('drawn');
  }

  private async drawScores(): Promise<void> {
    const sides = this.sides;
    const { state } = this;
    const count = Math.min(state.length, MOST_TOKENS);
    const head = Math.max(1, Math.min(state.head, state.heads));
    const look = { head: head - 1, content: state.content };
    const answers = await this.each('scores', async (side) => {
      const [scores, distance] = await Promise.all([
        this.ask<Scores>('scores', 'scores', side, { ...look, count, causal: state.causal }),
        this.ask<Distance>('scores', 'distance', side, look),
      ]);
      return { scores, distance };
    });
    if (sides !== this.sides) return;
    const kind = state.weights ? 'weights' : 'logits';
    const rows = answers.map((answer) => answer?.scores[kind]);
    answers.forEach((answer, index) => {
      if (!answer) return;
      sides[index]!.showScores(answer.scores, {
        head,
        weights: state.weights,
        mark: state.m < count && state.n < count ? [state.m, state.n] : undefined,
        picked: (m, n) => {
          this.state.m = m;
          this.state.n = n;
          this.build();
          this.update();
        },
      });
      sides[index]!.showDistance(answer.distance);
    });
    this.drawDifference(
      rows,
      answers.map((answer) => answer?.distance),
    );
    this.drew('scored');
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
    const check = (side: number) => this.ask<{ properties: Property[] }>('check', 'check', side);
    const answers = await this.each('properties', check).catch((error: unknown) => {
      if (error instanceof Stopped) return [undefined];
      throw error;
    });
    if (sides !== this.sides || answers.some((one) => !one)) return;
    this.properties.replaceChildren(
      propertyTable(
        names,
        answers.map((one) => one!.properties),
      ),
    );
    this.properties.removeAttribute('aria-busy');
    this.drew('checked');
  }
}
