// The last answer to each kind of question: most sliders change a few questions of many.
import type { Lane } from '../core';

export class Memo {
  private readonly last = new Map<string, { text: string; answer: Promise<unknown> }>();

  /** The answer to `question`; asked only if the one before in this `place` was another. */
  ask<T>(place: string, lane: Lane, question: object): Promise<T> {
    const text = JSON.stringify(question);
    const known = this.last.get(place);
    if (known?.text === text) return known.answer as Promise<T>;
    const answer = lane.ask<T>(question);
    this.last.set(place, { text, answer });
    return answer;
  }

  /** Whether what was asked last in this `place` is another question. */
  isOther(place: string, question: object): boolean {
    const known = this.last.get(place);
    return known !== undefined && known.text !== JSON.stringify(question);
  }

  forget(place: string): void {
    this.last.delete(place);
  }
}
