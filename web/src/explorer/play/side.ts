// Everything that is drawn of one encoding.
import { element } from '../../dom';
import type { CurvesPanel, Distance, HeatPanel, Info, Pairs, Scores, Show } from '../core';
import { drawDials } from '../dials';
import { FigureBox } from '../figure';

export type Kind = 'panels' | 'scores' | 'properties';

/** How a matrix of scores is shown. */
export interface Look {
  head: number;
  weights: boolean; // after softmax
  mark: [number, number] | undefined;
  picked: (m: number, n: number) => void;
}

/** Where a term of the algebra acts, in words. */
const PLACES: Record<string, string> = {
  input_add: 'is added to the input',
  rotate: 'rotates queries and keys',
  extra_dot: 'adds a dot product of positions',
  q_table: 'adds a table row to each key',
  k_table: 'adds a table row to each query',
  bias: 'adds a bias to the score',
  v_table: 'adds a table row to each value',
  rotate_values: 'rotates the values',
};

/** "Relative: rotates queries and keys." */
function actsOn({ reference }: Info, { terms }: Show): string {
  if (terms.length === 0) return 'No position.';
  const said = terms.map((term) => PLACES[term] ?? term);
  const list = said.length > 1 ? `${said.slice(0, -1).join(', ')} and ${said.at(-1)}` : said[0]!;
  return `${reference === 'relative' ? 'Relative' : 'Absolute'}: ${list}.`;
}

export class Side {
  readonly root: HTMLElement;
  private readonly about = element('div', { class: 'about-encoding' });
  private readonly problem = element('p', { class: 'problem', role: 'alert', hidden: '' });
  private readonly problems = new Map<Kind, string>();
  private readonly panels: FigureBox[] = [];
  private readonly panelBox = element('div', {});
  private readonly shown = new Map<string, unknown[]>();
  private readonly matrix = new FigureBox('scores', 'Score of each query on each key', true);
  private readonly distance = new FigureBox('distance', 'Score against distance');
  private readonly dials = new FigureBox('dials', 'Rotated pairs');

  constructor(title: string) {
    this.dials.root.hidden = true;
    this.root = element(
      'section',
      { class: 'side', 'aria-label': title },
      this.about,
      this.problem,
      this.panelBox,
      this.matrix.root,
      this.distance.root,
      this.dials.root,
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

  /** What the encoding is, and where its parameters come from. */
  describe(info: Info, show: Show, ...parameters: HTMLElement[]): void {
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
        [
          actsOn(info, show),
          info.paper && `${info.paper}.`,
          info.models && `Used by ${info.models}.`,
        ]
          .filter(Boolean)
          .join(' '),
      ),
      ...parameters,
    );
  }

  /** Whether a figure shows just this already; if not, it is about to. */
  private isShown(figure: string, ...what: unknown[]): boolean {
    const before = this.shown.get(figure);
    this.shown.set(figure, what);
    return before?.length === what.length && what.every((one, n) => one === before[n]);
  }

  show(show: Show, scale: (number | undefined)[]): void {
    if (this.isShown('panels', show, ...scale)) return;
    const panels = [...show.panels, ...show.panels.flatMap(byHead)];
    while (this.panels.length > panels.length) this.panels.pop()!.root.remove();
    while (this.panels.length < panels.length) {
      const box = new FigureBox('panel', '');
      this.panels.push(box);
      this.panelBox.append(box.root);
    }
    panels.forEach((panel, index) => drawPanel(this.panels[index]!, panel, scale[index]));
  }

  showPairs(pairs: Pairs | null): void {
    if (this.isShown('dials', pairs)) return;
    this.dials.root.hidden = pairs === null;
    if (pairs) drawDials(this.dials, pairs, 8);
  }

  showScores(scores: Scores, { head, weights, mark, picked }: Look): void {
    if (this.isShown('scores', scores, head, weights, ...(mark ?? []))) return;
    const words = weights ? 'Attention weight' : 'Score';
    this.matrix.title(`${words} of each query on each key, head ${head}`);
    this.matrix.heat({
      label: `${words}, query by key`,
      x: 'key n',
      y: 'query m',
      firstX: 0,
      firstY: 0,
      values: weights ? scores.weights : scores.logits,
      colours: weights ? 'weights' : 'centred',
      ...(mark ? { mark } : {}),
      picked,
    });
  }

  showDistance(distance: Distance): void {
    if (this.isShown('distance', distance)) return;
    const { x, mean, low, high } = distance;
    this.distance.title(
      'Score against distance',
      'The line is the mean over contents and query positions, the band their whole range. A relative encoding with contents all alike has no band but that of the contents.',
    );
    this.distance.lines({
      label: 'Score against distance',
      x: 'distance m − n',
      y: 'score',
      lines: [{ label: 'mean', x, y: mean }],
      band: { label: 'range over contents and places', x, low, high },
    });
  }

  redraw(): void {
    for (const box of [...this.panels, this.matrix, this.distance, this.dials]) box.redraw();
  }
}

export const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

/** A heat map whose rows have names. */
type Named = HeatPanel & { names?: string[] };

/** Biases of several heads once more, as a heat map of head by offset. */
function byHead(panel: HeatPanel | CurvesPanel): Named[] {
  if (panel.kind !== 'curves' || panel.curves.length < 2 || !panel.y_label.startsWith('bias'))
    return [];
  return [
    {
      kind: 'heatmap',
      title: 'the same by head',
      x_label: 'offset m − n',
      y_label: 'head',
      value_label: 'bias',
      first_x: panel.x[0]!,
      first_y: 0,
      values: panel.curves.map(({ y }) => y),
      names: panel.curves.map(({ label }) => label.replace(/^head /, '')),
    },
  ];
}

function drawPanel(box: FigureBox, panel: Named | CurvesPanel, most?: number): void {
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
      ...(panel.names ? { rows: panel.names } : {}),
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
