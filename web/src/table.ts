// Makes the tables of the page sortable, by mouse and by keyboard: the title of a
// column becomes a button.
import { element } from './dom';

type Direction = 'ascending' | 'descending';

/** What a cell sorts by: its number in a column of numbers, else its text. */
function keyOf(row: HTMLTableRowElement, column: number, numeric: boolean): number | string {
  const cell = row.cells[column];
  if (!numeric) return (cell?.textContent ?? '').trim().toLowerCase();
  const value = cell?.dataset.value;
  return value === undefined || value === '' ? NaN : Number(value);
}

/** Rows without a number come last in both directions; equals keep their order. */
function compare(a: number | string, b: number | string, sign: number): number {
  if (typeof a === 'string' || typeof b === 'string') {
    return sign * String(a).localeCompare(String(b), 'en');
  }
  const missing = Number(Number.isNaN(a)) - Number(Number.isNaN(b));
  if (missing !== 0 || Number.isNaN(a)) return missing;
  return sign * (a - b);
}

export function sortRows(table: HTMLTableElement, column: number, direction: Direction): void {
  const body = table.tBodies[0]!;
  const headers = [...table.tHead!.rows[0]!.cells];
  const numeric = headers[column]!.classList.contains('number');
  const sign = direction === 'ascending' ? 1 : -1;
  const rows = [...body.rows].map((row) => ({ row, key: keyOf(row, column, numeric) }));
  rows.sort((a, b) => compare(a.key, b.key, sign));
  body.append(...rows.map(({ row }) => row));
  headers.forEach((header, index) => {
    if (index === column) header.setAttribute('aria-sort', direction);
    else header.removeAttribute('aria-sort');
  });
}

export function makeSortable(table: HTMLTableElement): void {
  const headers = [...(table.tHead?.rows[0]?.cells ?? [])];
  headers.forEach((header, column) => {
    const button = element('button', { type: 'button' }, ...header.childNodes);
    button.addEventListener('click', () => {
      const up = header.getAttribute('aria-sort') === 'ascending';
      sortRows(table, column, up ? 'descending' : 'ascending');
    });
    header.replaceChildren(button);
  });
}

/** A box that scrolls sideways can be reached and moved by keyboard. */
export function makeScrollable(box: HTMLElement): void {
  const update = () => {
    const caption = box.querySelector('caption')?.textContent ?? 'Table';
    if (box.scrollWidth > box.clientWidth) {
      box.tabIndex = 0;
      box.setAttribute('role', 'region');
      box.setAttribute('aria-label', caption);
    } else {
      for (const name of ['tabindex', 'role', 'aria-label']) box.removeAttribute(name);
    }
  };
  new ResizeObserver(update).observe(box);
  update();
}
