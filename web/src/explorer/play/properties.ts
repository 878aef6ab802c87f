// The table of what was measured.
import { element } from '../../dom';
import { short } from '../../format';
import type { Property } from '../core';

const VERDICTS = { yes: 'yes', no: 'no', 'does not apply': '–' };

export function propertyTable(names: string[], reports: Property[][]): HTMLElement {
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
    { class: reports.length === 1 ? 'properties alone' : 'properties' },
    element('caption', {}, 'Measured now, on random tokens: the verdict and the number behind it'),
    element(
      'thead',
      {},
      element('tr', {}, ...head.map((title) => element('th', { scope: 'col' }, title))),
    ),
    element('tbody', {}, ...rows),
  );
}
