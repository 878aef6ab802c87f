// The twelve steps, in order. Numbers come from the core; only the papers' own measurements
// are written in the steps, with their source.
import { binary, shift, sines, theIndex } from './added';
import { alibi } from './bias';
import { choosing } from './choosing';
import { expansion } from './expansion';
import { pastLength, stretching } from './length';
import { clocks, rope } from './rotation';
import type { Step } from './stage';
import { whyPosition } from './why';

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
