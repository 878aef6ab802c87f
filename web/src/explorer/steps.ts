// The twelve steps. Numbers come from the core; only the papers' own measurements
// are written here, with their source.
import { choice, element } from '../dom';
import { slider, flag } from './controls';
import {
  latest,
  type Core,
  type HeatPanel,
  type Info,
  type Pairs,
  type Scores,
  type Show,
  type CurvesPanel,
  type Distance,
} from './core';
import { dialsChart, dialsKey } from './dials';
import { FigureBox } from './figure';

export interface Live {
  redraw(): void;
}

export interface Step {
  title: string;
  text: string[];
  question: string;
  options: string[];
  right: number;
  answer: string[];
  build(stage: HTMLElement, core: Core, known: Info[]): Live;
}

/** Figures and controls of a step, redrawn when something moves. */
class Stage implements Live {
  private readonly boxes: FigureBox[] = [];
  private readonly panel = element('div', { class: 'step-controls' });
  private readonly update: () => void;

  constructor(
    private readonly root: HTMLElement,
    draw: () => Promise<void>,
  ) {
    root.append(this.panel);
    this.update = latest(root, draw);
  }

  figure(kind: string, title: string, square = false): FigureBox {
    const box = new FigureBox(kind, title, square);
    this.boxes.push(box);
    this.root.append(box.root);
    return box;
  }

  add(...controls: (HTMLElement | undefined)[]): void {
    this.panel.append(...controls.filter((one): one is HTMLElement => one !== undefined));
  }

  slider(
    label: string,
    value: number,
    lowest: number,
    highest: number,
    set: (value: number) => void,
    step = 1,
    logarithmic = false,
  ): void {
    this.add(
      slider({
        label,
        value,
        whole: true,
        range: { lowest, highest, step, logarithmic },
        changed: (next) => {
          set(next);
          this.update();
        },
      }),
    );
  }

  choose<T>(label: string, options: { value: T; title: string }[], set: (value: T) => void): void {
    this.add(
      choice(label, options, (value) => {
        set(value);
        this.update();
      }),
    );
  }

  flag(label: string, value: boolean, set: (value: boolean) => void): void {
    this.add(
      flag(label, value, (next) => {
        set(next);
        this.update();
      }),
    );
  }

  button(title: string, act: () => void): void {
    const made = element('button', { type: 'button', class: 'quiet' }, title);
    made.addEventListener('click', () => {
      act();
      this.update();
    });
    this.add(made);
  }

  note(): HTMLElement {
    const made = element('p', { class: 'note', role: 'status' });
    this.root.append(made);
    return made;
  }

  start(): this {
    this.update();
    return this;
  }

  redraw(): void {
    for (const box of this.boxes) box.redraw();
  }
}

const heatOf = (show: Show) => show.panels[0] as HeatPanel;
const curvesOf = (show: Show) => show.panels[0] as CurvesPanel;
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n);

function drawHeat(box: FigureBox, panel: HeatPanel): void {
  box.heat({
    label: panel.value_label,
    x: panel.x_label,
    y: panel.y_label,
    firstX: panel.first_x,
    firstY: panel.first_y,
    values: panel.values,
    colours: 'centred',
  });
}

