// What Play shows, and its form in the address.
import type { Info } from '../core';

export interface Choice {
  encoding: string;
  options: Record<string, string>; // what differs from the trained table, or from the defaults
}

export interface State {
  sides: Choice[]; // one or two
  heads: number;
  dim: number;
  length: number;
  seed: number;
  head: number;
  content: 'matching' | 'random' | 'none';
  causal: boolean;
  weights: boolean;
  trained: boolean; // tables as the lab trained them, where there are any
  m: number;
  n: number;
}

export const START: State = {
  sides: [{ encoding: 'rope', options: {} }],
  // The sizes of the trained tables.
  heads: 4,
  dim: 32,
  length: 64,
  seed: 1,
  head: 1,
  content: 'matching',
  causal: false,
  weights: false,
  trained: true,
  m: 40,
  n: 30,
};

/** Tokens of the matrix: more cannot be told apart on a screen. */
export const MOST_TOKENS = 96;
export const NUMBERS = ['heads', 'dim', 'length', 'seed', 'head', 'm', 'n'] as const;

/** "#play?a=rope&a.base=500&length=256". */
export function writeState(state: State): string {
  const query = new URLSearchParams();
  state.sides.forEach(({ encoding, options }, side) => {
    const name = 'ab'[side]!;
    query.set(name, encoding);
    for (const [option, value] of Object.entries(options)) query.set(`${name}.${option}`, value);
  });
  for (const name of NUMBERS) if (state[name] !== START[name]) query.set(name, String(state[name]));
  if (state.content !== START.content) query.set('content', state.content);
  if (state.causal) query.set('causal', '1');
  if (state.weights) query.set('weights', '1');
  if (!state.trained) query.set('trained', '0');
  return `#play?${query}`;
}

export function readState(hash: string, known: Info[]): State {
  const query = new URLSearchParams(hash.split('?')[1] ?? '');
  const state: State = { ...START, sides: [] };
  for (const name of ['a', 'b']) {
    const info = known.find((one) => one.name === query.get(name));
    if (!info) continue;
    const options: Record<string, string> = {};
    for (const { name: option } of info.example_options) {
      const value = query.get(`${name}.${option}`);
      if (value !== null) options[option] = value;
    }
    state.sides.push({ encoding: info.name, options });
  }
  if (state.sides.length === 0) state.sides = [{ encoding: 'rope', options: {} }];
  for (const name of NUMBERS) {
    const value = Number(query.get(name) ?? START[name]);
    if (Number.isInteger(value) && value >= 0) state[name] = value;
  }
  const content = query.get('content');
  if (content === 'random' || content === 'none') state.content = content;
  state.causal = query.get('causal') === '1';
  state.weights = query.get('weights') === '1';
  state.trained = query.get('trained') !== '0';
  return state;
}
