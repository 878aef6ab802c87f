// Sliders, choices and switches, each with a label and a value that can be read.
import { element } from '../dom';
import { short } from '../format';
import type { Field, Slider } from './core';

let last = 0;
const freshId = () => `control-${++last}`;

function labelled(
  label: string,
  control: HTMLElement,
  help = '',
  value?: HTMLElement,
): HTMLElement {
  const id = freshId();
  control.id = id;
  const row = element(
    'div',
    { class: 'control' },
    element('label', { for: id }, label),
    ...(value ? [value] : []),
    control,
  );
  if (help) {
    const note = element('p', { class: 'help', id: `${id}-help` }, help);
    control.setAttribute('aria-describedby', note.id);
    row.append(note);
  }
  return row;
}

const STEPS = 200; // of a logarithmic slider

/** Places on a slider, and the numbers that they stand for. */
class Scale {
  constructor(
    private readonly range: Slider,
    private readonly whole: boolean,
  ) {}

  get steps(): number {
    const { lowest, highest, step, logarithmic } = this.range;
    if (logarithmic) return STEPS;
    return Math.max(1, Math.round((highest - lowest) / (step || 1)));
  }

  at(place: number): number {
    const { lowest, highest, logarithmic } = this.range;
    const share = place / this.steps;
    const value = logarithmic
      ? lowest * (highest / lowest) ** share
      : lowest + share * (highest - lowest);
    if (this.whole) return Math.round(value);
    return logarithmic ? Number(value.toPrecision(3)) : Number(value.toPrecision(6));
  }

  place(value: number): number {
    const { lowest, highest, logarithmic } = this.range;
    const share = logarithmic
      ? Math.log(value / lowest) / Math.log(highest / lowest)
      : (value - lowest) / (highest - lowest);
    return Math.round(this.steps * Math.min(1, Math.max(0, share)));
  }
}

export interface SliderOptions {
  label: string;
  value: number;
  range: Slider;
  whole: boolean;
  help?: string;
  name?: string;
  format?: (value: number) => string;
  changed: (value: number) => void;
}

/** A slider beside its value. */
export function slider(options: SliderOptions): HTMLElement {
  const scale = new Scale(options.range, options.whole);
  const format = options.format ?? (options.whole ? String : short);
  const output = element('output', {}, format(options.value));
  const input = element('input', {
    type: 'range',
    min: '0',
    max: String(scale.steps),
    step: '1',
    value: String(scale.place(options.value)),
    'aria-valuetext': format(options.value),
    ...(options.name ? { name: options.name } : {}),
  });
  input.addEventListener('input', () => {
    const value = scale.at(Number(input.value));
    output.textContent = format(value);
    input.setAttribute('aria-valuetext', format(value));
    options.changed(value);
  });
  return labelled(options.label, input, options.help, output);
}

export function select(
  label: string,
  groups: Record<string, { value: string; title: string }[]>,
  value: string,
  changed: (value: string) => void,
  help = '',
  name = '',
): HTMLElement {
  const made = element('select', name ? { name } : {});
  for (const [group, options] of Object.entries(groups)) {
    const list = options.map((one) => element('option', { value: one.value }, one.title));
    if (group) made.append(element('optgroup', { label: group }, ...list));
    else made.append(...list);
  }
  made.value = value;
  made.addEventListener('change', () => changed(made.value));
  return labelled(label, made, help);
}

export function flag(
  label: string,
  value: boolean,
  changed: (value: boolean) => void,
  help = '',
  name = '',
): HTMLElement {
  const input = element('input', { type: 'checkbox', ...(name ? { name } : {}) });
  input.checked = value;
  input.addEventListener('change', () => changed(input.checked));
  const row = labelled(label, input, help);
  row.classList.add('flag');
  return row;
}

/** The control of an option, from its descriptor. `value` is its text, or nothing for the default. */
export function optionControl(
  field: Field,
  value: string | undefined,
  changed: (value: string | undefined) => void,
): HTMLElement {
  const label = field.name.replace(/_/g, ' ');
  const fallback = field.default === 'None' ? null : field.default;
  if (field.type === 'choice')
    return select(
      label,
      { '': field.choices.map((word) => ({ value: word, title: word })) },
      value ?? fallback ?? field.choices[0]!,
      changed,
      field.sentence,
      field.name,
    );
  if (field.type === 'flag')
    return flag(
      label,
      (value ?? (fallback === 'True' ? 'true' : 'false')) === 'true',
      (on) => changed(on ? 'true' : 'false'),
      field.sentence,
      field.name,
    );
  const number = Number(value ?? fallback);
  if (
    field.slider &&
    (field.type === 'int' || field.type === 'real') &&
    fallback !== null &&
    Number.isFinite(number)
  )
    return slider({
      label,
      value: number,
      range: field.slider,
      whole: field.type === 'int',
      help: field.sentence,
      name: field.name,
      changed: (next) => changed(String(next)),
    });
  const input = element('input', {
    type: 'text',
    name: field.name,
    value: value ?? '',
    placeholder: fallback ?? 'none',
    inputmode: 'decimal',
  });
  input.addEventListener('change', () => changed(input.value.trim() || undefined));
  return labelled(label, input, field.sentence);
}
