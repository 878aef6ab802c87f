// Your model: what a config.json says about positions, layer by layer, and two compared.
import { element } from '../dom';
import { count, percent, short } from '../format';
import { select } from './controls';
import { CoreError, type Core, type Explained, type Group } from './core';
import { FigureBox, type Line } from './figure';

export interface Published {
  name: string;
  text: string;
}

/** More than any config.json has: it is not read at all. */
const MOST_BYTES = 16 * 2 ** 20;

const tooLarge = (what: string, bytes: number) =>
  `A config.json has at most ${MOST_BYTES / 2 ** 20} MB; this ${what} has ${count(bytes / 1e6)} MB.`;

type Model = Explained['models'][number];

function layerTable({ explained, facts }: Model): HTMLElement {
  const rows = explained.groups.map((group, index) => {
    const said = facts[index]!;
    const words = [group.attention.words || group.attention.encoding];
    if (group.input.encoding !== 'none') words.push(`at the input: ${group.input.words}`);
    const cells = group.attends
      ? [
          `${group.query_heads} query, ${group.key_heads} key, ${group.head_dim} channels`,
          said.mask,
          group.trained_length ? count(group.trained_length) : 'not said',
        ]
      : ['', 'does not attend', ''];
    return element(
      'tr',
      {},
      element(
        'th',
        { scope: 'row' },
        `${group.part} ${said.layers}`,
        element('small', {}, group.layer_type ?? ''),
      ),
      element(
        'td',
        {},
        words.join('; '),
        ...group.warnings.map((one) => element('p', { class: 'warning' }, one)),
      ),
      ...cells.map((text) => element('td', {}, text)),
    );
  });
  const heads = ['Layers', 'Position', 'Heads', 'Mask', 'Trained length'];
  return element(
    'div',
    { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Layers' },
    element(
      'table',
      {},
      element(
        'thead',
        {},
        element('tr', {}, ...heads.map((title) => element('th', { scope: 'col' }, title))),
      ),
      element('tbody', {}, ...rows),
    ),
  );
}

/** The rotations of a model that differ, each with the layers that have it. */
function rotations(model: Model) {
  const found = new Map<string, { layers: string; group: Group; index: number }>();
  model.explained.groups.forEach((group, index) => {
    if (!group.rotary) return;
    const key = JSON.stringify([...group.rotary.frequencies, group.rotary.layout]);
    const layers = `${group.part} ${model.facts[index]!.layers}`;
    const known = found.get(key);
    if (known) known.layers += `, ${layers}`;
    else found.set(key, { layers, group, index });
  });
  return [...found.values()];
}

function wavelengths(models: Model[], box: FigureBox): boolean {
  const lines: Line[] = [];
  const marks = new Map<string, number>();
  for (const model of models) {
    for (const { group, layers, index } of rotations(model)) {
      const { original_length: original } = group.rotary!;
      const waves = model.facts[index]!.rotation?.wavelengths ?? [];
      const name = models.length > 1 ? `${model.explained.file}, ${layers}` : layers;
      const shown = Array.from(waves, (wave, pair) => ({ pair, wave })).filter(({ wave }) =>
        Number.isFinite(wave),
      );
      lines.push({
        label: name,
        x: shown.map(({ pair }) => pair),
        y: shown.map(({ wave }) => wave),
      });
      if (group.trained_length)
        marks.set(`context ${count(group.trained_length)}`, group.trained_length);
      if (original) marks.set(`trained before stretching ${count(original)}`, original);
    }
  }
  if (lines.length === 0) return false;
  const last = Math.max(...lines.map(({ x }) => x[x.length - 1] ?? 0));
  for (const [label, length] of marks)
    lines.push({ label, x: [0, last], y: [length, length], dash: true });
  box.title(
    'Wavelengths against the context',
    'Pairs above a dashed line never turn once within that many tokens: past it they show angles that training never showed.',
  );
  box.lines({
    label: 'Wavelength of each pair',
    x: 'pair',
    y: 'tokens per turn',
    lines,
    logY: true,
    height: 320,
  });
  return true;
}

function angleErrors(models: Model[], box: FigureBox): boolean {
  const lines: Line[] = [];
  const ends: string[] = [];
  for (const model of models) {
    for (const { group, layers, index } of rotations(model)) {
      const facts = model.facts[index]!.rotation;
      if (!facts) continue;
      const { positions, error } = facts.angles;
      lines.push({
        label: models.length > 1 ? `${model.explained.file}, ${layers}` : layers,
        x: positions,
        y: error,
      });
      const length = group.trained_length;
      const at = length ? positions.findIndex((one) => one >= length) : -1;
      if (at >= 0)
        ends.push(
          `${model.explained.file}: ${short(error[at]!)} near position ${count(positions[at]!)}`,
        );
    }
  }
  if (lines.length === 0) return false;
  box.title(
    'Where float32 angles break',
    `The largest error of a cosine or sine whose angle was computed in float32, as many libraries do. bfloat16 itself rounds by about 0.004. ${[...new Set(ends)].join('; ')}${ends.length ? '.' : ''}`,
  );
  box.lines({
    label: 'Error of cos and sin by position',
    x: 'position',
    y: 'largest error',
    lines,
    logX: true,
    logY: true,
  });
  return true;
}

function wrongLayout(model: Model, box: FigureBox): boolean {
  const first = rotations(model)[0];
  const facts = first && model.facts[first.index]!.rotation;
  if (!first || !facts) return false;
  const { layout } = first.group.rotary!;
  const other = layout === 'halves' ? 'interleaved' : 'halves';
  const { offsets, right, wrong, change } = facts.layout;
  box.title(
    `With the wrong pair layout${model.explained.file ? `: ${model.explained.file}` : ''}`,
    `These weights rotate ${layout === 'halves' ? 'channel p with channel p + d/2 (halves)' : 'neighbouring channels (interleaved)'}. Loaded as ${other}, the same query and key score like the dashed line: off by ${percent(change)} of their size, without any error message.`,
  );
  box.lines({
    label: 'Score by offset, right and wrong layout',
    x: 'offset m − n',
    y: 'score of one query and key',
    lines: [
      { label: `${layout}, as trained`, x: offsets, y: right },
      { label: `${other}, wrong`, x: offsets, y: wrong, dash: true },
    ],
  });
  return true;
}

/** A place for one config: a published one, a file, or text. */
class Source {
  readonly root: HTMLElement;
  name = '';
  private readonly area: HTMLTextAreaElement;
  private readonly picker: HTMLElement;

  constructor(
    title: string,
    private readonly published: Published[],
    private readonly changed: () => void,
    private readonly say: (sentence: string) => void,
    empty: string,
  ) {
    this.area = element('textarea', {
      rows: '9',
      spellcheck: 'false',
      'aria-label': `${title}: text of a config.json`,
      placeholder: 'Paste a config.json, or drop the file here',
    });
    this.picker = select(
      'A published model',
      {
        '': [
          { value: '', title: empty },
          ...published.map(({ name }) => ({ value: name, title: name })),
        ],
      },
      '',
      (name) => this.choose(name),
    );
    const file = element('input', {
      type: 'file',
      accept: '.json,application/json',
      'aria-label': `${title}: a file`,
    });
    file.addEventListener('change', () => file.files?.[0] && void this.read(file.files[0]));
    this.area.addEventListener('input', () => {
      this.name = 'your model';
      this.changed();
    });
    this.root = element(
      'fieldset',
      { class: 'source' },
      element('legend', {}, title),
      this.picker,
      this.area,
      file,
    );
    this.root.addEventListener('dragover', (event) => event.preventDefault());
    this.root.addEventListener('drop', (event) => {
      event.preventDefault();
      const dropped = event.dataTransfer?.files[0];
      if (dropped) void this.read(dropped);
    });
  }

  get text(): string {
    return this.area.value;
  }

  choose(name: string): void {
    const found = this.published.find((one) => one.name === name);
    this.picker.querySelector('select')!.value = found ? name : '';
    this.area.value = found?.text ?? '';
    this.name = name;
    this.changed();
  }

  private async read(file: File): Promise<void> {
    if (file.size > MOST_BYTES) {
      this.say(tooLarge('file', file.size));
      return;
    }
    this.area.value = await file.text();
    this.name = file.name;
    this.changed();
  }
}

export class ModelView {
  private readonly problem = element('p', { class: 'problem', role: 'alert', hidden: '' });
  private readonly answer = element('div', { class: 'answer' });
  private readonly sources: Source[];
  private boxes: FigureBox[] = [];
  private asked = 0;

  constructor(
    private readonly root: HTMLElement,
    private readonly core: Core,
    private readonly published: Published[],
  ) {
    const changed = () => void this.update();
    const say = (sentence: string) => {
      this.supersede();
      this.say(sentence);
    };
    this.sources = [
      new Source('Model', published, changed, say, 'choose one'),
      new Source('Compare with', published, changed, say, 'nothing'),
    ];
    this.root.replaceChildren(
      element(
        'form',
        { class: 'sources', 'aria-label': 'Configs' },
        ...this.sources.map(({ root: one }) => one),
      ),
      this.problem,
      this.answer,
    );
  }

  /** "#model?a=Llama 3.1 8B&b=...". */
  open(hash: string): void {
    const query = new URLSearchParams(hash.split('?')[1] ?? '');
    const wanted = query.get('a') ?? this.sources[0]!.name;
    const fallback =
      this.published.find(({ name }) => name === 'Llama 3.1 8B') ?? this.published[0];
    if (wanted !== 'your model' && wanted !== this.sources[0]!.name)
      this.sources[0]!.choose(wanted);
    if (!this.sources[0]!.text && fallback) this.sources[0]!.choose(fallback.name);
    const other = query.get('b');
    if (other) this.sources[1]!.choose(other);
  }

  redraw(): void {
    for (const box of this.boxes) box.redraw();
  }

  private say(sentence: string): void {
    this.problem.textContent = sentence;
    this.problem.hidden = sentence === '';
    if (sentence) this.answer.replaceChildren();
  }

  /** An answer that is still under way no longer counts; the number of the one that does. */
  private supersede(): number {
    this.root.dataset['busy'] = '0';
    return ++this.asked;
  }

  private async update(): Promise<void> {
    const given = this.sources.filter(({ text }) => text.trim() !== '');
    const models = given.map(({ name, text }) => ({ name: name || 'your model', text }));
    const named = given.filter(({ name }) => this.published.some((one) => one.name === name));
    const query = new URLSearchParams(named.map(({ name }, index) => ['ab'[index]!, name]));
    if (location.hash.startsWith('#model'))
      history.replaceState(null, '', `#model${named.length ? `?${query}` : ''}`);
    const mine = this.supersede();
    const large = models.find(({ text }) => text.length > MOST_BYTES);
    if (large) {
      this.say(tooLarge('text', large.text.length));
      return;
    }
    if (models.length === 0) {
      this.say('');
      this.answer.replaceChildren();
      return;
    }
    this.root.dataset['busy'] = '1';
    try {
      const explained = await this.core.show.ask<Explained>({ ask: 'explain', models });
      if (mine !== this.asked) return;
      this.say('');
      this.draw(explained);
    } catch (error) {
      if (!(error instanceof CoreError)) throw error;
      if (mine === this.asked) this.say(error.message);
    }
    if (mine === this.asked) this.root.dataset['busy'] = '0';
    this.root.dataset['answered'] = String(mine);
  }

  private draw({ models, differences }: Explained): void {
    const parts: HTMLElement[] = [];
    for (const model of models)
      parts.push(
        element(
          'h3',
          {},
          `${model.explained.file}: ${model.explained.family} `,
          element('small', {}, model.explained.model_type),
        ),
        layerTable(model),
      );
    if (differences)
      parts.push(
        element('h3', {}, 'What differs'),
        differences.length === 0
          ? element('p', {}, 'Nothing that concerns positions.')
          : element(
              'ul',
              { class: 'differences' },
              ...differences.map((line) => element('li', {}, line)),
            ),
      );
    this.boxes = [];
    const grid = element('div', { class: 'figures' });
    const add = (kind: string, draw: (box: FigureBox) => boolean) => {
      const box = new FigureBox(kind, '');
      grid.append(box.root); // first, so that it has a width
      if (draw(box)) this.boxes.push(box);
      else box.root.remove();
    };
    this.answer.replaceChildren(...parts, grid);
    add('wavelengths', (box) => wavelengths(models, box));
    add('angles', (box) => angleErrors(models, box));
    for (const model of models) add('layout', (box) => wrongLayout(model, box));
  }
}
