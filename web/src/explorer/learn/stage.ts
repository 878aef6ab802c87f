// A step of the guided path, and the figures and controls on its stage.
import { choice, element } from '../../dom';
import { latest, type Core, type CurvesPanel, type HeatPanel, type Info, type Show } from '../core';
import { flag, slider } from '../controls';
import { FigureBox } from '../figure';

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
export class Stage implements Live {
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

export const heatOf = (show: Show) => show.panels[0] as HeatPanel;
export const curvesOf = (show: Show) => show.panels[0] as CurvesPanel;
export const numbers = (count: number) => Array.from({ length: count }, (_, n) => n);

export function drawHeat(box: FigureBox, panel: HeatPanel): void {
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
