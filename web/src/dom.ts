// The few DOM helpers that every figure uses.
type Child = Node | string;

/** A new element with attributes and children. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Draws a chart into `box` now, when `redraw` is called, and when its width changes. */
export function drawToFit(box: HTMLElement, draw: (width: number) => SVGSVGElement): () => void {
  let drawn = 0;
  const redraw = () => {
    drawn = Math.floor(box.clientWidth);
    if (drawn === 0) return;
    const svg = draw(drawn);
    svg.setAttribute('role', 'img');
    box.replaceChildren(svg);
  };
  new ResizeObserver(() => {
    if (Math.floor(box.clientWidth) !== drawn) requestAnimationFrame(redraw);
  }).observe(box);
  redraw();
  return redraw;
}

/** Buttons of which one is pressed. Nothing to choose: undefined. */
export function choice<T>(
  label: string,
  options: { value: T; title: string }[],
  chosen: (value: T) => void,
): HTMLElement | undefined {
  if (options.length < 2) return undefined;
  const buttons = options.map(({ value, title }, index) => {
    const button = element(
      'button',
      { type: 'button', 'aria-pressed': String(index === 0) },
      title,
    );
    button.addEventListener('click', () => {
      for (const other of buttons) other.setAttribute('aria-pressed', String(other === button));
      chosen(value);
    });
    return button;
  });
  return element('div', { class: 'choice', role: 'group', 'aria-label': label }, ...buttons);
}