function drawDials(box: FigureBox, pairs: Pairs, m: number, n: number, most: number): void {
  box.root.querySelector('.dials-key')?.remove();
  const key = dialsKey(m, n);
  key.classList.add('dials-key');
  box.root.querySelector('.plot')!.before(key);
  box.own(
    (width) => dialsChart(pairs, width, most),
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

const whyPosition: Step = {
  title: 'Why attention needs position',
  text: [
    'Attention compares every token with every other. A score is the dot product of a query and a key, made from the words alone. Nothing in it knows which word came first.',
    'The figure shows how much each word of a sentence attends to each other. Shuffle the sentence and watch the rows and columns. Then add positions and shuffle again.',
  ],
  question: 'Without positions, “dog” and “man” trade places. What happens to the map?',
  options: [
    'Every number in it changes.',
    'Rows and columns trade places, and no number changes.',
    'All weights become equal.',
  ],
  right: 1,
  answer: [
    'A sum over all keys does not care about their order. So the outputs are shuffled exactly as the inputs were: attention is *equivariant to permutations*. “the dog bit the man” and “the man bit the dog” are one bag of words.',
    'A causal mask breaks this: a token then sees only what came before, and can count it. That is why decoders learn something even without an encoding.',
  ],
  build(root, core) {
    const words = ['the', 'dog', 'bit', 'the', 'man'];
    const id = (word: string) => ['the', 'dog', 'bit', 'man'].indexOf(word);
    let order = [0, 1, 2, 3, 4];
    let placed = false;
    const stage = new Stage(root, async () => {
      const now = order.map((n) => words[n]!);
      const scores = await core.scores.ask<Scores>({
        ask: 'scores',
        encoding: placed ? 'sinusoidal' : 'none',
        heads: 1,
        dim: 32,
        length: 8,
        count: now.length,
        content: 'random',
        words: now.map(id),
      });
      box.title(`Attention of “${now.join(' ')}”`);
      box.heat({
        label: 'Attention weights',
        x: 'key',
        y: 'query',
        firstX: 0,
        firstY: 0,
        values: scores.weights,
        colours: 'weights',
        most: 1,
        names: now,
      });
      const at = (row: string, column: string) =>
        scores.weights[now.indexOf(row)]![now.indexOf(column)]!;
      note.textContent = `“dog” attends to “man” with weight ${at('dog', 'man').toFixed(4)}, and “man” to “dog” with ${at('man', 'dog').toFixed(4)}.`;
    });
    stage.button('Swap dog and man', () => {
      order = order.map((n) => (n === 1 ? 4 : n === 4 ? 1 : n));
    });
    stage.button('Shuffle', () => {
      // A rotation of the sentence and a swap: always another order.
      order = [...order.slice(2), ...order.slice(0, 2)];
      [order[0], order[1]] = [order[1]!, order[0]!];
    });
    stage.flag('add positions (sinusoidal)', false, (value) => {
      placed = value;
    });
    const box = stage.figure('attention', 'Attention', true);
    const note = stage.note();
    return stage.start();
  },
};

const theIndex: Step = {
  title: 'Just add the index',
  text: [
    'The first idea: add the position number m to the token. It is ordered, and no two positions look alike. But word features are of size one, and at position 500 position is all there is.',
    'The second idea: divide by the length, so that the number stays between 0 and 1. Move the length and watch the two lines.',
  ],
  question: 'Dividing by the length keeps the number bounded. What does it break?',
  options: [
    'The order of tokens.',
    'Position 5 of a short text and position 5 of a long one are no longer the same.',
    'Nothing; it should be used everywhere.',
  ],
  right: 1,
  answer: [
    'The step from one word to the next now depends on the length of the text. What a model learned about “the next word” at length 10 is wrong at length 100. `locus check normalised-index` measures this as *length-invariant: no*, and `locus check index` says *bounded: no*.',
  ],
  build(root, core) {
    let length = 64;
    const stage = new Stage(root, async () => {
      const ask = (encoding: string) =>
        core.show.ask<Show>({ ask: 'show', encoding, length, heads: 1, dim: 8 });
      const [index, share] = await Promise.all([ask('index'), ask('normalised-index')]);
      const line = (show: Show) => heatOf(show).values[0]!;
      plain.lines({
        label: 'The index by position',
        x: 'position',
        y: 'added to x',
        lines: [{ label: 'index', x: numbers(length), y: line(index) }],
        zero: true,
        height: 200,
      });
      divided.lines({
        label: 'The index over the length by position',
        x: 'position',
        y: 'added to x',
        lines: [{ label: 'index / (length − 1)', x: numbers(length), y: line(share) }],
        marks: [{ at: 5, label: `position 5: ${line(share)[5]!.toFixed(3)}` }],
        height: 200,
      });
    });
    stage.slider('length of the text', length, 8, 512, (value) => {
      length = value;
    });
    const plain = stage.figure('index', 'The index grows without bound');
    const divided = stage.figure('normalised', 'Divided by the length, it is bounded');
    return stage.start();
  },
};

const binary: Step = {
  title: 'Binary digits',
  text: [
    'One number was not enough, so use several. Write the position in binary, one digit per channel. Every digit is 0 or 1, every row differs, and the length does not matter.',
    'Each row of the picture is a channel. The first alternates at every position, the next half as often, and so on: a square wave of every period.',
  ],
  question: 'From position 63 to 64, how many digits change at once?',
  options: ['One', 'Two', 'Seven'],
  right: 2,
  answer: [
    '63 is 0111111 and 64 is 1000000: seven digits flip, and two neighbours end up as far apart as any two positions can be. The code jumps where position moves smoothly (`locus check binary`: continuous no). The repair is in the picture: keep the waves and make them smooth.',
  ],
  build(root, core) {
    let m = 63;
    const stage = new Stage(root, async () => {
      const show = await core.show.ask<Show>({
        ask: 'show',
        encoding: 'binary',
        length: 128,
        heads: 1,
        dim: 8,
      });
      const panel = heatOf(show);
      drawHeat(box, panel);
      const digits = (at: number) => panel.values.map((row) => row[at]!);
      const [here, next] = [digits(m), digits(m + 1)];
      const flips = here.filter((value, n) => value !== next[n]).length;
      const text = (row: number[]) =>
        [...row]
          .reverse()
          .join('')
          .replace(/^0(?=\d{7})/, '');
      note.textContent = `${m} is ${text(here)}, ${m + 1} is ${text(next)}: ${flips} ${flips === 1 ? 'digit changes' : 'digits change'}.`;
    });
    stage.slider('position m', m, 0, 126, (value) => {
      m = value;
    });
    const box = stage.figure('binary', 'Binary digits by position');
    const note = stage.note();
    return stage.start();
  },
};

const sines: Step = {
  title: 'Sines instead of digits',
  text: [
    'Replace each square wave by a sine: fast in the first channels, slow in the last. Now it is bounded, smooth and independent of the length.',
    'Every channel is a dial that goes round at its own speed. Choose a channel.',
  ],
  question: 'Which channel tells you whether a word is at position 3 or 4?',
  options: ['A slow one', 'A fast one', 'All tell it equally well'],
  right: 1,
  answer: [
    'A fast wave moves a lot from one position to the next; a slow one hardly moves, but it does not repeat within the text, so it tells the beginning from the end. Together they are read like the hands of a clock.',
    'One thing is still missing. From sin(a) alone you cannot compute sin(a + b): you would need cos(a) as well.',
  ],
  build(root, core) {
    let channel = 0;
    const stage = new Stage(root, async () => {
      const show = await core.show.ask<Show>({
        ask: 'show',
        encoding: 'sine',
        length: 96,
        heads: 1,
        dim: 32,
      });
      const panel = heatOf(show);
      drawHeat(box, panel);
      wave.title(`Channel ${channel}`);
      wave.lines({
        label: `Channel ${channel} by position`,
        x: 'position',
        y: 'added to x',
        lines: [{ label: `channel ${channel}`, x: numbers(96), y: panel.values[channel]! }],
        marks: [
          { at: 3, label: '' },
          { at: 4, label: '' },
        ],
        height: 200,
      });
    });
    stage.slider('channel', channel, 0, 31, (value) => {
      channel = value;
    });
    const box = stage.figure('sine', 'A sine per channel');
    const wave = stage.figure('wave', 'One channel');
    return stage.start();
  },
};

const shift: Step = {
  title: 'A shift is a rotation',
  text: [
    'Keep the cosine beside each sine. A pair of channels is then a point on a circle, and moving the position moves the point round.',
    'The orange hand stands at position m, the blue one k further on. Drag m, then drag k.',
  ],
  question: 'k stays at 5 and m moves. What happens to the angle between the two hands?',
  options: ['It grows with m.', 'It stays the same.', 'It becomes random.'],
  right: 1,
  answer: [
    'In every pair, going from m to m + k is a rotation by an angle that depends on k alone. So one fixed matrix takes the row of any position to the row k further on, and a layer that wants “three words back” can learn that matrix (`locus check sinusoidal`: linear-shift yes).',
    'But it *can* learn it; it does not come for free. The rows are added to the words, and the score of two sums is not a function of the distance alone.',
  ],
  build(root, core) {
    let [m, k] = [10, 5];
    const stage = new Stage(root, async () => {
      const show = await core.show.ask<Show>({
        ask: 'show',
        encoding: 'sinusoidal',
        length: 128,
        heads: 1,
        dim: 16,
      });
      const { values } = heatOf(show);
      const pick = (at: number, from: number) =>
        Float64Array.from({ length: values.length / 2 }, (_, p) => values[2 * p + from]![at]!);
      const at = (position: number) => ({
        position,
        sin: pick(position, 0),
        cos: pick(position, 1),
      });
      const waves = await core.show.ask<Pairs>({
        ask: 'pairs',
        encoding: 'rope',
        dim: 16,
        positions: [0],
      });
      drawDials(
        box,
        { layout: '', gain: 1, pairs: waves.pairs, at: [at(m + k), at(m)] },
        m + k,
        m,
        8,
      );
    });
    stage.slider('position m', m, 0, 90, (value) => {
      m = value;
    });
    stage.slider('shift k', k, 0, 30, (value) => {
      k = value;
    });
    const box = stage.figure('shift', 'Sine and cosine of each pair as a hand');
    return stage.start();
  },
};

const SCHEMES = [
  {
    value: 'sinusoidal',
    title: 'Added',
    cells: ['words with words', 'word with place', 'place with word', 'place with place'],
  },
  {
    value: 'shaw',
    title: 'Shaw',
    cells: ['kept', 'a vector per offset, clipped', 'dropped', 'dropped'],
  },
  {
    value: 'transformer-xl',
    title: 'Transformer-XL',
    cells: ['kept', 'a vector per offset', 'one vector for all places', 'a number per offset'],
  },
  {
    value: 't5',
    title: 'T5',
    cells: ['kept', 'dropped', 'dropped', 'a number per bucket of offsets'],
  },
  {
    value: 'tupe',
    title: 'TUPE',
    cells: ['kept', 'dropped', 'dropped', 'places with projections of their own'],
  },
  {
    value: 'deberta',
    title: 'DeBERTa',
    cells: ['kept', 'a vector per offset', 'a vector per offset', 'dropped'],
  },
];

const expansion: Step = {
  title: 'One product, four terms',
  text: [
    'Add a position p to each word x and multiply out the score of two of them. Four terms appear: content with content, content with position, position with content, position with position.',
    'Most relative encodings come from this line. Each keeps some terms, drops some, and replaces the two positions by something that depends on their difference. Switch between them. The tables here hold random numbers, not trained ones.',
  ],
  question:
    'Which scheme keeps the content and one trained number per bucket of distances, and nothing else?',
  options: ['Shaw', 'T5', 'DeBERTa'],
  right: 1,
  answer: [
    'T5 keeps only the idea that near and far differ. TUPE calls the two mixed terms noise and drops them; DeBERTa says they are the point and drops the last. Both work, which is worth remembering when a derivation looks inevitable.',
  ],
  build(root, core) {
    let scheme = SCHEMES[0]!;
    let content: 'matching' | 'none' = 'matching';
    const stage = new Stage(root, async () => {
      const heads = [
        'content – content',
        'content – position',
        'position – content',
        'position – position',
      ];
      cells.replaceChildren(
        ...heads.map((title, n) =>
          element(
            'div',
            { class: scheme.cells[n] === 'dropped' ? 'dropped' : '' },
            element('b', {}, title),
            element('span', {}, scheme.cells[n]!),
          ),
        ),
      );
      const scores = await core.scores.ask<Scores>({
        ask: 'scores',
        encoding: scheme.value,
        heads: 4,
        dim: 32,
        length: 64,
        count: 48,
        content,
      });
      box.title(`${scheme.title}: score of each query on each key`);
      box.heat({
        label: 'Scores',
        x: 'key n',
        y: 'query m',
        firstX: 0,
        firstY: 0,
        values: scores.logits,
        colours: 'centred',
      });
    });
    stage.choose(
      'Scheme',
      SCHEMES.map((one) => ({ value: one, title: one.title })),
      (value) => {
        scheme = value;
      },
    );
    stage.choose(
      'Content',
      [
        { value: 'matching' as const, title: 'with words (all the same)' },
        { value: 'none' as const, title: 'position alone' },
      ],
      (value) => {
        content = value;
      },
    );
    const cells = element('div', { class: 'four' });
    root.append(cells);
    const box = stage.figure('expansion', 'Scores', true);
    return stage.start();
  },
};

const rope: Step = {
  title: 'RoPE: rotate instead of adding',
  text: [
    'Start from the wish: the score of a query at m and a key at n should depend on m − n only. In two dimensions there is one answer. Read a pair of channels as an arrow and turn it by an angle proportional to its position.',
    'Lengths stay, so no position is louder than another. Turn both arrows and look at their angle.',
  ],
  question: 'Query and key both move 20 tokens to the right. What happens to their score?',
  options: ['It decays.', 'It changes sign.', 'Nothing.'],
  right: 2,
  answer: [
    'Both arrows turn by the same angle, and a dot product sees only the angle between them: (R_m q)·(R_n k) = q·R_(n−m) k. Each token is rotated by its absolute position, yet the score knows the difference only (`locus check rope`: relative yes, norm-preserving yes).',
    'Why pairs? A rotation needs a plane, and a plane needs two channels. Why not the values? They are summed, not compared, and nothing would take the difference.',
  ],
  build(root, core) {
    let [m, d] = [30, 8];
    const stage = new Stage(root, async () => {
      const n = Math.max(0, m - d);
      const size = { encoding: 'rope', heads: 1, dim: 8, length: 128 };
      const pairs = await core.show.ask<Pairs>({ ask: 'pairs', ...size, positions: [m, n] });
      drawDials(box, pairs, m, n, 4);
      const distance = await core.scores.ask<Distance>({
        ask: 'distance',
        ...size,
        content: 'matching',
      });
      curve.lines({
        label: 'Score against distance',
        x: 'distance m − n',
        y: 'score',
        lines: [{ label: 'mean over contents', x: distance.x, y: distance.mean }],
        marks: [{ at: m - n, label: `m − n = ${m - n}` }],
        height: 220,
      });
    });
    stage.slider('query position m', m, 0, 120, (value) => {
      m = value;
    });
    stage.slider('distance m − n', d, 0, 60, (value) => {
      d = value;
    });
    const box = stage.figure('rotation', 'Four pairs of channels, rotated');
    const curve = stage.figure('by-distance', 'Only the distance moves the score');
    return stage.start();
  },
};

const clocks: Step = {
  title: 'Frequencies as clock hands',
  text: [
    'One dial repeats after one turn, and one slow dial could not tell neighbours apart. So every pair has its own speed: the first turns once in about six tokens, the last hardly at all.',
    'Move the position, then the base. The base sets how slow the slowest hand is.',
  ],
  question: 'The base goes from 10,000 to 500,000. Which hands become slower?',
  options: [
    'All but the first; the later the pair, the more',
    'Only the fast ones',
    'All by the same factor',
  ],
  right: 0,
  answer: [
    'The speed of pair p is base^(−2p/d). The first pair has speed 1 whatever the base; every later one is slowed by a power that grows with p. That is why long-context models raise the base: Llama 3 has 500,000.',
    'Nothing here is trained: the angle is the position times a number from a formula.',
  ],
  build(root, core) {
    let [m, base] = [20, 10000];
    const stage = new Stage(root, async () => {
      const pairs = await core.show.ask<Pairs>({
        ask: 'pairs',
        encoding: 'rope',
        dim: 64,
        options: { base: String(base) },
        positions: [m, 0],
      });
      drawDials(box, pairs, m, 0, 8);
    });
    stage.slider('position m', m, 0, 2000, (value) => {
      m = value;
    });
    stage.slider(
      'base',
      base,
      100,
      1_000_000,
      (value) => {
        base = value;
      },
      2,
      true,
    );
    const box = stage.figure('clock', 'Eight of 32 pairs; tokens per turn below each');
    return stage.start();
  },
};

const alibi: Step = {
  title: 'ALiBi: a penalty for distance',
  text: [
    'ALiBi adds nothing to the words and rotates nothing. It subtracts a line from the score: a slope times the distance, with a fixed slope for each head.',
    'Choose a head and look at where its attention goes when all words are alike.',
  ],
  question: 'Which head can look furthest back?',
  options: [
    'The one with the steepest slope',
    'The one with the shallowest slope',
    'All look equally far',
  ],
  right: 1,
  answer: [
    'With 8 heads the slopes are 1/2, 1/4, … 1/256. A steep head sees its neighbourhood, a shallow one sees far. The penalty grows without bound, and that is the point: a longer text adds keys that hardly count, so a longer text looks like the ones of training.',
    'Later biases ask for better curves than a line: KERPLE trains its shape, Sandwich takes the product of sinusoids, FIRE trains a whole function.',
  ],
  build(root, core) {
    let head = 0;
    const stage = new Stage(root, async () => {
      const size = { encoding: 'alibi', heads: 8, dim: 32, length: 64 };
      const show = await core.show.ask<Show>({ ask: 'show', ...size });
      const panel = curvesOf(show);
      bias.lines({
        label: 'Bias against offset, by head',
        x: panel.x_label,
        y: panel.y_label,
        lines: panel.curves.map(({ label, y }) => ({ label, x: panel.x, y })),
      });
      const scores = await core.scores.ask<Scores>({
        ask: 'scores',
        ...size,
        count: 64,
        head,
        content: 'none',
        causal: true,
      });
      map.title(`Attention of head ${head + 1}, all words alike`);
      map.heat({
        label: 'Attention weights',
        x: 'key n',
        y: 'query m',
        firstX: 0,
        firstY: 0,
        values: scores.weights,
        colours: 'weights',
      });
    });
    stage.slider('head', 1, 1, 8, (value) => {
      head = value - 1;
    });
    const map = stage.figure('alibi', 'Attention', true);
    const bias = stage.figure('slopes', 'Bias against offset');
    return stage.start();
  },
};

// Press et al., "Train Short, Test Long" (arXiv 2108.12409): perplexity on
// WikiText-103 of models trained on 512 tokens.
const PAPER = {
  lengths: [512, 1012, 3512, 15512],
  rows: [
    { label: 'sinusoidal', values: [20.05, 43.54, 178.97, 406.01] },
    { label: 'RoPE', values: [20.07, 21.37, 35.54, 79.25] },
    { label: 'T5 bias', values: [19.65, 18.79, 22.91] },
    { label: 'ALiBi', values: [19.73, 18.73, 18.4, 18.31] },
  ],
};

const pastLength: Step = {
  title: 'Past the trained length',
  text: [
    'A formula that goes on forever does not make a model that does. The first figure is from the ALiBi paper: perplexity of models trained on 512 tokens and read on more. Lower is better.',
    'The second shows why. Each bar is how much of a full turn a pair of RoPE makes within the trained length. Move the length.',
  ],
  question: 'Which pairs show the model something new once the text is longer than in training?',
  options: [
    'The fast ones, which have turned many times',
    'The slow ones, which have not completed a turn',
    'All of them',
  ],
  right: 1,
  answer: [
    'A fast pair has been everywhere on its circle many times. A slow pair reaches angles that the model has never seen. It is a clock whose hand comes to an hour for the first time.',
    'Perplexity is not everything: it rewards forgetting far words. On tasks that need a far word, Kazemnejad et al. (arXiv 2305.19466) found no position at all ahead of ALiBi and RoPE. “Extrapolates” is a statement about a task.',
  ],
  build(root, core) {
    let length = 512;
    const stage = new Stage(root, async () => {
      paper.lines({
        label: 'Perplexity by length',
        x: 'tokens read',
        y: 'perplexity',
        lines: PAPER.rows.map(({ label, values }) => ({ label, x: PAPER.lengths, y: values })),
        logX: true,
        logY: true,
        marks: [{ at: 512, label: 'trained' }],
      });
      const pairs = await core.show.ask<Pairs>({
        ask: 'pairs',
        encoding: 'rope',
        dim: 64,
        positions: [0],
      });
      const turns = pairs.pairs.map(({ wavelength }) => length / (wavelength ?? Infinity));
      seen.lines({
        label: 'Turns within the trained length',
        x: 'pair',
        y: 'turns',
        lines: [
          { label: `turns in ${length} tokens`, x: numbers(turns.length), y: turns },
          { label: 'one full turn', x: [0, turns.length - 1], y: [1, 1], dash: true },
        ],
        logY: true,
      });
      const slow = turns.filter((one) => one < 1).length;
      note.textContent = `${slow} of ${turns.length} pairs never complete a turn in ${length} tokens.`;
    });
    stage.slider(
      'trained length',
      length,
      64,
      65536,
      (value) => {
        length = value;
      },
      2,
      true,
    );
    const paper = stage.figure('paper', 'Trained on 512 tokens, read on more (ALiBi paper)');
    const seen = stage.figure('turns', 'How often each pair turns in training');
    const note = stage.note();
    return stage.start();
  },
};

const SCALINGS = [
  { value: 'none', title: 'as trained' },
  { value: 'linear', title: 'interpolation (PI)' },
  { value: 'ntk', title: 'NTK-aware' },
  { value: 'yarn', title: 'YaRN' },
  { value: 'llama3', title: 'llama3' },
];

const stretching: Step = {
  title: 'Stretching RoPE',
  text: [
    'To read longer texts, make the hands slower, so that they stay within the angles of training. The methods differ in which hands they slow down. The figure shows the tokens per turn of every pair, trained on 4096 tokens.',
    'Move the factor by which the context grows.',
  ],
  question: 'Which method slows down even the fast hands, and so blurs neighbours?',
  options: ['Position interpolation', 'YaRN', 'llama3'],
  right: 0,
  answer: [
    'Interpolation divides every position by the factor, so neighbours come closer together on every dial. NTK-aware changes the base: the fastest pair keeps its speed, the slowest takes the whole factor. YaRN treats each pair by what it has seen: many turns, leave it alone; less than one, stretch it fully; a ramp between. It also makes the scores a little sharper.',
    'Everything stays a rotation, so everything stays relative.',
  ],
  build(root, core) {
    let factor = 8;
    const trained = 4096;
    const stage = new Stage(root, async () => {
      const waves = await Promise.all(
        SCALINGS.map(({ value }) =>
          core.show.ask<Pairs>({
            ask: 'pairs',
            encoding: 'rope',
            dim: 128,
            length: trained,
            options:
              value === 'none'
                ? {}
                : { scaling: value, factor: String(factor), original_length: String(trained) },
            positions: [0],
          }),
        ),
      );
      const y = (pairs: Pairs): number[] => pairs.pairs.map(({ wavelength }) => wavelength ?? NaN);
      box.lines({
        label: 'Tokens per turn by pair, for each method',
        x: 'pair',
        y: 'tokens per turn',
        lines: [
          ...waves.map((pairs, n) => ({
            label: SCALINGS[n]!.title,
            x: numbers(pairs.pairs.length),
            y: y(pairs),
          })),
          { label: `${trained} tokens, trained`, x: [0, 63], y: [trained, trained], dash: true },
          {
            label: `${trained * factor} tokens, wanted`,
            x: [0, 63],
            y: [trained * factor, trained * factor],
            dash: true,
          },
        ],
        logY: true,
        height: 340,
      });
      const plain = y(waves[0]!);
      stretch.lines({
        label: 'Stretch of each pair',
        x: 'pair',
        y: 'times slower than trained',
        lines: waves.slice(1).map((pairs, n) => ({
          label: SCALINGS[n + 1]!.title,
          series: n + 1,
          x: numbers(plain.length),
          y: y(pairs).map((wave, p) => wave / plain[p]!),
        })),
        height: 240,
      });
    });
    stage.slider('factor', factor, 2, 32, (value) => {
      factor = value;
    });
    const box = stage.figure('wavelengths', 'Tokens per turn');
    const stretch = stage.figure('stretch', 'How much slower each pair became');
    return stage.start();
  },
};

const STICKING: [string, string][] = [
  [
    'Is RoPE absolute or relative?',
    'Each token is rotated by its absolute position; the score sees the difference. Both are right, and the second is the one that matters.',
  ],
  [
    'Are the frequencies trained?',
    'No. They are a formula of the base and the pair. (Some variants do train them; RoPE itself does not.)',
  ],
  [
    'Sine and cosine repeat. Can angles become too large?',
    'Not for the mathematics. For float32 they can: the product of a large position and a frequency loses digits. See “Where float32 angles break” under Your model.',
  ],
  [
    'Does a formula for every position mean that the model extrapolates?',
    'No: see step 10. Sinusoids are defined everywhere and degrade at once.',
  ],
  [
    'Why does RoPE act in every layer, and sinusoids once?',
    'Sinusoids ride along in the residual stream. A rotation is used up by the dot product, so each layer needs its own.',
  ],
  [
    'Which channels form a pair?',
    'Neighbours (2p, 2p + 1) or halves (p, p + d/2): the mathematics does not care, trained weights do. Mixing them up is a common silent bug.',
  ],
];

const choosing: Step = {
  title: 'How to choose, and where people get stuck',
  text: [
    'No encoding has every property, and not every model needs them all. Say what you need, and the list keeps the encodings that their own descriptions claim it for. Then open one in Play and measure it.',
  ],
  question:
    'A decoder for text that must later read far longer inputs, with a KV cache. What do most models of today take?',
  options: [
    'A learned table',
    'RoPE, with a larger base or YaRN when it is stretched',
    'Binary digits',
  ],
  right: 1,
  answer: [
    'RoPE needs no parameters, keys can be cached once rotated, and scalings extend it after training. ALiBi is the simplest that keeps its perplexity on longer texts. T5’s bias and DeBERTa’s tables suit encoders. Images take 2-D RoPE or Swin’s table.',
  ],
  build(root, _core, known) {
    const wanted = { relative: false, past: false, fixed: false };
    const list = element('ul', { class: 'chosen', 'aria-live': 'polite' });
    const stage = new Stage(root, async () => {
      const kept = known.filter(
        (one) =>
          (!wanted.relative || one.reference === 'relative') &&
          (!wanted.past || one.extrapolates !== 'no') &&
          (!wanted.fixed || !one.trainable),
      );
      list.replaceChildren(
        ...kept.map((one) =>
          element(
            'li',
            {},
            element('a', { href: `#play?a=${one.name}` }, one.title),
            ` ${one.models ? `(${one.models})` : ''}`,
          ),
        ),
      );
    });
    stage.flag('the score depends on the distance only', false, (value) => {
      wanted.relative = value;
    });
    stage.flag('it is used past its trained length', false, (value) => {
      wanted.past = value;
    });
    stage.flag('there is nothing to train', false, (value) => {
      wanted.fixed = value;
    });
    root.append(
      list,
      element('h3', {}, 'Common sticking points'),
      ...STICKING.map(([question, answer]) =>
        element('details', {}, element('summary', {}, question), element('p', {}, answer)),
      ),
    );
    return stage.start();
  },
};

export const STEPS: Step[] = [
  whyPosition,
  theIndex,
  binary,
  sines,
  shift,
  expansion,
  rope,
  clocks,
  alibi,
  pastLength,
  stretching,
  choosing,
];
