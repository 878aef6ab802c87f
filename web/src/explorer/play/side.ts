// Everything that is drawn of one encoding.
import { element } from '../../dom';
import type { CurvesPanel, HeatPanel, Info, Pairs, Show } from '../core';
import { drawDials } from '../dials';
import { FigureBox } from '../figure';

export type Kind = 'panels' | 'scores' | 'properties';

export class Side {
  readonly root: HTMLElement;
  private readonly about = element('div', { class: 'about-encoding' });
  private readonly problem = element('p', { class: 'problem', role: 'alert', hidden: '' });
  private readonly problems = new Map<Kind, string>();
  private readonly panels: FigureBox[] = [];
  private readonly panelBox = element('div', {});
  readonly matrix = new FigureBox('scores', 'Score of each query on each key', true);
  readonly distance = new FigureBox('distance', 'Score against distance');
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
        `${info.reference === 'none' ? 'No position' : `${info.reference === 'relative' ? 'Relative' : 'Absolute'}, enters at ${show.terms.join(', ') || 'nothing'}`}. ${info.paper ? `${info.paper}. ` : ''}${info.models ? `Used by ${info.models}.` : ''}`,
      ),
      ...parameters,
    );
  }

  show(show: Show, scale: (number | undefined)[]): void {
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
    this.dials.root.hidden = pairs === null;
    if (pairs) drawDials(this.dials, pairs, 8);
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
